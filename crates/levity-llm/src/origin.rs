//! Who made state that is to go back, and who takes it.
//!
//! Sealed reasoning can be opened by the server and the organisation that sealed it, and by models
//! of the same family; ids of stored items, containers and files mean nothing elsewhere. A server
//! refuses a conversation with state that it cannot read, so after a fallback or a change of model
//! every later turn would fail.

use std::borrow::Cow;
use std::sync::Arc;

use levity_core::text::bare_url;
use levity_core::{Message, ProviderState};
use serde_json::Value;

use crate::http::Endpoint;
use crate::names;

/// A server, an account there and a family of models. The server and the account are shown as short
/// numbers, since histories are kept and passed on: neither an address nor a key can be read from
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin(Arc<str>);

/// What state is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    dead_code,
    reason = "a build with one provider alone may bind state in fewer ways"
)]
pub(crate) enum Bound {
    /// The server, the account and the family of models.
    Account,
    /// The server and the family.
    #[allow(dead_code, reason = "only some providers need it")]
    Server,
    /// The family alone, wherever it is served.
    #[allow(dead_code, reason = "only some providers need it")]
    Family,
}

#[allow(dead_code, reason = "not every provider hands out state")]
impl Origin {
    pub(crate) fn new(endpoint: &Endpoint, account: Option<&str>, model: &str) -> Self {
        let short = |text: &str| format!("{:08x}", names::hash(text) & 0xffff_ffff);
        let account = account.map_or_else(|| "-".to_owned(), short);
        Self(
            format!(
                "{} {account} {}",
                short(&authority(endpoint.base())),
                family(model)
            )
            .into(),
        )
    }

    /// What is written down of it.
    pub(crate) fn name(&self) -> Arc<str> {
        self.0.clone()
    }

    /// The state in `opaque`, if it is of this protocol and may go back. State that does not say
    /// who made it may.
    pub(crate) fn data<'a>(
        &self,
        protocol: &str,
        opaque: Option<&'a ProviderState>,
        bound: Bound,
    ) -> Option<&'a Value> {
        let opaque = opaque.filter(|opaque| &*opaque.provider == protocol)?;
        let is_own = opaque
            .origin()
            .is_none_or(|origin| self.is_bound(origin, bound));
        is_own.then_some(&*opaque.data)
    }

    fn is_bound(&self, other: &str, bound: Bound) -> bool {
        let from = match bound {
            Bound::Account => return *self.0 == *other,
            Bound::Server => 0,
            Bound::Family => 2,
        };
        let parts = |origin: &'_ str| -> Vec<String> {
            let parts = origin.splitn(3, ' ').enumerate();
            parts
                .filter(|(at, _)| *at >= from && *at != 1)
                .map(|(_, part)| part.to_owned())
                .collect()
        };
        parts(&self.0) == parts(other)
    }

    /// The name for what is made of a message in the way of `wire`. It depends on who is asked only
    /// where there is state in the message, or in the one before it.
    pub(crate) fn key(
        &self,
        wire: &'static str,
        message: &Message,
        before: Option<&Message>,
    ) -> Cow<'static, str> {
        let has_origin = |message: &Message| {
            message.parts.iter().any(|part| {
                part.opaque()
                    .is_some_and(|opaque| opaque.origin().is_some())
            })
        };
        if has_origin(message) || before.is_some_and(has_origin) {
            Cow::Owned(format!("{wire}, {}", self.0))
        } else {
            Cow::Borrowed(wire)
        }
    }
}

/// The host and port of an address. It is kept in journals, so that no part of it may be a secret.
fn authority(base: &str) -> String {
    let base = bare_url(base);
    let rest = base.split_once("://").map_or(&*base, |(_, rest)| rest);
    rest.split('/')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase()
}

/// The family of a model, as far as its name tells: `claude` of `us.anthropic.claude-opus-4-1`,
/// `gpt` of `openai/gpt-5.2`. Open models of OpenAI's share no state with the others.
fn family(model: &str) -> String {
    let lower = model.to_ascii_lowercase();
    for known in ["claude", "gemini", "gpt-oss"] {
        if lower.contains(known) {
            return known.to_owned();
        }
    }
    let name = lower.rsplit('/').next().unwrap_or_default();
    let mut name = name.strip_prefix("ft:").unwrap_or(name);
    while let Some((vendor, rest)) = name.split_once('.')
        && !vendor.is_empty()
        && vendor.bytes().all(|byte| byte.is_ascii_alphabetic())
    {
        name = rest;
    }
    let end = name
        .find(|c: char| !c.is_alphabetic())
        .unwrap_or(name.len());
    match name.get(..end) {
        None | Some("") => name.split_whitespace().collect(),
        Some(letters) => letters.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn origin(base: &str, account: Option<&str>, model: &str) -> Origin {
        Origin::new(&Endpoint::new(base), account, model)
    }

    #[test]
    fn names_tell_the_family() {
        let families = [
            ("gpt-5.2", "gpt"),
            ("openai/gpt-5-mini", "gpt"),
            ("openai.gpt-5.6-luna", "gpt"),
            ("ft:gpt-4o:me", "gpt"),
            ("openai/gpt-oss-120b", "gpt-oss"),
            ("o3-mini", "o"),
            ("us.anthropic.claude-opus-4-1-20250805-v1:0", "claude"),
            ("anthropic/claude-sonnet-4.5", "claude"),
            ("publishers/google/models/gemini-3.1-flash", "gemini"),
            ("x-ai/grok-4", "grok"),
            ("deepseek-reasoner", "deepseek"),
            ("qwen3:4b", "qwen"),
            ("4o", "4o"),
            ("", ""),
        ];
        for (model, expected) in families {
            assert_eq!(family(model), expected, "{model}");
        }
    }

    #[test]
    fn state_goes_back_to_whom_it_is_bound() {
        let made = origin("https://api.example/v1", Some("key-1"), "gpt-5");
        let state = ProviderState::new("p", json!(1)).with_origin(&*made.name());
        // Who asks, and what they may have: bound to the account, the server, the family.
        let cases = [
            (made.clone(), [true, true, true]),
            (
                origin("https://API.example/v2?key=x", Some("key-1"), "gpt-5.2"),
                [true, true, true],
            ),
            (
                origin(
                    "https://me:secret@api.example",
                    Some("key-1"),
                    "openai/gpt-5",
                ),
                [true, true, true],
            ),
            (
                origin("https://api.example/v1", Some("key-2"), "gpt-5"),
                [false, true, true],
            ),
            (
                origin("https://api.example/v1", None, "gpt-5"),
                [false, true, true],
            ),
            (
                origin("https://api.example:8443/v1", Some("key-1"), "gpt-5"),
                [false, false, true],
            ),
            (
                origin("https://other.example/v1", Some("key-1"), "gpt-5"),
                [false, false, true],
            ),
            (
                origin("https://api.example/v1", Some("key-1"), "grok-4"),
                [false, false, false],
            ),
        ];
        for (asks, expected) in cases {
            let may = [Bound::Account, Bound::Server, Bound::Family]
                .map(|bound| asks.data("p", Some(&state), bound).is_some());
            assert_eq!(may, expected, "{asks:?}");
            assert!(
                asks.data("q", Some(&state), Bound::Family).is_none(),
                "another protocol"
            );
            let unsigned = ProviderState::new("p", json!(1));
            assert!(
                asks.data("p", Some(&unsigned), Bound::Account).is_some(),
                "nobody says whose it is"
            );
        }
    }

    #[test]
    fn no_address_and_no_key_can_be_read() {
        let name = origin(
            "https://internal.example/v1",
            Some("sk-secret-1234"),
            "gpt-5",
        )
        .name();
        assert!(
            !name.contains("internal") && !name.contains("secret"),
            "{name}"
        );
        assert_eq!(name.len(), 8 + 1 + 8 + 1 + 3);
    }
}
