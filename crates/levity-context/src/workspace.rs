//! The names of the files of a workspace.
//!
//! Listing and rendering are separate: [`walk::list`] returns a [`FileList`], which serves as a
//! value, as a view for an agent and as a block of text. The block has its note about missing files
//! first, because a cut removes the end.

mod ignore_rules;
mod walk;

use std::path::Path;

use async_trait::async_trait;
use levity_core::{
    ContextBlock, ContextError, ContextLifetime, ContextRequest, ContextSource, WorkspaceSource,
    WorkspaceView,
};
use levity_sandbox::{PathError, Workspace};

use crate::blocking::run_blocking;
use crate::error::{Error, Result};

/// The name of the block that lists the files.
const NAME: &str = "files of the workspace";

/// The names of the files of a workspace, listed on each request.
///
/// ```
/// use levity_context::WorkspaceFiles;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// for (name, text) in [(".gitignore", "*.log"), ("main.rs", ""), ("debug.log", "")] {
///     std::fs::write(folder.join(name), text)?;
/// }
/// let view = WorkspaceFiles::open(folder)?.view().await?;
/// assert_eq!(view.files, ["main.rs"]);
/// // `Agent::builder(model).workspace(view)` puts it into the agent's own context value.
/// # Ok(())
/// # }
/// ```
///
/// The list omits paths that `.gitignore` and `.ignore` name, hidden names, denied paths, and links
/// to folders or out of the workspace. If there are more files than the limit, those nearest to the
/// root are listed, with a note of how many are missing.
///
/// It is also a source of context: one block per run, with one name on each line.
#[derive(Clone, Debug)]
#[must_use]
pub struct WorkspaceFiles {
    space: Workspace,
    max_files: usize,
}

/// The files of a workspace at one moment.
///
/// ```
/// use levity_context::WorkspaceFiles;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// for name in ["a.txt", "b.txt", "c.txt", "d.txt"] {
///     std::fs::write(folder.path().join(name), "")?;
/// }
/// let list = WorkspaceFiles::open(folder.path())?.max_files(2).list().await?;
/// assert_eq!((list.view.files.len(), list.missing), (2, 2));
/// assert_eq!(list.note().unwrap(), "[2 more files are not listed]");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileList {
    /// The folder and its files, sorted.
    pub view: WorkspaceView,
    /// The number of files beyond the limit.
    pub missing: usize,
    /// Set if there may be more files: the workspace is too large or deep to be read completely, or
    /// a folder cannot be read.
    pub has_more: bool,
}

impl FileList {
    /// Returns a note about the missing files; `None` if the list is complete.
    pub fn note(&self) -> Option<String> {
        match (self.missing, self.has_more) {
            (0, false) => None,
            (0, true) => Some("[there may be more files]".to_owned()),
            (missing, false) => Some(format!("[{missing} more files are not listed]")),
            (missing, true) => Some(format!("[at least {missing} more files are not listed]")),
        }
    }
}

impl WorkspaceFiles {
    /// The default maximum number of files; change it with [`max_files`](Self::max_files).
    pub const DEFAULT_MAX_FILES: usize = 1_000;

    /// Creates a list of the files of this workspace.
    ///
    /// Paths that the workspace denies are not listed.
    pub fn new(workspace: &Workspace) -> Self {
        Self {
            space: workspace.clone(),
            max_files: Self::DEFAULT_MAX_FILES,
        }
    }

    /// Creates a list for the workspace in this folder.
    ///
    /// The workspace is read-only and has the default denied paths.
    ///
    /// ```
    /// use levity_context::WorkspaceFiles;
    ///
    /// assert!(WorkspaceFiles::open("does/not/exist").is_err());
    /// ```
    ///
    /// # Errors
    /// Fails if the path does not exist or is not a folder.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, PathError> {
        Ok(Self::new(&Workspace::builder(root).read_only().build()?))
    }

    /// Sets the maximum number of files; [`DEFAULT_MAX_FILES`](Self::DEFAULT_MAX_FILES) by default.
    pub fn max_files(mut self, files: usize) -> Self {
        self.max_files = files;
        self
    }

    /// Returns the folder and its current files.
    ///
    /// # Errors
    /// Fails if the root of the workspace cannot be listed.
    pub async fn view(&self) -> Result<WorkspaceView> {
        Ok(self.list().await?.view)
    }

    /// Returns the current files with the number of missing ones.
    ///
    /// The walk runs on a blocking thread and reads at most 100,000 entries, 64 folders deep.
    ///
    /// # Errors
    /// Fails if the root of the workspace cannot be listed.
    pub async fn list(&self) -> Result<FileList> {
        let files = self.clone();
        let listed = run_blocking(move || walk::list(&files.space, files.max_files)).await;
        listed.map_err(Error::TaskFailed)?.map_err(Error::Workspace)
    }
}

impl WorkspaceSource for WorkspaceFiles {
    fn view_now(&self) -> WorkspaceView {
        walk::list(&self.space, self.max_files).map_or_else(
            |_| WorkspaceView::new(self.space.root().to_string_lossy(), [""; 0]),
            |listed| listed.view,
        )
    }
}

#[async_trait]
impl ContextSource for WorkspaceFiles {
    async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        let listed = self
            .list()
            .await
            .map_err(|error| ContextError::new(NAME, error))?;
        let note = listed.note();
        let mut lines = listed.view.files;
        lines.splice(0..0, note);
        let block = ContextBlock::new(NAME, lines.join("\n")).lasting(ContextLifetime::Run);
        let block = Some(block).filter(|block| !block.text.is_empty());
        Ok(block
            .and_then(|block| block.cut_to(ask.budget))
            .into_iter()
            .collect())
    }
}
