//! Tracks which server produced provider state, and which servers accept it back.
//!
//! Only the server and the organisation that encrypted reasoning can decrypt it, with models of the
//! same family. Ids of stored items, containers and files mean nothing on other servers. A server
//! rejects a conversation with state that it cannot read. After a fallback or a change of model,
//! every later turn would fail.

use std::borrow::Cow;
use std::sync::Arc;

use levity_core::text::bare_url;
use levity_core::{Message, ProviderState};
use serde_json::Value;

use crate::http::Endpoint;
use crate::names;

/// A server, an account on it and a model family. The server and the account appear as hashes,
/// because histories are stored and shared: they reveal neither an address nor a key.
///
/// The text is `<server> <account> <family>`, such as `1a2b3c4d 5e6f7a8b gpt`. An unknown account
/// is `-`. The hashes have 32 bits, which is enough to distinguish the servers of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin(Arc<str>);

/// The scope within which state is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    dead_code,
    reason = "a build with a single provider may use fewer scopes"
)]
pub(crate) enum StateScope {
    /// Valid for the server, the account and the model family.
    Account,
    /// Valid for the server and the family.
    #[allow(dead_code, reason = "only some providers need it")]
    Server,
    /// Valid for the family on any server.
    #[allow(dead_code, reason = "only some providers need it")]
    Family,
}

#[allow(dead_code, reason = "not every provider hands out state")]
impl Origin {
    /// Only the host and the port of the server count, because a path or a query may change between
    /// versions of an API.
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

    /// Returns the text that histories store.
    pub(crate) fn name(&self) -> Arc<str> {
        self.0.clone()
    }

    /// Returns the state in `opaque` if it belongs to this protocol and may be sent back. State
    /// without an origin may always be sent back.
    pub(crate) fn data<'a>(
        &self,
        protocol: &str,
        opaque: Option<&'a ProviderState>,
        scope: StateScope,
    ) -> Option<&'a Value> {
        let opaque = opaque.filter(|opaque| &*opaque.provider == protocol)?;
        let is_own = opaque
            .origin()
            .is_none_or(|origin| self.is_in_scope(origin, scope));
        is_own.then_some(&*opaque.data)
    }

    /// The account is the second part, which the scopes beyond the account ignore.
    fn is_in_scope(&self, other: &str, scope: StateScope) -> bool {
        let from = match scope {
            StateScope::Account => return *self.0 == *other,
            StateScope::Server => 0,
            StateScope::Family => 2,
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

    /// Returns the cache key for the form of a message in the protocol `wire`. It depends on the
    /// origin only if the message or the one before it contains state.
    ///
    /// Messages without state have the same form for every origin, so their cache entries are
    /// shared.
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

/// Returns the host and port of an address. Journals store it, so it must not contain secrets.
fn authority(base: &str) -> String {
    let base = bare_url(base);
    let rest = base.split_once("://").map_or(&*base, |(_, rest)| rest);
    rest.split('/')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase()
}

/// Returns the model family as far as its name reveals it: `claude` for
/// `us.anthropic.claude-opus-4-1`, `gpt` for `openai/gpt-5.2`. OpenAI's open models share no state
/// with the others.
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
    fn model_name_determines_family() {
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
    fn state_returns_only_within_its_scope() {
        let own = origin("https://api.example/v1", Some("key-1"), "gpt-5");
        let state = ProviderState::new("p", json!(1)).with_origin(&*own.name());
        // Each case lists the requester and the state that it may receive: scoped to the account,
        // the server and the family.
        let cases = [
            (own.clone(), [true, true, true]),
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
            let may = [StateScope::Account, StateScope::Server, StateScope::Family]
                .map(|scope| asks.data("p", Some(&state), scope).is_some());
            assert_eq!(may, expected, "{asks:?}");
            assert!(
                asks.data("q", Some(&state), StateScope::Family).is_none(),
                "another protocol"
            );
            let unsigned = ProviderState::new("p", json!(1));
            assert!(
                asks.data("p", Some(&unsigned), StateScope::Account)
                    .is_some(),
                "state without an origin"
            );
        }
    }

    #[test]
    fn origin_reveals_neither_address_nor_key() {
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
