//! Masking of a server's secrets in errors, events, log lines and progress.
//!
//! A server knows the secrets of its settings and often repeats them: in an error about an invalid
//! token, in a dump of its environment, in a log line. levity must not pass them on to logs, events
//! or the model. Each server has its own list, which keeps the lists short and the search fast.
//!
//! Results of successful calls are not masked: they are data for the model, and a changed byte
//! could break them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::Secrets;
use serde_json::Value;

/// The replacement for a secret.
const MASK: &str = "***";
/// The maximum number of obtained secrets in memory. Each request of a login that is bound to a key
/// has its own proof.
#[cfg(feature = "oauth")]
const MAX_OBTAINED: usize = 64;
/// The minimum length of one line of a multi-line secret; a shorter one may be an ordinary word.
const MIN_LINE: usize = 16;

/// Masks the secrets of one server: those of its settings, and those that its login obtained after
/// the start.
///
/// It is cheap to clone, and all clones share the same secrets.
#[derive(Clone, Default)]
pub(crate) struct Redactor(Arc<Mutex<State>>);

/// The secrets of the settings, which never change, and those of the login, which do.
#[derive(Default)]
struct State {
    settings: Secrets,
    /// The newest secret is last.
    obtained: VecDeque<String>,
    /// All secrets of both lists, collected on first use.
    all: Option<Secrets>,
}

impl Redactor {
    /// Creates a redactor that masks the secrets of the settings only.
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
            // A secret that is used again counts as new.
            match state.obtained.iter().position(|known| known == secret) {
                Some(at) => drop(state.obtained.remove(at)),
                None => state.all = None,
            }
            state.obtained.push_back(secret.to_owned());
        }
        let over = state.obtained.len().saturating_sub(MAX_OBTAINED);
        state.obtained.drain(..over);
    }

    /// Returns all secrets that are currently masked.
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

    /// Returns the text with secrets masked. It is borrowed if nothing was masked, so most texts
    /// cost no copy.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets().replace(text, |_| MASK)
    }

    /// Returns the start of a text with secrets masked, at most `max` bytes. A secret across the
    /// limit is removed completely.
    pub(crate) fn head(&self, text: &str, max: usize) -> String {
        self.secrets()
            .replace_head(text, max, |_| MASK)
            .into_owned()
    }

    /// Returns the value with secrets masked.
    pub(crate) fn value(&self, value: Value) -> Value {
        match self.secrets().replace_value(&value, |_| MASK) {
            Cow::Borrowed(_) => value,
            Cow::Owned(clean) => clean,
        }
    }

    /// Takes about `max` bytes from the front of an incomplete text, and returns them with secrets
    /// masked. Takes nothing while a secret could extend beyond the available text.
    ///
    /// This lets the reader of stderr report an endless line in pieces. A piece may be longer than
    /// `max` by the rest of a secret that begins in it.
    pub(crate) fn take_front(&self, text: &mut String, max: usize) -> Option<String> {
        let secrets = self.secrets();
        if text.len() < max + secrets.longest_known() {
            return None;
        }
        let mut end = levity_core::text::head(text, max).len();
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

    /// Masks the secrets of a text that may continue: the start of a secret at its end is masked
    /// too.
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

/// Adds a secret, and each line of a multi-line secret, because programs write line by line.
pub(crate) fn with_lines(known: Secrets, secret: &str) -> Secrets {
    let known = known.known(secret);
    if !secret.trim().contains('\n') {
        return known;
    }
    let is_secret = |line: &&str| line.len() >= MIN_LINE && !line.starts_with("-----");
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
    fn head_masks_secret_at_any_cut() {
        for before in 0..40 {
            let text = format!("{}{SECRET}{SECRET} and more", "x".repeat(before));
            for max in 0..80 {
                let head = redactor().head(&text, max);
                assert!(head.len() <= max, "{max}: {head}");
                assert!(!head.contains("corr"), "{before} {max}: {head}");
            }
        }
    }

    #[test]
    fn take_front_masks_secret_across_chunks() {
        let redactor = redactor();
        for before in 0..64 {
            let text = format!("{}{SECRET}{}", "x".repeat(before), "y".repeat(200));
            let (mut pending, mut shown) = (String::new(), String::new());
            for char in text.chars() {
                pending.push(char);
                let visible = redactor.unfinished(&pending);
                assert!(
                    !visible.contains("corr") && !visible.contains("horse"),
                    "{visible}"
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
    fn text_masks_each_line_of_multi_line_secret() {
        let key =
            "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\nshort\n-----END PRIVATE KEY-----\n";
        let redactor = Redactor::new(with_lines(Secrets::new().known_only(), key));
        assert_eq!(redactor.text("MIIEvQIBADANBgkqhkiG"), "***");
        assert_eq!(redactor.text("short"), "short");
    }

    #[cfg(feature = "oauth")]
    #[test]
    fn add_keeps_newest_secrets_within_limit() {
        let redactor = redactor();
        let clone = redactor.clone();
        for number in 0..500 {
            redactor.add([format!("token-{number:04}").as_str(), "refresh-all"]);
        }
        assert_eq!(clone.text("token-0499 refresh-all"), "*** ***");
        assert_eq!(clone.text(SECRET), MASK);
        assert!(redactor.state().obtained.len() <= MAX_OBTAINED);
    }
}
