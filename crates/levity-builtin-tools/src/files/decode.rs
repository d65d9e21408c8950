//! Detection and decoding of text encodings.
//!
//! Only encodings that can be recognized with certainty are supported: UTF-8 with and without a
//! mark, and UTF-16 with a mark. Text in other encodings counts as UTF-8 with invalid bytes if
//! there are few, and as binary data otherwise.

/// The encoding of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    /// UTF-8 with a byte order mark, which is not part of the text.
    Utf8Bom,
    Utf16Le,
    Utf16Be,
}

const BOM: &[u8] = b"\xef\xbb\xbf";

/// The number of leading bytes that decide the encoding.
pub(super) const HEAD: usize = 8 << 10;

impl Encoding {
    /// Detects the encoding from the first bytes of a file; `None` if it is not text.
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0xff, 0xfe, 0, 0, ..] => None,
            [0xff, 0xfe, ..] => Some(Self::Utf16Le),
            [0xfe, 0xff, ..] => Some(Self::Utf16Be),
            _ if is_binary(start) => None,
            _ if start.starts_with(BOM) => Some(Self::Utf8Bom),
            _ => Some(Self::Utf8),
        }
    }

    /// Returns the byte order mark of this encoding.
    pub(super) fn mark(self) -> &'static [u8] {
        match self {
            Self::Utf8 => b"",
            Self::Utf8Bom => BOM,
            Self::Utf16Le => b"\xff\xfe",
            Self::Utf16Be => b"\xfe\xff",
        }
    }

    /// Returns `true` if a character takes two bytes or more, so that the file cannot be scanned
    /// for line endings.
    pub(super) fn is_wide(self) -> bool {
        matches!(self, Self::Utf16Le | Self::Utf16Be)
    }

    /// Decodes the bytes after the mark to UTF-8; invalid sequences become `\u{fffd}`.
    pub(super) fn decode(self, bytes: &[u8]) -> Vec<u8> {
        if !self.is_wide() {
            return bytes.to_vec();
        }
        let units = bytes.chunks(2).map(|pair| match (self, pair) {
            (Self::Utf16Be, &[high, low]) => u16::from_be_bytes([high, low]),
            (_, &[low, high]) => u16::from_le_bytes([low, high]),
            _ => 0xfffd,
        });
        let text: String = char::decode_utf16(units)
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        text.into_bytes()
    }

    /// Encodes UTF-8 text in this encoding.
    pub(super) fn encode(self, text: &[u8]) -> Vec<u8> {
        if !self.is_wide() {
            return text.to_vec();
        }
        let text = String::from_utf8_lossy(text);
        let pair = |unit: u16| {
            if self == Self::Utf16Be {
                unit.to_be_bytes()
            } else {
                unit.to_le_bytes()
            }
        };
        text.encode_utf16().flat_map(pair).collect()
    }
}

/// Returns `true` for a NUL or for many bytes that are not UTF-8, as in other encodings. A few
/// invalid bytes are accepted and shown as `\u{fffd}`.
fn is_binary(start: &[u8]) -> bool {
    let start = &start[..start.len().min(HEAD)];
    let invalid: usize = start.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    start.contains(&0) || invalid * 10 > start.len().max(20) * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_of_first_bytes_is_detected() {
        assert_eq!(Encoding::of(b""), Some(Encoding::Utf8));
        assert_eq!(Encoding::of("größe".as_bytes()), Some(Encoding::Utf8));
        assert_eq!(
            Encoding::of(b"gr\xf6\xdfe in Latin-1"),
            Some(Encoding::Utf8)
        );
        assert_eq!(Encoding::of(b"\xef\xbb\xbfa"), Some(Encoding::Utf8Bom));
        assert_eq!(Encoding::of(b"\xff\xfea\0"), Some(Encoding::Utf16Le));
        assert_eq!(Encoding::of(b"\xfe\xff\0a"), Some(Encoding::Utf16Be));
        assert_eq!(Encoding::of(b"\x7fELF\0"), None);
        assert_eq!(Encoding::of(&[0xcf; 100]), None);
    }

    #[test]
    fn utf16_text_survives_encode_and_decode() {
        for encoding in [Encoding::Utf16Le, Encoding::Utf16Be] {
            let bytes = encoding.encode("a😀\r\n".as_bytes());
            assert_eq!(encoding.decode(&bytes), "a😀\r\n".as_bytes());
        }
        assert_eq!(Encoding::Utf16Le.decode(b"a\0b"), "a\u{fffd}".as_bytes());
    }
}
