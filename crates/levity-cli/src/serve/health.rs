//! `levity serve health`: checks that a server answers.
//!
//! An image without other programs uses it as its health check. It sends one request to
//! `/v1/health`, which needs no token, over a plain TCP connection. A server with its own
//! certificate is checked from outside instead, because only its clients know the name in it.
//!
//! The option is named like that of `levity serve http`, so one setting or variable applies to
//! both. Exit codes: 0 if the server answers, 1 if not.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::terminal::report_error;

/// The time limit for the connection, and for each read and write.
const LIMIT: Duration = Duration::from_secs(3);

/// The size limit of an answer. The answer of a server is shorter than 1 KiB.
const MAX_ANSWER: u64 = 16 * 1024;

/// The arguments of `levity serve health`.
#[derive(Args)]
pub(super) struct Health {
    /// Address on which the server listens. `0.0.0.0` and `[::]` mean this machine.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787")]
    listen: String,
}

/// Checks the server: 0 if it answers, 1 if not.
///
/// Nothing is printed if the server answers, because containers store the output of each check. An
/// answer of another program, or of a server with a certificate, is a failure with its own message.
pub(super) fn health(args: &Health) -> ExitCode {
    let address = &args.listen;
    match ask(address) {
        Ok(answer) if answer.starts_with("HTTP/1.1 200 ") => ExitCode::SUCCESS,
        Ok(_) => report_error(
            &format!(
                "the server at `{address}` is not a healthy `levity serve http`; read its messages"
            ),
            1,
        ),
        Err(error) => report_error(
            &format!("no server answers at `{address}`: {error}; is `levity serve http` running?"),
            1,
        ),
    }
}

/// Requests the health of the server, and returns the head and the body of the answer.
///
/// A name with several addresses is asked at each of them until one accepts the connection.
///
/// # Errors
/// The name has no address, no connection is accepted within the limit, or the server closes it
/// without an answer in time.
fn ask(address: &str) -> io::Result<String> {
    let none = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut stream = Err(none);
    for found in address.to_socket_addrs()? {
        stream = TcpStream::connect_timeout(&reachable(found), LIMIT);
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    // Each server accepts this host, because it is a name of the loopback interface.
    stream.write_all(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Returns the address of this machine for an address that means all its interfaces.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
