//! Proves possession of a token without sending it.
//!
//! A client that sends its token reveals it to whatever process listens at the port. Here both
//! sides prove that they have the token, the server first:
//!
//! ```text
//! client                                                server
//! GET /challenge?client=NONCE                     ->
//!                    <-    {"server": NONCE, "proof": HMAC(token, "server", to, nonces)}
//! Authorization: Levity-Proof CLIENT SERVER HMAC(token, "client", to, nonces)  ->
//! ```
//!
//! `to` is the address at which the client reached the server. A process in between that forwards
//! everything listens at another address, so its proofs do not match.
//!
//! The server stores nothing when it answers a challenge: its nonce carries the time and an HMAC
//! under a key of this process. A flood of challenges therefore uses no memory. A nonce is
//! remembered only once it was used, for as long as it could be used again.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::token::Token;

/// The scheme of the `Authorization` header.
pub(crate) const SCHEME: &str = "Levity-Proof";
/// The path at which a server answers challenges.
pub(crate) const PATH: &str = "/challenge";

/// The lifetime of a server nonce in milliseconds.
const NONCE_LIFETIME: u64 = 30_000;
/// The maximum number of used nonces that are remembered; each is removed after its lifetime.
const MAX_USED_NONCES: usize = 4096;
/// The number of random bytes in a nonce.
const NONCE_BYTES: usize = 16;

/// The nonces of both sides, and the address at which they met.
pub(crate) struct Exchange<'a> {
    pub(crate) to: SocketAddr,
    pub(crate) client: &'a str,
    pub(crate) server: &'a str,
}

impl Exchange<'_> {
    /// Returns the proof of a server that has the token.
    pub(crate) fn server_proof(&self, token: &Token) -> String {
        self.proof(token, "server")
    }

    /// Returns the `Authorization` header of a client that has the token.
    pub(crate) fn authorization(&self, token: &Token) -> String {
        format!(
            "{SCHEME} {} {} {}",
            self.client,
            self.server,
            self.proof(token, "client")
        )
    }

    /// Returns `true` if `proof` comes from a server that has the token.
    pub(crate) fn is_server_proof(&self, token: &Token, proof: &str) -> bool {
        self.verify(token, "server", proof)
    }

    fn proof(&self, token: &Token, role: &str) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&key(token), self.text(role).as_bytes()))
    }

    fn verify(&self, token: &Token, role: &str, proof: &str) -> bool {
        let proof = URL_SAFE_NO_PAD.decode(proof).unwrap_or_default();
        hmac::verify(&key(token), self.text(role).as_bytes(), &proof).is_ok()
    }

    /// Returns the text under the HMAC. The role is part of it, so that a proof of the server
    /// cannot be sent back as the proof of a client. IPv4 addresses in IPv6 form are normalized,
    /// because the two sides may see different forms.
    fn text(&self, role: &str) -> String {
        let Self { to, client, server } = self;
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        format!("levity proof 1\n{role}\n{to}\n{client}\n{server}")
    }
}

/// Returns the token as an HMAC key. Both sides have it; it is never sent.
fn key(token: &Token) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.reveal().as_bytes())
}

/// Generates a nonce; `None` if the system has no randomness.
pub(crate) fn nonce() -> Option<String> {
    let mut bytes = [0; NONCE_BYTES];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns `true` if a text is a valid client nonce.
pub(crate) fn is_nonce(text: &str) -> bool {
    (16..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Answers challenges and checks the proofs of clients. It stores nothing for clients that do not
/// return.
pub(crate) struct Challenger {
    seal: hmac::Key,
    used: Mutex<VecDeque<(u64, String)>>,
}

impl Challenger {
    /// Creates a challenger; `None` if the system has no randomness.
    pub(crate) fn new() -> Option<Self> {
        let seal = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok()?;
        Some(Self {
            seal,
            used: Mutex::default(),
        })
    }

    /// Generates a nonce for a client at the time `now` (in milliseconds).
    pub(crate) fn nonce(&self, now: u64) -> Option<String> {
        let body = format!("{}.{now}", nonce()?);
        let tag = URL_SAFE_NO_PAD.encode(hmac::sign(&self.seal, body.as_bytes()));
        Some(format!("{body}.{tag}"))
    }

    /// Returns `true` if the header of a client that reached us at `to` proves possession of the
    /// token. Each nonce is accepted once.
    pub(crate) fn accepts(
        &self,
        token: &Token,
        authorization: &str,
        to: SocketAddr,
        now: u64,
    ) -> bool {
        let mut words = authorization.split(' ');
        let (Some(SCHEME), Some(client), Some(server), Some(proof), None) = (
            words.next(),
            words.next(),
            words.next(),
            words.next(),
            words.next(),
        ) else {
            return false;
        };
        let Some(created_at) = self.created_at(server) else {
            return false;
        };
        let fresh = now.abs_diff(created_at) <= NONCE_LIFETIME;
        fresh
            && is_nonce(client)
            && Exchange { to, client, server }.verify(token, "client", proof)
            && self.mark_used(server, now)
    }

    /// Returns the time at which this server created a nonce.
    fn created_at(&self, nonce: &str) -> Option<u64> {
        let (body, tag) = nonce.rsplit_once('.')?;
        hmac::verify(
            &self.seal,
            body.as_bytes(),
            &URL_SAFE_NO_PAD.decode(tag).ok()?,
        )
        .ok()?;
        body.rsplit_once('.')?.1.parse().ok()
    }

    /// Returns `false` if the nonce was used before, or if too many nonces are remembered. A nonce
    /// is fresh for one lifetime before and after its creation, in case the clock is set back, so
    /// used ones are remembered for two lifetimes.
    fn mark_used(&self, nonce: &str, now: u64) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while used
            .front()
            .is_some_and(|(at, _)| now.saturating_sub(*at) > 2 * NONCE_LIFETIME)
        {
            used.pop_front();
        }
        if used.len() >= MAX_USED_NONCES || used.iter().any(|(_, known)| known == nonce) {
            return false;
        }
        used.push_back((now, nonce.to_owned()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "127.0.0.1:8888";

    fn token() -> Token {
        Token::new("0123456789abcdef").unwrap()
    }

    fn header(server: &str, to: &str, token: &Token) -> String {
        let exchange = Exchange {
            to: to.parse().unwrap(),
            client: "client-nonce-0001",
            server,
        };
        exchange.authorization(token)
    }

    #[test]
    fn proof_is_accepted_once_and_only_at_its_address() {
        let (challenger, token) = (Challenger::new().unwrap(), token());
        let accepts = |header: &str, to: &str, now| {
            challenger.accepts(&token, header, to.parse().unwrap(), now)
        };
        let server = challenger.nonce(1000).unwrap();
        let good = header(&server, SERVER, &token);
        assert!(!good.contains(token.reveal()));
        assert!(
            !accepts(&good, "127.0.0.1:9999", 1000),
            "forwarded from another port"
        );
        assert!(
            !accepts(&good, "[::1]:8888", 1000),
            "forwarded from another address"
        );
        assert!(!accepts(&good, SERVER, 1001 + NONCE_LIFETIME), "too late");
        assert!(accepts(&good, SERVER, 2000));
        assert!(!accepts(&good, SERVER, 2000), "a second time");
    }

    #[test]
    fn forged_proof_is_rejected() {
        let (challenger, token) = (Challenger::new().unwrap(), token());
        let other = Token::new("fedcba9876543210").unwrap();
        let accepts =
            |header: &str| challenger.accepts(&token, header, SERVER.parse().unwrap(), 1000);
        let server = challenger.nonce(1000).unwrap();
        let exchange = Exchange {
            to: SERVER.parse().unwrap(),
            client: "client-nonce-0001",
            server: &server,
        };
        let wrong_role = format!(
            "{SCHEME} client-nonce-0001 {server} {}",
            exchange.server_proof(&token)
        );
        let foreign = Challenger::new().unwrap().nonce(1000).unwrap();
        let good = header(&server, SERVER, &token);
        for (header, case) in [
            (header(&server, SERVER, &other), "another token"),
            (wrong_role, "the server's own proof sent back"),
            (
                header(&foreign, SERVER, &token),
                "a nonce of another server",
            ),
            (header("x.1000.y", SERVER, &token), "a made-up nonce"),
            (good.replace(SCHEME, "Bearer"), "another scheme"),
            (format!("{good} x"), "a word too many"),
            (SCHEME.to_owned(), "no proof"),
            (format!("{SCHEME} a b c"), "short words"),
            (String::new(), "nothing"),
        ] {
            assert!(!accepts(&header), "{case}");
        }
        assert!(accepts(&good));
    }

    #[test]
    fn server_proof_is_valid_only_for_its_token_and_nonces() {
        let (token, other) = (token(), Token::new("fedcba9876543210").unwrap());
        let to = SERVER.parse().unwrap();
        let proof = Exchange {
            to,
            client: "client-nonce-0001",
            server: "s",
        }
        .server_proof(&token);
        assert!(
            Exchange {
                to,
                client: "client-nonce-0001",
                server: "s"
            }
            .is_server_proof(&token, &proof)
        );
        for (client, server, token) in [
            ("client-nonce-0002", "s", &token),
            ("client-nonce-0001", "t", &token),
            ("client-nonce-0001", "s", &other),
        ] {
            assert!(
                !Exchange { to, client, server }.is_server_proof(token, &proof),
                "{client} {server}"
            );
        }
    }
}
