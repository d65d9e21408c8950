//! Folding of names that some file system treats as the same name.
//!
//! A rule for `.env` must also match `.ENV` on macOS, `.env.` on Windows shares, `.env::$DATA` on
//! NTFS, and a name with a zero-width space on file systems that ignore it. The file system below a
//! workspace is unknown, and may be a network share. So names are compared in the most lenient
//! form, and a rule then matches too much rather than too little.

use std::borrow::Cow;

/// Folds a name as the most lenient file system reads it: in lower case, without invisible
/// characters, without dots and spaces at its end, and without the name of a stream after a colon.
///
/// For example, `.ENV`, `.env. .`, `.e\u{200b}nv` and `．ｅｎｖ` all become `.env`. A name that would
/// become empty stays as it is.
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

/// The spellings of a name that rules are matched with: the folded one, and, if it differs, the
/// whole name with only its case folded, as other file systems read it.
///
/// The name `A:b` has two spellings: `a`, as NTFS reads it, and `a:b`, as Linux does. A glob for
/// either must match.
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

    /// The folded spelling is first, and the whole one follows only if it differs.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.folded).chain(self.whole.as_deref())
    }
}

/// Folds only the case of the letters of a name.
fn fold_case(name: &str) -> String {
    name.chars().flat_map(fold_char).collect()
}

/// Folds the letters of a glob. A full-width character that resembles a glob character matches
/// itself.
///
/// Escapes are preserved: `\*` still matches a star. The fold must not turn `＊` into a wildcard, so
/// such a character gets a backslash.
pub(super) fn fold_glob(glob: &str) -> String {
    let mut folded = String::with_capacity(glob.len());
    let mut is_escaped = false;
    for c in glob.chars() {
        if !is_escaped && to_half_width(c) != c && is_glob_char(to_half_width(c)) {
            folded.push('\\');
        }
        is_escaped = c == '\\' && !is_escaped;
        folded.extend(fold_char(c));
    }
    folded
}

/// Returns `true` if a character has a special meaning in a glob.
fn is_glob_char(c: char) -> bool {
    matches!(
        c,
        '*' | '?' | '[' | ']' | '{' | '}' | ',' | '!' | '^' | '-' | '\\'
    )
}

/// Returns `true` if a name is already folded. This is a cheap check, and true for nearly every
/// name.
fn is_folded(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii() && !byte.is_ascii_uppercase() && byte != b':';
    name.bytes().all(plain) && !name.ends_with(['.', ' '])
}

/// Folds through upper case, which merges more characters: a long s and an s, for instance.
fn fold_char(c: char) -> impl Iterator<Item = char> {
    to_half_width(c).to_uppercase().flat_map(char::to_lowercase)
}

/// Returns the ASCII character for a full-width one. No name contains a slash, so a full-width
/// slash is unchanged.
fn to_half_width(c: char) -> char {
    match u32::from(c) {
        0xff0f => c,
        wide @ 0xff01..=0xff5e => char::from_u32(wide - 0xff01 + 0x21).unwrap_or(c),
        _ => c,
    }
}

/// Returns `true` for Unicode's default ignorable characters, which file systems that fold case
/// omit.
fn is_ignored(c: char) -> bool {
    matches!(u32::from(c),
        0xad | 0x34f | 0x61c | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f | 0x200b..=0x200f
        | 0x202a..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0
        | 0xfff0..=0xfff8
        | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fold_merges_names_that_file_systems_confuse() {
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
    fn whole_spelling_retains_removed_characters() {
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
    fn fold_leaves_distinct_names_unchanged() {
        for name in ["env", ".env.example", "a b", "...", ".", ":", "é"] {
            assert_eq!(fold(name), name);
        }
    }
}
