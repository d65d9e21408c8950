//! Arguments that arrive value by value.
//!
//! Gemini can stream a call as pairs of a path and a value: `$.city` and `"Par"`, then `$.city` and
//! `"is"`. The paths come from the server, so depth, gaps in lists and total size are limited; a
//! path such as `$[4000000000]` must not allocate memory.
//!
//! Two fragments of one call:
//!
//! ```json
//! {"name": "weather", "partialArgs": [{"jsonPath": "$.city", "stringValue": "Par",
//!     "willContinue": true}], "willContinue": true}
//! {"partialArgs": [{"jsonPath": "$.city", "stringValue": "is"}]}
//! ```

use levity_core::{ModelError, ModelErrorKind};
use serde_json::{Map, Value};

use super::chunks::Partial;

/// The maximum nesting of arguments, and the maximum growth of a list at once.
const MAX_DEPTH: usize = 64;
const MAX_LIST_GROWTH: usize = 1_024;

/// The maximum size of arguments in bytes: 32 MiB.
const MAX_BYTES: usize = 32 << 20;
/// The size of an empty slot in a list.
const SLOT_BYTES: usize = size_of::<Value>();

/// The partially received arguments of a call.
///
/// The value starts as an empty object, because a call without arguments has none to send.
#[derive(Debug)]
pub(super) struct Args {
    value: Value,
    /// An upper bound on the bytes received.
    size: usize,
    /// The path of a text that continues.
    open: Option<String>,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            value: Value::Object(Map::new()),
            size: 0,
            open: None,
        }
    }
}

impl Args {
    /// Sets all arguments at once.
    ///
    /// Values that arrived before are replaced. The counted size stays, so a server cannot reset
    /// the limit.
    pub(super) fn set(&mut self, value: Value) {
        *self = Self {
            value,
            size: self.size,
            open: None,
        };
    }

    /// Adds one value, or more of a text.
    ///
    /// A text with `willContinue` is extended by the next text at the same path. Any other value
    /// replaces the one at its path. A pair without a value is `null`, unless it continues.
    ///
    /// # Errors
    /// Returns `Malformed` for an invalid path, and for arguments of more than 32 MiB.
    pub(super) fn add(&mut self, partial: Partial) -> Result<(), ModelError> {
        let more = partial.will_continue == Some(true);
        let text = partial.string_value.as_ref().map_or(0, String::len);
        self.hold(SLOT_BYTES + partial.json_path.len() + text)?;
        let new = match (
            partial.string_value,
            partial.number_value,
            partial.bool_value,
        ) {
            (Some(text), ..) => Value::String(text),
            (_, Some(number), _) => number,
            (.., Some(truth)) => Value::Bool(truth),
            // The first part of the value has not arrived yet.
            _ if more => return Ok(()),
            _ => Value::Null,
        };
        let goes_on = self.open.as_deref() == Some(&*partial.json_path);
        let mut room = MAX_BYTES.saturating_sub(self.size) / SLOT_BYTES;
        let slot =
            slot_at(&mut self.value, &partial.json_path, &mut room).ok_or_else(unreadable)?;
        self.size = MAX_BYTES.saturating_sub(room * SLOT_BYTES);
        match (slot, new) {
            (Value::String(text), Value::String(piece)) if goes_on => text.push_str(&piece),
            (slot, new) => *slot = new,
        }
        self.open = more.then_some(partial.json_path);
        Ok(())
    }

    /// Counts bytes that are held until the call is complete.
    ///
    /// # Errors
    /// Returns `Malformed` if the arguments then exceed 32 MiB.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.size = self.size.saturating_add(bytes);
        if self.size <= MAX_BYTES {
            return Ok(());
        }
        let message = format!("a call's arguments are larger than {MAX_BYTES} bytes");
        Err(ModelError::new(ModelErrorKind::Malformed, message))
    }

    /// Returns the received arguments as JSON.
    pub(super) fn whole(&self) -> String {
        self.value.to_string()
    }

    /// Returns the received arguments as incomplete JSON: a truncated call must not run.
    ///
    /// The last byte is the closing brace, so what is left never parses.
    pub(super) fn truncated(&self) -> String {
        let mut text = self.whole();
        text.pop();
        text
    }
}

/// Returns the slot at a path such as `$.a[0].b` or `$['a'][0]`. Missing values are created within
/// the size limit.
///
/// `room` is the number of slots that may still be created, and is reduced by those that are.
/// Returns `None` for a path through a value of another type, for one with 64 or more steps, and
/// for an index that exceeds the length by 1,024 or more.
fn slot_at<'a>(value: &'a mut Value, path: &str, room: &mut usize) -> Option<&'a mut Value> {
    let mut rest = path.strip_prefix('$')?;
    let mut slot = value;
    for _ in 0..MAX_DEPTH {
        if rest.is_empty() {
            return Some(slot);
        }
        let (step, after) = step(rest)?;
        rest = after;
        slot = match step {
            Step::Key(key) => {
                if slot.is_null() {
                    *slot = Value::Object(Map::new());
                }
                slot.as_object_mut()?.entry(key).or_insert(Value::Null)
            }
            Step::Index(index) => {
                if slot.is_null() {
                    *slot = Value::Array(Vec::new());
                }
                let items = slot.as_array_mut()?;
                if index >= items.len().saturating_add(MAX_LIST_GROWTH) {
                    return None;
                }
                if index >= items.len() {
                    *room = room.checked_sub(index + 1 - items.len())?;
                    items.resize(index + 1, Value::Null);
                }
                items.get_mut(index)?
            }
        };
    }
    None
}

/// One step of a path: the key of an object, or the index of a list.
enum Step {
    Key(String),
    Index(usize),
}

/// Returns the first step of a path, and the rest of it.
///
/// A key is written as `.name` up to the next `.` or `[`, or quoted in brackets. Quotes are single
/// or double.
fn step(path: &str) -> Option<(Step, &str)> {
    if let Some(named) = path.strip_prefix('.') {
        let end = named.find(['.', '[']).unwrap_or(named.len());
        let (key, rest) = named.split_at(end);
        return (!key.is_empty()).then(|| (Step::Key(key.to_owned()), rest));
    }
    let inner = path.strip_prefix('[')?;
    if let Some(quote) = inner.chars().next().filter(|c| matches!(c, '\'' | '"')) {
        return quoted(inner.get(1..)?, quote);
    }
    let (index, rest) = inner.split_once(']')?;
    Some((Step::Index(index.trim().parse().ok()?), rest))
}

/// Parses a quoted key up to its closing bracket.
///
/// A backslash escapes the next character, whatever it is. `text` starts behind the opening quote.
fn quoted(text: &str, quote: char) -> Option<(Step, &str)> {
    let mut key = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => key.push(chars.next()?.1),
            c if c == quote => {
                let rest = text.get(at + 1..)?.strip_prefix(']')?;
                return Some((Step::Key(key), rest));
            }
            c => key.push(c),
        }
    }
    None
}

/// Creates the error for a path that cannot be followed.
fn unreadable() -> ModelError {
    ModelError::new(
        ModelErrorKind::Malformed,
        "cannot parse the arguments of a call",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases are written inline")]
    fn check(partials: Value, expected: Option<Value>) {
        let partials: Vec<Partial> = serde_json::from_value(partials).unwrap();
        let mut args = Args::default();
        let added: Result<Vec<()>, _> = partials
            .into_iter()
            .map(|partial| args.add(partial))
            .collect();
        assert_eq!(added.ok().map(|_| args.value), expected);
    }

    #[test]
    fn values_are_stored_at_their_paths() {
        check(json!([]), Some(json!({})));
        check(
            json!([
                {"jsonPath": "$.city", "stringValue": "Bos", "willContinue": true},
                {"jsonPath": "$.city", "stringValue": "ton"},
                {"jsonPath": "$.days[0].n", "numberValue": 3},
                {"jsonPath": "$.days[1]['a.b']", "boolValue": false},
                {"jsonPath": "$[\"it's\"]", "nullValue": "NULL_VALUE"},
                {"jsonPath": "$.later", "willContinue": true},
            ]),
            Some(json!({"city": "Boston", "days": [{"n": 3}, {"a.b": false}], "it's": null})),
        );
    }

    #[test]
    fn text_is_extended_only_while_it_continues() {
        let piece = |text: &str| json!({"jsonPath": "$.a", "stringValue": text});
        check(json!([piece("x"), piece("y")]), Some(json!({"a": "y"})));
    }

    #[test]
    fn oversized_arguments_return_error() {
        let endless = |piece: Value| {
            let mut args = Args::default();
            (0..200_000_usize).find_map(|n| {
                let mut piece = piece.clone();
                if piece.get("jsonPath").is_none() {
                    piece["jsonPath"] = format!("$.a[{}]", (n + 1) * 1_000).into();
                }
                args.add(serde_json::from_value(piece).unwrap())
                    .err()
                    .map(|_| n)
            })
        };
        let text =
            json!({"jsonPath": "$.a", "stringValue": "x".repeat(1 << 14), "willContinue": true});
        assert!(endless(text).is_some_and(|n| n < 2_100));
        assert!(endless(json!({"numberValue": 1})).is_some_and(|n| n < 2_100));
    }

    #[test]
    fn invalid_paths_return_error() {
        let deep = format!("${}", ".a".repeat(100));
        for path in [
            "",
            "a",
            "$a",
            "$.",
            "$[",
            "$[x]",
            "$['a",
            "$['a'x",
            "$.a[99999999999]",
            "$.a[2000]",
            &deep,
        ] {
            check(json!([{"jsonPath": path, "numberValue": 1}]), None);
        }
        check(
            json!([{"jsonPath": "$.a", "numberValue": 1}, {"jsonPath": "$.a.b", "numberValue": 1}]),
            None,
        );
    }
}
