//! Limits the length of texts and JSON values.

use levity_core::{Media, MediaSource};
use serde_json::Value;

use super::MAX_TEXT;
use super::model::ViewMedia;

/// The maximum number of bytes of media that a view contains.
const MAX_MEDIA: usize = 256 << 10;

/// Returns the beginning of a text, and `true` if the text is longer than `max` bytes.
pub(super) fn bounded(text: &str, max: usize) -> (String, bool) {
    let end = boundary(text, max);
    (text[..end].to_owned(), end < text.len())
}

/// Returns the last character boundary of a text at or before `max` bytes.
pub(super) fn boundary(text: &str, max: usize) -> usize {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

/// Returns a value, or the beginning of its JSON as a text if that is too long.
pub(super) fn bounded_json(value: &Value) -> (Value, bool) {
    if size_of(value) <= MAX_TEXT {
        return (value.clone(), false);
    }
    let (text, _) = bounded(&value.to_string(), MAX_TEXT);
    (Value::String(text), true)
}

/// Returns the approximate size of a value in bytes.
pub(super) fn size_of(value: &Value) -> usize {
    match value {
        Value::String(text) => 16 + text.len(),
        Value::Array(items) => 16 + items.iter().map(size_of).sum::<usize>(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| 16 + name.len() + size_of(value);
            16 + fields.iter().map(field).sum::<usize>()
        }
        _ => 16,
    }
}

/// Returns a value as text: a string as it is, and everything else as JSON.
pub(super) fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

/// Returns media with its bytes, if there are few enough.
pub(super) fn media(media: &Media) -> ViewMedia {
    let (url, size, data) = match &media.source {
        MediaSource::Bytes(bytes) => {
            let size = bytes.as_slice().len();
            (None, Some(size), (size <= MAX_MEDIA).then(|| bytes.clone()))
        }
        MediaSource::Url(url) => (Some(bounded(url, 4096).0), None, None),
        _ => (None, None, None),
    };
    ViewMedia {
        mime: bounded(&media.mime, 200).0,
        name: media.name.as_ref().map(|name| bounded(name, 1000).0),
        url,
        size,
        data,
    }
}
