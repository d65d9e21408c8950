use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{SharedError, ToolError};
use serde::Serialize;
use serde_json::Value;

#[cfg(feature = "sqlite")]
mod facts;
mod files;
mod shelf;

#[cfg(feature = "sqlite")]
pub use facts::RecallLibrary;
pub use files::WorkspaceLibrary;
pub(crate) use shelf::Shelf;

/// What addresses of files of a workspace begin with.
pub(crate) const FILES_URL: &str = "workspace:///";

/// The address of a file of a workspace: what may not stand in an address as it is is written as
/// `%20` and the like.
pub(crate) fn file_url(path: &str) -> String {
    let mut url = FILES_URL.to_owned();
    for byte in path.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=:@".contains(&byte) {
            true => url.push(char::from(byte)),
            false => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

/// The file that an address is about. Clients write addresses anew, so what need not be encoded may
/// be.
pub(crate) fn file_path(url: &str) -> Option<String> {
    let path = url.strip_prefix(FILES_URL)?;
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digit = |at: usize| {
            behind
                .get(at)
                .and_then(|digit| char::from(*digit).to_digit(16))
        };
        let code = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    Some(String::from_utf8(bytes).unwrap_or_else(|_| path.to_owned()))
}

/// Documents that can be searched for and fetched: what the tools `search` and `fetch` are made of.
///
/// # Contract
/// - What `search` found, `fetch` finds by its id, unless it has gone since.
/// - Ids are untrusted: they may come from anywhere.
#[async_trait]
pub trait Library: Send + Sync {
    /// At most `limit` documents that have to do with `query`, best first.
    ///
    /// # Errors
    /// When they cannot be looked for.
    async fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, LibraryError>;

    /// As [`search`](Self::search), for a tenant of the server: empty for its owner. A library
    /// whose searches cost much divides them among tenants, so that none holds up the others; by
    /// default it is the same.
    ///
    /// # Errors
    /// When they cannot be looked for.
    async fn search_for(
        &self,
        tenant: &str,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Hit>, LibraryError> {
        let _ = tenant;
        self.search(query, limit).await
    }

    /// The document of an id, or `None` when this library has none such.
    ///
    /// # Errors
    /// When it is there and cannot be given.
    async fn fetch(&self, id: &str) -> Result<Option<Document>, LibraryError>;
}

#[async_trait]
impl<L: Library + ?Sized> Library for Arc<L> {
    async fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, LibraryError> {
        (**self).search(query, limit).await
    }

    async fn search_for(
        &self,
        tenant: &str,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Hit>, LibraryError> {
        (**self).search_for(tenant, query, limit).await
    }

    async fn fetch(&self, id: &str) -> Result<Option<Document>, LibraryError> {
        (**self).fetch(id).await
    }
}

/// A document that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Hit {
    /// By which it can be fetched.
    pub id: String,
    /// What it is called.
    pub title: String,
    /// Where it is, for whoever wants to name it as a source.
    pub url: String,
    /// Some of it, around what was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Hit {
    /// A document that was found.
    pub fn new(id: impl Into<String>, title: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            url: url.into(),
            text: None,
        }
    }

    /// Shows some of it.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }
}

/// A document.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Document {
    /// Its id.
    pub id: String,
    /// What it is called.
    pub title: String,
    /// All of it, as far as it may be shown.
    pub text: String,
    /// Where it is.
    pub url: String,
    /// What else is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

impl Document {
    /// A document.
    pub fn new(
        id: impl Into<String>,
        title: impl Into<String>,
        url: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            url: url.into(),
            text: text.into(),
            metadata: None,
        }
    }

    /// Says what else is known of it.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Value) -> Self {
        self.metadata = Some(metadata);
        self
    }
}

/// Why documents could not be looked for or given.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct LibraryError {
    message: String,
    #[source]
    cause: Option<SharedError>,
}

impl LibraryError {
    /// Something is wrong: `message` says what, and the way out.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            cause: None,
        }
    }

    /// Says why.
    #[must_use]
    pub fn with_source(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(SharedError::new(cause));
        self
    }
}

impl From<LibraryError> for ToolError {
    fn from(error: LibraryError) -> Self {
        let failed = Self::failed(error.message);
        match error.cause {
            Some(cause) => failed.with_source(cause),
            None => failed,
        }
    }
}

impl From<LibraryError> for levity_core::Error {
    fn from(error: LibraryError) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_files_lead_back_to_them() {
        for (path, url) in [
            ("a/b-1.md", "a/b-1.md"),
            ("my notes.md", "my%20notes.md"),
            ("100%.md", "100%25.md"),
            ("%41", "%2541"),
            ("a?b#c", "a%3Fb%23c"),
            ("\u{fc}.md", "%C3%BC.md"),
        ] {
            assert_eq!(file_url(path), format!("{FILES_URL}{url}"));
            assert_eq!(file_path(&file_url(path)).as_deref(), Some(path));
        }
        for (said, path) in [
            ("my notes.md", "my notes.md"),
            ("%61", "a"),
            ("%", "%"),
            ("%zz%4", "%zz%4"),
            ("%FF", "%FF"),
        ] {
            assert_eq!(
                file_path(&format!("{FILES_URL}{said}")).as_deref(),
                Some(path)
            );
        }
        assert_eq!(file_path("file:///a"), None);
    }
}
