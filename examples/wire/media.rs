//! Extracts images, audio and files. An intent names them by digest; the recorded request contains
//! their bytes.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use levity::core::{Media, ProviderState};
use serde_json::{Value, json};

/// Returns all media of a recorded request, in order.
pub(crate) fn all(request: &Value) -> Vec<Media> {
    let mut found = Vec::new();
    collect_media(request, &mut found);
    found
}

fn collect_media(value: &Value, found: &mut Vec<Media>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_media(item, found)),
        Value::Object(map) => match media(value) {
            Some(media) => found.push(media),
            None => map.iter().for_each(|(name, value)| match (&**name, value) {
                // Ollama does not state the media type of images.
                ("images", Value::Array(images)) => {
                    found.extend(
                        images
                            .iter()
                            .filter_map(Value::as_str)
                            .map(|data| Media::bytes("image/png", bytes(data))),
                    );
                }
                _ => collect_media(value, found),
            }),
        },
        _ => {}
    }
}

/// Returns the media of one part of a request.
fn media(part: &Value) -> Option<Media> {
    let text = |path: &str| part.pointer(path).and_then(Value::as_str);
    // The format of OpenAI and compatible servers.
    if let Some(url) = text("/image_url/url")
        .or_else(|| text("/image_url"))
        .or_else(|| text("/video_url/url"))
    {
        return Some(from_url(
            url,
            if part.get("video_url").is_some() {
                "video/mp4"
            } else {
                "image/png"
            },
        ));
    }
    if let (Some(data), Some(format)) = (text("/input_audio/data"), text("/input_audio/format")) {
        return Some(Media::bytes(format!("audio/{format}"), bytes(data)));
    }
    if let Some(data) = text("/file/file_data").or_else(|| text("/file_data")) {
        let mut media = from_url(data, "application/pdf");
        media.name = text("/file/filename")
            .or_else(|| text("/filename"))
            .map(str::to_owned);
        return Some(media);
    }
    let file = text("/file_url").or_else(|| text("/file_id"));
    let file = file.map(|file| {
        Media::url(
            if part["type"] == "input_image" {
                "image/png"
            } else {
                "application/pdf"
            },
            file,
        )
    });
    file.or_else(|| gemini(part)).or_else(|| anthropic(part))
}

/// Returns the media of a Gemini part, with field names in camel case or snake case.
fn gemini(part: &Value) -> Option<Media> {
    let text = |part: &Value, names: [&str; 2]| -> Option<String> {
        names
            .iter()
            .find_map(|name| part.get(*name)?.as_str())
            .map(str::to_owned)
    };
    let mime = |part: &Value| text(part, ["mimeType", "mime_type"]).unwrap_or_default();
    let found = |names: [&str; 2]| {
        names
            .iter()
            .find_map(|name| part.get(*name).filter(|found| found.is_object()))
    };
    if let Some(inline) = found(["inlineData", "inline_data"]) {
        return Some(Media::bytes(
            mime(inline),
            bytes(inline["data"].as_str().unwrap_or_default()),
        ));
    }
    let file = found(["fileData", "file_data"])?;
    Some(Media::url(mime(file), text(file, ["fileUri", "file_uri"])?))
}

/// Returns the media of an Anthropic block.
fn anthropic(part: &Value) -> Option<Media> {
    let source = part.get("source")?;
    let text = |name: &str| source[name].as_str();
    let image = part["type"] == "image";
    let mime = text("media_type").unwrap_or(if image {
        "image/png"
    } else {
        "application/pdf"
    });
    match (text("type")?, text("data").or_else(|| text("url"))) {
        ("base64", Some(data)) => Some(Media::bytes(mime, bytes(data))),
        ("text", Some(data)) => Some(Media::bytes(mime, data.as_bytes())),
        ("url", Some(url)) => Some(Media::url(mime, url)),
        (_, _) => {
            let mut media = Media::url(mime, "");
            media.opaque = Some(ProviderState::new("anthropic", json!({ "source": source })));
            Some(media)
        }
    }
}

/// Creates media from a URL or from the content of a `data:` URL.
pub(crate) fn from_url(url: &str, mime: &str) -> Media {
    let Some((head, data)) = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(','))
    else {
        return Media::url(mime, url);
    };
    Media::bytes(head.split(';').next().unwrap_or(mime), bytes(data))
}

/// Decodes Base64 in either alphabet, with or without padding.
pub(crate) fn bytes(data: &str) -> Vec<u8> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let data = data.replace('-', "+").replace('_', "/");
    GeneralPurpose::new(&STANDARD, config)
        .decode(data)
        .unwrap_or_default()
}
