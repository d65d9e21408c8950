//! Names that were probably meant.

/// How much of a name is shown.
const LONGEST: usize = 64;

/// Those of `names` that differ little enough from `wanted` to be a slip, the nearest first; at most three. Case and the
/// marks between words do not count.
pub(crate) fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = squeezed(wanted);
    if wanted.is_empty() || wanted.len() > LONGEST {
        return Vec::new();
    }
    let most = wanted.chars().count() / 3;
    let near = names.into_iter().map(|name| (strsim::damerau_levenshtein(&wanted, &squeezed(name)), name));
    let mut near: Vec<_> = near.filter(|(edits, _)| *edits <= most).collect();
    near.sort();
    near.truncate(3);
    near.into_iter().map(|(_, name)| name).collect()
}

/// A clause that names what was probably meant, or all there is; empty when there is nothing.
pub(crate) fn hint<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 20;
    let names: Vec<&str> = names.into_iter().collect();
    let near = nearest(wanted, names.iter().copied());
    match (near.is_empty(), names.len()) {
        (false, _) => format!("; perhaps `{}` is meant", near.join("` or `")),
        (true, 0) => String::new(),
        (true, 1..=MOST) => format!("; there is `{}`", names.join("`, `")),
        (true, more) => format!("; there is `{}` and {} more", names[..MOST].join("`, `"), more - MOST),
    }
}

/// A name without case and without `_`, `-` and spaces.
fn squeezed(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// A name as it stands in a message: not too long, and on one line.
pub(crate) fn short(name: &str) -> String {
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut short: String = name.chars().take(LONGEST).map(clean).collect();
    if name.chars().nth(LONGEST).is_some() {
        short.push_str("..");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::{hint, nearest, short};

    #[test]
    fn slips_are_found() {
        let keys = ["prompt", "prompt_file", "max_turns", "model"];
        let check = |wanted: &str, expected: &[&str]| assert_eq!(nearest(wanted, keys), expected, "{wanted}");
        check("promt_file", &["prompt_file"]);
        check("MaxTurns", &["max_turns"]);
        check("modle", &["model"]);
        check("colour", &[]);
        check("", &[]);
        check(&"x".repeat(10_000), &[]);
    }

    #[test]
    fn hints_name_what_there_is() {
        assert_eq!(hint("brwser", ["browser", "rag"]), "; perhaps `browser` is meant");
        assert_eq!(hint("zzz", ["browser", "rag"]), "; there is `browser`, `rag`");
        assert_eq!(hint("zzz", []), "");
        assert_eq!(short("a\nb"), "a\u{fffd}b");
        assert_eq!(short(&"x".repeat(100)).len(), 66);
    }
}
