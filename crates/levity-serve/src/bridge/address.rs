//! Addresses of bridge hosts. Only `ws://ADDRESS:PORT` is accepted, and only on the loopback unless
//! the caller allows remote hosts, because the connection is not encrypted. The default port is
//! 8888.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::error::{Error, Result};

/// The address of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// A name or an IP address, without the brackets of IPv6.
    pub(super) host: String,
    pub(super) port: u16,
    url: String,
}

impl Address {
    /// Parses a URL such as `ws://127.0.0.1:8888`. User information, paths and queries are
    /// rejected.
    pub(super) fn parse(url: &str, remote: bool) -> Result<Self> {
        let invalid_url = |reason: &str| {
            Error::invalid(format!(
                "the host's URL must be like `ws://127.0.0.1:8888`: {reason}"
            ))
        };
        let rest = match url.split_once("://") {
            Some(("ws", rest)) => rest,
            Some(("wss", _)) => {
                return Err(invalid_url(
                    "TLS is not supported; use a tunnel such as `ssh -L` to reach a host on \
                        another machine",
                ));
            }
            _ => return Err(invalid_url("it does not begin with `ws://`")),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() || authority.contains(['@', '?', '#', ' ']) {
            return Err(invalid_url("only an address and a port may follow `ws://`"));
        }
        let (host, port) = match authority
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
        {
            Some((host, port)) => (host, port.strip_prefix(':').unwrap_or(port)),
            None => authority.rsplit_once(':').unwrap_or((authority, "")),
        };
        let port = match port {
            "" => 8888,
            port => port
                .parse()
                .map_err(|_| invalid_url("its port is not a number up to 65535"))?,
        };
        let name =
            |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(name) {
            return Err(invalid_url("its address is invalid"));
        }
        if !remote && !is_loopback(host) {
            let reason = "it is on another machine, and the connection is not encrypted; use a \
                tunnel such as `ssh -L`, or allow remote hosts explicitly";
            return Err(invalid_url(reason));
        }
        let shown = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            url: format!("ws://{shown}:{port}/"),
        })
    }

    /// Returns the address and the port, as in a `Host` header.
    pub(super) fn authority(&self) -> &str {
        self.url.trim_start_matches("ws://").trim_end_matches('/')
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse()
            .is_ok_and(|address: Ipv4Addr| address.is_loopback())
        || host
            .parse()
            .is_ok_and(|address: Ipv6Addr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: Option<&str>) {
        let found = Address::parse(url, false)
            .ok()
            .map(|address| address.to_string());
        assert_eq!(found.as_deref(), expected, "{url}");
    }

    #[test]
    fn parse_accepts_remote_hosts_only_if_allowed() {
        check("ws://127.0.0.1:8888", Some("ws://127.0.0.1:8888/"));
        check("ws://localhost", Some("ws://localhost:8888/"));
        check("ws://[::1]:1/", Some("ws://[::1]:1/"));
        for url in [
            "",
            "http://127.0.0.1",
            "wss://127.0.0.1",
            "ws://",
            "ws://10.0.0.1:8888",
            "ws://localhost.example:8888",
            "ws://localhost@example:8888",
            "ws://127.0.0.1:99999",
            "ws://127.0.0.1/path",
            "ws://127.0.0.1\r\nx:1",
        ] {
            check(url, None);
        }
        assert!(Address::parse("ws://10.0.0.1:8888", true).is_ok());
    }
}
