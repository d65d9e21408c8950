use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{SharedError, ToolError};
use serde::Serialize;
use serde_json::Value;

mod combined;
#[cfg(feature = "sqlite")]
mod facts;
mod files;

pub(crate) use combined::CombinedLibrary;
#[cfg(feature = "sqlite")]
pub use facts::RecallLibrary;
pub use files::WorkspaceLibrary;

/// The prefix of the URLs of workspace files.
pub(crate) const FILES_URL: &str = "workspace:///";

/// Returns the URL of a workspace file, percent-encoding the bytes that a URL does not allow.
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

/// Returns the path of the file that a URL names. Clients rewrite URLs, so characters that need no
/// encoding may be encoded.
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

/// A collection of documents behind the tools `search` and `fetch`.
///
/// # Contract
/// - `fetch` finds each document that `search` returned by its id, unless the document has been
///   removed since.
/// - Ids are untrusted input: they may come from any client.
#[async_trait]
pub trait Library: Send + Sync {
    /// Returns at most `limit` documents that match `query`, best first.
    ///
    /// # Errors
    /// Fails if the search cannot be performed.
    async fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, LibraryError>;

    /// Same as [`search`](Self::search), for a tenant of the server; the owner's tenant is empty. A
    /// library with expensive searches should divide its capacity among tenants, so that none
    /// delays the others. The default implementation ignores the tenant.
    ///
    /// # Errors
    /// Fails if the search cannot be performed.
    async fn search_for(
        &self,
        tenant: &str,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Hit>, LibraryError> {
        let _ = tenant;
        self.search(query, limit).await
    }

    /// Returns the document with this id, or `None` if this library has no such document.
    ///
    /// # Errors
    /// Fails if the document exists but cannot be read.
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

/// A document found by a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Hit {
    /// The id for fetching the document.
    pub id: String,
    /// The title of the document.
    pub title: String,
    /// The URL of the document, for citing it as a source.
    pub url: String,
    /// An excerpt around the match, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Hit {
    /// Creates a search result without an excerpt.
    pub fn new(id: impl Into<String>, title: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            url: url.into(),
            text: None,
        }
    }

    /// Sets the excerpt of the document.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }
}

/// A document with its full text.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Document {
    /// The id of the document.
    pub id: String,
    /// The title of the document.
    pub title: String,
    /// The text of the document, up to the library's size limit.
    pub text: String,
    /// The URL of the document.
    pub url: String,
    /// Additional information about the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

impl Document {
    /// Creates a document without metadata.
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

    /// Sets additional information about the document.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Value) -> Self {
        self.metadata = Some(metadata);
        self
    }
}

/// An error of a search or a fetch.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct LibraryError {
    message: String,
    #[source]
    cause: Option<SharedError>,
}

impl LibraryError {
    /// Creates an error. `message` names the problem and how to fix it.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            cause: None,
        }
    }

    /// Sets the cause of the error.
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
    fn file_url_round_trips_to_its_path() {
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
        for (encoded, path) in [
            ("my notes.md", "my notes.md"),
            ("%61", "a"),
            ("%", "%"),
            ("%zz%4", "%zz%4"),
            ("%FF", "%FF"),
        ] {
            assert_eq!(
                file_path(&format!("{FILES_URL}{encoded}")).as_deref(),
                Some(path)
            );
        }
        assert_eq!(file_path("file:///a"), None);
    }
}
