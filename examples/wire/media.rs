//! Images, sounds and files. An intent names them by digest; their bytes are in the recorded
//! request.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use levity::core::{Media, ProviderState};
use serde_json::{Value, json};

/// All media of a recorded request, in order.
pub(crate) fn all(request: &Value) -> Vec<Media> {
    let mut found = Vec::new();
    look(request, &mut found);
    found
}

fn look(value: &Value, found: &mut Vec<Media>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| look(item, found)),
        Value::Object(map) => match media(value) {
            Some(media) => found.push(media),
            None => map.iter().for_each(|(name, value)| match (&**name, value) {
                // Ollama's, which does not say what they are.
                ("images", Value::Array(images)) => {
                    found.extend(
                        images
                            .iter()
                            .filter_map(Value::as_str)
                            .map(|data| Media::bytes("image/png", bytes(data))),
                    );
                }
                _ => look(value, found),
            }),
        },
        _ => {}
    }
}

/// What one part of a request holds.
fn media(part: &Value) -> Option<Media> {
    let text = |path: &str| part.pointer(path).and_then(Value::as_str);
    // OpenAI's, and what speaks like it.
    if let Some(url) = text("/image_url/url")
        .or_else(|| text("/image_url"))
        .or_else(|| text("/video_url/url"))
    {
        return Some(at(
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
        let mut media = at(data, "application/pdf");
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

/// What a part of Gemini's holds, under the names of either case.
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

/// What a block of Anthropic's holds.
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

/// What stands at an address, or in it.
pub(crate) fn at(url: &str, mime: &str) -> Media {
    let Some((head, data)) = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(','))
    else {
        return Media::url(mime, url);
    };
    Media::bytes(head.split(';').next().unwrap_or(mime), bytes(data))
}

/// Base64 in either alphabet, with or without padding.
pub(crate) fn bytes(data: &str) -> Vec<u8> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let data = data.replace('-', "+").replace('_', "/");
    GeneralPurpose::new(&STANDARD, config)
        .decode(data)
        .unwrap_or_default()
}
