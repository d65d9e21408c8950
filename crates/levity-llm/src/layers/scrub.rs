//! Masks secrets before a layer writes a request or a reply to a file.
//!
//! Masking must be deterministic: [`Record`](super::Record) hashes the masked request, and
//! [`Replay`](super::Replay) must find the same hash. So each secret becomes the same three stars,
//! without a number or a hash of its own.

use std::borrow::Cow;

use levity_core::Secrets;
use serde_json::Value;

/// The text that replaces a secret.
const MASK: &str = "***";

/// Masks secrets in text that is written to files.
///
/// It masks the texts that you pass to [`secret`](Self::secret) and the values of keys such as
/// `authorization`, `api_key` and `password`. It also masks text that [`Secrets`] recognises: keys
/// of well-known services (`sk-…`, `ghp_…`), the token after `Bearer`, `password=…` and private
/// keys.
///
/// ```
/// use levity_llm::layers::Scrub;
///
/// let scrub = Scrub::new().secret("hunter2");
/// assert_eq!(scrub.text("the word is hunter2"), "the word is ***");
/// assert_eq!(scrub.text("Bearer 0123456789abcdef"), "Bearer ***");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Scrub {
    secrets: Secrets,
}

impl Scrub {
    /// Creates a scrubber that masks only the common forms of secrets.
    ///
    /// ```
    /// use levity_llm::layers::Scrub;
    ///
    /// assert_eq!(Scrub::new().text("password=hunter2"), "password=***");
    /// assert_eq!(Scrub::new().text("no secret here"), "no secret here");
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Masks every occurrence of this text. A text of fewer than 4 bytes is ignored, because it
    /// would match almost everywhere.
    ///
    /// Call it once for each text. To mask the values of all variables with secret-like names,
    /// convert `Models::secrets()` with [`From`] instead.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets = self.secrets.known(secret.into());
        self
    }

    /// Returns the text without secrets.
    ///
    /// The result borrows the text if it contains no secret.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets.replace(text, |_| MASK)
    }

    /// Returns the value without secrets.
    ///
    /// The name of a key decides as well, for a text that looks harmless:
    ///
    /// ```
    /// use levity_llm::layers::Scrub;
    /// use serde_json::json;
    ///
    /// let clean = Scrub::new().value(json!({"api_key": "a plain sentence", "city": "Rome"}));
    /// assert_eq!(clean, json!({"api_key": "***", "city": "Rome"}));
    /// ```
    pub fn value(&self, value: Value) -> Value {
        match self.secrets.replace_value(&value, |_| MASK) {
            Cow::Borrowed(_) => value,
            Cow::Owned(clean) => clean,
        }
    }
}

impl From<Secrets> for Scrub {
    fn from(secrets: Secrets) -> Self {
        Self { secrets }
    }
}
