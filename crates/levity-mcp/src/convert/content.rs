//! Conversion of content blocks: media that a model can see is passed on, and the rest is described
//! in text.
//!
//! Nothing is dropped silently. A block that cannot be shown leaves a note in its place: its type,
//! its size and the reason, such as `[an image (image/png) is omitted: its data is not valid
//! base64]`. Media of one result is limited to 10 MiB in total, because a dispatcher rejects more
//! and the whole result would be lost.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use levity_core::{Content, Media};
use levity_rpc::mcp::{ContentBlock, Resource, ResourceContents};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::text::{bytes, truncate};

/// The maximum number of bytes of images, audio and documents in one result; dispatchers reject
/// more by default.
const MAX_MEDIA: usize = 10 << 20;

/// The decoder accepts base64 with and without padding.
const CONFIG: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// Collects content blocks in order.
#[derive(Debug, Default)]
pub(super) struct ContentBuilder {
    pub(super) content: Vec<Content>,
    media: usize,
}

impl ContentBuilder {
    /// Adds a block of a known type.
    pub(super) fn block(&mut self, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.text(text.text),
            ContentBlock::Image(image) => {
                self.media("an image", &image.mime_type, &image.data, None);
            }
            ContentBlock::Audio(audio) => {
                self.media("an audio file", &audio.mime_type, &audio.data, None);
            }
            ContentBlock::Resource(embedded) => self.resource(embedded.resource),
            ContentBlock::ResourceLink(link) => self.text(link_text(&link)),
            other => self.unknown(&serde_json::to_value(&other).unwrap_or_default()),
        }
    }

    /// Adds a block that may be of an unknown type.
    pub(super) fn json(&mut self, piece: Value) {
        match piece {
            Value::String(text) => self.text(text),
            // Text is the most frequent type, and may be long.
            Value::Object(mut fields) if is_text(&fields) => {
                if let Some(Value::String(text)) = fields.get_mut("text").map(Value::take) {
                    self.text(text);
                }
            }
            piece => match ContentBlock::deserialize(&piece) {
                Ok(block) => self.block(block),
                Err(_) => self.unknown(&piece),
            },
        }
    }

    /// Adds text on a new line.
    pub(super) fn text(&mut self, text: String) {
        let joins = match self.content.last() {
            Some(Content::Text(before)) => !before.ends_with('\n') && !text.is_empty(),
            _ => false,
        };
        self.content.push(Content::Text(if joins {
            format!("\n{text}")
        } else {
            text
        }));
    }

    /// Adds an embedded resource: text with a line that names its URI and type, or its bytes as
    /// media.
    pub(super) fn resource(&mut self, resource: ResourceContents) {
        match resource {
            ResourceContents::TextResourceContents {
                uri,
                mime_type,
                text,
                ..
            } => {
                let kind = mime_type
                    .map(|mime| format!(" ({})", truncate(&mime, 128)))
                    .unwrap_or_default();
                self.text(format!("[resource {}{kind}]\n{text}", truncate(&uri, 2048)));
            }
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => {
                let what = format!("the resource {}", truncate(&uri, 2048));
                let mime = mime_type.unwrap_or_default();
                self.media(&what, &mime, &blob, Some(name_of(&uri)));
            }
            other => self.unknown(&serde_json::to_value(&other).unwrap_or_default()),
        }
    }

    /// Adds bytes as media, as text if their type is text, or as a note if no model reads them.
    fn media(&mut self, what: &str, mime: &str, base64: &str, name: Option<String>) {
        let mime = essence(mime);
        let Some(data) = decode(base64) else {
            return self.push_note(what, &mime, "is omitted: its data is not valid base64");
        };
        let size = bytes(data.len());
        let mime = if mime.is_empty() {
            sniff(&data).to_owned()
        } else {
            mime
        };
        if is_text_type(&mime)
            && let Ok(text) = std::str::from_utf8(&data)
        {
            return self.text(format!("[{what} ({mime})]\n{text}"));
        }
        if !is_displayable(&mime) {
            return self.push_note(
                what,
                &mime,
                &format!("has {size} of a type that models cannot read"),
            );
        }
        if self.media.saturating_add(data.len()) > MAX_MEDIA {
            return self.push_note(
                what,
                &mime,
                &format!("is omitted: its {size} exceed the limit"),
            );
        }
        self.media += data.len();
        let mut media = Media::bytes(mime, data);
        media.name = name.filter(|name| !name.is_empty());
        self.content.push(Content::Media(media));
    }

    /// Adds a note in brackets in place of content: `[an image (image/png) is omitted: ..]`.
    fn push_note(&mut self, what: &str, mime: &str, text: &str) {
        let kind = if mime.is_empty() {
            String::new()
        } else {
            format!(" ({mime})")
        };
        self.text(format!("[{what}{kind} {text}]"));
    }

    /// Adds a block of an unknown type as JSON, so that a newer server loses nothing.
    fn unknown(&mut self, piece: &Value) {
        let kind = piece
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or("no type");
        self.text(format!(
            "[content of an unknown type, `{}`, as JSON]\n{piece}",
            truncate(kind, 64)
        ));
    }
}

/// Returns `true` if the block is plain text, which needs no parsing by rmcp's types.
fn is_text(fields: &Map<String, Value>) -> bool {
    fields.get("type").is_some_and(|kind| kind == "text")
        && fields.get("text").is_some_and(Value::is_string)
}

/// Describes a link: `[link to the resource file:///a.md, `a.md`, text/markdown, 12 bytes]`.
fn link_text(link: &Resource) -> String {
    let mut text = format!("[link to the resource {}", link.uri);
    // Writing to a string does not fail.
    let _ = write!(text, ", `{}`", link.title.as_ref().unwrap_or(&link.name));
    if let Some(mime) = &link.mime_type {
        let _ = write!(text, ", {mime}");
    }
    if let Some(size) = link.size {
        let _ = write!(text, ", {size} bytes");
    }
    text.push(']');
    if let Some(description) = link
        .description
        .as_ref()
        .filter(|description| !description.trim().is_empty())
    {
        let _ = write!(text, " {description}");
    }
    text
}

/// Decodes base64 in all variants that servers write: with or without padding and line breaks, and
/// with the URL alphabet.
fn decode(text: &str) -> Option<Vec<u8>> {
    let without_spaces: Vec<u8>;
    let text = match text.bytes().any(|byte| byte.is_ascii_whitespace()) {
        true => {
            without_spaces = text
                .bytes()
                .filter(|byte| !byte.is_ascii_whitespace())
                .collect();
            &*without_spaces
        }
        false => text.as_bytes(),
    };
    let is_url = text.iter().any(|byte| matches!(byte, b'-' | b'_'));
    let alphabet = if is_url { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, CONFIG).decode(text).ok()
}

/// Returns a media type in lower case without parameters; empty if it is invalid.
fn essence(mime: &str) -> String {
    let mime = mime
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
    let is_valid = mime.len() <= 128
        && mime.split_once('/').is_some_and(|(kind, of)| {
            !kind.is_empty() && !of.is_empty() && kind.bytes().chain(of.bytes()).all(is_token)
        });
    match &*mime {
        "image/jpg" => "image/jpeg".to_owned(),
        _ if is_valid => mime,
        _ => String::new(),
    }
}

/// Guesses the media type of bytes whose server does not name it.
fn sniff(data: &[u8]) -> &'static str {
    match data {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => "image/webp",
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'A',
            b'V',
            b'E',
            ..,
        ] => "audio/wav",
        [b'%', b'P', b'D', b'F', ..] => "application/pdf",
        _ if std::str::from_utf8(data).is_ok() => "text/plain",
        _ => "application/octet-stream",
    }
}

/// Returns `true` if the media type is text.
fn is_text_type(mime: &str) -> bool {
    let ends = ["json", "xml", "yaml", "javascript", "toml", "sql", "x-sh"];
    mime.starts_with("text/")
        // No model accepts this as an image.
        || mime == "image/svg+xml"
        || mime
            .strip_prefix("application/")
            .is_some_and(|kind| ends.iter().any(|end| kind.ends_with(end)))
}

/// Returns `true` if some model accepts the media type.
fn is_displayable(mime: &str) -> bool {
    let kinds = ["image/", "audio/", "video/"];
    mime == "application/pdf"
        || (!is_text_type(mime) && kinds.iter().any(|kind| mime.starts_with(kind)))
}

/// Returns the file name of a resource: the last segment of its URI.
fn name_of(uri: &str) -> String {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    truncate(path.rsplit('/').next().unwrap_or_default(), 128).to_owned()
}
