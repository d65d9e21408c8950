//! Words for media in a tool's answer that a provider does not take. A refused request would end
//! the run, and nobody in it chose what the tool returns; media of the user's own are refused, so
//! that whoever sends them knows.

use std::borrow::Cow;

use levity_core::{Media, MediaSource};

/// No type that means something is longer, and an address that is cut leads nowhere.
const LONGEST_TYPE: usize = 100;
const LONGEST_ADDRESS: usize = 2_000;

/// What stands in its place.
pub(crate) fn words(media: &Media) -> String {
    let kind = match kind(media) {
        "audio" => "a sound",
        "video" => "a film",
        "image" => "an image",
        _ => "a file",
    };
    let mime: Cow<'_, str> = match &*media.mime {
        "" => "an unknown type".into(),
        mime => format!(
            "type {}",
            mime.chars().take(LONGEST_TYPE).collect::<String>()
        )
        .into(),
    };
    let place = match &media.source {
        MediaSource::Bytes(bytes) => format!(", {} bytes", bytes.as_slice().len()),
        MediaSource::Url(url) if !url.starts_with("data:") && url.len() <= LONGEST_ADDRESS => {
            format!(", at {url}")
        }
        _ => String::new(),
    };
    format!("({kind} of {mime}{place}, which this model cannot take)")
}

/// A text, and on a line of their own behind it the words.
#[cfg(any(feature = "openai", feature = "compatible", feature = "ollama"))]
pub(crate) fn told(text: &str, media: &Media) -> String {
    let gap = if text.is_empty() { "" } else { "\n" };
    format!("{text}{gap}{}", words(media))
}

/// Whether OpenAI's models are shown this where a tool returned it: no sound, no film, and no rare
/// kind of image.
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(crate) fn openai_takes(media: &Media) -> bool {
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

/// The first half of its type.
fn kind(media: &Media) -> &str {
    media.mime.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_it_was() {
        let said = |media: Media| words(&media);
        assert_eq!(
            said(Media::bytes("audio/wav", vec![0; 12_345])),
            "(a sound of type audio/wav, 12345 bytes, which this model cannot take)"
        );
        assert_eq!(
            said(Media::url("video/mp4", "https://a.example/b")),
            "(a film of type video/mp4, at https://a.example/b, which this model cannot take)"
        );
        assert_eq!(
            said(Media::url("", "data:audio/wav;base64,AQ==")),
            "(a file of an unknown type, which this model cannot take)"
        );
        assert!(said(Media::bytes("x".repeat(1 << 20), vec![1])).len() < 200);
    }
}
