//! Suggestions in errors about unknown names.

use levity_dag::__private::near;

/// Returns a clause with similar names, or with all names; empty if there are none.
///
/// Similar names win. Otherwise up to 20 names are listed, so that the reader sees what exists.
pub(super) fn hint<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    const MAX_NAMES: usize = 20;
    let names: Vec<&str> = names.into_iter().collect();
    let near = near(name, names.iter().copied());
    match names.len() {
        _ if !near.is_empty() => format!("; perhaps you meant `{}`", near.join("` or `")),
        0 => String::new(),
        1..=MAX_NAMES => format!("; available: `{}`", names.join("`, `")),
        more => format!(
            "; available: `{}` and {} more",
            names[..MAX_NAMES].join("`, `"),
            more - MAX_NAMES
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn hint_lists_similar_or_available_names() {
        assert_eq!(
            hint("brwser", ["browser", "rag"]),
            "; perhaps you meant `browser`"
        );
        assert_eq!(
            hint("zzz", ["browser", "rag"]),
            "; available: `browser`, `rag`"
        );
        assert_eq!(hint("zzz", []), "");
    }
}
