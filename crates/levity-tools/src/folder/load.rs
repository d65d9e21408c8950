//! Loads tools from files.
//!
//! A folder may come from a stranger: files are at most 1 MiB, links out of the folder are
//! rejected, and a loader that panics is reported as a problem of its file.

use std::fs::File;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levity_core::Tool;

/// The maximum size of a file.
const MAX_FILE: u64 = 1 << 20;

/// Loads tools from files of one kind.
///
/// # Contract
/// - `takes` depends on the name alone.
/// - `load` returns soon, runs no code of the file beyond what it needs to know the tools, and
///   returns the same for the same file each time.
///
/// ```
/// use std::sync::Arc;
///
/// use levity_core::{Tool, ToolOutput, ToolSource};
/// use levity_test::RecordingTool;
/// use levity_tools::{FileLoader, FolderTools, LoadedFile, ToolFile};
///
/// /// Makes a tool of each text file, which returns the text.
/// struct Texts;
///
/// impl FileLoader for Texts {
///     fn takes(&self, name: &str) -> bool {
///         name.ends_with(".txt")
///     }
///
///     fn load(&self, file: &ToolFile) -> LoadedFile {
///         let (name, text) = (file.name.trim_end_matches(".txt").to_owned(), file.text.clone());
///         let tool = RecordingTool::new(name, move |_| Ok(ToolOutput::text(text.clone())));
///         LoadedFile::tools(vec![Arc::new(tool) as Arc<dyn Tool>])
///     }
/// }
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("motto.txt"), "Few concepts.")?;
/// let tools = FolderTools::builder(folder.path()).loader(Texts).build()?;
/// assert_eq!(tools.tools()[0].spec().name, "motto");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait FileLoader: Send + Sync {
    /// Returns `true` if it loads tools from files with this name.
    fn takes(&self, name: &str) -> bool;
    /// Returns the tools of a file, and its problems.
    fn load(&self, file: &ToolFile) -> LoadedFile;
}

/// A file of a folder of tools.
///
/// ```
/// # use levity_tools::ToolFile;
/// let file = ToolFile::new("/srv/tools/add.py", "def add(a: int, b: int) -> int: ...");
/// assert_eq!(file.name, "add.py");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolFile {
    /// The name of the file, without the folder.
    pub name: String,
    /// The path of the file.
    pub path: PathBuf,
    /// The content of the file.
    pub text: String,
}

impl ToolFile {
    /// Creates a file with this text.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        let path = path.into();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Self {
            name,
            path,
            text: text.into(),
        }
    }
}

/// The result of loading a file.
///
/// ```
/// # use levity_tools::LoadedFile;
/// let loaded = LoadedFile::problem("line 3: there is no docstring");
/// assert!(loaded.tools.is_empty() && loaded.problems.len() == 1);
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct LoadedFile {
    /// The tools of the file, in a stable order.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The problems of the file, each as a clause.
    pub problems: Vec<String>,
}

impl LoadedFile {
    /// Creates a result with these tools.
    pub fn tools(tools: Vec<Arc<dyn Tool>>) -> Self {
        Self {
            tools,
            problems: Vec::new(),
        }
    }

    /// Creates a result without tools, for this reason.
    pub fn problem(problem: impl Into<String>) -> Self {
        Self {
            tools: Vec::new(),
            problems: vec![problem.into()],
        }
    }
}

impl std::fmt::Debug for LoadedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tools: Vec<_> = self.tools.iter().map(|tool| &tool.spec().name).collect();
        f.debug_struct("LoadedFile")
            .field("tools", &tools)
            .field("problems", &self.problems)
            .finish()
    }
}

/// A loader that every folder of tools uses, since it is linked into the program.
#[derive(Clone, Copy, Debug)]
pub struct LinkedLoader {
    make: fn() -> Arc<dyn FileLoader>,
}

impl LinkedLoader {
    /// Creates a loader from this function; pass it to `inventory::submit!`.
    pub const fn new(make: fn() -> Arc<dyn FileLoader>) -> Self {
        Self { make }
    }

    pub(super) fn all() -> impl Iterator<Item = Arc<dyn FileLoader>> {
        inventory::iter::<Self>().map(|linked| (linked.make)())
    }
}

inventory::collect!(LinkedLoader);

/// Kinds of files that are certainly meant as tools, with the feature that loads them.
const KNOWN_KINDS: [(&str, &str); 2] = [(".py", "python"), (".tool.json", "commands")];

pub(super) fn load(folder: &Path, name: &str, loaders: &[Arc<dyn FileLoader>]) -> LoadedFile {
    let Some(loader) = loaders.iter().find(|loader| loader.takes(name)) else {
        let wanted = KNOWN_KINDS.iter().find(|(end, _)| name.ends_with(end));
        let problem = |(_, feature): &(&str, &str)| {
            LoadedFile::problem(format!(
                "there is no loader for such files; enable the feature `{feature}`"
            ))
        };
        return wanted.map(problem).unwrap_or_default();
    };
    let path = folder.join(name);
    match read(folder, &path) {
        Ok(text) => {
            let file = ToolFile {
                name: name.to_owned(),
                path,
                text,
            };
            let loaded = catch_unwind(AssertUnwindSafe(|| loader.load(&file)));
            loaded.unwrap_or_else(|_| {
                LoadedFile::problem("its loader panicked; this is a bug in the loader")
            })
        }
        Err(problem) => LoadedFile::problem(problem),
    }
}

/// Reads a file of the folder. A link out of the folder is an error: the folder may come from
/// someone else, and the model would see the text of the target.
fn read(folder: &Path, path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("it cannot be read: {error}");
    let target = path.canonicalize().map_err(unreadable)?;
    if !target.starts_with(folder.canonicalize().map_err(unreadable)?) {
        return Err(
            "it is a link to a file outside of the folder; copy the file instead".to_owned(),
        );
    }
    let mut text = String::new();
    let file = File::open(target).map_err(unreadable)?;
    file.take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > MAX_FILE {
        return Err(format!("it is larger than {MAX_FILE} bytes"));
    }
    Ok(text)
}
