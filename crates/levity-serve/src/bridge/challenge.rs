//! Has a host prove that it is the one with the token, before it is told anything.

use http::StatusCode;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::address::Address;
use super::error::{Error, ErrorKind, Result};
use crate::proof;

/// The longest head and body of an answer.
const LONGEST_HEAD: usize = 8 << 10;
const LONGEST_BODY: usize = 4 << 10;

/// What a host says to a challenge.
#[derive(Deserialize)]
pub(super) struct Answer {
    pub(super) server: String,
    pub(super) proof: String,
}

/// Challenges what listens at the other end; the connection can be used for another request
/// afterwards.
pub(super) async fn ask(stream: &mut TcpStream, address: &Address, client: &str) -> Result<Answer> {
    let gone = |_| stranger(address);
    let request = format!(
        "GET {}?client={client} HTTP/1.1\r\nHost: {}\r\n\r\n",
        proof::PATH,
        address.authority()
    );
    stream.write_all(request.as_bytes()).await.map_err(gone)?;
    let head = head(stream).await.ok_or_else(|| stranger(address))?;
    let (status, length) = parsed(&head).ok_or_else(|| stranger(address))?;
    if status != StatusCode::OK {
        return Err(refused(address, status));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.map_err(gone)?;
    serde_json::from_slice(&body).map_err(|_| stranger(address))
}

/// The head of an answer, and not a byte more.
async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= LONGEST_HEAD {
            return None;
        }
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// The status of an answer and the length of its body.
fn parsed(head: &str) -> Option<(StatusCode, usize)> {
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.unwrap_or(0);
    (length <= LONGEST_BODY).then_some((status.parse().ok()?, length))
}

/// What a host's refusal means, and what to do about it.
pub(super) fn refused(address: &Address, status: StatusCode) -> Error {
    let (kind, words) = match status {
        StatusCode::UNAUTHORIZED => (
            ErrorKind::Unauthorized,
            format!(
                "the host at {address} does not accept the proof of the token; give the bridge the \
                    token that the host printed when it was made: by `--token-file`, or \
                    `LEVITY_BRIDGE_TOKEN`. A host that is reached by another address than its own \
                    must be started with `--allow-host`"
            ),
        ),
        StatusCode::FORBIDDEN => (
            ErrorKind::Unauthorized,
            format!(
                "the host at {address} is not known by that name; call it by `127.0.0.1` or \
                    `localhost`, or start it with `--allow-host`"
            ),
        ),
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => (
            ErrorKind::Full,
            format!("the host at {address} has no room for another client; try again"),
        ),
        status => (
            ErrorKind::Absent,
            format!(
                "what answers at {address} is no bridge host, or an older one ({status}); name \
                    where it is with `--url`"
            ),
        ),
    };
    Error::new(kind, words)
}

/// The error for something that does not speak as a host does.
pub(super) fn stranger(address: &Address) -> Error {
    let words = format!(
        "something else than a bridge host answers at {address}; name where it is with `--url`"
    );
    Error::new(ErrorKind::Absent, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_of_an_answer_is_read_or_refused() {
        let check = |head: &str, expected: Option<(u16, usize)>| {
            let found = parsed(head).map(|(status, length)| (status.as_u16(), length));
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
