//! Encodes images and documents.
//!
//! The API accepts four image types, PDF, and plain text as a document. Text of other types, such
//! as JSON or SQL, is sent as plain text. Audio and video are rejected with the next step in the
//! message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::{Media, MediaSource};
use serde_json::{Value, json};

use super::encode::{Target, Unsupported};
use crate::body::Body;

/// Returns the block for a media item.
///
/// Parameters of the type, such as `charset`, are ignored. Fields of the user's own state replace
/// `source` and `title`; the name of a document becomes its title.
///
/// # Errors
/// Returns [`Unsupported`] for other types, for text at a URL, and for text that is not UTF-8.
pub(super) fn block(media: &Media, target: Target<'_>) -> Result<Vec<u8>, Unsupported> {
    let mime = media
        .mime
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let (kind, source) = match &*mime {
        "image/jpeg" | "image/png" | "image/gif" | "image/webp" => {
            ("image", bytes_or_url(&mime, &media.source))
        }
        "image/jpg" => ("image", bytes_or_url("image/jpeg", &media.source)),
        // The type of media that the API fetches need not be known.
        _ if mime.starts_with("image") && is_url(&media.source) => {
            ("image", bytes_or_url(&mime, &media.source))
        }
        "application/pdf" => ("document", bytes_or_url(&mime, &media.source)),
        _ => ("document", text_source(&mime, &media.source)?),
    };
    let mut body = Body::new();
    body.field("type", kind);
    let fields = target.own(media.opaque.as_ref()).and_then(Value::as_object);
    let has = |name: &str| fields.is_some_and(|fields| fields.contains_key(name));
    if !has("source") {
        body.field("source", &source);
    }
    if let Some(name) = media
        .name
        .as_ref()
        .filter(|_| kind == "document" && !has("title"))
    {
        body.field("title", name);
    }
    for (name, value) in fields
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != "type")
    {
        body.field(name, value);
    }
    Ok(body.finish())
}

/// Returns `true` for a URL that the API fetches, and `false` for a `data:` URL.
fn is_url(source: &MediaSource) -> bool {
    matches!(source, MediaSource::Url(url) if !url.starts_with("data:"))
}

/// Returns the source with its bytes, or its URL.
///
/// A `data:` URL with base64 is sent as bytes, because the API does not accept such URLs.
fn bytes_or_url(mime: &str, source: &MediaSource) -> Value {
    let bytes = |data: String| json!({"type": "base64", "media_type": mime, "data": data});
    match source {
        MediaSource::Bytes(data) => bytes(STANDARD.encode(data.as_slice())),
        MediaSource::Url(url) => match url
            .strip_prefix("data:")
            .and_then(|rest| rest.split_once(";base64,"))
        {
            Some((_, data)) => bytes(data.to_owned()),
            None => json!({"type": "url", "url": url}),
        },
        _ => Value::Null,
    }
}

/// Returns the source of a text; other media that are neither images nor PDFs are not supported.
fn text_source(mime: &str, source: &MediaSource) -> Result<Value, Unsupported> {
    let kind = mime.strip_prefix("application/").unwrap_or_default();
    let words = [
        "json",
        "xml",
        "yaml",
        "javascript",
        "x-sh",
        "toml",
        "x-ndjson",
        "sql",
    ];
    if !mime.starts_with("text/") && !words.iter().any(|word| kind.ends_with(word)) {
        let remedy = if mime.starts_with("image/") {
            "convert it to PNG"
        } else {
            "omit it or describe it as text"
        };
        return Err(Unsupported(format!(
            "Anthropic's models do not accept `{mime}`; {remedy}"
        )));
    }
    let MediaSource::Bytes(bytes) = source else {
        let message = format!("Anthropic's models do not accept `{mime}` at a URL; send its bytes");
        return Err(Unsupported(message));
    };
    let text = std::str::from_utf8(bytes.as_slice()).map_err(|_| {
        Unsupported(format!(
            "Anthropic's models do not accept `{mime}` that is not UTF-8; convert it to UTF-8"
        ))
    })?;
    Ok(json!({"type": "text", "media_type": "text/plain", "data": text}))
}
