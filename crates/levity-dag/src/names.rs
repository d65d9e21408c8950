//! Names: which was meant, and how one is shown.

use std::borrow::Cow;

use levity_core::text::head;

/// Longer names are not compared: nobody mistypes them, and comparing takes the square of their
/// length.
const COMPARED: usize = 64;

/// How many names are compared.
const LOOKED_AT: usize = 2_000;

/// How many bytes of a name are shown.
const SHOWN: usize = 80;

/// The names that may have been meant, the likeliest first; at most three. Case and the marks
/// between words do not count.
pub fn near<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if name.is_empty() || name.len() > COMPARED {
        return Vec::new();
    }
    let lower = squeezed(name);
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .take(LOOKED_AT)
        .filter_map(|other| Some((distance(&lower, other)?, other)))
        .collect();
    near.sort_unstable();
    near.truncate(3);
    near.into_iter().map(|(_, name)| name).collect()
}

/// How far apart two names are, if they are near; `Retriever` is near `RetrieverAgent`.
fn distance(lower: &str, other: &str) -> Option<usize> {
    if other.is_empty() || other.len() > COMPARED {
        return None;
    }
    let other = squeezed(other);
    let longer = lower.len().max(other.len());
    let part = lower.len().min(other.len()) >= 3
        && (lower.starts_with(&other) || other.starts_with(lower));
    if !part && lower.len().abs_diff(other.len()) > longer / 3 {
        return None;
    }
    let distance = strsim::osa_distance(lower, &other);
    (part || distance <= (longer / 3).max(usize::from(longer > 1))).then_some(distance)
}

/// A name without case and without `_`, `-` and spaces.
fn squeezed(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

/// `; did you mean ..` for a fault, or nothing.
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

/// A name as it is shown: not longer than a line, and on one line.
pub fn short(name: &str) -> Cow<'_, str> {
    if name.len() <= SHOWN && !name.contains(char::is_control) {
        return Cow::Borrowed(name);
    }
    let clean = head(name, SHOWN).replace(char::is_control, "\u{fffd}");
    Cow::Owned(if name.len() > SHOWN {
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
    fn near_names() {
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
    fn case_and_marks_do_not_count() {
        let keys = ["prompt", "prompt_file", "max_turns", "model"];
        assert_eq!(near("promt_file", keys), ["prompt_file"]);
        assert_eq!(near("MaxTurns", keys), ["max_turns"]);
        assert_eq!(near("modle", keys), ["model"]);
        assert!(near("colour", keys).is_empty());
    }

    #[test]
    fn long_names_are_cut_between_letters() {
        assert_eq!(short("page"), "page");
        assert_eq!(short("a\nb"), "a\u{fffd}b");
        assert_eq!(short(&"é".repeat(100)).chars().count(), 41);
    }
}
