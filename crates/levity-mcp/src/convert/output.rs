//! Conversion of the results of tool calls.
//!
//! A result has up to three views of the same data: blocks of content, a structured value, and a
//! text in the content that repeats the value for older clients. A model must see the data once and
//! completely. So this module detects the repetition, drops the longer copy, and adds the value as
//! text only if no block shows it:
//!
//! ```text
//! content                        structuredContent    the model sees
//! [text "{\"a\": 1}"]            {"a": 1}             the value
//! [text "sunny"]                 {"result": "sunny"}  the text
//! [text "done"]                  {"rows": [..]}       the text, then the value as JSON
//! [image]                        none                 the image
//! ```

use levity_core::{Content, ToolError, ToolOutput};
use serde_json::Value;

use super::content::ContentBuilder;

/// Converts the result of a call. It is read from JSON, because rmcp's type loses the whole result
/// if one block is unknown.
///
/// # Errors
/// Returns an error if the server reports that the tool failed.
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
        return finish(ContentBuilder::default(), value, false, failed);
    }
    let repeats = value
        .as_ref()
        .is_some_and(|value| repeats(value, content.as_ref()));
    let mut builder = ContentBuilder::default();
    match content {
        None | Some(Value::Null) => {}
        Some(Value::Array(all)) => all.into_iter().for_each(|piece| builder.json(piece)),
        Some(one) => builder.json(one),
    }
    // A value without text would be shown in full, and this one contains the bytes of media that
    // are already shown.
    if repeats
        && !builder
            .content
            .iter()
            .any(|content| matches!(content, Content::Text(_)))
    {
        builder.text("[the result of the tool is shown in this message]".to_owned());
    }
    finish(builder, value, repeats, failed)
}

/// Combines the content and the value to the output, or to the error of a failed tool.
fn finish(
    mut builder: ContentBuilder,
    value: Option<Value>,
    repeats: bool,
    failed: bool,
) -> Result<ToolOutput, ToolError> {
    let copy = if repeats {
        TextCopy::Text
    } else {
        is_copy(&builder.content, value.as_ref())
    };
    if failed {
        return Err(failure(builder, value.filter(|_| copy == TextCopy::None)));
    }
    match (&value, copy) {
        // The value is shorter than the text that most servers write for it.
        (Some(_), TextCopy::Whole) => builder.content.clear(),
        // A model sees the content, if there is any. Data that is only in the value would be lost
        // otherwise.
        (Some(value), TextCopy::None) if !builder.content.is_empty() => {
            builder.text(value.to_string());
        }
        _ => {}
    }
    let mut output = ToolOutput::default();
    (output.content, output.value) = (builder.content, value);
    Ok(output)
}

/// The relation between the text and the value of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextCopy {
    None,
    /// The text repeats the value, with other content or in a shorter form.
    Text,
    /// The text is the value as JSON, and there is no other content.
    Whole,
}

/// Detects a text that repeats the value. Servers send it for clients without support for values:
/// as JSON, or without the only field around it, or one text per list item.
fn is_copy(content: &[Content], value: Option<&Value>) -> TextCopy {
    let Some(value) = value else {
        return TextCopy::None;
    };
    // A block after another text starts on a new line.
    let texts = content.iter().filter_map(|content| match content {
        Content::Text(text) => Some(text.strip_prefix('\n').unwrap_or(text)),
        _ => None,
    });
    let texts: Vec<&str> = texts.collect();
    let inner = only_field(value);
    match &*texts {
        [] => TextCopy::None,
        [text] if equals_text(text, value) => match content.len() {
            1 => TextCopy::Whole,
            _ => TextCopy::Text,
        },
        [text] if inner.is_some_and(|inner| equals_text(text, inner)) => TextCopy::Text,
        texts if equals_items(texts, inner.unwrap_or(value)) => TextCopy::Text,
        texts if texts.iter().any(|text| equals_text(text, value)) => TextCopy::Text,
        _ => TextCopy::None,
    }
}

/// Returns `true` if a value repeats the blocks of the content, as a list or in its only field.
/// With media in them, the text alone does not show that.
fn repeats(value: &Value, content: Option<&Value>) -> bool {
    let Some(pieces) = content
        .and_then(Value::as_array)
        .filter(|pieces| !pieces.is_empty())
    else {
        return false;
    };
    let matches_content = |value: &Value| {
        value.as_array() == Some(pieces) || matches!(&**pieces, [one] if one == value)
    };
    matches_content(value) || only_field(value).is_some_and(matches_content)
}

/// Returns the value of the only field of an object: servers wrap lists and texts as `{"result":
/// ..}`.
fn only_field(value: &Value) -> Option<&Value> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    fields.values().next()
}

/// Returns `true` if there is one text per item of the list, in order.
fn equals_items(texts: &[&str], list: &Value) -> bool {
    let Some(items) = list.as_array() else {
        return false;
    };
    items.len() == texts.len()
        && items
            .iter()
            .zip(texts)
            .all(|(item, text)| equals_text(text, item))
}

/// Returns `true` if `text` equals `value`: its own text, or its JSON in any layout.
fn equals_text(text: &str, value: &Value) -> bool {
    match value {
        Value::String(own) if own == text => true,
        // Parsing is costly for long texts, so obvious mismatches are skipped.
        Value::Object(_) if !text.trim_start().starts_with('{') => false,
        Value::Array(_) if !text.trim_start().starts_with('[') => false,
        _ => serde_json::from_str::<Value>(text).is_ok_and(|read| read == *value),
    }
}

/// Creates the error of a failed tool from its content.
fn failure(builder: ContentBuilder, value: Option<Value>) -> ToolError {
    let mut text = String::new();
    for content in builder.content {
        match content {
            Content::Text(piece) => text.push_str(&piece),
            Content::Media(media) => text.push_str(&format!("\n[{} attached]", media.mime)),
            _ => {}
        }
    }
    if let Some(value) = value {
        text.push_str(&format!("\n{value}"));
    }
    match text.trim() {
        "" => ToolError::failed("the tool failed, and its server gave no reason"),
        text => ToolError::failed(text),
    }
}

#[cfg(test)]
mod tests;
