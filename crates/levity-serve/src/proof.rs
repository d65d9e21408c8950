//! Proves that one has a token, without sending it.
//!
//! A client that sends its token shows it to whatever process listens at the port. Here both sides
//! prove that they have it, the server first:
//!
//! ```text
//! client                                                server
//! GET /challenge?client=NONCE                     ->
//!                                                 <-    {"server": NONCE, "proof": HMAC(token, "server", to, nonces)}
//! Authorization: Levity-Proof CLIENT SERVER HMAC(token, "client", to, nonces)  ->
//! ```
//!
//! `to` is the address at which the client reached the server. A process in between that passes
//! everything on listens at another address, so its proofs do not fit.

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
/// Where a server answers challenges.
pub(crate) const PATH: &str = "/challenge";

/// How long a nonce of the server's can be used, in milliseconds.
const LIFE: u64 = 30_000;
/// How many used nonces are remembered; each is forgotten after its time.
const REMEMBERED: usize = 4096;
/// The bytes of a nonce that are random.
const RANDOM: usize = 16;

/// The nonces of both sides, and where they met.
pub(crate) struct Exchange<'a> {
    pub(crate) to: SocketAddr,
    pub(crate) client: &'a str,
    pub(crate) server: &'a str,
}

impl Exchange<'_> {
    /// The proof of a server that has the token.
    pub(crate) fn server_proof(&self, token: &Token) -> String {
        self.proof(token, "server")
    }

    /// The header of a client that has the token.
    pub(crate) fn authorization(&self, token: &Token) -> String {
        format!(
            "{SCHEME} {} {} {}",
            self.client,
            self.server,
            self.proof(token, "client")
        )
    }

    /// Whether `proof` is one of a server that has the token.
    pub(crate) fn is_of_server(&self, token: &Token, proof: &str) -> bool {
        self.fits(token, "server", proof)
    }

    fn proof(&self, token: &Token, role: &str) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&key(token), self.text(role).as_bytes()))
    }

    fn fits(&self, token: &Token, role: &str, proof: &str) -> bool {
        let proof = URL_SAFE_NO_PAD.decode(proof).unwrap_or_default();
        hmac::verify(&key(token), self.text(role).as_bytes(), &proof).is_ok()
    }

    fn text(&self, role: &str) -> String {
        let Self { to, client, server } = self;
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        format!("levity proof 1\n{role}\n{to}\n{client}\n{server}")
    }
}

fn key(token: &Token) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.reveal().as_bytes())
}

/// A nonce that occurs once; none where the system has no randomness.
pub(crate) fn nonce() -> Option<String> {
    let mut bytes = [0; RANDOM];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

/// Whether a text can be a nonce of a client's.
pub(crate) fn is_nonce(text: &str) -> bool {
    (16..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Answers challenges, and checks the proofs of clients. It keeps nothing of clients that do not
/// come back.
pub(crate) struct Challenger {
    seal: hmac::Key,
    used: Mutex<VecDeque<(u64, String)>>,
}

impl Challenger {
    /// None where the system has no randomness.
    pub(crate) fn new() -> Option<Self> {
        let seal = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok()?;
        Some(Self {
            seal,
            used: Mutex::default(),
        })
    }

    /// A nonce for a client, made at `now` (in milliseconds).
    pub(crate) fn nonce(&self, now: u64) -> Option<String> {
        let body = format!("{}.{now}", nonce()?);
        let tag = URL_SAFE_NO_PAD.encode(hmac::sign(&self.seal, body.as_bytes()));
        Some(format!("{body}.{tag}"))
    }

    /// Whether the header of a client that reached us at `to` proves that it has the token. Each
    /// nonce proves it once.
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
        let Some(made) = self.made(server) else {
            return false;
        };
        let fresh = now.abs_diff(made) <= LIFE;
        fresh
            && is_nonce(client)
            && Exchange { to, client, server }.fits(token, "client", proof)
            && self.use_up(server, now)
    }

    /// When a nonce of ours was made.
    fn made(&self, nonce: &str) -> Option<u64> {
        let (body, tag) = nonce.rsplit_once('.')?;
        hmac::verify(
            &self.seal,
            body.as_bytes(),
            &URL_SAFE_NO_PAD.decode(tag).ok()?,
        )
        .ok()?;
        body.rsplit_once('.')?.1.parse().ok()
    }

    fn use_up(&self, nonce: &str, now: u64) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while used
            .front()
            .is_some_and(|(at, _)| now.saturating_sub(*at) > 2 * LIFE)
        {
            used.pop_front();
        }
        if used.len() >= REMEMBERED || used.iter().any(|(_, known)| known == nonce) {
            return false;
        }
        used.push_back((now, nonce.to_owned()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "127.0.0.1:8888";

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
    fn proof_is_accepted_once_at_the_address_it_was_made_for() {
        let (challenger, token) = (Challenger::new().unwrap(), token());
        let accepts = |header: &str, to: &str, now| {
            challenger.accepts(&token, header, to.parse().unwrap(), now)
        };
        let server = challenger.nonce(1000).unwrap();
        let good = header(&server, HOME, &token);
        assert!(!good.contains(token.reveal()));
        assert!(
            !accepts(&good, "127.0.0.1:9999", 1000),
            "passed on from another port"
        );
        assert!(
            !accepts(&good, "[::1]:8888", 1000),
            "passed on from another address"
        );
        assert!(!accepts(&good, HOME, 1001 + LIFE), "too late");
        assert!(accepts(&good, HOME, 2000));
        assert!(!accepts(&good, HOME, 2000), "a second time");
    }

    #[test]
    fn proof_that_was_made_up_is_refused() {
        let (challenger, token) = (Challenger::new().unwrap(), token());
        let other = Token::new("fedcba9876543210").unwrap();
        let accepts =
            |header: &str| challenger.accepts(&token, header, HOME.parse().unwrap(), 1000);
        let server = challenger.nonce(1000).unwrap();
        let exchange = Exchange {
            to: HOME.parse().unwrap(),
            client: "client-nonce-0001",
            server: &server,
        };
        let wrong_role = format!(
            "{SCHEME} client-nonce-0001 {server} {}",
            exchange.server_proof(&token)
        );
        let strange = Challenger::new().unwrap().nonce(1000).unwrap();
        let good = header(&server, HOME, &token);
        for (header, why) in [
            (header(&server, HOME, &other), "another token"),
            (wrong_role, "the server's own proof sent back"),
            (header(&strange, HOME, &token), "a nonce of another server"),
            (header("x.1000.y", HOME, &token), "a nonce of nobody"),
            (good.replace(SCHEME, "Bearer"), "another scheme"),
            (format!("{good} x"), "a word too many"),
            (SCHEME.to_owned(), "no proof"),
            (format!("{SCHEME} a b c"), "short words"),
            (String::new(), "nothing"),
        ] {
            assert!(!accepts(&header), "{why}");
        }
        assert!(accepts(&good));
    }

    #[test]
    fn server_proves_itself_by_the_same_token_and_nonces() {
        let (token, other) = (token(), Token::new("fedcba9876543210").unwrap());
        let to = HOME.parse().unwrap();
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
            .is_of_server(&token, &proof)
        );
        for (client, server, token) in [
            ("client-nonce-0002", "s", &token),
            ("client-nonce-0001", "t", &token),
            ("client-nonce-0001", "s", &other),
        ] {
            assert!(
                !Exchange { to, client, server }.is_of_server(token, &proof),
                "{client} {server}"
            );
        }
    }
}
