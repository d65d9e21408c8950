//! Detection of texts without visible characters.

/// Returns `true` if a text has no visible character. It has only white space, control characters,
/// and characters without width or shape, such as zero-width spaces, byte order marks, tags and
/// fillers.
///
/// Every interface that accepts a prompt uses this function to reject blank ones.
///
/// ```
/// # use levity_core::text::is_blank;
/// assert!(is_blank(" \n\u{200b}\0"));
/// assert!(!is_blank("?"));
/// ```
pub fn is_blank(text: &str) -> bool {
    text.chars().all(is_invisible)
}

/// White space, control and format characters, default-ignorable characters of Unicode,
/// noncharacters, and blank symbols.
pub(super) fn is_invisible(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(
            u32::from(c),
            0xad | 0x34f
                | 0x600..=0x605
                | 0x61c
                | 0x6dd
                | 0x70f
                | 0x890..=0x891
                | 0x8e2
                | 0x115f..=0x1160
                | 0x17b4..=0x17b5
                | 0x180b..=0x180f
                | 0x200b..=0x200f
                | 0x2028..=0x202e
                | 0x2060..=0x206f
                // The empty Braille pattern.
                | 0x2800
                | 0x3164
                | 0xfdd0..=0xfdef
                | 0xfe00..=0xfe0f
                | 0xfeff
                | 0xffa0
                | 0xfff0..=0xfffb
                | 0x110bd
                | 0x110cd
                | 0x13430..=0x1343f
                | 0x1bca0..=0x1bca3
                | 0x1d159
                | 0x1d173..=0x1d17a
                | 0xe0000..=0xe0fff
        )
        || u32::from(c) & 0xfffe == 0xfffe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_blank_finds_texts_without_a_visible_character() {
        for text in [
            "",
            " ",
            "\t\r\n\u{b}\u{c}",
            "\0",
            "\0\u{1}\u{7f}\u{9f}",
            "\u{1b}",
            "\u{200b}",
            " \u{200b}\u{200c}\u{200d}\u{200e}\u{200f} ",
            "\u{feff}",
            "\u{a0}\u{2003}\u{202f}\u{205f}\u{3000}\u{1680}",
            "\u{2028}\u{2029}\u{85}",
            "\u{ad}",
            "\u{34f}\u{61c}\u{180e}",
            "\u{202a}\u{202e}\u{2066}\u{2069}",
            "\u{2060}\u{2061}\u{2062}\u{2063}\u{2064}\u{2065}\u{206f}",
            "\u{115f}\u{1160}\u{3164}\u{ffa0}",
            "\u{17b4}\u{17b5}",
            "\u{2800}",
            "\u{fe0f}\u{fe00}",
            "\u{fff9}\u{fffa}\u{fffb}",
            "\u{fffe}\u{ffff}\u{1fffe}\u{10ffff}\u{fdd0}",
            "\u{1d173}\u{1d17a}\u{1d159}",
            "\u{1bca0}",
            "\u{e0001}\u{e0041}\u{e007f}\u{e0100}",
        ] {
            assert!(is_blank(text), "{text:?}");
        }
    }

    #[test]
    fn is_blank_accepts_every_script_and_symbol() {
        for text in [
            "a",
            "?",
            ".",
            "0",
            "-",
            "é",
            "e\u{301}",
            "日",
            "あ",
            "한",
            "ᄒ",
            "א",
            "ب",
            "क",
            "ไ",
            "Ω",
            "😀",
            "👩\u{200d}💻",
            "❤\u{fe0f}",
            "🇫🇷",
            "\u{200b}x",
            "\0x",
            "\u{fffd}",
            "\u{fffc}",
            "⠁",
            "𝄞",
            "\u{e000}",
            "_",
            "\u{301}",
        ] {
            assert!(!is_blank(text), "{text:?}");
        }
    }
}
