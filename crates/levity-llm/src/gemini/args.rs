//! Arguments that come value by value.

use levity_core::{ModelError, ModelErrorKind};
use serde_json::{Map, Value};

use super::pieces::Partial;

/// How deep arguments may be nested, and by how much a list may grow at once.
const DEEPEST: usize = 64;
const FARTHEST: usize = 1_024;

/// The arguments of a call, as far as they are there.
#[derive(Debug)]
pub(super) struct Args {
    value: Value,
    /// The path of a text that goes on.
    open: Option<String>,
}

impl Default for Args {
    fn default() -> Self {
        Self { value: Value::Object(Map::new()), open: None }
    }
}

impl Args {
    /// Takes all of them at once.
    pub(super) fn set(&mut self, value: Value) {
        *self = Self { value, open: None };
    }

    /// Takes one value, or more of a text.
    pub(super) fn add(&mut self, partial: Partial) -> Result<(), ModelError> {
        let more = partial.will_continue == Some(true);
        let new = match (partial.string_value, partial.number_value, partial.bool_value) {
            (Some(text), ..) => Value::String(text),
            (_, Some(number), _) => number,
            (.., Some(truth)) => Value::Bool(truth),
            // A value whose first piece is still to come.
            _ if more => return Ok(()),
            _ => Value::Null,
        };
        let goes_on = self.open.as_deref() == Some(&*partial.json_path);
        let slot = place(&mut self.value, &partial.json_path).ok_or_else(unreadable)?;
        match (slot, new) {
            (Value::String(text), Value::String(piece)) if goes_on => text.push_str(&piece),
            (slot, new) => *slot = new,
        }
        self.open = more.then_some(partial.json_path);
        Ok(())
    }

    /// What is there, as JSON.
    pub(super) fn whole(&self) -> String {
        self.value.to_string()
    }

    /// What is there, as JSON that breaks off: a call that was cut must not be made.
    pub(super) fn cut(&self) -> String {
        let mut text = self.whole();
        text.pop();
        text
    }
}

/// Where a path such as `$.a[0].b` or `$['a'][0]` leads. What is not there yet is made.
fn place<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut rest = path.strip_prefix('$')?;
    let mut slot = value;
    for _ in 0..DEEPEST {
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
                if index >= items.len().saturating_add(FARTHEST) {
                    return None;
                }
                if index >= items.len() {
                    items.resize(index + 1, Value::Null);
                }
                items.get_mut(index)?
            }
        };
    }
    None
}

enum Step {
    Key(String),
    Index(usize),
}

/// The first step of a path, and the rest of it.
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

/// A key in quotes, up to the bracket behind it.
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

fn unreadable() -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, "a call's arguments came in a shape that cannot be read")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases are written down in place")]
    fn check(partials: Value, expected: Option<Value>) {
        let partials: Vec<Partial> = serde_json::from_value(partials).unwrap();
        let mut args = Args::default();
        let added: Result<Vec<()>, _> = partials.into_iter().map(|partial| args.add(partial)).collect();
        assert_eq!(added.ok().map(|_| args.value), expected);
    }

    #[test]
    fn values_find_their_places() {
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
    fn a_text_is_added_to_only_while_it_goes_on() {
        let piece = |text: &str| json!({"jsonPath": "$.a", "stringValue": text});
        check(json!([piece("x"), piece("y")]), Some(json!({"a": "y"})));
    }

    #[test]
    fn paths_that_lead_nowhere_are_refused() {
        let deep = format!("${}", ".a".repeat(100));
        for path in
            ["", "a", "$a", "$.", "$[", "$[x]", "$['a", "$['a'x", "$.a[99999999999]", "$.a[2000]", &deep]
        {
            check(json!([{"jsonPath": path, "numberValue": 1}]), None);
        }
        check(json!([{"jsonPath": "$.a", "numberValue": 1}, {"jsonPath": "$.a.b", "numberValue": 1}]), None);
    }
}
