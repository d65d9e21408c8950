//! Images and documents.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::{Media, MediaSource};
use serde_json::{Value, json};

use super::encode::{Refused, To};
use crate::body::Body;

/// The block that shows it.
pub(super) fn block(media: &Media, to: To<'_>) -> Result<Vec<u8>, Refused> {
    let mime = media
        .mime
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let (kind, source) = match &*mime {
        "image/jpeg" | "image/png" | "image/gif" | "image/webp" => {
            ("image", packed(&mime, &media.source))
        }
        "image/jpg" => ("image", packed("image/jpeg", &media.source)),
        // What it is does not have to be known where it is fetched.
        _ if mime.starts_with("image") && is_url(&media.source) => {
            ("image", packed(&mime, &media.source))
        }
        "application/pdf" => ("document", packed(&mime, &media.source)),
        _ => ("document", plain(&mime, &media.source)?),
    };
    let mut body = Body::new();
    body.field("type", kind);
    let fields = to.own(media.opaque.as_ref()).and_then(Value::as_object);
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

fn is_url(source: &MediaSource) -> bool {
    matches!(source, MediaSource::Url(url) if !url.starts_with("data:"))
}

/// Bytes as they are, or where they are.
fn packed(mime: &str, source: &MediaSource) -> Value {
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

/// A text; anything else that is no image and no PDF cannot be shown.
fn plain(mime: &str, source: &MediaSource) -> Result<Value, Refused> {
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
        let way = if mime.starts_with("image/") {
            "make it a PNG"
        } else {
            "leave it out or put it into words"
        };
        return Err(Refused(format!(
            "`{mime}` cannot be given to Anthropic's models; {way}"
        )));
    }
    let MediaSource::Bytes(bytes) = source else {
        let message =
            format!("`{mime}` at a URL cannot be given to Anthropic's models; give its bytes");
        return Err(Refused(message));
    };
    let text = std::str::from_utf8(bytes.as_slice()).map_err(|_| {
        Refused(format!(
            "`{mime}` that is not UTF-8 cannot be given to Anthropic's models"
        ))
    })?;
    Ok(json!({"type": "text", "media_type": "text/plain", "data": text}))
}
