//! Tools from the files of a folder, which may change at any time.
//!
//! A scan compares sizes, times and inode numbers, and loads only files that changed. The result of
//! a scan is valid for half a second, so that a request does not read the disk each time.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::{Tool, ToolSource};

use crate::error::Error;
use files::{FileVersion, FoundFile, scan};
pub use load::{FileLoader, LinkedLoader, LoadedFile, ToolFile};

mod files;
mod load;

/// The minimum interval between two scans of the folder.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);

/// Tools that are loaded from a folder, without further setup.
///
/// - `NAME.tool.json` beside an executable `NAME`: a tool that gets its arguments as JSON on
///   standard input and writes its result as JSON to standard output. It runs within the command
///   sandbox (feature `commands` of `levity` or `levity-builtin-tools`; docs/tools.md has the
///   manifest).
/// - `*.py`: every public function with type hints and a docstring is a tool. It runs in an
///   interpreter without access to the system (feature `python` of `levity`).
/// - Other files, for which you add a [`FileLoader`].
///
/// Files whose names begin with `_` or `.` are private, and subfolders are ignored. When files
/// change, so do the tools. [`problems`](ToolSource::problems) reports a file without a valid tool,
/// and the others work.
///
/// ```
/// use levity_core::ToolSource;
/// use levity_tools::{FolderTools, Registry};
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("notes.txt"), "Not a tool.")?;
/// let tools = FolderTools::open(folder.path())?;
/// assert!(tools.tools().is_empty() && tools.problems().is_empty());
///
/// let registry = Registry::folder(folder.path())?;
/// assert!(registry.specs().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Everyone with write access to the folder can add tools: the agent itself must not be able to
/// write to it.
#[derive(Clone)]
pub struct FolderTools(Arc<Inner>);

struct Inner {
    name: String,
    folder: PathBuf,
    loaders: Vec<Arc<dyn FileLoader>>,
    look_every: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    version: u64,
    scanned: Option<std::time::Instant>,
    seen: BTreeMap<String, FileVersion>,
    files: BTreeMap<String, LoadedFile>,
    /// The error of the last scan, if it failed.
    failed: Option<String>,
}

impl FolderTools {
    /// Reads the tools of a folder, with every loader that is linked into this program.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder(folder).build()
    }

    /// Starts building with other settings.
    pub fn builder(folder: impl AsRef<Path>) -> FolderBuilder {
        FolderBuilder {
            folder: folder.as_ref().to_owned(),
            loaders: Vec::new(),
            look_every: SCAN_INTERVAL,
        }
    }

    /// Scans the folder now, without waiting for the next scan.
    pub fn reload(&self) {
        self.scan_folder(&mut self.state());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state, after a scan of the folder if one is due.
    fn current(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        if state
            .scanned
            .is_none_or(|scanned| scanned.elapsed() >= self.0.look_every)
        {
            self.scan_folder(&mut state);
        }
        state
    }

    fn scan_folder(&self, state: &mut State) {
        #[expect(
            clippy::disallowed_methods,
            reason = "files are never part of a replay"
        )]
        let now = std::time::Instant::now();
        state.scanned = Some(now);
        match scan(&self.0.folder) {
            Ok(found) => {
                state.failed = None;
                self.take(state, found);
            }
            Err(error) => {
                let failed = format!("the folder cannot be read: {error}");
                if state.failed.as_ref() != Some(&failed) {
                    state.failed = Some(failed);
                    state.version += 1;
                }
            }
        }
    }

    /// Loads new files, retains unchanged ones, and drops removed ones.
    fn take(&self, state: &mut State, found: Vec<FoundFile>) {
        let seen: BTreeMap<String, FileVersion> = found
            .iter()
            .map(|file| (file.name.clone(), file.seen))
            .collect();
        if seen == state.seen {
            return;
        }
        let mut files = BTreeMap::new();
        for file in found {
            let same = state.seen.get(&file.name) == Some(&file.seen);
            let loaded = match state
                .files
                .remove(&file.name)
                .filter(|_| same && !file.depends)
            {
                Some(loaded) => loaded,
                None => load::load(&self.0.folder, &file.name, &self.0.loaders),
            };
            files.insert(file.name, loaded);
        }
        (state.seen, state.files) = (seen, files);
        state.version += 1;
    }
}

impl ToolSource for FolderTools {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let state = self.current();
        let mut names = std::collections::HashSet::new();
        let all = state.files.values().flat_map(|loaded| &loaded.tools);
        all.filter(|tool| names.insert(tool.spec().name.clone()))
            .cloned()
            .collect()
    }

    fn version(&self) -> u64 {
        self.current().version
    }

    fn problems(&self) -> Vec<String> {
        let state = self.current();
        let mut problems: Vec<String> = state.failed.iter().cloned().collect();
        let mut makers: BTreeMap<&str, &str> = BTreeMap::new();
        for (file, loaded) in &state.files {
            problems.extend(
                loaded
                    .problems
                    .iter()
                    .map(|problem| format!("`{file}`: {problem}")),
            );
            for tool in &loaded.tools {
                let name = &*tool.spec().name;
                if let Some(first) = makers.get(name) {
                    problems.push(format!(
                        "`{file}`: the tool `{name}` is already in `{first}`"
                    ));
                }
                makers.entry(name).or_insert(file);
            }
        }
        problems
    }
}

impl fmt::Debug for FolderTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FolderTools").field(&self.0.name).finish()
    }
}

/// A builder of [`FolderTools`].
///
/// ```
/// use std::time::Duration;
///
/// use levity_core::ToolSource;
/// use levity_tools::FolderTools;
///
/// let folder = tempfile::tempdir()?;
/// let tools = FolderTools::builder(folder.path()).scan_interval(Duration::ZERO).build()?;
/// std::fs::write(folder.path().join("hello.py"), "")?;
/// assert_eq!(tools.problems().len(), 1); // this program has no loader for Python
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct FolderBuilder {
    folder: PathBuf,
    loaders: Vec<Arc<dyn FileLoader>>,
    look_every: Duration,
}

impl FolderBuilder {
    /// Adds a loader for more files. It takes precedence over those that are linked into the
    /// program.
    pub fn loader(mut self, loader: impl FileLoader + 'static) -> Self {
        self.loaders.push(Arc::new(loader));
        self
    }

    /// Sets how long a scan of the folder stays valid; half a second by default.
    pub fn scan_interval(mut self, time: Duration) -> Self {
        self.look_every = time;
        self
    }

    /// Reads the folder and its tools.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read.
    pub fn build(self) -> Result<FolderTools, Error> {
        let name = self.folder.display().to_string();
        let fail = |cause: levity_core::SharedError| Error::Folder {
            folder: name.clone(),
            cause,
        };
        let folder = self
            .folder
            .canonicalize()
            .map_err(|error| fail(levity_core::SharedError::new(error)))?;
        let mut loaders = self.loaders;
        loaders.extend(LinkedLoader::all());
        scan(&folder).map_err(|error| fail(levity_core::SharedError::new(error)))?;
        let tools = FolderTools(Arc::new(Inner {
            name: name.clone(),
            folder,
            loaders,
            look_every: self.look_every,
            state: Mutex::default(),
        }));
        tools.reload();
        Ok(tools)
    }
}

impl fmt::Debug for FolderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FolderBuilder").field(&self.folder).finish()
    }
}
