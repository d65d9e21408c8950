//! Notices about connections, and the check for servers that the network can reach.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::error::{Error, Result};

/// A notice for the operator of a server about its connections or its access log.
///
/// Notices are rare by design: they are reported once or at powers of ten, so that an attack
/// produces a few lines and not a full disk.
///
/// ```
/// use levity_serve::ListenNotice;
/// let notice = ListenNotice::WrongTokens { address: "10.0.0.7".parse().unwrap(), count: 10 };
/// assert_eq!(
///     notice.to_string(),
///     "clients at 10.0.0.7 presented 10 invalid tokens within a minute"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenNotice {
    /// A client presented an invalid token. Reported for the 1st, 10th, 100th, .. one of an address
    /// within a minute.
    WrongTokens {
        /// The address of the client.
        address: IpAddr,
        /// The number of invalid tokens within a minute.
        count: u32,
    },
    /// Unauthenticated connections were closed to make room. Reported for the 1st, 10th, 100th, ..
    /// one.
    ConnectionsClosed {
        /// The address of the connection that needed room.
        address: IpAddr,
        /// The number of connections closed since the server started.
        closed: usize,
    },
    /// The access log could not be rotated or written. Each of the two is reported once.
    AccessLog {
        /// The problem and how to fix it.
        problem: String,
    },
}

impl fmt::Display for ListenNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongTokens { address, count: 1 } => {
                write!(f, "a client at {address} presented an invalid token")
            }
            Self::WrongTokens { address, count } => {
                write!(
                    f,
                    "clients at {address} presented {count} invalid tokens within a minute"
                )
            }
            Self::ConnectionsClosed { address, closed } => write!(
                f,
                "closed {closed} connections without a token to make room, most recently for \
                    {address}"
            ),
            Self::AccessLog { problem } => f.write_str(problem),
        }
    }
}

/// Checks that a server which other machines can reach is encrypted, or that its operator allows
/// plain text.
///
/// Returns a warning for the operator, if there is one.
///
/// ```
/// use levity_serve::check_exposure;
/// assert!(check_exposure("127.0.0.1:80".parse().unwrap(), false, false).unwrap().is_none());
/// assert!(check_exposure("0.0.0.0:80".parse().unwrap(), false, false).is_err());
/// assert!(check_exposure("0.0.0.0:80".parse().unwrap(), false, true).unwrap().is_some());
/// assert!(check_exposure("0.0.0.0:443".parse().unwrap(), true, false).unwrap().is_none());
/// ```
///
/// # Errors
/// Fails if other machines can reach the address, connections are not encrypted, and
/// `allow_plaintext` is false.
pub fn check_exposure(
    address: SocketAddr,
    encrypted: bool,
    allow_plaintext: bool,
) -> Result<Option<String>> {
    if encrypted || address.ip().to_canonical().is_loopback() {
        return Ok(None);
    }
    let what = format!(
        "{address} is reachable from other machines without encryption, so the network can read \
            tokens and all messages"
    );
    match allow_plaintext {
        true => Ok(Some(format!(
            "{what}; put a TLS proxy in front of it, or configure a certificate"
        ))),
        false => Err(Error::setting(
            "listen",
            format!(
                "{what}; set `--tls-cert` and `--tls-key`, listen on 127.0.0.1, or pass \
                    `--allow-plaintext` if a proxy encrypts"
            ),
        )),
    }
}
