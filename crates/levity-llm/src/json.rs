//! Robust parsing of JSON that a model wrote.
//!
//! A model that is asked for JSON may add prose, use a code fence, forget quotes, write Python, or
//! stop early. [`parse`] finds the intended value and repairs it:
//!
//! ```
//! use levity_llm::json;
//! use serde_json::json;
//!
//! let reply = "Sure! Here it is:\n```json\n\
//!     {name: 'Ada', tags: ['math', 'code',], ok: True}\n```\nAnything else?";
//! assert_eq!(json::parse(reply)?, json!({"name": "Ada", "tags": ["math", "code"], "ok": true}));
//! # Ok::<(), json::JsonError>(())
//! ```
//!
//! You can also parse into your own type, or require certain keys:
//!
//! ```
//! # use levity_llm::json::{self, JsonErrorKind};
//! #[derive(serde::Deserialize, Debug, PartialEq)]
//! struct Verdict { score: u8, why: String }
//!
//! let verdict: Verdict =
//!     json::parse_as(r#"My verdict: {"score": 7, "why": "it says "yes" twice"}"#)?;
//! assert_eq!(verdict, Verdict { score: 7, why: "it says \"yes\" twice".into() });
//!
//! let error = json::parse_with_keys(r#"{"score": 7}"#, &["score", "why"]).unwrap_err();
//! assert_eq!(error.kind(), &JsonErrorKind::MissingKeys(vec!["why".into()]));
//! assert_eq!(error.text(), r#"{"score": 7}"#);
//! # Ok::<(), json::JsonError>(())
//! ```
//!
//! [`repair`] also reports the repairs, which distinguishes a truncated answer from a complete one:
//!
//! ```
//! # use levity_llm::json::{self, Repair};
//! let repaired = json::repair(r#"{"title": "Levity", "body": "It was a da"#)?;
//! assert!(repaired.repairs.contains(Repair::Truncated));
//! assert_eq!(repaired.value["body"], "It was a da");
//! # Ok::<(), json::JsonError>(())
//! ```
//!
//! # Selection of the value
//! 1. The whole text, if it is valid JSON. A string that contains an object or an array yields that
//!    value.
//! 2. Otherwise the objects and arrays in the text compete by their position. The order is: a fence
//!    marked as JSON; a fence without a mark, or marked as text or JavaScript; the text outside
//!    fences; a fence in another language. Within one kind of position the longest wins, and among
//!    equal lengths the last.
//! 3. Text before the last `</think>` counts only if no value follows it.
//! 4. Without objects and arrays: the whole text, or otherwise the first fence, if it is a single
//!    string, number or literal.
//!
//! [`parse_as`] and [`parse_with_keys`] try the best eight values and return the first that fits.
//!
//! # Guarantees
//! Time and memory grow linearly with the length of any text. Nothing panics. Nesting beyond 128
//! levels is an error, as in `serde_json`. Valid JSON is never changed. `docs/json.md` lists all
//! repairs and the differences to Python's `json_repair`.

mod cursor;
mod error;
mod find;
mod lookahead;
mod parser;
mod repairs;
mod scalar;
mod string;

use std::ops::Range;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use error::{JsonError, JsonErrorKind};
pub use repairs::{Repair, Repairs};

use find::Found;

/// The maximum number of values in a text that are tried for a type or for keys.
const MAX_CANDIDATES: usize = 8;

/// A value found in a text, with the repairs that were made.
///
/// ```
/// use levity_llm::json::{self, Repair};
///
/// let text = "Result: {a: 1}";
/// let repaired = json::repair(text)?;
/// assert_eq!(&text[repaired.span.clone()], "{a: 1}");
/// assert!(repaired.repairs.contains(Repair::BareKey));
/// assert!(repaired.repairs.contains(Repair::Surroundings));
/// # Ok::<(), json::JsonError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Repaired {
    /// The parsed and repaired value.
    pub value: Value,
    /// The repairs that were made; empty if the whole text was valid JSON.
    pub repairs: Repairs,
    /// The byte range of the text that contains the value.
    pub span: Range<usize>,
}

/// Returns the value that `text` contains.
///
/// ```
/// use levity_llm::json;
/// use serde_json::json;
///
/// assert_eq!(json::parse("{'ok': True, 'n': 1,}")?, json!({"ok": true, "n": 1}));
/// assert_eq!(json::parse("[1, 2, 3")?, json!([1, 2, 3]));
/// assert!(json::parse("no value at all").is_err());
/// # Ok::<(), json::JsonError>(())
/// ```
///
/// The result is only repaired, not validated: a repair may guess wrong, and the text comes from a
/// model. Check the value against a type or a schema before you act on it.
///
/// # Errors
/// Returns [`JsonErrorKind::NoJson`] if the text contains no value, and [`JsonErrorKind::TooDeep`]
/// if the nesting is too deep.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    repair(text).map(|repaired| repaired.value)
}

/// Returns the value that `text` contains as a `T`.
///
/// Valid JSON of the right type is parsed directly, without the search for values. The example
/// shows a text with two objects, of which only one fits:
///
/// ```
/// use levity_llm::json;
///
/// #[derive(serde::Deserialize)]
/// struct Answer { answer: u32 }
///
/// let text = r#"{"thought": "six times seven", "step": 1} {"answer": 42}"#;
/// let found: Answer = json::parse_as(text)?;
/// assert_eq!(found.answer, 42);
/// # Ok::<(), json::JsonError>(())
/// ```
///
/// # Errors
/// Returns the same errors as [`parse`], and [`JsonErrorKind::WrongShape`] if no value in `text` is
/// a `T`. The source of that error is the reason for the best candidate.
pub fn parse_as<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    let mut first_error = None;
    for found in candidates(text, MAX_CANDIDATES)? {
        match T::deserialize(&found.value) {
            Ok(value) => return Ok(value),
            Err(error) => first_error = first_error.or(Some((error, found.span.start))),
        }
    }
    Err(match first_error {
        Some((error, at)) => JsonError::shape(text, at, error),
        None => JsonError::new(JsonErrorKind::NoJson, text, None),
    })
}

/// Returns the object that `text` contains and that has all of `keys`.
///
/// The keys may have any value, including null. Other keys are allowed.
///
/// ```
/// use levity_llm::json;
///
/// let value = json::parse_with_keys("She is {name: 'Ada', age: 36}.", &["name", "age"])?;
/// assert_eq!(value["age"], 36);
/// # Ok::<(), json::JsonError>(())
/// ```
///
/// # Errors
/// Returns the same errors as [`parse`], and [`JsonErrorKind::MissingKeys`] if no object in `text`
/// has all keys. That error lists the keys that the best candidate lacks.
pub fn parse_with_keys(text: &str, keys: &[&str]) -> Result<Value, JsonError> {
    let mut first_error = None;
    for found in candidates(text, MAX_CANDIDATES)? {
        let missing: Vec<_> = keys
            .iter()
            .filter(|key| found.value.get(**key).is_none())
            .collect();
        if missing.is_empty() && found.value.is_object() {
            return Ok(found.value);
        }
        first_error.get_or_insert_with(|| {
            let missing = missing.into_iter().map(|key| (*key).to_owned()).collect();
            JsonError::new(
                JsonErrorKind::MissingKeys(missing),
                text,
                Some(found.span.start),
            )
        });
    }
    Err(first_error.unwrap_or_else(|| JsonError::new(JsonErrorKind::NoJson, text, None)))
}

/// Returns the value that `text` contains, with its repairs and its position.
///
/// Use it if the kind of repair matters. A truncated value may lack its most important part:
///
/// ```
/// use levity_llm::json::{self, Repair};
///
/// assert!(json::repair(r#"{"a": 1}"#)?.repairs.is_empty());
/// let cut = json::repair(r#"{"a": 1, "b": [2, 3"#)?;
/// assert!(cut.repairs.contains(Repair::Truncated));
/// assert_eq!(cut.value["b"], serde_json::json!([2, 3]));
/// # Ok::<(), json::JsonError>(())
/// ```
///
/// # Errors
/// Returns the same errors as [`parse`].
pub fn repair(text: &str) -> Result<Repaired, JsonError> {
    match candidates(text, 1)?.pop() {
        Some(found) => Ok(Repaired {
            value: found.value,
            repairs: found.mends,
            span: found.span,
        }),
        None => Err(JsonError::new(JsonErrorKind::NoJson, text, None)),
    }
}

/// Returns at most `keep` values in `text`, best first.
///
/// Valid JSON is the only candidate of its text, so it is never changed and never competes.
fn candidates(text: &str, keep: usize) -> Result<Vec<Found>, JsonError> {
    if let Some(found) = strict(text) {
        return Ok(vec![found]);
    }
    find::find(text, keep)
        .map_err(|deep| JsonError::new(JsonErrorKind::TooDeep, text, Some(deep.at)))
}

/// Parses the whole text as JSON without repairs.
///
/// A leading byte order mark and white space around the value are not repairs. The span excludes
/// them.
fn strict(text: &str) -> Option<Found> {
    let trimmed = text.trim_start_matches('\u{feff}').trim();
    let start = text.len() - text.trim_start_matches('\u{feff}').trim_start().len();
    let value: Value = serde_json::from_str(trimmed).ok()?;
    let inner = value
        .as_str()
        .filter(|inner| inner.trim_start().starts_with(['{', '[']));
    let inner = inner.and_then(|inner| serde_json::from_str(inner).ok());
    let mends = if inner.is_some() {
        Repairs::of(Repair::Unwrapped)
    } else {
        Repairs::default()
    };
    Some(Found {
        value: inner.unwrap_or(value),
        mends,
        span: start..start + trimmed.len(),
    })
}

/// Returns the length of the object or list at the start of a text; `None` if it does not end.
///
/// It counts brackets outside of double-quoted strings and does not compare their kinds. `{"a":
/// [1]} x` has the length 10. The caller has checked that the text starts with a bracket or brace.
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
