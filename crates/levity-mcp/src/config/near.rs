//! Names that were probably meant.

/// The one of `names` that differs least from `wanted`, if that is little enough to be a slip. Case and the marks between words do
/// not count.
pub(super) fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 40;
    let wanted = squeezed(wanted);
    if wanted.is_empty() || wanted.len() > LONGEST {
        return None;
    }
    let all = names.into_iter().map(|name| (edits(&wanted, &squeezed(name)), name));
    let (edits, name) = all.min_by_key(|(edits, _)| *edits)?;
    (edits <= wanted.len() / 3).then_some(name)
}

/// A name without case and without `_`, `-` and spaces: as settings are compared.
pub(super) fn squeezed(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// How many characters must be put in, left out or replaced to make one of the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (done, left) in from.chars().enumerate() {
        let mut before = row[0];
        row[0] = done + 1;
        for (at, right) in to.iter().enumerate() {
            let replaced = before + usize::from(left != *right);
            before = row[at + 1];
            row[at + 1] = replaced.min(before + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::{edits, nearest};

    #[track_caller]
    fn check(wanted: &str, expected: Option<&str>) {
        assert_eq!(nearest(wanted, ["command", "args", "startLimit", "env"]), expected, "{wanted}");
    }

    #[test]
    fn slips_are_found() {
        check("comand", Some("command"));
        check("START_LIMITS", Some("startLimit"));
        check("arg", Some("args"));
        check("colour", None);
        check("", None);
        check(&"x".repeat(1_000), None);
    }

    #[test]
    fn edits_are_counted() {
        for (from, to, expected) in [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("日本", "日", 1)]
        {
            assert_eq!((edits(from, to), edits(to, from)), (expected, expected), "{from} {to}");
        }
    }
}
