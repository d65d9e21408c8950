//! Suggestions for mistyped names, and short forms of names for messages.
//!
//! Names come from plans, which are untrusted: they may be long or contain control characters, and
//! there may be thousands of them. Comparisons are therefore limited to 64 bytes and 2,000
//! candidates.

use std::borrow::Cow;

use levity_core::text::head;

/// The longest name that is compared. Longer names are rarely mistyped, and the cost is quadratic.
const MAX_COMPARED_BYTES: usize = 64;

/// The maximum number of names that are compared.
const MAX_CANDIDATES: usize = 2_000;

/// The maximum number of bytes of a name in a message.
const MAX_SHOWN_BYTES: usize = 80;

/// Returns up to three similar names, the most similar first. Case and the separators between words
/// do not count.
pub fn near<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if name.is_empty() || name.len() > MAX_COMPARED_BYTES {
        return Vec::new();
    }
    let lower = normalized(name);
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter_map(|other| Some((distance(&lower, other)?, other)))
        .collect();
    near.sort_unstable();
    near.truncate(3);
    near.into_iter().map(|(_, name)| name).collect()
}

/// Returns the edit distance of two names if they are similar; `Retriever` is similar to
/// `RetrieverAgent`.
fn distance(lower: &str, other: &str) -> Option<usize> {
    if other.is_empty() || other.len() > MAX_COMPARED_BYTES {
        return None;
    }
    let other = normalized(other);
    let longer = lower.len().max(other.len());
    let part = lower.len().min(other.len()) >= 3
        && (lower.starts_with(&other) || other.starts_with(lower));
    if !part && lower.len().abs_diff(other.len()) > longer / 3 {
        return None;
    }
    let distance = strsim::osa_distance(lower, &other);
    (part || distance <= (longer / 3).max(usize::from(longer > 1))).then_some(distance)
}

/// Normalizes a name: lower case, without `_`, `-` and spaces.
fn normalized(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Returns `; did you mean ..` for a fault, or an empty text.
pub(crate) fn did_you_mean<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let near: Vec<_> = near(name, names)
        .into_iter()
        .map(|name| format!("`{name}`"))
        .collect();
    if near.is_empty() {
        String::new()
    } else {
        format!("; did you mean {}?", near.join(" or "))
    }
}

/// Shortens a name to one line for a message.
pub fn short(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_SHOWN_BYTES && !name.contains(char::is_control) {
        return Cow::Borrowed(name);
    }
    let clean = head(name, MAX_SHOWN_BYTES).replace(char::is_control, "\u{fffd}");
    Cow::Owned(if name.len() > MAX_SHOWN_BYTES {
        format!("{clean}…")
    } else {
        clean
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: &[&str]) {
        let names = [
            "Retriever",
            "Summarizer",
            "Thinker",
            "QA",
            "Coder",
            "a",
            "page",
            "pages",
        ];
        assert_eq!(near(name, names), expected, "{name}");
    }

    #[test]
    fn near_returns_similar_names() {
        check("Retreiver", &["Retriever"]);
        check("RetrieverAgent", &["Retriever"]);
        check("summariser", &["Summarizer"]);
        check("pagge", &["page"]);
        check("pagee", &["page", "pages"]);
        check("qa", &["QA"]);
        check("b", &[]);
        check("Painter", &[]);
        check("", &[]);
        check(&"Retriever".repeat(100), &[]);
    }

    #[test]
    fn near_ignores_case_and_separators() {
        let keys = ["prompt", "prompt_file", "max_turns", "model"];
        assert_eq!(near("promt_file", keys), ["prompt_file"]);
        assert_eq!(near("MaxTurns", keys), ["max_turns"]);
        assert_eq!(near("modle", keys), ["model"]);
        assert!(near("colour", keys).is_empty());
    }

    #[test]
    fn short_cuts_long_names_between_characters() {
        assert_eq!(short("page"), "page");
        assert_eq!(short("a\nb"), "a\u{fffd}b");
        assert_eq!(short(&"é".repeat(100)).chars().count(), 41);
    }
}
