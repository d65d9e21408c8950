//! Text that replaces media in a tool's result that a provider does not accept. A rejected request
//! would end the run, although no one in it chose the tool's output. Unsupported media from the
//! user cause an error instead, so that the sender notices.

use std::borrow::Cow;

use levity_core::{Media, MediaSource};

/// Valid media types are shorter, and a truncated address would be useless.
const MAX_TYPE_LENGTH: usize = 100;
const MAX_ADDRESS_LENGTH: usize = 2_000;

/// Returns the text that replaces the media.
///
/// The text names the kind, the type and the size or the address, so that the model can inform the
/// user or use another tool. A data URL is left out, because it contains the media itself.
pub(crate) fn description(media: &Media) -> String {
    let kind = match kind(media) {
        "audio" => "a sound",
        "video" => "a video",
        "image" => "an image",
        _ => "a file",
    };
    let mime: Cow<'_, str> = match &*media.mime {
        "" => "an unknown type".into(),
        mime => format!(
            "type {}",
            mime.chars().take(MAX_TYPE_LENGTH).collect::<String>()
        )
        .into(),
    };
    let location = match &media.source {
        MediaSource::Bytes(bytes) => format!(", {} bytes", bytes.as_slice().len()),
        MediaSource::Url(url) if !url.starts_with("data:") && url.len() <= MAX_ADDRESS_LENGTH => {
            format!(", at {url}")
        }
        _ => String::new(),
    };
    format!("({kind} of {mime}{location}, which this model cannot accept)")
}

/// Appends the replacement text on a separate line.
#[cfg(any(feature = "openai", feature = "compatible", feature = "ollama"))]
pub(crate) fn with_description(text: &str, media: &Media) -> String {
    let gap = if text.is_empty() { "" } else { "\n" };
    format!("{text}{gap}{}", description(media))
}

/// Returns `true` if OpenAI's models accept this media in a tool result: no audio, no video and no
/// uncommon image format.
///
/// Images at an address are accepted whatever their type, since the server fetches and checks them.
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(crate) fn openai_accepts(media: &Media) -> bool {
    let images = [
        "image/png",
        "image/jpeg",
        "image/jpg",
        "image/gif",
        "image/webp",
    ];
    let mime = media
        .mime
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match (kind(media), &media.source) {
        ("audio" | "video", _) => false,
        ("image", MediaSource::Bytes(_)) => images.contains(&&*mime),
        _ => true,
    }
}

/// Returns the first half of the media type.
fn kind(media: &Media) -> &str {
    media.mime.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacement_describes_media() {
        let describe = |media: Media| description(&media);
        assert_eq!(
            describe(Media::bytes("audio/wav", vec![0; 12_345])),
            "(a sound of type audio/wav, 12345 bytes, which this model cannot accept)"
        );
        assert_eq!(
            describe(Media::url("video/mp4", "https://a.example/b")),
            "(a video of type video/mp4, at https://a.example/b, which this model cannot accept)"
        );
        assert_eq!(
            describe(Media::url("", "data:audio/wav;base64,AQ==")),
            "(a file of an unknown type, which this model cannot accept)"
        );
        assert!(describe(Media::bytes("x".repeat(1 << 20), vec![1])).len() < 200);
    }
}
