//! What some file system takes for the same name.

use std::borrow::Cow;

/// The name as the most forgiving file system reads it: in lower case, without characters that are not seen,
/// without dots and spaces at its end, and without the name of a stream behind a colon.
pub(super) fn fold(name: &str) -> Cow<'_, str> {
    if is_folded(name) {
        return Cow::Borrowed(name);
    }
    let seen: String = name.chars().filter(|&c| !is_ignored(c)).flat_map(fold_char).collect();
    let seen = match seen.split_once(':') {
        Some((file, _)) if !file.is_empty() => file,
        _ => &seen,
    };
    let trimmed = seen.trim_end_matches(['.', ' ']);
    Cow::Owned(if trimmed.is_empty() { seen } else { trimmed }.to_owned())
}

/// The letters alone; a glob keeps everything else.
pub(super) fn fold_case(glob: &str) -> String {
    glob.chars().flat_map(fold_char).collect()
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

/// The ASCII character that a full-width one stands for.
fn narrow(c: char) -> char {
    match u32::from(c) {
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
    fn other_names_stay_apart() {
        for name in ["env", ".env.example", "a b", "...", ".", ":", "é"] {
            assert_eq!(fold(name), name);
        }
    }
}
