//! Comparison of calls with the expected calls.
//!
//! The rules follow the leaderboard from which the expectations come, so that the scores can be
//! compared: strings match without case and common punctuation, and an argument may have several
//! right values.

use serde_json::Value;

use super::{ExpectedCall, Score, quoted};
use crate::TrialCall;

/// The maximum number of calls that are compared: without an order, each call is compared with each
/// expected one.
const MAX_CALLS: usize = 1_000;

pub(super) fn calls(expected: &[ExpectedCall], calls: &[TrialCall], ordered: bool) -> Score {
    if expected.len() != calls.len() {
        return Score::fail(format!(
            "{} calls instead of {}",
            calls.len(),
            expected.len()
        ));
    }
    if calls.len() > MAX_CALLS {
        return Score::fail(format!(
            "{} calls cannot be compared; the limit is {MAX_CALLS}",
            calls.len()
        ));
    }
    let mut remaining: Vec<&TrialCall> = calls.iter().collect();
    for expected in expected {
        let considered = if ordered {
            &remaining[..1]
        } else {
            &remaining[..]
        };
        match considered
            .iter()
            .position(|call| expected.mismatch(call).is_none())
        {
            Some(at) => {
                remaining.remove(at);
            }
            None => return Score::fail(reason(expected, considered)),
        }
    }
    Score::pass()
}

/// Returns the reason why no call matches the expected one, preferring calls of the same tool.
fn reason(expected: &ExpectedCall, calls: &[&TrialCall]) -> String {
    let nearest = calls
        .iter()
        .find(|call| call.name == expected.name)
        .or(calls.first());
    nearest
        .and_then(|call| expected.mismatch(call))
        .unwrap_or_else(|| format!("`{}` was not called", quoted(&expected.name)))
}

pub(super) fn mismatch(expected: &ExpectedCall, call: &TrialCall) -> Option<String> {
    if call.name != expected.name {
        return Some(format!(
            "`{}` was called instead of `{}`",
            quoted(&call.name),
            quoted(&expected.name)
        ));
    }
    let Some(arguments) = call.arguments.as_object() else {
        return Some(format!(
            "the arguments of `{}` are not an object",
            quoted(&call.name)
        ));
    };
    for (name, value) in arguments {
        match expected.arguments.get(name) {
            None => return Some(format!("`{}` is not expected", quoted(name))),
            Some(alternatives) if !alternatives.iter().any(|expected| fits(value, expected)) => {
                let alternatives = serde_json::to_string(alternatives).unwrap_or_default();
                return Some(format!(
                    "`{}` is {}, not one of {}",
                    quoted(name),
                    quoted(&value.to_string()),
                    quoted(&alternatives)
                ));
            }
            Some(_) => {}
        }
    }
    let missing = expected.arguments.iter().find(|(name, alternatives)| {
        !arguments.contains_key(*name) && !may_be_absent(alternatives)
    });
    missing.map(|(name, _)| format!("`{}` is missing", quoted(name)))
}

fn may_be_absent(alternatives: &[Value]) -> bool {
    alternatives.iter().any(|value| value.as_str() == Some(""))
}

/// Returns `true` if a value matches this alternative.
fn fits(value: &Value, expected: &Value) -> bool {
    match (value, expected) {
        (Value::String(value), Value::String(expected)) => {
            normalized(value) == normalized(expected)
        }
        (Value::Array(values), Value::Array(expected)) => {
            values.len() == expected.len()
                && values
                    .iter()
                    .zip(expected)
                    .all(|(value, expected)| fits(value, expected))
        }
        (Value::Object(value), Value::Object(expected)) => {
            let one_of = |alternatives: &Value, value: &Value| {
                let listed = alternatives
                    .as_array()
                    .is_some_and(|list| list.iter().any(|one| fits(value, one)));
                listed || fits(value, alternatives)
            };
            let absent = |alternatives: &Value| {
                alternatives
                    .as_array()
                    .is_some_and(|list| may_be_absent(list))
            };
            value.iter().all(|(key, value)| {
                expected
                    .get(key)
                    .is_some_and(|expected| one_of(expected, value))
            }) && expected
                .iter()
                .all(|(key, expected)| value.contains_key(key) || absent(expected))
        }
        _ => same(value, expected),
    }
}

/// Removes case, spaces and punctuation that varies in dates, names and units.
fn normalized(text: &str) -> String {
    let chars = text.chars().filter(|char| !" ,./-_*^".contains(*char));
    chars
        .flat_map(char::to_lowercase)
        .map(|char| if char == '\'' { '"' } else { char })
        .collect()
}

/// Returns `true` if two values are equal, where `5` equals `5.0`.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, one)| other.get(key).is_some_and(|other| same(one, other)))
        }
        _ => one == other,
    }
}
