//! Seals data that goes to a client and must return unchanged.
//!
//! A ticket is 20 bytes and an HMAC of 32 bytes, in base64. The key is random and stays in memory,
//! so tickets of an earlier process are invalid; the calls that they name ended with it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;

/// A random key that exists only as long as the server.
pub(super) struct Seal(hmac::Key);

/// Identifies a call, and its round of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) id: u128,
    pub(super) round: u32,
}

const BODY: usize = 20;

impl Seal {
    /// Creates a key; `None` if the system has no randomness.
    pub(super) fn new() -> Option<Self> {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .ok()
            .map(Self)
    }

    pub(super) fn seal(&self, ticket: Ticket) -> String {
        let mut bytes = Vec::with_capacity(BODY + 32);
        bytes.extend(ticket.id.to_be_bytes());
        bytes.extend(ticket.round.to_be_bytes());
        let tag = hmac::sign(&self.0, &bytes);
        bytes.extend(tag.as_ref());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns the ticket, if this server sealed it.
    pub(super) fn open(&self, state: &str) -> Option<Ticket> {
        let bytes = URL_SAFE_NO_PAD.decode(state).ok()?;
        let (body, tag) = bytes.split_at_checked(BODY)?;
        hmac::verify(&self.0, body, tag).ok()?;
        let (id, round) = body.split_at_checked(16)?;
        let id = u128::from_be_bytes(id.try_into().ok()?);
        Some(Ticket {
            id,
            round: u32::from_be_bytes(round.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_accepts_only_unmodified_sealed_tickets() {
        let seal = Seal::new().unwrap();
        let ticket = Ticket { id: 7, round: 2 };
        let state = seal.seal(ticket);
        assert_eq!(seal.open(&state), Some(ticket));
        let mut changed = state.clone();
        changed.replace_range(..1, if state.starts_with('B') { "C" } else { "B" });
        for bad in [
            &*changed,
            "",
            "x",
            &state[1..],
            &format!("{state}-TAMPERED"),
            &"A".repeat(10_000),
        ] {
            assert_eq!(seal.open(bad), None, "{bad}");
        }
        assert_eq!(
            Seal::new().unwrap().open(&state),
            None,
            "another server's key"
        );
    }
}
