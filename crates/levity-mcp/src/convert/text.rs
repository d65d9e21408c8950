//! Text of strangers, cut to a length.

pub(super) use crate::text::cut;

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
