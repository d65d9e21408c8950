//! Texts that are safe for a terminal, and numbers for people.

use std::time::Duration;

use crate::visible::visible_line;

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
    visible_line(text, max_chars)
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
