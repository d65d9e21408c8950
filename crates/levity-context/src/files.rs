//! Files that say how a project wants things done.

mod find;
mod read;
mod room;
mod taken;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{ContextAsk, ContextBlock, ContextError, ContextSource};
use levity_sandbox::{PathError, Workspace};

pub use taken::{ContextFile, FileExcerpt};

use crate::aside::aside;
use crate::note;

/// The source's name in errors.
const NAME: &str = "context files";
/// What the last block is called, which names the files that there was no room for.
const LEFT_OUT: &str = "files left out";

type Watcher = Arc<dyn Fn(&[ContextFile]) + Send + Sync>;

/// Files of a workspace that say how the project wants things done: `.context/*.md` by name, and
/// `AGENTS.md` from the folder of the workspace down to the one that is worked in.
///
/// ```
/// use levity_context::ContextFiles;
/// use levity_core::{ContextAsk, ContextSource};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// std::fs::create_dir(folder.join(".context"))?;
/// std::fs::write(folder.join(".context/style.md"), "Use short words.\n")?;
/// std::fs::write(folder.join("AGENTS.md"), "Run the tests before you say it works.\n")?;
///
/// let blocks = ContextFiles::open(folder)?.blocks(&ContextAsk::new(1_000)).await?;
/// let names: Vec<_> = blocks.iter().map(|block| &block.name).collect();
/// assert_eq!(names, ["style.md", "AGENTS.md"]);
/// # Ok(())
/// # }
/// ```
///
/// # Promises
/// - The files are read each time they are asked for; nothing is kept.
/// - No file outside the workspace is read, whatever links there are; the file of
///   [`user_file`](Self::user_file) alone is elsewhere.
/// - The budget holds. When it is short, each file gets its share: short ones are whole, long ones
///   are cut, and it is said how much of them is there. What cannot be shown at all is named.
/// - A file that cannot be read is a block that says so, and no error.
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
    /// How many files are shown at most, unless [`max_files`](Self::max_files) says otherwise.
    pub const DEFAULT_MAX_FILES: usize = 100;
    /// How many bytes are read at most, unless [`max_bytes`](Self::max_bytes) says otherwise.
    pub const DEFAULT_MAX_BYTES: usize = 1 << 20;

    /// The files of this workspace.
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

    /// The files of the workspace in this folder.
    ///
    /// # Errors
    /// When it is not there, or is no folder.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, PathError> {
        Ok(Self::new(&Workspace::builder(root).read_only().build()?))
    }

    /// Another folder than `.context`, by its path in the workspace.
    pub fn folder(mut self, path: impl Into<String>) -> Self {
        (self.folder, self.has_folder) = (path.into(), true);
        self
    }

    /// Leaves out `.context`.
    pub fn without_folder(mut self) -> Self {
        self.has_folder = false;
        self
    }

    /// Takes files of the folders in `.context` as well; each is called by its path from there on.
    pub fn nested(mut self) -> Self {
        self.nested = true;
        self
    }

    /// Leaves out `AGENTS.md`.
    pub fn without_agents(mut self) -> Self {
        self.agents = false;
        self
    }

    /// Where in the workspace the agent works. The `AGENTS.md` of each folder on the way there is
    /// taken, the nearest last.
    pub fn working_dir(mut self, path: impl Into<String>) -> Self {
        self.working_dir = path.into();
        self
    }

    /// A file of the user's own, which comes before those of the project. It may be anywhere, and
    /// need not be there.
    pub fn user_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.user_file = Some(path.into());
        self
    }

    /// How many files are shown at most; [`DEFAULT_MAX_FILES`](Self::DEFAULT_MAX_FILES) by default.
    pub fn max_files(mut self, files: usize) -> Self {
        self.max_files = files;
        self
    }

    /// How many bytes are read at most, whatever the budget is;
    /// [`DEFAULT_MAX_BYTES`](Self::DEFAULT_MAX_BYTES) by default.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Calls `watcher` with what was taken each time the files were read.
    pub fn on_read(mut self, watcher: impl Fn(&[ContextFile]) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Arc::new(watcher));
        self
    }

    fn read(&self, budget: usize) -> Result<(Vec<ContextBlock>, Vec<ContextFile>), PathError> {
        let found = find::find(self)?;
        let plan = room::plan(found, budget.min(self.max_bytes / 4), self.max_files);
        let (mut blocks, mut taken, mut left_out) = (Vec::new(), Vec::new(), plan.left_out);
        // A file may take more than its length let expect, as far as nobody else needs it.
        let mut spare = plan.spare;
        for share in plan.shares {
            let room = share.tokens + spare;
            let (block, shown) = read::read(&self.space, &share.file, room);
            match block {
                Some(block) => {
                    spare = room - block.tokens();
                    taken.push(ContextFile::new(share.file.name, shown));
                    blocks.push(block);
                }
                None => left_out.push(share.file.name),
            }
        }
        blocks.extend(note::left_out(
            LEFT_OUT,
            &note::named(&left_out, "file"),
            plan.kept + spare,
        ));
        let no_room = || FileExcerpt::no("there is no room for it");
        taken.extend(
            left_out
                .into_iter()
                .map(|name| ContextFile::new(name, no_room())),
        );
        Ok((blocks, taken))
    }
}

#[async_trait]
impl ContextSource for ContextFiles {
    async fn blocks(&self, ask: &ContextAsk) -> Result<Vec<ContextBlock>, ContextError> {
        let (files, budget) = (self.clone(), ask.budget);
        let read = aside(move || files.read(budget))
            .await
            .map_err(|cause| ContextError::new(NAME, cause))?;
        let (blocks, taken) = read.map_err(|error| ContextError::new(NAME, error))?;
        if let Some(watcher) = &self.watcher {
            watcher(&taken);
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
