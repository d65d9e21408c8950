//! The types, values and alternatives that a schema allows.
//!
//! A form is a schema with one type. A schema with several types is split into forms, each with the
//! keywords of its type, and united again as alternatives. Gemini accepts lists of values only for
//! text and numbers.

use serde_json::{Value, json};

use super::Object;
use super::notes::{self, Notes};

/// Returns the types that a schema names, in lower case and without duplicates.
///
/// `nullable: true` of OpenAPI adds `null`. Without a type, the keywords `properties`,
/// `additionalProperties` and `items` imply one.
pub(super) fn types(map: &Object) -> Vec<String> {
    let named = match map.get("type") {
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(kind)) => vec![&**kind],
        _ => Vec::new(),
    };
    let mut types: Vec<String> = Vec::new();
    for kind in named.iter().map(|kind| kind.to_ascii_lowercase()) {
        if kind != "type_unspecified" && !types.contains(&kind) {
            types.push(kind);
        }
    }
    if map.get("nullable") == Some(&Value::Bool(true))
        && !types.is_empty()
        && !types.iter().any(|t| t == "null")
    {
        types.push("null".to_owned());
    }
    if types.is_empty() {
        let implied = [
            ("properties", "object"),
            ("additionalProperties", "object"),
            ("items", "array"),
        ];
        let implied = implied.iter().find(|(name, _)| map.contains_key(*name));
        types.extend(implied.map(|(_, kind)| (*kind).to_owned()));
    }
    types
}

/// Returns the types that `enum` and `const` allow, and the values if Gemini accepts them as a
/// list.
///
/// Values of several types, booleans, lists and objects are described in words: `one of
/// [true,"auto"]`.
pub(super) fn allowed(
    map: &Object,
    types: Vec<String>,
    notes: &mut Notes,
) -> (Vec<String>, Option<Vec<Value>>) {
    let values: Vec<Value> = match (map.get("const"), map.get("enum")) {
        (Some(value), _) => vec![value.clone()],
        (None, Some(Value::Array(values))) if !values.is_empty() => values.clone(),
        _ => return (types, None),
    };
    let (null, values): (Vec<Value>, Vec<Value>) = values.into_iter().partition(Value::is_null);
    let mut kinds: Vec<String> = Vec::new();
    for kind in values
        .iter()
        .map(kind_of)
        .chain((!null.is_empty()).then_some("null"))
    {
        let whole = kind == "integer" && types.iter().any(|named| named == "number");
        let kind = if whole { "number" } else { kind };
        if !kinds.iter().any(|known| known == kind) {
            kinds.push(kind.to_owned());
        }
    }
    if let [first, second] = &*kinds
        && matches!(
            (&**first, &**second),
            ("integer", "number") | ("number", "integer")
        )
    {
        kinds = vec!["number".to_owned()];
    }
    let plain = kinds.iter().filter(|kind| *kind != "null").count() == 1
        && values
            .iter()
            .all(|value| value.is_string() || value.is_number());
    if plain {
        return (kinds, Some(values));
    }
    match &*values {
        [] => return (kinds, None),
        [value] => notes.add_clause(&format!("always {value}")),
        values => notes.add_clause(&format!("one of {}", Value::Array(values.to_vec()))),
    }
    (if types.is_empty() { kinds } else { types }, None)
}

/// Returns the JSON Schema type of a value; a number without a fraction is an integer.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Combines several alternatives into one schema, with the notes on all of them.
///
/// A single form with `null` becomes `{"type": ["string", "null"]}`.
pub(super) fn united(mut forms: Vec<Value>, notes: Object) -> Value {
    let is_null = |form: &Value| form.get("type") == Some(&json!("null"));
    let optional = forms.len() == 2 && forms.iter().filter(|form| is_null(form)).count() == 1;
    if optional {
        forms.sort_by_key(is_null);
        // A single nullable alternative has a shorter form, unless its values are listed.
        let kind = forms
            .first()
            .and_then(|form| form.get("type"))
            .and_then(Value::as_str)
            .map(str::to_owned);
        if let (Some(kind), Some(Value::Object(form))) = (kind, forms.first_mut())
            && !form.contains_key("enum")
        {
            form.insert("type".to_owned(), json!([kind, "null"]));
            forms.truncate(1);
        }
    }
    let mut whole = match <[Value; 1]>::try_from(forms) {
        Ok([Value::Object(form)]) => form,
        Ok(_) => Object::new(),
        Err(forms) if forms.is_empty() => Object::new(),
        Err(forms) => Object::from_iter([("anyOf".to_owned(), Value::Array(forms))]),
    };
    for (name, note) in notes {
        notes::note(&mut whole, &name, note);
    }
    Value::Object(whole)
}
