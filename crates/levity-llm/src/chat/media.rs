//! Encodes images, audio, video and documents.
//!
//! Bytes are written as base64 directly into the body, without a copy in between. The protocol of
//! OpenAI has images by URL or data, and audio and documents as data. Other servers also accept
//! video and audio by URL.

use std::fmt;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use levity_core::{Media, MediaSource, ModelError, ModelErrorKind};
use serde::{Serialize, Serializer};

use super::Dialect;
use crate::body::{Body, list};

/// A media part of a message's content.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum MediaPart<'a> {
    ImageUrl { image_url: UrlObject<'a> },
    VideoUrl { video_url: UrlObject<'a> },
    AudioUrl { audio_url: UrlObject<'a> },
    InputAudio { input_audio: AudioData<'a> },
    File { file: File<'a> },
}

/// The object that the protocol puts around a URL.
#[derive(Serialize)]
pub(super) struct UrlObject<'a> {
    url: Url<'a>,
}

/// The base64 of a sound, and its format.
#[derive(Serialize)]
pub(super) struct AudioData<'a> {
    #[serde(serialize_with = "base64")]
    data: &'a [u8],
    format: &'a str,
}

/// The data of a document with its name; a document without a name is called `file`.
#[derive(Serialize)]
pub(super) struct File<'a> {
    filename: &'a str,
    file_data: Url<'a>,
}

/// The URL of a media item, which may contain its data.
pub(super) struct Url<'a>(&'a Media);

impl Serialize for Url<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Url<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.source {
            MediaSource::Url(url) => f.write_str(url),
            MediaSource::Bytes(bytes) => {
                write!(
                    f,
                    "data:{};base64,{}",
                    self.0.mime,
                    Base64Display::new(bytes.as_slice(), &STANDARD)
                )
            }
            _ => Ok(()),
        }
    }
}

/// Serializes bytes as base64.
fn base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Base64Display::new(bytes, &STANDARD))
}

/// Returns the part for a media item.
///
/// # Errors
/// Returns `BadRequest` if OpenAI does not accept such media. Other servers accept more or less,
/// and report it themselves.
pub(super) fn part(media: &Media, dialect: Dialect) -> Result<MediaPart<'_>, ModelError> {
    let at = || UrlObject { url: Url(media) };
    let kind = media.mime.split_once('/');
    let (part, accepted) = match (&media.source, kind) {
        (_, Some(("image", _))) => (MediaPart::ImageUrl { image_url: at() }, true),
        (MediaSource::Bytes(bytes), Some(("audio", format))) => {
            let input_audio = AudioData {
                data: bytes.as_slice(),
                format: audio_format(format),
            };
            (MediaPart::InputAudio { input_audio }, true)
        }
        (_, Some(("audio", _))) => (MediaPart::AudioUrl { audio_url: at() }, false),
        (_, Some(("video", _))) => (MediaPart::VideoUrl { video_url: at() }, false),
        (source, _) => {
            let filename = media.name.as_deref().unwrap_or("file");
            let file = File {
                filename,
                file_data: Url(media),
            };
            (
                MediaPart::File { file },
                matches!(source, MediaSource::Bytes(_)),
            )
        }
    };
    if accepted || dialect != Dialect::OpenAi {
        return Ok(part);
    }
    let message = match kind {
        Some(("video", _)) => "OpenAI does not accept video; send images of it",
        _ => "OpenAI accepts audio and documents only as bytes, not by URL",
    };
    Err(ModelError::new(ModelErrorKind::BadRequest, message))
}

/// Returns this protocol's name for an audio format.
///
/// `audio/mpeg` is `mp3` and `audio/x-wav` is `wav`; other names stay.
fn audio_format(format: &str) -> &str {
    match format.strip_prefix("x-").unwrap_or(format) {
        "mpeg" => "mp3",
        "wave" | "vnd.wave" => "wav",
        format => format,
    }
}

/// Appends a user message that shows these media.
///
/// Nothing is written if there are no media.
///
/// # Errors
/// Returns `BadRequest` as [`part`] does.
pub(super) fn write_media_message<'a>(
    bytes: &mut Vec<u8>,
    all: impl Iterator<Item = &'a Media>,
    dialect: Dialect,
) -> Result<(), ModelError> {
    let parts = all
        .map(|media| part(media, dialect))
        .collect::<Result<Vec<_>, _>>()?;
    if parts.is_empty() {
        return Ok(());
    }
    if !bytes.is_empty() {
        bytes.push(b',');
    }
    let mut body = Body::new();
    body.field("role", "user");
    body.raw("content", |bytes| {
        list(bytes, |list| parts.iter().for_each(|part| list.item(part)));
    });
    bytes.extend(body.finish());
    Ok(())
}
