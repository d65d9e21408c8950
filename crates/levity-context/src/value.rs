//! The context of an agent as one value.
//!
//! The value is for programs that build their own prompts, and for other languages: it is plain
//! JSON with a published schema. Agents receive blocks instead, through sources of context.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use levity_core::{Context, History, SharedError};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::schema::check;
use crate::workspace::WorkspaceFiles;

/// The pending memory, with an error that can be cloned.
type MemoryFuture = Pin<Box<dyn Future<Output = Result<Value, SharedError>> + Send>>;

/// Builds the context value of an agent: its task, workspace, history and memory.
///
/// Each call of [`context`](Self::context) lists the files and reads the memory again; nothing
/// happens before it.
///
/// ```
/// use levity_context::{ContextProvider, WorkspaceFiles, check_context};
/// use levity_core::History;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// std::fs::write(folder.join("notes.txt"), "buy milk")?;
/// let provider = ContextProvider::new()
///     .workspace(WorkspaceFiles::open(folder)?)
///     .memory(|| async { Ok::<_, std::io::Error>(json!({"likes": "tea"})) });
///
/// let context = provider.context("Tidy up", &History::new()).await?;
/// assert_eq!(context.workspace.files, ["notes.txt"]);
/// check_context(&serde_json::to_value(&context)?)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct ContextProvider {
    files: Option<WorkspaceFiles>,
    memory: Option<Arc<dyn Fn() -> MemoryFuture + Send + Sync>>,
}

impl ContextProvider {
    /// Creates a provider without a workspace or memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the workspace in which the agent works.
    pub fn workspace(mut self, files: WorkspaceFiles) -> Self {
        self.files = Some(files);
        self
    }

    /// Sets a function that returns the memory from earlier runs, as an object.
    ///
    /// # Trust
    /// The memory may contain text from earlier conversations, so treat it like any other input of
    /// a model.
    pub fn memory<F, R, E>(mut self, memory: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.memory = Some(Arc::new(move || {
            let memory = memory();
            Box::pin(async { memory.await.map_err(SharedError::new) })
        }));
        self
    }

    /// Returns the context of an agent with this intent and history.
    ///
    /// The steps of the history are the calls of the agent with their results, numbered from 1.
    ///
    /// # Errors
    /// Fails if the workspace cannot be listed, or if the memory cannot be read or is not an
    /// object.
    pub async fn context(
        &self,
        intent: impl Into<String> + Send,
        history: &History,
    ) -> Result<Context> {
        let mut context = Context::new(intent).with_history(history);
        if let Some(files) = &self.files {
            context = context.with_workspace(files.view().await?);
        }
        if let Some(memory) = &self.memory {
            context = context.with_memory(memory().await.map_err(Error::Memory)?);
        }
        match context.memory.is_object() {
            true => Ok(context),
            false => Err(Error::Mismatch(vec![
                "at `/memory`: it is not an object".to_owned(),
            ])),
        }
    }

    /// Returns the context as JSON that matches [`CONTEXT_SCHEMA`](crate::CONTEXT_SCHEMA).
    ///
    /// ```
    /// use levity_context::ContextProvider;
    /// use levity_core::History;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let value = ContextProvider::new().value("Tidy up", &History::new()).await?;
    /// assert_eq!(value["intent"], "Tidy up");
    /// assert!(value["history"].as_array().unwrap().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails under the same conditions as [`context`](Self::context).
    pub async fn value(
        &self,
        intent: impl Into<String> + Send,
        history: &History,
    ) -> Result<Value> {
        let context = self.context(intent, history).await?;
        let value = serde_json::to_value(context)
            .map_err(|error| Error::Mismatch(vec![error.to_string()]))?;
        check(&value).map(|()| value)
    }
}

impl fmt::Debug for ContextProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextProvider")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}
