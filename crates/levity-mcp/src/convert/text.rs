//! Truncation of texts from servers.

pub(super) use crate::text::truncate;

/// Truncates a name for a message.
pub(super) fn short(name: &str) -> &str {
    truncate(name, 128)
}

/// Formats a number of bytes with its unit.
pub(super) fn bytes(count: usize) -> String {
    match count {
        1 => "1 byte".to_owned(),
        count => format!("{count} bytes"),
    }
}
