//! Text of strangers, cut to a length.

/// At most so many bytes of `text`, cut between characters.
pub(super) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

/// A name for a message.
pub(super) fn short(name: &str) -> &str {
    cut(name, 128)
}

/// A number of bytes, with its unit.
pub(super) fn bytes(count: usize) -> String {
    match count {
        1 => "1 byte".to_owned(),
        count => format!("{count} bytes"),
    }
}
