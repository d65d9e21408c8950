//! Results of calls.

use levity_core::{Content, ToolError, ToolOutput};
use serde_json::Value;

use super::content::Pieces;

/// What a call returned. It is read from JSON, since rmcp's type loses all of it for one piece that
/// it does not know.
///
/// # Errors
/// When the server says that the tool failed.
pub(crate) fn output(result: Value) -> Result<ToolOutput, ToolError> {
    let mut fields = match result {
        Value::Object(fields) => fields,
        other => return Ok(ToolOutput::value(other)),
    };
    let failed = fields
        .get("isError")
        .is_some_and(|flag| *flag == Value::Bool(true));
    let (content, value) = (
        fields.shift_remove("content"),
        fields.shift_remove("structuredContent"),
    );
    if content.is_none() && value.is_none() {
        for known in ["isError", "_meta", "resultType"] {
            fields.shift_remove(known);
        }
        let value = (!fields.is_empty()).then_some(Value::Object(fields));
        return finish(Pieces::default(), value, false, failed);
    }
    let repeats = value
        .as_ref()
        .is_some_and(|value| repeats(value, content.as_ref()));
    let mut pieces = Pieces::default();
    match content {
        None | Some(Value::Null) => {}
        Some(Value::Array(all)) => all.into_iter().for_each(|piece| pieces.json(piece)),
        Some(one) => pieces.json(one),
    }
    // A value without words beside it would be told in full, and this one has the bytes of what is
    // shown.
    if repeats
        && !pieces
            .content
            .iter()
            .any(|content| matches!(content, Content::Text(_)))
    {
        pieces.text("[what the tool returned is shown beside this]".to_owned());
    }
    finish(pieces, value, repeats, failed)
}

fn finish(
    mut pieces: Pieces,
    value: Option<Value>,
    repeats: bool,
    failed: bool,
) -> Result<ToolOutput, ToolError> {
    let copies = if repeats {
        Copy::Text
    } else {
        is_copy(&pieces.content, value.as_ref())
    };
    if failed {
        return Err(failure(pieces, value.filter(|_| copies == Copy::None)));
    }
    match (&value, copies) {
        // As a value it is shorter than most servers write it.
        (Some(_), Copy::Whole) => pieces.content.clear(),
        // A model is shown the content, if there is any; what stands only in the value would be
        // lost on it.
        (Some(value), Copy::None) if !pieces.content.is_empty() => pieces.text(value.to_string()),
        _ => {}
    }
    let mut output = ToolOutput::default();
    (output.content, output.value) = (pieces.content, value);
    Ok(output)
}

/// Whether the text of a result says what its value says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    None,
    /// The text is there besides the value, and other content with it, or it is shorter.
    Text,
    /// The text is the value as JSON, and nothing else is there.
    Whole,
}

/// Servers send a value a second time as text, for clients that know no values: as JSON, or without
/// the one field around it, or each item of a list by itself.
fn is_copy(content: &[Content], value: Option<&Value>) -> Copy {
    let Some(value) = value else {
        return Copy::None;
    };
    // What follows another text begins on a line of its own.
    let texts = content.iter().filter_map(|content| match content {
        Content::Text(text) => Some(text.strip_prefix('\n').unwrap_or(text)),
        _ => None,
    });
    let texts: Vec<&str> = texts.collect();
    let inner = only_field(value);
    match &*texts {
        [] => Copy::None,
        [text] if says(text, value) => match content.len() {
            1 => Copy::Whole,
            _ => Copy::Text,
        },
        [text] if inner.is_some_and(|inner| says(text, inner)) => Copy::Text,
        texts if says_items(texts, inner.unwrap_or(value)) => Copy::Text,
        texts if texts.iter().any(|text| says(text, value)) => Copy::Text,
        _ => Copy::None,
    }
}

/// Whether a value has the pieces of the content once more, as a list or in the one field around
/// it. With media in them nobody could tell from the text alone.
fn repeats(value: &Value, content: Option<&Value>) -> bool {
    let Some(pieces) = content
        .and_then(Value::as_array)
        .filter(|pieces| !pieces.is_empty())
    else {
        return false;
    };
    let is_it = |value: &Value| {
        value.as_array() == Some(pieces) || matches!(&**pieces, [one] if one == value)
    };
    is_it(value) || only_field(value).is_some_and(is_it)
}

fn only_field(value: &Value) -> Option<&Value> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    fields.values().next()
}

fn says_items(texts: &[&str], list: &Value) -> bool {
    let Some(items) = list.as_array() else {
        return false;
    };
    items.len() == texts.len() && items.iter().zip(texts).all(|(item, text)| says(text, item))
}

/// Whether `text` is `value`: its own text, or its JSON in any layout.
fn says(text: &str, value: &Value) -> bool {
    match value {
        Value::String(own) if own == text => true,
        // What is read costs as much as it is long, so what cannot be it is not read.
        Value::Object(_) if !text.trim_start().starts_with('{') => false,
        Value::Array(_) if !text.trim_start().starts_with('[') => false,
        _ => serde_json::from_str::<Value>(text).is_ok_and(|read| read == *value),
    }
}

/// What a tool that failed says of it.
fn failure(pieces: Pieces, value: Option<Value>) -> ToolError {
    let mut text = String::new();
    for content in pieces.content {
        match content {
            Content::Text(piece) => text.push_str(&piece),
            Content::Media(media) => text.push_str(&format!("\n[{} came with it]", media.mime)),
            _ => {}
        }
    }
    if let Some(value) = value {
        text.push_str(&format!("\n{value}"));
    }
    match text.trim() {
        "" => ToolError::failed("the tool failed, and its server does not say why"),
        text => ToolError::failed(text),
    }
}

#[cfg(test)]
mod tests;
