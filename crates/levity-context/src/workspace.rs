//! The files of a workspace, by name.

mod ignored;
mod walk;

use std::path::Path;

use async_trait::async_trait;
use levity_core::{
    ContextAsk, ContextBlock, ContextError, ContextLifetime, ContextSource, WorkspaceSource,
    WorkspaceView,
};
use levity_sandbox::{PathError, Workspace};

use crate::aside::aside;
use crate::error::{Error, Result};

/// What the block of the files is called.
const NAME: &str = "files of the workspace";

/// The names of the files of a workspace, as they are when they are asked for.
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
/// What `.gitignore` and `.ignore` name is left out, as are names that begin with a dot, what the
/// workspace denies, and links that lead out of it or to folders. When there are more files than
/// may be listed, those nearest to the root are taken, and it is said how many are missing.
///
/// It is a source of context as well: one block with a name on each line, for the run.
#[derive(Clone, Debug)]
#[must_use]
pub struct WorkspaceFiles {
    space: Workspace,
    max_files: usize,
}

/// The files of a workspace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileList {
    /// The folder and the files, sorted.
    pub view: WorkspaceView,
    /// How many files are not among them that could be.
    pub missing: usize,
    /// Whether there may be still more: the workspace is so large, or so deep, that not all of it
    /// was looked at, or a folder of it cannot be read.
    pub has_more: bool,
}

impl FileList {
    /// What is to be said of the files that are missing; none when all are there.
    pub fn note(&self) -> Option<String> {
        match (self.missing, self.has_more) {
            (0, false) => None,
            (0, true) => Some("[there may be more files]".to_owned()),
            (missing, false) => Some(format!("[{missing} more files are not listed]")),
            (missing, true) => Some(format!(
                "[{missing} more files, or still more, are not listed]"
            )),
        }
    }
}

impl WorkspaceFiles {
    /// How many files are listed, unless [`max_files`](Self::max_files) says otherwise.
    pub const DEFAULT_MAX_FILES: usize = 1_000;

    /// The files of this workspace.
    pub fn new(workspace: &Workspace) -> Self {
        Self {
            space: workspace.clone(),
            max_files: Self::DEFAULT_MAX_FILES,
        }
    }

    /// The files of the workspace in this folder.
    ///
    /// # Errors
    /// When it is not there, or is no folder.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, PathError> {
        Ok(Self::new(&Workspace::builder(root).read_only().build()?))
    }

    /// How many files are listed; [`DEFAULT_MAX_FILES`](Self::DEFAULT_MAX_FILES) by default.
    pub fn max_files(mut self, files: usize) -> Self {
        self.max_files = files;
        self
    }

    /// The folder and its files as they are now.
    ///
    /// # Errors
    /// When the workspace itself cannot be listed.
    pub async fn view(&self) -> Result<WorkspaceView> {
        Ok(self.list().await?.view)
    }

    /// The same, with word of what is missing.
    ///
    /// # Errors
    /// When the workspace itself cannot be listed.
    pub async fn list(&self) -> Result<FileList> {
        let files = self.clone();
        let listed = aside(move || walk::list(&files.space, files.max_files)).await;
        listed.map_err(Error::Lost)?.map_err(Error::Workspace)
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
    async fn blocks(&self, ask: &ContextAsk) -> Result<Vec<ContextBlock>, ContextError> {
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
