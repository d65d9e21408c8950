use levity_dag::__private::near;

/// A clause that names what was probably meant, or all there is; empty when there is nothing.
pub(super) fn hint<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 20;
    let names: Vec<&str> = names.into_iter().collect();
    let near = near(wanted, names.iter().copied());
    match names.len() {
        _ if !near.is_empty() => format!("; perhaps `{}` is meant", near.join("` or `")),
        0 => String::new(),
        1..=MOST => format!("; there is `{}`", names.join("`, `")),
        more => format!(
            "; there is `{}` and {} more",
            names[..MOST].join("`, `"),
            more - MOST
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn hints_name_what_there_is() {
        assert_eq!(
            hint("brwser", ["browser", "rag"]),
            "; perhaps `browser` is meant"
        );
        assert_eq!(
            hint("zzz", ["browser", "rag"]),
            "; there is `browser`, `rag`"
        );
        assert_eq!(hint("zzz", []), "");
    }
}
