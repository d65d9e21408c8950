//! Collections of documents that clients search and fetch.
//!
//! The tools `search` and `fetch` of an [`AgentServer`](crate::AgentServer) work on any number of
//! libraries. Their ids are untrusted: a library ignores an id that is not its own by returning
//! `None`, and the next library is asked.

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
///
/// `notes/a b.md` becomes `workspace:///notes/a%20b.md`.
pub(crate) fn file_url(path: &str) -> String {
    url_with(FILES_URL, path)
}

/// Returns the URL of a path below a prefix.
pub(crate) fn url_with(prefix: &str, path: &str) -> String {
    let mut url = prefix.to_owned();
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
///
/// An invalid escape such as `%zz` stays as it is. Returns `None` for a URL with another scheme.
/// The path is still untrusted: the workspace checks it.
pub(crate) fn file_path(url: &str) -> Option<String> {
    path_with(FILES_URL, url)
}

/// Returns the path of a URL with this prefix.
pub(crate) fn path_with(prefix: &str, url: &str) -> Option<String> {
    let path = url.strip_prefix(prefix)?;
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
/// - `search` returns at most `limit` documents; an empty list is a valid result.
/// - Dropping a future cancels the search, or at least the wait for it.
///
/// ```
/// use async_trait::async_trait;
/// use levity_serve::{Document, Hit, Library, LibraryError};
///
/// struct Manual(Vec<(&'static str, &'static str)>);
///
/// #[async_trait]
/// impl Library for Manual {
///     async fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, LibraryError> {
///         let found = self.0.iter().filter(|(_, text)| text.contains(query)).take(limit);
///         Ok(found.map(|(id, _)| Hit::new(*id, *id, format!("manual:{id}"))).collect())
///     }
///
///     async fn fetch(&self, id: &str) -> Result<Option<Document>, LibraryError> {
///         let found = self.0.iter().find(|(known, _)| *known == id);
///         Ok(found.map(|(id, text)| Document::new(*id, *id, format!("manual:{id}"), *text)))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LibraryError> {
/// let manual = Manual(vec![("sails", "Reef early."), ("anchor", "Use enough chain.")]);
/// let found = manual.search("chain", 10).await?;
/// assert_eq!(manual.fetch(&found[0].id).await?.unwrap().text, "Use enough chain.");
/// assert!(manual.fetch("keel").await?.is_none());
/// # Ok(())
/// # }
/// ```
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
///
/// ```
/// use levity_serve::Hit;
/// let hit = Hit::new("file:a.md", "a.md", "workspace:///a.md").with_text("High water is at six.");
/// let json = serde_json::json!(hit);
/// assert_eq!(json["text"], "High water is at six.");
/// ```
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
    ///
    /// Keep it to a few sentences: up to ten excerpts reach the model of the client at once.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }
}

/// A document with its full text.
///
/// ```
/// use levity_serve::Document;
/// use serde_json::json;
/// let page = Document::new("p1", "Tides", "https://example.org/tides", "High water is at six.")
///     .with_metadata(json!({"author": "Ann"}));
/// assert_eq!(page.metadata.unwrap()["author"], "Ann");
/// ```
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
///
/// The client gets the message as the result of the tool, so it must not contain confidential data.
/// The cause stays in the server.
///
/// ```
/// use levity_core::ToolError;
/// use levity_serve::LibraryError;
/// let error = LibraryError::new("the index is not built; run `index build`");
/// let error = error.with_source(std::io::Error::other("no such file"));
/// assert!(ToolError::from(error).to_string().contains("not built"));
/// ```
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
