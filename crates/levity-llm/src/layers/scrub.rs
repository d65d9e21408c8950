use std::borrow::Cow;

use levity_core::Secrets;
use serde_json::Value;

/// What stands in place of a secret.
const MASK: &str = "***";

/// Takes secrets out of what is written to files.
///
/// It masks the texts it was told ([`secret`](Self::secret)), the values of keys such as
/// `authorization`, `api_key` and `password`, and what looks like a secret to [`Secrets`]: a key of
/// a well-known service (`sk-…`, `ghp_…`), what stands behind `Bearer`, `password=…`, a private
/// key.
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
    /// Knows only what secrets usually look like.
    pub fn new() -> Self {
        Self::default()
    }

    /// Masks this text wherever it stands. A text of fewer than 4 bytes is ignored: it would stand
    /// everywhere.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets = self.secrets.known(secret.into());
        self
    }

    /// The text without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets.replace(text, |_| MASK)
    }

    /// The value without secrets.
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
