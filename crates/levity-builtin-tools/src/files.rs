//! Tools that read, write, list and search the files of a workspace.
//!
//! `read`, `write`, `artifact`, `edit`, `list` and `search` are one tool each, and share these
//! modules:
//!
//! - `args` parses arguments and converts errors of the workspace into errors for the model.
//! - `walk` visits folders under the rules of `ignore_rules`; `queue` spreads a search over
//!   threads.
//! - `lines`, `decode`, `replace` and `suggestion` work on text; `display`, `hits` and `report`
//!   format it.
//! - `cancellable` makes a search stop soon after its call is cancelled, whatever the pattern.
//!
//! All tools block, and say so by a hint: the dispatcher runs them on a blocking thread.

mod args;
mod artifact;
mod cancellable;
mod decode;
mod display;
mod edit;
mod hits;
mod ignore_rules;
mod lines;
mod list;
mod queue;
mod read;
mod replace;
mod report;
mod search;
mod suggestion;
mod walk;
mod workspace_view;
mod write;

use std::sync::Arc;

pub use artifact::WriteArtifact;
pub use edit::EditFile;
use levity_core::{Tool, Toolbox, WorkspaceSource};
use levity_sandbox::Workspace;
pub use list::ListFiles;
pub use read::ReadFile;
pub use search::SearchFiles;
pub use write::WriteFile;

/// The tools for a workspace's files: `read_file`, `list_files`, `search_files` and, unless the
/// workspace is read-only, `write_file` and `edit_file`.
///
/// ```
/// use levity_sandbox::Workspace;
/// use levity_builtin_tools::FileTools;
/// use levity_tools::Registry;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let workspace = Workspace::builder(folder.path()).read_only().build()?;
/// let registry = Registry::builder().tools(FileTools::new(workspace).max_read(20_000)).build()?;
/// let names: Vec<_> = registry.specs().iter().map(|spec| spec.name.clone()).collect();
/// assert_eq!(names, ["read_file", "list_files", "search_files"]);
/// # Ok(())
/// # }
/// ```
///
/// An agent that has these tools also gets a description of the workspace: its context value
/// contains the folder and the first 1,000 files.
///
/// # Errors of the tools
/// All file tools report a denied path, a path outside the workspace, and a read-only workspace as
/// `Denied`. A missing file and a full disk are `Failed`. Messages name the next step.
#[derive(Clone, Debug)]
#[must_use]
pub struct FileTools {
    space: Workspace,
    max_read: usize,
}

impl FileTools {
    /// Creates the tools for `workspace`.
    pub fn new(workspace: Workspace) -> Self {
        Self {
            space: workspace,
            max_read: ReadFile::MAX_READ,
        }
    }

    /// Sets the number of bytes of a file that one call returns; 100 KB by default.
    ///
    /// The other tools have fixed limits: see [`ListFiles`] and [`SearchFiles`].
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use levity_builtin_tools::FileTools;
    /// use levity_core::Toolbox;
    /// use levity_sandbox::Workspace;
    ///
    /// let tools = FileTools::new(Workspace::open(folder.path())?).max_read(4_000).into_tools();
    /// assert!(tools[0].spec().description.contains("up to 4000 bytes"));
    /// assert_eq!(tools.len(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_read(mut self, bytes: usize) -> Self {
        self.max_read = bytes;
        self
    }
}

impl Toolbox for FileTools {
    fn into_tools(self) -> Vec<Arc<dyn Tool>> {
        let mut tools: Vec<Arc<dyn Tool>> = vec![
            Arc::new(ReadFile::new(self.space.clone()).max_read(self.max_read)),
            Arc::new(ListFiles::new(self.space.clone())),
            Arc::new(SearchFiles::new(self.space.clone())),
        ];
        if !self.space.is_read_only() {
            tools.push(Arc::new(WriteFile::new(self.space.clone())));
            tools.push(Arc::new(EditFile::new(self.space)));
        }
        tools
    }

    fn workspace(&self) -> Option<Arc<dyn WorkspaceSource>> {
        Some(Arc::new(workspace_view::Files(self.space.clone())))
    }
}
