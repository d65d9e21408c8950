//! Images, sounds, films and documents.

use std::fmt;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use levity_core::{Media, MediaSource, ModelError, ModelErrorKind};
use serde::{Serialize, Serializer};

use super::Dialect;
use crate::body::{Body, list};

/// A part of a message's content.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum MediaPart<'a> {
    ImageUrl { image_url: At<'a> },
    VideoUrl { video_url: At<'a> },
    AudioUrl { audio_url: At<'a> },
    InputAudio { input_audio: Sound<'a> },
    File { file: File<'a> },
}

#[derive(Serialize)]
pub(super) struct At<'a> {
    url: Url<'a>,
}

#[derive(Serialize)]
pub(super) struct Sound<'a> {
    #[serde(serialize_with = "base64")]
    data: &'a [u8],
    format: &'a str,
}

#[derive(Serialize)]
pub(super) struct File<'a> {
    filename: &'a str,
    file_data: Url<'a>,
}

/// The address of a thing, which may hold all of it.
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

fn base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Base64Display::new(bytes, &STANDARD))
}

/// The part that a thing becomes.
///
/// # Errors
/// `BadRequest` when OpenAI takes no such thing. Other servers take more or less, and say so
/// themselves.
pub(super) fn part(media: &Media, dialect: Dialect) -> Result<MediaPart<'_>, ModelError> {
    let at = || At { url: Url(media) };
    let kind = media.mime.split_once('/');
    let (part, taken) = match (&media.source, kind) {
        (_, Some(("image", _))) => (MediaPart::ImageUrl { image_url: at() }, true),
        (MediaSource::Bytes(bytes), Some(("audio", format))) => {
            let input_audio = Sound {
                data: bytes.as_slice(),
                format: sound(format),
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
    if taken || dialect != Dialect::OpenAi {
        return Ok(part);
    }
    let message = match kind {
        Some(("video", _)) => "OpenAI takes no video; send pictures of it",
        _ => "OpenAI takes sounds and documents only as bytes, not by their address",
    };
    Err(ModelError::new(ModelErrorKind::BadRequest, message))
}

/// What a kind of sound is called here.
fn sound(format: &str) -> &str {
    match format.strip_prefix("x-").unwrap_or(format) {
        "mpeg" => "mp3",
        "wave" | "vnd.wave" => "wav",
        format => format,
    }
}

/// Writes a message of the user's that shows these, behind what is written already.
pub(super) fn shown<'a>(
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
