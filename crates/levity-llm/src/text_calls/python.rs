//! Calls in Python's syntax: `name(city="Rome", days=3)`, alone, in a list, or one per line.
//!
//! Llama and Gemma write calls this way. Only literals are accepted as arguments; nothing is
//! evaluated. A text with any expression, comment or statement besides the calls is code and yields
//! `None`.

use std::sync::Arc;

use levity_core::ToolSpec;
use serde_json::{Map, Value};

use super::Call;
use super::value::{call, offered_tool};

/// Returns the calls that make up a text; `None` if the text contains anything else.
pub(super) fn calls(text: &str, tools: &[Arc<ToolSpec>]) -> Option<Vec<Call>> {
    let text = text.trim();
    let text = match text.strip_prefix('[') {
        Some(list) => list.strip_suffix(']')?,
        None => text,
    };
    let mut rest = text.trim();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let open = rest.find('(')?;
        let (name, inside) = (rest[..open].trim(), &rest[open + 1..]);
        // Gemma wraps its calls in `print`.
        if name == "print" {
            let close = close(inside)?;
            found.extend(calls(&inside[..close], tools)?);
            rest = separated(&inside[close + 1..]);
            continue;
        }
        let tool = offered_tool(name, tools)?;
        let close = close(inside)?;
        found.push(call(tool, arguments(tool, &inside[..close])?)?);
        rest = separated(&inside[close + 1..]);
    }
    Some(found)
}

/// Skips a comma or semicolon between two calls.
fn separated(text: &str) -> &str {
    text.trim_start()
        .trim_start_matches([',', ';'])
        .trim_start()
}

/// Returns the position of the bracket that closes the one before the text.
///
/// Brackets inside of strings do not count. The result is `None` if the brackets do not match.
fn close(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, char) in outside_strings(text) {
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// Returns the characters of a text that are outside strings.
fn outside_strings(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let (mut quote, mut escaped) = (None, false);
    text.char_indices().filter(move |(_, char)| {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if *char == '\\' => escaped = true,
            Some(open) if *char == open => quote = None,
            Some(_) => {}
            None if matches!(char, '"' | '\'') => quote = Some(*char),
            None => return true,
        }
        false
    })
}

/// Accepts keyword arguments, positional ones in the order of the schema, and a single dictionary.
/// A duplicate or invalid name yields `None`.
fn arguments(tool: &ToolSpec, text: &str) -> Option<Value> {
    // `name({"city": "Rome"})`
    if text.trim_start().starts_with('{') {
        return literal(text.trim());
    }
    let mut args = Map::new();
    let mut names = tool
        .input
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::keys);
    for part in parts(text) {
        let equals = outside_strings(part).find(|(_, char)| matches!(char, '=' | '[' | '{' | '('));
        let (name, value) = match equals {
            Some((at, '=')) => (part[..at].trim(), &part[at + 1..]),
            // A value without a name belongs to the next parameter of the schema.
            _ => (names.next()?.as_str(), part),
        };
        let is_name = !name.is_empty()
            && name
                .chars()
                .all(|char| char.is_alphanumeric() || char == '_');
        if !is_name
            || args
                .insert(name.to_owned(), literal(value.trim())?)
                .is_some()
        {
            return None;
        }
    }
    Some(Value::Object(args))
}

/// Splits a text at its commas.
///
/// Commas inside of strings and brackets do not split.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let (mut cuts, mut depth) = (vec![], 0_i32);
    for (at, char) in outside_strings(text) {
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => cuts.push(at),
            _ => {}
        }
    }
    let mut from = 0;
    let ends = cuts.into_iter().chain([text.len()]);
    let parts: Vec<&str> = ends
        .map(|at| text[std::mem::replace(&mut from, at + 1)..at].trim())
        .collect();
    parts.into_iter().filter(|part| !part.is_empty())
}

/// Parses a literal value. A name or an expression would have to be evaluated, so it returns
/// `None`.
///
/// JSON values, `True`, `False`, `None`, single-quoted strings, lists and dictionaries are
/// literals.
fn literal(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    match text {
        "True" => return Some(Value::Bool(true)),
        "False" => return Some(Value::Bool(false)),
        "None" => return Some(Value::Null),
        _ => {}
    }
    match text.as_bytes() {
        [b'\'', inner @ .., b'\''] if !inner.contains(&b'\'') => {
            let inner = text[1..text.len() - 1].replace('"', "\\\"");
            serde_json::from_str(&format!("\"{inner}\"")).ok()
        }
        [b'[', .., b']'] | [b'{', .., b'}'] | [b'\'', .., b'\''] => crate::json::parse(text).ok(),
        _ => None,
    }
}
