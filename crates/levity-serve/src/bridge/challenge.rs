//! Makes a host prove that it has the token before the client sends anything else.
//!
//! The exchange is one plain HTTP request on the same connection that later becomes the WebSocket,
//! so that nobody can take over in between. The response is read byte by byte up to its end,
//! because the bytes after it belong to the next response. Sizes are limited: another program may
//! listen at that port.

use http::StatusCode;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::address::Address;
use super::error::{Error, ErrorKind, Result};
use crate::proof;

/// The maximum sizes of the head and the body of a response.
const MAX_HEAD: usize = 8 << 10;
const MAX_BODY: usize = 4 << 10;

/// The response of a host to a challenge.
#[derive(Deserialize)]
pub(super) struct Answer {
    pub(super) server: String,
    pub(super) proof: String,
}

/// Challenges the process at the other end. The connection can then be used for another request.
pub(super) async fn ask(stream: &mut TcpStream, address: &Address, client: &str) -> Result<Answer> {
    let lost = |_| not_a_host(address);
    let request = format!(
        "GET {}?client={client} HTTP/1.1\r\nHost: {}\r\n\r\n",
        proof::PATH,
        address.authority()
    );
    stream.write_all(request.as_bytes()).await.map_err(lost)?;
    let head = head(stream).await.ok_or_else(|| not_a_host(address))?;
    let (status, length) = parse_head(&head).ok_or_else(|| not_a_host(address))?;
    if status != StatusCode::OK {
        return Err(rejection_error(address, status));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.map_err(lost)?;
    serde_json::from_slice(&body).map_err(|_| not_a_host(address))
}

/// Reads the head of a response, and not a byte more.
async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            return None;
        }
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// Parses the status of a response and the length of its body.
fn parse_head(head: &str) -> Option<(StatusCode, usize)> {
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.unwrap_or(0);
    (length <= MAX_BODY).then_some((status.parse().ok()?, length))
}

/// Converts a host's rejection into an error with the next step.
pub(super) fn rejection_error(address: &Address, status: StatusCode) -> Error {
    let (kind, message) = match status {
        StatusCode::UNAUTHORIZED => (
            ErrorKind::Unauthorized,
            format!(
                "the host at {address} rejects the token; pass the token that the host printed \
                    when it was created, with `--token-file` or `LEVITY_BRIDGE_TOKEN`; if you \
                    reach the host at another address than its own, start it with `--allow-host`"
            ),
        ),
        StatusCode::FORBIDDEN => (
            ErrorKind::Unauthorized,
            format!(
                "the host at {address} does not accept that name; use `127.0.0.1` or `localhost`, \
                    or start it with `--allow-host`"
            ),
        ),
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => (
            ErrorKind::Full,
            format!("the host at {address} has reached its limit of clients; try again later"),
        ),
        status => (
            ErrorKind::Absent,
            format!(
                "the server at {address} is not a bridge host, or an older one ({status}); set the \
                    address of the host with `--url`"
            ),
        ),
    };
    Error::new(kind, message)
}

/// Returns the error for a process that is not a bridge host.
pub(super) fn not_a_host(address: &Address) -> Error {
    let message = format!(
        "the server at {address} is not a bridge host; set the address of the host with `--url`"
    );
    Error::new(ErrorKind::Absent, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_head_accepts_only_short_http_responses() {
        let check = |head: &str, expected: Option<(u16, usize)>| {
            let found = parse_head(head).map(|(status, length)| (status.as_u16(), length));
            assert_eq!(found, expected, "{head}");
        };
        check(
            "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n",
            Some((200, 12)),
        );
        check("HTTP/1.1 404 Not Found\r\n\r\n", Some((404, 0)));
        check("HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", None);
        check("HTTP/1.1 2\r\n\r\n", None);
        check("HTTP/1.0 200 OK\r\n\r\n", None);
        check("SSH-2.0-OpenSSH\r\n\r\n", None);
        check("", None);
    }
}
