//! Suggestions for mistyped names, and short forms of names for messages.

use std::borrow::Cow;

/// The maximum number of bytes of a name in a message.
const MAX_SHOWN_BYTES: usize = 80;

/// The names of members and recipients that are not workers.
pub(crate) const ROUTER: &str = "router";
pub(crate) const JUDGE: &str = "judge";
pub(crate) const USER: &str = "user";
pub(crate) const EVERYBODY: &str = "*";

/// The names that no worker can have.
pub(crate) const RESERVED: [&str; 5] = [ROUTER, crate::router::SYNTHESIZER, JUDGE, USER, EVERYBODY];

/// Returns `; did you mean ..` if a similar name exists, otherwise an empty text.
pub(crate) fn did_you_mean<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    const MAX_NAMES: usize = 2_000;
    const MAX_NAME_BYTES: usize = 64;
    let lower = name.to_lowercase();
    let best = names
        .take(MAX_NAMES)
        .filter(|other| other.len() <= MAX_NAME_BYTES && lower.len() <= MAX_NAME_BYTES)
        .map(|other| (strsim::osa_distance(&lower, &other.to_lowercase()), other))
        .filter(|(distance, other)| *distance <= (other.len().max(lower.len()) / 3).max(1))
        .min();
    best.map_or_else(String::new, |(_, name)| format!("; did you mean `{name}`?"))
}

/// Shortens a name to one line for a message.
pub(crate) fn short(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_SHOWN_BYTES && !name.contains(char::is_control) {
        return Cow::Borrowed(name);
    }
    let end = (0..=MAX_SHOWN_BYTES.min(name.len()))
        .rev()
        .find(|at| name.is_char_boundary(*at))
        .unwrap_or(0);
    let clean = name[..end].replace(char::is_control, "\u{fffd}");
    Cow::Owned(if name.len() > MAX_SHOWN_BYTES {
        format!("{clean}…")
    } else {
        clean
    })
}
