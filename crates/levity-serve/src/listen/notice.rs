use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::error::{Error, Result};

/// What the operator of a server should know about its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenNotice {
    /// A client showed a wrong token. It is reported for the 1st, 10th, 100th, .. of an address
    /// within a minute.
    WrongTokens {
        /// Where the client is.
        address: IpAddr,
        /// How many there were within a minute.
        count: u32,
    },
    /// Connections that had shown no token were closed to make room. It is reported for the 1st,
    /// 10th, 100th, ..
    Crowded {
        /// Where the connection comes from that needed room.
        address: IpAddr,
        /// How many were closed since the server was started.
        closed: usize,
    },
}

impl fmt::Display for ListenNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongTokens { address, count: 1 } => {
                write!(f, "a client at {address} showed a wrong token")
            }
            Self::WrongTokens { address, count } => {
                write!(
                    f,
                    "clients at {address} showed {count} wrong tokens within a minute"
                )
            }
            Self::Crowded { address, closed } => write!(
                f,
                "{closed} connections without a token were closed to make room; the last one for \
                    {address}"
            ),
        }
    }
}

/// Checks that a server which other machines can reach is encrypted, or that its operator allows
/// plain text.
///
/// Returns what to warn the operator of, if anything.
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
/// When other machines can reach the address, connections are not encrypted, and `allow_plaintext`
/// is false.
pub fn check_exposure(
    address: SocketAddr,
    encrypted: bool,
    allow_plaintext: bool,
) -> Result<Option<String>> {
    if encrypted || address.ip().to_canonical().is_loopback() {
        return Ok(None);
    }
    let what = format!(
        "{address} can be reached from other machines without encryption: whoever is on the way \
            reads tokens and all that is said"
    );
    match allow_plaintext {
        true => Ok(Some(format!(
            "{what}; put a proxy with TLS before it, or give it a certificate"
        ))),
        false => Err(Error::setting(
            "listen",
            format!(
                "{what}; give `--tls-cert` and `--tls-key`, listen on 127.0.0.1, or say \
                    `--allow-plaintext` where a proxy encrypts"
            ),
        )),
    }
}
