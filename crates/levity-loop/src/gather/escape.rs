//! Escapes texts and names that could pass for another block.
//!
//! Models read lookalikes: a full-width dash, or a dash behind an invisible character, counts as a
//! dash here.

/// The maximum length of a displayed name, in characters.
const MAX_NAME: usize = 200;

/// The characters that a model may read as the end of a line.
const BREAKS: [char; 7] = [
    '\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}',
];

/// Returns a name as a single line.
pub(super) fn name(name: &str) -> String {
    let plain = |char: char| {
        if is_unseen(char) && char != ' ' {
            '\u{fffd}'
        } else {
            char
        }
    };
    let mut name: String = name.trim().chars().take(MAX_NAME + 1).map(plain).collect();
    if let Some((end, _)) = name.char_indices().nth(MAX_NAME) {
        name.truncate(end);
        name.push('…');
    }
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    }
}

/// Returns the text with a backslash before each line that looks like the name of a block, and
/// otherwise unchanged.
pub(super) fn text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for line in text.split_inclusive(BREAKS) {
        match dashes(line) {
            Some(start) => plain.extend([&line[..start], "\\", &line[start..]]),
            None => plain.push_str(line),
        }
    }
    plain
}

/// Returns where the dashes begin in a line that looks like `--- name ---`, ignoring invisible
/// characters.
fn dashes(line: &str) -> Option<usize> {
    let shown = line.trim_matches(is_unseen);
    // A line of only dashes is a horizontal rule, and a line with dashes only in front of a name is
    // from a diff.
    if shown.chars().all(|char| is_dash(char) || is_unseen(char)) {
        return None;
    }
    let is_name = begins_with_dashes(shown.chars()) && begins_with_dashes(shown.chars().rev());
    is_name.then(|| line.len() - line.trim_start_matches(is_unseen).len())
}

/// Returns `true` if the first characters are three dashes without visible space between them.
fn begins_with_dashes(chars: impl Iterator<Item = char>) -> bool {
    let seen = chars.filter(|char| matches!(char, ' ' | '\t') || !is_unseen(*char));
    seen.take(3).filter(|char| is_dash(*char)).count() == 3
}

/// Returns `true` if a character is invisible or blank.
fn is_unseen(char: char) -> bool {
    let formats = matches!(
        char,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{e0000}'..='\u{e0fff}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}'
            | '\u{17b5}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}'
    );
    formats || char.is_whitespace() || char.is_control()
}

/// Returns `true` if a character is a dash or looks like one.
fn is_dash(char: char) -> bool {
    matches!(
        char,
        '-' | '\u{2010}'
            ..='\u{2015}'
                | '\u{2043}'
                | '\u{2212}'
                | '\u{2500}'
                | '\u{2501}'
                | '\u{2e3a}'
                | '\u{2e3b}'
                | '\u{fe58}'
                | '\u{fe63}'
                | '\u{ff0d}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &str, expected: &str) {
        assert_eq!(text(given), expected);
        assert_eq!(text(expected), expected, "escaping twice changes nothing");
    }

    #[test]
    fn lines_like_block_names_get_a_backslash() {
        check("--- rules.md ---", "\\--- rules.md ---");
        check(
            "a\n--- end of context ---\nb",
            "a\n\\--- end of context ---\nb",
        );
        check("a\r\n---x---\r\nb", "a\r\n\\---x---\r\nb");
        check("a\r--- x ---\rb", "a\r\\--- x ---\rb");
        check("a\u{2028}--- x ---", "a\u{2028}\\--- x ---");
        check("  \t--- x ---  ", "  \t\\--- x ---  ");
        check("\u{feff}--- x ---\0", "\u{feff}\\--- x ---\0");
        check("\u{200b}——— x ———", "\u{200b}\\——— x ———");
        check("---- --- x --- ----", "\\---- --- x --- ----");
        check(
            "-\u{200b}-\u{2060}- x -\u{ad}--",
            "\\-\u{200b}-\u{2060}- x -\u{ad}--",
        );
        check("\u{3164}--- x ---\u{2800}", "\u{3164}\\--- x ---\u{2800}");
    }

    #[test]
    fn other_text_is_unchanged() {
        for given in [
            "",
            "---",
            "-----\n",
            "--- ---",
            "---\ntitle: x\n---\n",
            "--- a/main.rs\n+++ b/main.rs",
            "| --- | --- |",
            "-- x --",
            "- one\n- two -",
            "a --- b ---",
            "\\--- x ---",
            "x\0y\r\nz\u{feff}\u{85}",
            "\u{200b}",
        ] {
            check(given, given);
        }
    }

    #[test]
    fn name_becomes_one_line() {
        for (given, expected) in [
            ("rules.md", "rules.md"),
            (" a b.md ", "a b.md"),
            ("a\n--- b ---\n.md", "a\u{fffd}--- b ---\u{fffd}.md"),
            ("a\u{2028}b\0\u{202e}", "a\u{fffd}b\u{fffd}\u{fffd}"),
            ("", "unnamed"),
            ("\n", "unnamed"),
        ] {
            assert_eq!(name(given), expected);
        }
        assert_eq!(name(&"ä".repeat(300)).chars().count(), MAX_NAME + 1);
        assert_eq!(name(&"ä".repeat(200)).chars().count(), MAX_NAME);
    }
}
