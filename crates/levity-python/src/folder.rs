//! Python files in a tools folder.
//!
//! The loader registers itself in every program that links this crate. A file with an error becomes
//! a problem of the folder; the tools of other files stay available.

use std::sync::Arc;

use levity_tools::{FileLoader, LinkedLoader, LoadedFile, ToolFile};

use crate::dropin::tools_from_source;
use crate::error::Error;
use crate::python::Python;

/// Loads tools from the Python files in a folder.
///
/// Every [`FolderTools`](levity_tools::FolderTools) in a program that links this crate already has
/// one. Add your own for other limits.
///
/// ```
/// use levity_core::ToolSource;
/// use levity_tools::FolderTools;
///
/// let folder = tempfile::tempdir()?;
/// let source = "
/// def shout(text: str) -> str:
///     '''Writes in capitals.'''
///     return text.upper()
/// ";
/// std::fs::write(folder.path().join("texts.py"), source)?;
/// # use levity_python as _;
/// let tools = FolderTools::open(folder.path())?;
/// assert_eq!(tools.tools()[0].spec().description, "Writes in capitals.");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PythonFileLoader(Python);

impl PythonFileLoader {
    /// Creates a loader that runs functions in this interpreter, within its limits.
    pub fn new(python: Python) -> Self {
        Self(python)
    }
}

impl Default for PythonFileLoader {
    fn default() -> Self {
        Self::new(Python::new())
    }
}

impl FileLoader for PythonFileLoader {
    fn takes(&self, name: &str) -> bool {
        name.ends_with(".py")
    }

    fn load(&self, file: &ToolFile) -> LoadedFile {
        match tools_from_source(&file.name, &file.text, &self.0) {
            Ok(file_tools) => {
                let mut loaded = LoadedFile::tools(file_tools.tools);
                // Warnings begin with the file and line; the caller already reports the file.
                let prefix = format!("{}:", file.name);
                let line = |note: String| {
                    note.strip_prefix(&prefix)
                        .map_or(note.clone(), |note| format!("line {note}"))
                };
                loaded.problems = file_tools.warnings.into_iter().map(line).collect();
                loaded
            }
            Err(Error::File { line, problem, .. }) => {
                LoadedFile::problem(format!("line {line}: {problem}"))
            }
            Err(error) => LoadedFile::problem(error.to_string()),
        }
    }
}

inventory::submit! { LinkedLoader::new(|| Arc::new(PythonFileLoader::default())) }
