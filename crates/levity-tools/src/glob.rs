//! Patterns with `*` and `?`, in time that a hostile pattern cannot blow up.

use std::str::Chars;

/// Returns `true` if `pattern` matches all of `text`: `*` matches any text, `?` one character.
///
/// Only the last `*` is retried, as the ones before it have no better choice. So the time is at
/// most that of reading the text once for each character of the pattern.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    let mut star: Option<(Chars<'_>, Chars<'_>)> = None;
    loop {
        let rest = text.clone();
        match (pattern.next(), text.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                text = rest;
                star = Some((pattern.clone(), text.clone()));
            }
            (Some('?'), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            (_, None) => return false,
            (_, Some(_)) => {
                // The star takes one character more.
                let Some((after, taken)) = &mut star else {
                    return false;
                };
                taken.next();
                (pattern, text) = (after.clone(), taken.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[track_caller]
    fn check(pattern: &str, text: &str, expected: bool) {
        assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
    }

    #[test]
    fn pattern_matches_the_whole_text() {
        check("", "", true);
        check("", "a", false);
        check("*", "", true);
        check("*", "a/b", true);
        check("?", "", false);
        check("?", "é", true);
        check("write_*", "write_file", true);
        check("write_*", "write", false);
        check("*_file", "write_file", true);
        check("*_file", "write_file_", false);
        check("a*b*c", "a-b-b-c", true);
        check("a*b*c", "a-c-b", false);
        check("**a**", "bab", true);
        check("a?c", "abc", true);
        check("a?c", "ac", false);
        check("a*", "A", false);
        check("*ab", "aab", true);
        check("*?b", "b", false);
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        check(&format!("{}b", "a*".repeat(50)), &"a".repeat(20_000), false);
        check(&format!("{}b", "*?".repeat(50)), &"a".repeat(20_000), false);
    }
}
