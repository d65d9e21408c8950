use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Cause, ToolError};
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
        Self { id: id.into(), title: title.into(), url: url.into(), text: None }
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
        Self { id: id.into(), title: title.into(), url: url.into(), text: text.into(), metadata: None }
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
    cause: Option<Cause>,
}

impl LibraryError {
    /// Something is wrong: `message` says what, and the way out.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), cause: None }
    }

    /// Says why.
    #[must_use]
    pub fn with_source(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Cause::new(cause));
        self
    }
}

impl From<LibraryError> for ToolError {
    fn from(error: LibraryError) -> Self {
        Self::failed(error.message.clone()).with_source(error)
    }
}
