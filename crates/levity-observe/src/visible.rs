//! Texts that are safe for a terminal and in an image.

/// Returns the beginning of a text as one line of visible characters.
pub(crate) fn visible_line(text: &str, max_chars: usize) -> String {
    let mut line = String::with_capacity(text.len().min(max_chars.saturating_mul(4)));
    for (at, char) in text.chars().enumerate() {
        if at + 1 >= max_chars && text.chars().nth(max_chars).is_some() {
            line.push('…');
            break;
        }
        line.push(visible_char(char));
    }
    line
}

/// Returns a character that takes one place on a line and changes no other one.
fn visible_char(char: char) -> char {
    match char {
        '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
        char if char.is_control() || is_bidi_or_invisible(char) => '\u{fffd}',
        char => char,
    }
}

/// Returns `true` if a character changes the direction of the following text, or is invisible.
fn is_bidi_or_invisible(char: char) -> bool {
    matches!(
        char,
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' | '\u{feff}'
    )
}
