//! Context files with the conventions of a project.
//!
//! Three steps answer a request: `find` lists the files and their sizes, `budget` gives each of
//! them a number of tokens, and `read` reads no more than that. A large file therefore costs no
//! more than its share, and the total is known before anything is read.

mod budget;
mod context_file;
mod find;
mod read;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{ContextBlock, ContextError, ContextRequest, ContextSource};
use levity_sandbox::{PathError, Workspace};

pub use context_file::{ContextFile, FileExcerpt};

use crate::blocking::run_blocking;
use crate::note;

/// The name of this source in errors.
const NAME: &str = "context files";
/// The name of the last block, which lists the files that did not fit.
const LEFT_OUT: &str = "files left out";

type Watcher = Arc<dyn Fn(&[ContextFile]) + Send + Sync>;

/// The context files of a workspace: `.context/*.md` by name, and `AGENTS.md` from the root of the
/// workspace down to the working folder.
///
/// ```
/// use levity_context::ContextFiles;
/// use levity_core::{ContextRequest, ContextSource};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// std::fs::create_dir(folder.join(".context"))?;
/// std::fs::write(folder.join(".context/style.md"), "Use short words.\n")?;
/// std::fs::write(folder.join("AGENTS.md"), "Run the tests before you say it works.\n")?;
///
/// let blocks = ContextFiles::open(folder)?.blocks(&ContextRequest::new(1_000)).await?;
/// let names: Vec<_> = blocks.iter().map(|block| &block.name).collect();
/// assert_eq!(names, ["style.md", "AGENTS.md"]);
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
/// - The files are read on each request; nothing is cached.
/// - No file outside the workspace is read, whatever its links are. The only exception is the file
///   that you set with [`user_file`](Self::user_file).
/// - The blocks never exceed the budget. If it is short, each file gets a share: short files are
///   complete, and long files are cut with a note of their size. Files that cannot be shown are
///   named.
/// - A file that cannot be read yields a block with the reason, not an error.
#[derive(Clone)]
#[must_use]
pub struct ContextFiles {
    space: Workspace,
    folder: String,
    has_folder: bool,
    nested: bool,
    agents: bool,
    working_dir: String,
    user_file: Option<PathBuf>,
    max_files: usize,
    max_bytes: usize,
    watcher: Option<Watcher>,
}

impl ContextFiles {
    /// The default maximum number of files; change it with [`max_files`](Self::max_files).
    pub const DEFAULT_MAX_FILES: usize = 100;
    /// The default maximum number of bytes; change it with [`max_bytes`](Self::max_bytes).
    pub const DEFAULT_MAX_BYTES: usize = 1 << 20;

    /// Creates a source for the context files of this workspace.
    ///
    /// The source reads `.context` and `AGENTS.md` of the root, with the default limits.
    pub fn new(workspace: &Workspace) -> Self {
        Self {
            space: workspace.clone(),
            folder: ".context".to_owned(),
            has_folder: true,
            nested: false,
            agents: true,
            working_dir: ".".to_owned(),
            user_file: None,
            max_files: Self::DEFAULT_MAX_FILES,
            max_bytes: Self::DEFAULT_MAX_BYTES,
            watcher: None,
        }
    }

    /// Creates a source for the workspace in this folder.
    ///
    /// The workspace is read-only.
    ///
    /// # Errors
    /// Fails if the path does not exist or is not a folder.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, PathError> {
        Ok(Self::new(&Workspace::builder(root).read_only().build()?))
    }

    /// Sets another folder than `.context`, by its path in the workspace.
    pub fn folder(mut self, path: impl Into<String>) -> Self {
        (self.folder, self.has_folder) = (path.into(), true);
        self
    }

    /// Excludes the files in `.context`.
    pub fn without_folder(mut self) -> Self {
        self.has_folder = false;
        self
    }

    /// Includes subfolders of `.context`; each file is named by its path below it.
    ///
    /// Links to folders are not followed, and folders more than 16 levels deep are named in a note.
    ///
    /// ```
    /// use levity_context::ContextFiles;
    /// use levity_core::{ContextRequest, ContextSource};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let folder = folder.path();
    /// std::fs::create_dir_all(folder.join(".context/api"))?;
    /// std::fs::write(folder.join(".context/api/errors.md"), "Errors name the field.\n")?;
    /// let files = ContextFiles::open(folder)?.nested();
    /// assert_eq!(files.blocks(&ContextRequest::new(500)).await?[0].name, "api/errors.md");
    /// # Ok(())
    /// # }
    /// ```
    pub fn nested(mut self) -> Self {
        self.nested = true;
        self
    }

    /// Excludes all `AGENTS.md` files.
    pub fn without_agents(mut self) -> Self {
        self.agents = false;
        self
    }

    /// Sets the folder in which the agent works. The `AGENTS.md` of each folder on the path to it
    /// is included, the nearest last.
    ///
    /// ```
    /// use levity_context::ContextFiles;
    /// use levity_core::{ContextRequest, ContextSource};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let folder = folder.path();
    /// std::fs::create_dir(folder.join("web"))?;
    /// std::fs::write(folder.join("AGENTS.md"), "Write tests.\n")?;
    /// std::fs::write(folder.join("web/AGENTS.md"), "Use semantic HTML.\n")?;
    /// let files = ContextFiles::open(folder)?.working_dir("web");
    /// let blocks = files.blocks(&ContextRequest::new(500)).await?;
    /// let names: Vec<_> = blocks.into_iter().map(|block| block.name).collect();
    /// assert_eq!(names, ["AGENTS.md", "web/AGENTS.md"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn working_dir(mut self, path: impl Into<String>) -> Self {
        self.working_dir = path.into();
        self
    }

    /// Sets a personal file of the user, which precedes those of the project. It may be anywhere,
    /// and it is optional.
    pub fn user_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.user_file = Some(path.into());
        self
    }

    /// Sets the maximum number of files; [`DEFAULT_MAX_FILES`](Self::DEFAULT_MAX_FILES) by default.
    ///
    /// Files of `.context` are omitted first, then the user's file, then the `AGENTS.md` nearest to
    /// the root.
    pub fn max_files(mut self, files: usize) -> Self {
        self.max_files = files;
        self
    }

    /// Sets the maximum number of bytes that are read, whatever the budget;
    /// [`DEFAULT_MAX_BYTES`](Self::DEFAULT_MAX_BYTES) by default.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Calls `watcher` with the list of files after each read.
    ///
    /// Use it to show the user which files the agent follows:
    ///
    /// ```
    /// use levity_context::ContextFiles;
    /// use levity_core::{ContextRequest, ContextSource};
    /// use std::sync::{Arc, Mutex};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let folder = folder.path();
    /// std::fs::write(folder.join("AGENTS.md"), "Be brief. ".repeat(1_000))?;
    /// let seen = Arc::new(Mutex::new(Vec::new()));
    /// let sink = seen.clone();
    /// let files = ContextFiles::open(folder)?.on_read(move |files| {
    ///     sink.lock().unwrap().extend(files.iter().map(ToString::to_string));
    /// });
    /// files.blocks(&ContextRequest::new(200)).await?;
    /// assert_eq!(*seen.lock().unwrap(), ["AGENTS.md (cut)"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_read(mut self, watcher: impl Fn(&[ContextFile]) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Arc::new(watcher));
        self
    }

    /// Returns the blocks and the report on all files. Tokens that a file did not need go to the
    /// next one.
    fn read(&self, budget: usize) -> Result<(Vec<ContextBlock>, Vec<ContextFile>), PathError> {
        let found = find::find(self)?;
        let plan = budget::plan(found, budget.min(self.max_bytes / 4), self.max_files);
        let (mut blocks, mut report, mut left_out) = (Vec::new(), Vec::new(), plan.left_out);
        // A file may use more tokens than planned if no other file needs them.
        let mut spare = plan.spare;
        for share in plan.shares {
            let room = share.tokens + spare;
            let (block, shown) = read::read(&self.space, &share.file, room);
            match block {
                Some(block) => {
                    spare = room - block.tokens();
                    report.push(ContextFile::new(share.file.name, shown));
                    blocks.push(block);
                }
                None => left_out.push(share.file.name),
            }
        }
        blocks.extend(note::left_out(
            LEFT_OUT,
            &note::named(&left_out, "file"),
            plan.reserved + spare,
        ));
        let no_room = || FileExcerpt::no("it does not fit the budget");
        report.extend(
            left_out
                .into_iter()
                .map(|name| ContextFile::new(name, no_room())),
        );
        Ok((blocks, report))
    }
}

#[async_trait]
impl ContextSource for ContextFiles {
    async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        let (files, budget) = (self.clone(), ask.budget);
        let read = run_blocking(move || files.read(budget))
            .await
            .map_err(|cause| ContextError::new(NAME, cause))?;
        let (blocks, report) = read.map_err(|error| ContextError::new(NAME, error))?;
        if let Some(watcher) = &self.watcher {
            watcher(&report);
        }
        Ok(blocks)
    }
}

impl fmt::Debug for ContextFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextFiles")
            .field("root", &self.space.root())
            .field("folder", &self.folder)
            .field("working_dir", &self.working_dir)
            .field("user_file", &self.user_file)
            .finish_non_exhaustive()
    }
}
