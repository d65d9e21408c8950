//! What some file system takes for the same name.

use std::borrow::Cow;

/// The name as the most forgiving file system reads it: in lower case, without characters that are
/// not seen, without dots and spaces at its end, and without the name of a stream behind a colon.
pub(super) fn fold(name: &str) -> Cow<'_, str> {
    if is_folded(name) {
        return Cow::Borrowed(name);
    }
    let seen: String = name
        .chars()
        .filter(|&c| !is_ignored(c))
        .flat_map(fold_char)
        .collect();
    let seen = match seen.split_once(':') {
        Some((file, _)) if !file.is_empty() => file,
        _ => &seen,
    };
    let trimmed = seen.trim_end_matches(['.', ' ']);
    Cow::Owned(if trimmed.is_empty() { seen } else { trimmed }.to_owned())
}

/// The spellings of a name that rules are matched with: as the most forgiving file system reads it,
/// and, where that is another one, with all that other file systems keep.
pub(super) struct Spellings<'a> {
    pub(super) folded: Cow<'a, str>,
    pub(super) whole: Option<String>,
}

impl<'a> Spellings<'a> {
    pub(super) fn of(name: &'a str) -> Self {
        let folded = fold(name);
        let whole = match &folded {
            Cow::Borrowed(_) => None,
            Cow::Owned(folded) => Some(fold_case(name)).filter(|whole| whole != folded),
        };
        Self { folded, whole }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.folded).chain(self.whole.as_deref())
    }
}

/// The name with its letters folded alone.
fn fold_case(name: &str) -> String {
    name.chars().flat_map(fold_char).collect()
}

/// A glob with its letters folded. A character that only looks like a sign of globs stands for
/// itself.
pub(super) fn fold_glob(glob: &str) -> String {
    let mut folded = String::with_capacity(glob.len());
    let mut is_escaped = false;
    for c in glob.chars() {
        if !is_escaped && narrow(c) != c && is_sign(narrow(c)) {
            folded.push('\\');
        }
        is_escaped = c == '\\' && !is_escaped;
        folded.extend(fold_char(c));
    }
    folded
}

/// Returns whether a character means something else than itself in a glob.
fn is_sign(c: char) -> bool {
    matches!(
        c,
        '*' | '?' | '[' | ']' | '{' | '}' | ',' | '!' | '^' | '-' | '\\'
    )
}

/// True of nearly every name, and cheap to see.
fn is_folded(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii() && !byte.is_ascii_uppercase() && byte != b':';
    name.bytes().all(plain) && !name.ends_with(['.', ' '])
}

/// By way of upper case, which joins more: a long s and an s, for instance.
fn fold_char(c: char) -> impl Iterator<Item = char> {
    narrow(c).to_uppercase().flat_map(char::to_lowercase)
}

/// The ASCII character that a full-width one stands for. No name has a slash in it, so a full-width
/// one is none.
fn narrow(c: char) -> char {
    match u32::from(c) {
        0xff0f => c,
        wide @ 0xff01..=0xff5e => char::from_u32(wide - 0xff01 + 0x21).unwrap_or(c),
        _ => c,
    }
}

/// Characters that file systems which fold case leave out: Unicode's default ignorable ones.
fn is_ignored(c: char) -> bool {
    matches!(u32::from(c),
        0xad | 0x34f | 0x61c | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f | 0x200b..=0x200f
        | 0x202a..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfff8
        | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_some_file_system_confuses_are_one() {
        for name in [
            ".env",
            ".ENV",
            ".Env",
            ".e\u{200b}nv",
            "\u{feff}.env",
            ".env.",
            ".env ",
            ".env. .",
            ".env::$DATA",
            ".en\u{ad}v",
            "．ｅｎｖ",
            ".ENV:stream",
            ".env\u{200d}",
            ".e\u{e0041}nv",
        ] {
            assert_eq!(fold(name), ".env", "{name:?}");
        }
        assert_eq!(fold(".ſſh"), ".ssh");
        assert_eq!(fold("\u{212a}ey"), "key");
    }

    #[test]
    fn whole_spelling_keeps_what_the_folded_one_cuts() {
        for (name, folded, whole) in [
            (".env", ".env", None),
            (".ENV", ".env", None),
            ("A:b", "a", Some("a:b")),
            ("a. ", "a", Some("a. ")),
            ("a\u{200b}B", "ab", Some("a\u{200b}b")),
            ("Ａ：", "a", Some("a:")),
            ("a／b", "a／b", None),
            (":", ":", None),
        ] {
            let spellings = Spellings::of(name);
            assert_eq!(
                (&*spellings.folded, spellings.whole.as_deref()),
                (folded, whole),
                "{name:?}"
            );
        }
    }

    #[test]
    fn other_names_stay_apart() {
        for name in ["env", ".env.example", "a b", "...", ".", ":", "é"] {
            assert_eq!(fold(name), name);
        }
    }
}
