//! The kind of a response, by its content type and first bytes.
//!
//! The content type of the server is tried first, and the bytes decide if it says nothing. Binary
//! data is refused in any case by its signature, even if the server calls it text.

/// A content type that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Html,
    Json,
    /// XML that is shown unchanged, such as feeds and sitemaps.
    Xml,
    Text,
}

impl Kind {
    /// Returns the word for `kind` in the tool's value.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Json => "json",
            Self::Xml => "xml",
            Self::Text => "text",
        }
    }

    /// Detects the kind from the content type. `Err` names an unreadable type, `None` means
    /// unknown.
    pub(super) fn of_type(content_type: &str) -> Result<Option<Self>, String> {
        let kind = content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        let (main, sub) = kind.split_once('/').unwrap_or((&kind, ""));
        match (main, sub) {
            ("text", "html") | ("application", "xhtml+xml") => Ok(Some(Self::Html)),
            (_, sub) if sub == "json" || sub.ends_with("+json") => Ok(Some(Self::Json)),
            ("image", "svg+xml") => Err("an image (SVG)".to_owned()),
            (_, sub) if sub == "xml" || sub.ends_with("+xml") => Ok(Some(Self::Xml)),
            ("text", _) => Ok(Some(Self::Text)),
            ("application", sub) if TEXTS.contains(&sub) => Ok(Some(Self::Text)),
            ("", _)
            | ("application", "octet-stream" | "x-download" | "force-download")
            | ("binary", _) => Ok(None),
            ("application", "pdf") => Err("a PDF document".to_owned()),
            ("image", sub) => Err(format!("an image ({})", short(sub))),
            ("audio", sub) => Err(format!("a sound ({})", short(sub))),
            ("video", sub) => Err(format!("a video ({})", short(sub))),
            ("font", _) => Err("a font".to_owned()),
            _ => Err(format!("`{}`", short(&kind))),
        }
    }

    /// Detects the kind from the first bytes; `Err` names an unreadable type.
    pub(super) fn of_bytes(bytes: &[u8]) -> Result<Self, String> {
        refuse_binary(bytes)?;
        let head = String::from_utf8_lossy(&bytes[..bytes.len().min(512)])
            .trim_start()
            .to_ascii_lowercase();
        let begins = |starts: &[&str]| {
            starts
                .iter()
                .any(|start| head.trim_start_matches('\u{feff}').starts_with(start))
        };
        Ok(match () {
            () if begins(&[
                "<!doctype html",
                "<html",
                "<head",
                "<body",
                "<!--",
                "<title",
                "<p>",
                "<div",
            ]) =>
            {
                Self::Html
            }
            () if begins(&["<?xml", "<rss", "<feed"]) => Self::Xml,
            () if begins(&["{", "["]) => Self::Json,
            () => Self::Text,
        })
    }
}

/// Rejects binary data, whatever the content type.
pub(super) fn refuse_binary(bytes: &[u8]) -> Result<(), String> {
    if let Some((_, name)) = SIGNATURES
        .iter()
        .find(|(start, _)| bytes.starts_with(start))
    {
        return Err((*name).to_owned());
    }
    let head = &bytes[..bytes.len().min(1024)];
    let is_wide = head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff");
    let zeros = head.iter().filter(|byte| **byte == 0).count();
    // A few NULs are an error in a text; many mean binary data.
    if !is_wide && zeros * 10 > head.len() {
        Err("binary data".to_owned())
    } else {
        Ok(())
    }
}

/// A content type comes from the server, so only 60 visible ASCII characters are shown.
fn short(text: &str) -> String {
    text.chars()
        .filter(char::is_ascii_graphic)
        .take(60)
        .collect()
}

/// Subtypes of `application` that are text.
const TEXTS: &[&str] = &[
    "csv",
    "ecmascript",
    "graphql",
    "javascript",
    "ld+json",
    "markdown",
    "rtf",
    "sql",
    "toml",
    "x-httpd-php",
    "x-javascript",
    "x-ndjson",
    "x-python",
    "x-sh",
    "x-tex",
    "x-toml",
    "x-yaml",
    "yaml",
];

/// First bytes of binary formats, with the words for the model.
const SIGNATURES: &[(&[u8], &str)] = &[
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG\r\n", "an image (png)"),
    (b"\xff\xd8\xff", "an image (jpeg)"),
    (b"GIF8", "an image (gif)"),
    (b"RIFF", "a sound, video or image"),
    (b"PK\x03\x04", "an archive or office document"),
    (b"\x1f\x8b", "compressed data"),
    (b"7z\xbc\xaf", "an archive"),
    (b"Rar!\x1a", "an archive"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90\0", "a program"),
    (b"OggS", "a sound or video"),
    (b"ID3", "a sound"),
    (b"wOF2", "a font"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_content_type_is_detected() {
        let of = |text: &str| Kind::of_type(text);
        assert_eq!(of("Text/HTML; charset=utf-8"), Ok(Some(Kind::Html)));
        assert_eq!(of("application/problem+json"), Ok(Some(Kind::Json)));
        assert_eq!(of("application/rss+xml"), Ok(Some(Kind::Xml)));
        assert_eq!(of("text/markdown"), Ok(Some(Kind::Text)));
        assert_eq!(
            (of(""), of("application/octet-stream")),
            (Ok(None), Ok(None))
        );
        assert_eq!(of("application/pdf"), Err("a PDF document".to_owned()));
        assert_eq!(of("image/png"), Err("an image (png)".to_owned()));
        assert_eq!(of("application/zip"), Err("`application/zip`".to_owned()));
    }

    #[test]
    fn kind_of_first_bytes_is_detected() {
        assert_eq!(Kind::of_bytes(b" \n<!DOCTYPE html><p>"), Ok(Kind::Html));
        assert_eq!(Kind::of_bytes(b"{\"a\": 1}"), Ok(Kind::Json));
        assert_eq!(Kind::of_bytes(b"\xef\xbb\xbf<?xml?>"), Ok(Kind::Xml));
        assert_eq!(Kind::of_bytes(b"hello"), Ok(Kind::Text));
        assert_eq!(Kind::of_bytes(b""), Ok(Kind::Text));
        assert!(Kind::of_bytes(b"%PDF-1.7").is_err() && Kind::of_bytes(&[0, 1, 2, 3]).is_err());
        assert_eq!(refuse_binary(b"\xff\xfeh\0i\0"), Ok(()));
        assert_eq!(refuse_binary(b"a text with one \0 in it"), Ok(()));
    }
}
