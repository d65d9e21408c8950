//! Validation of the content of a form.
//!
//! A form is the part of JSON Schema that the protocol allows for elicitation: an object without
//! nesting, whose fields are strings, numbers, booleans or choices. A validator of full JSON Schema
//! would accept more than servers may ask for, and its errors would quote values. Formats are
//! checked loosely: the server must validate them anyway, and a false rejection would block the
//! person.

use serde_json::{Map, Value};

/// Returns the content with defaults for missing fields, or all problems with it. The problems
/// contain no values.
pub(super) fn complete(
    schema: &Value,
    mut content: Map<String, Value>,
) -> Result<Map<String, Value>, Vec<String>> {
    let none = Map::new();
    let fields = schema
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    let mut problems = Vec::new();
    for name in content.keys().filter(|name| !fields.contains_key(*name)) {
        problems.push(format!("the form has no field `{}`", short(name)));
    }
    for (name, field) in fields {
        match (content.get(name), field.get("default")) {
            (Some(value), _) => {
                problems.extend(check(field, value).err().map(|what| describe(name, what)));
            }
            // An invalid default of the server's own form is ignored.
            (None, Some(default)) if check(field, default).is_ok() => {
                content.insert(name.clone(), default.clone());
            }
            (None, _) => {}
        }
    }
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for name in required
        .filter_map(Value::as_str)
        .filter(|name| !content.contains_key(*name))
    {
        problems.push(format!("`{}` is missing", short(name)));
    }
    if problems.is_empty() {
        Ok(content)
    } else {
        Err(problems)
    }
}

/// Formats a problem of a field: "`days` must be a whole number".
fn describe(name: &str, what: &str) -> String {
    format!("`{}` {what}", short(name))
}

/// Shortens the name of a field, which the server chose, to 64 characters.
fn short(name: &str) -> String {
    name.chars().take(64).collect()
}

/// Checks a value against the definition of its field. An unknown type is checked for its choices
/// only.
fn check(field: &Value, value: &Value) -> Result<(), &'static str> {
    match field.get("type").and_then(Value::as_str) {
        Some("string") => string(field, value),
        Some("integer") => {
            let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
            if whole {
                number(field, value)
            } else {
                Err("must be a whole number")
            }
        }
        Some("number") => number(field, value),
        Some("boolean") => value
            .is_boolean()
            .then_some(())
            .ok_or("must be true or false"),
        Some("array") => choices(field, value),
        _ => one_of(field, value),
    }
}

/// Checks the length in characters, the choices and the format of a text.
fn string(field: &Value, value: &Value) -> Result<(), &'static str> {
    let text = value.as_str().ok_or("must be a string")?;
    let length = text.chars().count() as u64;
    let bound = |key: &str| field.get(key).and_then(Value::as_u64);
    if bound("minLength").is_some_and(|min| length < min) {
        return Err("is too short");
    }
    if bound("maxLength").is_some_and(|max| length > max) {
        return Err("is too long");
    }
    one_of(field, value)?;
    match field.get("format").and_then(Value::as_str) {
        Some("email") if !is_email(text) => Err("must be an e-mail address"),
        Some("uri") if !is_uri(text) => Err("must be a URI"),
        Some("date") if !is_date(text) => Err("must be a date such as 2026-01-31"),
        Some("date-time") if !is_time(text) => Err("must be a time such as 2026-01-31T12:00:00Z"),
        _ => Ok(()),
    }
}

fn number(field: &Value, value: &Value) -> Result<(), &'static str> {
    let number = value.as_f64().ok_or("must be a number")?;
    let bound = |key: &str| field.get(key).and_then(Value::as_f64);
    match (bound("minimum"), bound("maximum")) {
        (Some(min), _) if number < min => Err("is too small"),
        (_, Some(max)) if number > max => Err("is too large"),
        _ => Ok(()),
    }
}

/// Checks a list of chosen texts: their number, and that each is one of `items`.
fn choices(field: &Value, value: &Value) -> Result<(), &'static str> {
    let chosen = value.as_array().ok_or("must be a list")?;
    let bound = |key: &str| field.get(key).and_then(Value::as_u64);
    let count = chosen.len() as u64;
    if bound("minItems").is_some_and(|min| count < min) {
        return Err("has too few choices");
    }
    if bound("maxItems").is_some_and(|max| count > max) {
        return Err("has too many choices");
    }
    let none = Value::Null;
    let items = field.get("items").unwrap_or(&none);
    chosen.iter().try_for_each(|item| match item.is_string() {
        true => one_of(items, item),
        false => Err("must be a list of strings"),
    })
}

/// Returns an error if the field lists its values and `value` is not among them.
fn one_of(field: &Value, value: &Value) -> Result<(), &'static str> {
    let list = |key: &str| field.get(key).and_then(Value::as_array);
    let is_listed = match (list("enum"), list("oneOf").or_else(|| list("anyOf"))) {
        (Some(values), _) => values.contains(value),
        (None, Some(titled)) => titled
            .iter()
            .any(|choice| choice.get("const") == Some(value)),
        (None, None) => true,
    };
    is_listed.then_some(()).ok_or("is not one of the choices")
}

fn is_email(text: &str) -> bool {
    let has_space = text.contains(|c: char| c.is_whitespace() || c.is_control());
    !has_space
        && text
            .split_once('@')
            .is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
}

/// Checks for a scheme and something after it: `mailto:a@example.com`.
fn is_uri(text: &str) -> bool {
    let scheme = |scheme: &str| {
        let rest = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(rest)
    };
    !text.contains(char::is_whitespace)
        && text
            .split_once(':')
            .is_some_and(|(name, rest)| scheme(name) && !rest.is_empty())
}

/// Checks the format `2026-01-31` with a valid month and day.
fn is_date(text: &str) -> bool {
    let mut parts = text
        .split('-')
        .map(|part| (part.len(), part.parse::<u8>().ok()));
    let year = text
        .get(..4)
        .is_some_and(|year| year.bytes().all(|byte| byte.is_ascii_digit()));
    parts.next().is_some_and(|(length, _)| length == 4)
        && year
        && matches!(parts.next(), Some((2, Some(1..=12))))
        && matches!(parts.next(), Some((2, Some(1..=31))))
        && parts.next().is_none()
}

/// Checks the format `2026-01-31T12:00:00Z`; any fraction and zone may follow the seconds.
fn is_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't', ' ']) else {
        return false;
    };
    let clock = time.get(..8).is_some_and(|clock| {
        let bytes = clock.as_bytes();
        let digit = |at: usize| bytes[at].is_ascii_digit();
        [0, 1, 3, 4, 6, 7].into_iter().all(digit) && bytes[2] == b':' && bytes[5] == b':'
    });
    let zone = time
        .get(8..)
        .is_some_and(|zone| zone.ends_with(['Z', 'z']) || zone.contains(['+', '-']));
    is_date(date) && clock && zone
}
