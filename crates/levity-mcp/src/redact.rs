//! Keeps secrets of a server out of errors, events, log lines and progress.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::Secrets;
use serde_json::Value;

/// The text in place of a secret.
const MASK: &str = "***";
/// How many obtained secrets are known at once. Each request of a login bound to a key has a proof
/// of its own.
#[cfg(feature = "oauth")]
const MOST_OBTAINED: usize = 64;
/// A line of a secret that has several; a shorter one may be a word.
const SHORTEST_LINE: usize = 16;

/// Masks the secrets of one server: those of its settings, and those that its login obtained since
/// it started.
///
/// It is cheap to clone, and all clones know the same secrets.
#[derive(Clone, Default)]
pub(crate) struct Redactor(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    settings: Secrets,
    /// The newest is last.
    obtained: VecDeque<String>,
    /// All of the above; made when it is needed.
    all: Option<Secrets>,
}

impl Redactor {
    pub(crate) fn new(settings: Secrets) -> Self {
        Self(Arc::new(Mutex::new(State {
            settings,
            ..State::default()
        })))
    }

    /// Masks these secrets from now on.
    #[cfg(feature = "oauth")]
    pub(crate) fn add<'a>(&self, secrets: impl IntoIterator<Item = &'a str>) {
        let mut state = self.state();
        for secret in secrets.into_iter().filter(|secret| !secret.is_empty()) {
            // One that is used again is among the newest again.
            match state.obtained.iter().position(|known| known == secret) {
                Some(at) => drop(state.obtained.remove(at)),
                None => state.all = None,
            }
            state.obtained.push_back(secret.to_owned());
        }
        let over = state.obtained.len().saturating_sub(MOST_OBTAINED);
        state.obtained.drain(..over);
    }

    /// All that is masked now.
    pub(crate) fn secrets(&self) -> Secrets {
        let state = &mut *self.state();
        let (settings, obtained) = (&state.settings, &state.obtained);
        state
            .all
            .get_or_insert_with(|| {
                obtained
                    .iter()
                    .fold(settings.clone(), |known, secret| with_lines(known, secret))
            })
            .clone()
    }

    /// The text without secrets.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets().replace(text, |_| MASK)
    }

    /// The beginning of a text without secrets, at most `most` bytes. Of a secret across its end,
    /// nothing is left.
    pub(crate) fn head(&self, text: &str, most: usize) -> String {
        self.secrets()
            .replace_head(text, most, |_| MASK)
            .into_owned()
    }

    /// The value without secrets.
    pub(crate) fn value(&self, value: Value) -> Value {
        match self.secrets().replace_value(&value, |_| MASK) {
            Cow::Borrowed(_) => value,
            Cow::Owned(clean) => clean,
        }
    }

    /// Takes about `most` bytes from the front of a text that is not all there yet, and returns
    /// them without secrets. Nothing is taken while a secret that begins in front could reach
    /// beyond what is there.
    pub(crate) fn take_front(&self, text: &mut String, most: usize) -> Option<String> {
        let secrets = self.secrets();
        if text.len() < most + secrets.longest_known() {
            return None;
        }
        let mut end = levity_core::text::head(text, most).len();
        if let Some(across) = secrets
            .find(text)
            .into_iter()
            .find(|found| found.range.contains(&end) && found.range.start < end)
        {
            end = across.range.end;
        }
        let rest = text.split_off(end);
        let front = std::mem::replace(text, rest);
        Some(secrets.replace(&front, |_| MASK).into_owned())
    }

    /// The text without secrets, for one that may go on: the beginning of a secret at its end is
    /// masked too.
    pub(crate) fn unfinished(&self, text: &str) -> String {
        let secrets = self.secrets();
        let mut clean = secrets.replace(text, |_| MASK).into_owned();
        if let Some(begun) = secrets.begun_at_end(&clean) {
            clean.truncate(begun);
            clean.push_str(MASK);
        }
        clean
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Knows a secret, and each line of one that has several: programs write line by line.
pub(crate) fn with_lines(known: Secrets, secret: &str) -> Secrets {
    let known = known.known(secret);
    if !secret.trim().contains('\n') {
        return known;
    }
    let is_secret = |line: &&str| line.len() >= SHORTEST_LINE && !line.starts_with("-----");
    secret
        .lines()
        .map(str::trim)
        .filter(is_secret)
        .fold(known, Secrets::known)
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "correct-horse-battery";

    fn redactor() -> Redactor {
        Redactor::new(Secrets::new().known_only().known(SECRET))
    }

    #[test]
    fn head_masks_secret_wherever_the_cut_is() {
        for before in 0..40 {
            let text = format!("{}{SECRET}{SECRET} and more", "x".repeat(before));
            for most in 0..80 {
                let head = redactor().head(&text, most);
                assert!(head.len() <= most, "{most}: {head}");
                assert!(!head.contains("corr"), "{before} {most}: {head}");
            }
        }
    }

    #[test]
    fn pieces_of_an_endless_text_show_no_part_of_a_secret() {
        let redactor = redactor();
        for before in 0..64 {
            let text = format!("{}{SECRET}{}", "x".repeat(before), "y".repeat(200));
            let (mut pending, mut shown) = (String::new(), String::new());
            for char in text.chars() {
                pending.push(char);
                let so_far = redactor.unfinished(&pending);
                assert!(
                    !so_far.contains("corr") && !so_far.contains("horse"),
                    "{so_far}"
                );
                while let Some(piece) = redactor.take_front(&mut pending, 32) {
                    shown.push_str(&piece);
                }
            }
            shown.push_str(&redactor.text(&pending));
            assert_eq!(shown, text.replace(SECRET, MASK));
        }
    }

    #[test]
    fn lines_of_a_secret_are_masked_one_by_one() {
        let key =
            "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\nshort\n-----END PRIVATE KEY-----\n";
        let redactor = Redactor::new(with_lines(Secrets::new().known_only(), key));
        assert_eq!(redactor.text("MIIEvQIBADANBgkqhkiG"), "***");
        assert_eq!(redactor.text("short"), "short");
    }

    #[cfg(feature = "oauth")]
    #[test]
    fn newest_secrets_are_known_and_their_number_is_bounded() {
        let redactor = redactor();
        let clone = redactor.clone();
        for number in 0..500 {
            redactor.add([format!("token-{number:04}").as_str(), "refresh-all"]);
        }
        assert_eq!(clone.text("token-0499 refresh-all"), "*** ***");
        assert_eq!(clone.text(SECRET), MASK);
        assert!(redactor.state().obtained.len() <= MOST_OBTAINED);
    }
}
