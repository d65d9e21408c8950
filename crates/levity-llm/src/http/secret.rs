//! Secrets that cannot be printed by accident.

use std::fmt;
use std::sync::Arc;

/// A key or token that is never printed: not in `Debug`, errors or logs.
///
/// ```
/// # use levity_llm::Secret;
/// let key = Secret::new("sk-123");
/// assert_eq!(format!("{key:?}"), "Secret(***)");
/// ```
///
/// It implements neither `Display` nor `Serialize`, so that it reaches no file by accident. Cloning
/// is cheap. The memory is not erased on drop. Functions that take a key accept `&str` and `String`
/// as well.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a secret and removes white space around it.
    ///
    /// Keys from files and environment variables often end with a line break, which HTTP would
    /// reject.
    ///
    /// ```
    /// # use levity_llm::Secret;
    /// assert_eq!(Secret::new("sk-123\n").expose(), "sk-123");
    /// assert!(Secret::from("  ").is_empty());
    /// ```
    pub fn new(secret: impl AsRef<str>) -> Self {
        Self(secret.as_ref().trim().into())
    }

    /// Returns the text of the secret.
    ///
    /// Use it only where the secret is sent.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns `true` if the secret is empty.
    ///
    /// Providers treat an empty key differently: Anthropic's protocol sends none, OpenAI's sends an
    /// empty one.
    ///
    /// ```
    /// # use levity_llm::Secret;
    /// assert!(Secret::new("").is_empty());
    /// assert_eq!(Secret::from("sk-1"), Secret::new(" sk-1 "));
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl From<&str> for Secret {
    fn from(secret: &str) -> Self {
        Self::new(secret)
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self::new(secret)
    }
}
