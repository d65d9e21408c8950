use std::fmt;
use std::sync::Arc;

/// A key or token. Nothing prints it: not `Debug`, no error, no log.
///
/// ```
/// # use levity_llm::Secret;
/// let key = Secret::new("sk-123");
/// assert_eq!(format!("{key:?}"), "Secret(***)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a secret; white space around it is no part of it.
    pub fn new(secret: impl AsRef<str>) -> Self {
        Self(secret.as_ref().trim().into())
    }

    /// What it says.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing in it.
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
