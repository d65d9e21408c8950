//! Folder names of sessions.
//!
//! A plain id is its own folder name. Every other id gets a readable part and a hash of the id, so
//! that two ids never share a folder and no id leaves the log folder.

use levity_core::{Digest, Secrets};

/// The maximum number of characters of an id in a folder name.
const MAX_CHARS: usize = 80;

/// Names that some systems reserve for devices.
const RESERVED: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];

/// Returns a folder name for a session. Ids are untrusted, so characters with a meaning in paths
/// and secrets are replaced; a hash then keeps different ids apart.
pub(super) fn name(id: &str, secrets: &Secrets) -> String {
    let shown = secrets.redact(id);
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '_'
        }
    };
    let mut name: String = shown.chars().map(safe).take(MAX_CHARS).collect();
    if name.starts_with('.') || name.starts_with('-') {
        name.replace_range(..1, "_");
    }
    let stem = name
        .split('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let reserved = RESERVED
        .iter()
        .any(|reserved| stem.trim_end_matches(|c: char| c.is_ascii_digit()) == *reserved);
    if name == id && !name.is_empty() && !reserved && !name.ends_with('.') {
        return name;
    }
    format!("{name}-{}", Digest::EMPTY.with(id.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_leaves_plain_ids_unchanged() {
        for id in ["a", "0123abcdef", "chat-2026.11_16", "r1.3"] {
            assert_eq!(name(id, &Secrets::new()), id);
        }
    }

    #[test]
    fn name_of_hostile_id_stays_in_folder() {
        let long = "x".repeat(5_000);
        let ids = [
            "",
            ".",
            "..",
            "../../etc",
            "/etc/passwd",
            "a/b",
            "a\\b",
            "C:\\x",
            "nul",
            "COM1.txt",
            "a\0b",
            "ä",
            &long,
        ];
        let names: Vec<String> = ids.iter().map(|id| name(id, &Secrets::new())).collect();
        for (id, name) in ids.iter().zip(&names) {
            let sanitize = name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
            assert!(
                sanitize && !name.starts_with('.') && name.len() <= 100,
                "{id:?} became {name:?}"
            );
            assert_eq!(std::path::Path::new(name).components().count(), 1);
        }
        let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(
            distinct.len(),
            ids.len(),
            "different ids have different folders"
        );
    }

    #[test]
    fn name_contains_no_secret() {
        let name = name(
            "chat-of-hunter2hunter2",
            &Secrets::new().known("hunter2hunter2"),
        );
        assert!(
            name.starts_with("chat-of-") && !name.contains("hunter2"),
            "{name}"
        );
    }
}
