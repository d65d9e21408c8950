//! Folders of sessions.

use levity_core::{Digest, Secrets};

/// The most letters of an id that a folder's name shows.
const MAX: usize = 80;

/// Names that some systems have given to devices.
const TAKEN: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];

/// A name for the folder of a session. An id comes from anybody, so what a path would take for more
/// than letters is replaced, and so is what looks like a secret; a fingerprint then keeps different
/// ids apart.
pub(super) fn name(id: &str, secrets: &Secrets) -> String {
    let shown = secrets.redact(id);
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '_'
        }
    };
    let mut name: String = shown.chars().map(safe).take(MAX).collect();
    if name.starts_with('.') || name.starts_with('-') {
        name.replace_range(..1, "_");
    }
    let stem = name
        .split('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let taken = TAKEN
        .iter()
        .any(|taken| stem.trim_end_matches(|c: char| c.is_ascii_digit()) == *taken);
    if name == id && !name.is_empty() && !taken && !name.ends_with('.') {
        return name;
    }
    format!("{name}-{}", Digest::EMPTY.with(id.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_ids_stay_as_they_are() {
        for id in ["a", "0123abcdef", "chat-2026.11_16", "r1.3"] {
            assert_eq!(name(id, &Secrets::new()), id);
        }
    }

    #[test]
    fn no_id_leaves_the_folder() {
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
            let plain = name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
            assert!(
                plain && !name.starts_with('.') && name.len() <= 100,
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
    fn a_secret_is_in_no_name() {
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
