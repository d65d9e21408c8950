use std::fmt;
use std::sync::Arc;

/// A key or token that is never printed: not in `Debug`, errors or logs.
///
/// ```
/// # use levity_llm::Secret;
/// let key = Secret::new("sk-123");
/// assert_eq!(format!("{key:?}"), "Secret(***)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a secret and removes white space around it.
    pub fn new(secret: impl AsRef<str>) -> Self {
        Self(secret.as_ref().trim().into())
    }

    /// Returns the text of the secret.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns `true` if the secret is empty.
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
