//! Width and height from the first bytes of an image.
//!
//! Only fixed positions of the header are read, with checked access: a truncated or hostile file
//! gives `None`. No image data is decoded.

/// Returns the size of a PNG, JPEG, GIF or WebP image in pixels, if its header is valid.
pub(super) fn size(head: &[u8]) -> Option<(u32, u32)> {
    match head {
        [0x89, b'P', b'N', b'G', ..] => png(head),
        [b'G', b'I', b'F', ..] => Some((le16(head, 6)?, le16(head, 8)?)),
        [0xff, 0xd8, ..] => jpeg(head),
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
        ] => webp(head),
        _ => None,
    }
}

/// The first chunk must be `IHDR`; its first two numbers are width and height.
fn png(head: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?));
    (head.get(12..16)? == b"IHDR").then_some((number(16)?, number(20)?))
}

/// Reads two bytes with the low byte first; `None` beyond the end.
fn le16(head: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(u16::from_le_bytes(
        head.get(at..at + 2)?.try_into().ok()?,
    )))
}

/// Reads two bytes with the high byte first; `None` beyond the end.
fn be16(head: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(
        head.get(at..at + 2)?.try_into().ok()?,
    )))
}

/// Reads the size from the first chunk, which is lossy, lossless or extended. Each stores the size
/// in its own format.
fn webp(head: &[u8]) -> Option<(u32, u32)> {
    let byte = |at: usize| head.get(at).copied().map(u32::from);
    match head.get(12..16)? {
        b"VP8 " if head.get(23..26)? == [0x9d, 0x01, 0x2a] => {
            // The upper two bits are a scaling hint.
            Some((le16(head, 26)? & 0x3fff, le16(head, 28)? & 0x3fff))
        }
        b"VP8L" if byte(20)? == 0x2f => {
            let bits = u32::from_le_bytes(head.get(21..25)?.try_into().ok()?);
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => {
            let le24 = |at: usize| Some(byte(at)? | byte(at + 1)? << 8 | byte(at + 2)? << 16);
            Some((le24(24)? + 1, le24(27)? + 1))
        }
        _ => None,
    }
}

/// Follows the markers up to the start of the frame.
fn jpeg(head: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *head.get(at)? != 0xff {
            return None;
        }
        match *head.get(at + 1)? {
            // These are fill bytes and markers without a length.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            0xc0..=0xcf if !matches!(head[at + 1], 0xc4 | 0xc8 | 0xcc) => {
                return Some((be16(head, at + 7)? as u32, be16(head, at + 5)? as u32));
            }
            // This is the image data or its end.
            0xd9 | 0xda => return None,
            _ => at += 2 + be16(head, at + 2)?.max(2),
        }
    }
}
