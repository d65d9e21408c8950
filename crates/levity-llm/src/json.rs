//! Robust JSON from what a model wrote.
//!
//! A model that is asked for JSON writes prose around it, puts it into a code fence, forgets
//! quotes, writes Python, or is cut off. [`parse`] finds the value that is meant and mends it:
//!
//! ```
//! use levity_llm::json;
//! use serde_json::json;
//!
//! let reply = "Sure! Here it is:\n```json\n{name: 'Ada', tags: ['math', 'code',], ok: True}\n```\nAnything else?";
//! assert_eq!(json::parse(reply)?, json!({"name": "Ada", "tags": ["math", "code"], "ok": true}));
//! # Ok::<(), json::JsonError>(())
//! ```
//!
//! Into a type of one's own, or with keys that must be there:
//!
//! ```
//! # use levity_llm::json::{self, JsonErrorKind};
//! #[derive(serde::Deserialize, Debug, PartialEq)]
//! struct Verdict { score: u8, why: String }
//!
//! let verdict: Verdict = json::parse_as(r#"My verdict: {"score": 7, "why": "it says "yes" twice"}"#)?;
//! assert_eq!(verdict, Verdict { score: 7, why: "it says \"yes\" twice".into() });
//!
//! let error = json::parse_with_keys(r#"{"score": 7}"#, &["score", "why"]).unwrap_err();
//! assert_eq!(error.kind(), &JsonErrorKind::Missing(vec!["why".into()]));
//! assert_eq!(error.text(), r#"{"score": 7}"#);
//! # Ok::<(), json::JsonError>(())
//! ```
//!
//! [`repair`] says what was mended as well, which tells an answer that was cut off from a whole
//! one:
//!
//! ```
//! # use levity_llm::json::{self, Repair};
//! let repaired = json::repair(r#"{"title": "Levity", "body": "It was a da"#)?;
//! assert!(repaired.mends.contains(Repair::Truncated));
//! assert_eq!(repaired.value["body"], "It was a da");
//! # Ok::<(), json::JsonError>(())
//! ```
//!
//! # Which value is taken
//! 1. The whole text, if it is JSON as it stands. A string that holds an object or an array gives
//!    that.
//! 2. Otherwise the objects and arrays in it compete, best place first: a fence marked as JSON; a
//!    fence without a mark, or marked as text or JavaScript; the text outside fences; a fence in
//!    another language. In one kind of place the longest wins, and among equally long ones the
//!    last.
//! 3. What stands before the last `</think>` counts only when there is nothing behind it.
//! 4. Without objects and arrays: the whole text, or else the first fence, if it is one string,
//!    number or literal.
//!
//! [`parse_as`] and [`parse_with_keys`] go down the best eight and take the first that fits.
//!
//! # Promises
//! Time and memory grow with the length of the text and no faster, whatever is in it; nothing
//! panics; nesting beyond 128 is an error, as in `serde_json`. JSON that is valid is never changed.
//! `docs/json.md` has all that is mended, and where that differs from Python's `json_repair`.

mod ahead;
mod cursor;
mod error;
mod find;
mod mend;
mod parser;
mod scalar;
mod string;

use std::ops::Range;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use error::{JsonError, JsonErrorKind};
pub use mend::{Mends, Repair};

use find::Found;

/// How many values of one text are tried for a type or for keys.
const TRIED: usize = 8;

/// A value that was found in a text, and what was done to it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Repaired {
    /// The value.
    pub value: Value,
    /// What was mended; empty if the whole text was JSON as it stood.
    pub mends: Mends,
    /// The bytes of the text that the value was read from.
    pub span: Range<usize>,
}

/// The value that `text` means.
///
/// # Errors
/// [`JsonErrorKind::Nothing`] if there is no value in it, [`JsonErrorKind::TooDeep`] if it is
/// nested too deep.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    repair(text).map(|repaired| repaired.value)
}

/// The value that `text` means as a `T`.
///
/// # Errors
/// As [`parse`]; and [`JsonErrorKind::Shape`] if no value in `text` is a `T`, with the reason for
/// the likeliest one as the source.
pub fn parse_as<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    let mut complaint = None;
    for found in candidates(text, TRIED)? {
        match T::deserialize(&found.value) {
            Ok(value) => return Ok(value),
            Err(error) => complaint = complaint.or(Some((error, found.span.start))),
        }
    }
    Err(match complaint {
        Some((error, at)) => JsonError::shape(text, at, error),
        None => JsonError::new(JsonErrorKind::Nothing, text, None),
    })
}

/// The object that `text` means, which has all of `keys`.
///
/// # Errors
/// As [`parse`]; and [`JsonErrorKind::Missing`] if no object in `text` has them all, with those
/// that the likeliest one lacks.
pub fn parse_with_keys(text: &str, keys: &[&str]) -> Result<Value, JsonError> {
    let mut complaint = None;
    for found in candidates(text, TRIED)? {
        let missing: Vec<_> = keys
            .iter()
            .filter(|key| found.value.get(**key).is_none())
            .collect();
        if missing.is_empty() && found.value.is_object() {
            return Ok(found.value);
        }
        complaint.get_or_insert_with(|| {
            let missing = missing.into_iter().map(|key| (*key).to_owned()).collect();
            JsonError::new(
                JsonErrorKind::Missing(missing),
                text,
                Some(found.span.start),
            )
        });
    }
    Err(complaint.unwrap_or_else(|| JsonError::new(JsonErrorKind::Nothing, text, None)))
}

/// The value that `text` means, with what was mended and where it stood.
///
/// # Errors
/// As [`parse`].
pub fn repair(text: &str) -> Result<Repaired, JsonError> {
    match candidates(text, 1)?.pop() {
        Some(found) => Ok(Repaired {
            value: found.value,
            mends: found.mends,
            span: found.span,
        }),
        None => Err(JsonError::new(JsonErrorKind::Nothing, text, None)),
    }
}

/// The values in `text`, the likeliest first, `keep` of them at most.
fn candidates(text: &str, keep: usize) -> Result<Vec<Found>, JsonError> {
    if let Some(found) = strict(text) {
        return Ok(vec![found]);
    }
    find::find(text, keep)
        .map_err(|deep| JsonError::new(JsonErrorKind::TooDeep, text, Some(deep.at)))
}

/// The whole text as JSON, without any mending.
fn strict(text: &str) -> Option<Found> {
    let trimmed = text.trim_start_matches('\u{feff}').trim();
    let start = text.len() - text.trim_start_matches('\u{feff}').trim_start().len();
    let value: Value = serde_json::from_str(trimmed).ok()?;
    let inner = value
        .as_str()
        .filter(|inner| inner.trim_start().starts_with(['{', '[']));
    let inner = inner.and_then(|inner| serde_json::from_str(inner).ok());
    let mends = if inner.is_some() {
        Mends::of(Repair::Unwrapped)
    } else {
        Mends::default()
    };
    Some(Found {
        value: inner.unwrap_or(value),
        mends,
        span: start..start + trimmed.len(),
    })
}

/// The length of the object or list that begins a text; `None` when it does not end.
pub(crate) fn balanced(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth += 1,
            b'}' | b']' if !quoted && depth <= 1 => return Some(at + 1),
            b'}' | b']' if !quoted => depth -= 1,
            _ => {}
        }
    }
    None
}
