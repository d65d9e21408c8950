//! Texts that are safe for a terminal, and numbers for people.

use std::time::Duration;

/// Returns the beginning of a text as one line that is safe for a terminal.
///
/// Control characters and characters that change the text direction become `\u{fffd}`, and line
/// ends become spaces. A text longer than `max_chars` characters ends with `…`.
///
/// ```
/// # use levity_observe::one_line;
/// assert_eq!(one_line("red:\u{1b}[31m\nnext", 40), "red:\u{fffd}[31m next");
/// assert_eq!(one_line("a long text", 7), "a long…");
/// ```
pub fn one_line(text: &str, max_chars: usize) -> String {
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

/// Formats a duration: `40 ms`, `1.2 s`, `3 min 5 s`, `2 h 10 min`.
pub(super) fn time(time: Duration) -> String {
    let (millis, seconds) = (time.as_millis(), time.as_secs());
    match seconds {
        0 => format!("{millis} ms"),
        1..=59 => format!("{seconds}.{} s", millis / 100 % 10),
        60..=3_599 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// Formats a number with thousands separators: `12,345`.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
