//! Python files in a folder of tools.

use std::sync::Arc;

use levity_tools::{FileLoader, LinkedLoader, Loaded, ToolFile};

use crate::dropin::tools_of;
use crate::error::Error;
use crate::python::Python;

/// Makes tools of the Python files in a folder.
///
/// Every [`FolderTools`](levity_tools::FolderTools) of a program that links this crate has one
/// already; give it one of your own for other limits.
///
/// ```
/// use levity_core::ToolSource;
/// use levity_tools::FolderTools;
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("texts.py"), "def shout(text: str) -> str:\n    \"\"\"Writes in capitals.\"\"\"\n    return text.upper()\n")?;
/// # use levity_python as _;
/// let tools = FolderTools::open(folder.path())?;
/// assert_eq!(tools.tools()[0].spec().description, "Writes in capitals.");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PythonFiles(Python);

impl PythonFiles {
    /// Functions run in this interpreter, within its limits.
    pub fn new(python: Python) -> Self {
        Self(python)
    }
}

impl Default for PythonFiles {
    fn default() -> Self {
        Self::new(Python::new())
    }
}

impl FileLoader for PythonFiles {
    fn takes(&self, name: &str) -> bool {
        name.ends_with(".py")
    }

    fn load(&self, file: &ToolFile) -> Loaded {
        match tools_of(&file.name, &file.text, &self.0) {
            Ok(made) => {
                let mut loaded = Loaded::tools(made.tools);
                // They begin with the file and the line; whoever reports them has the file already.
                let own = format!("{}:", file.name);
                let line = |note: String| {
                    note.strip_prefix(&own)
                        .map_or(note.clone(), |note| format!("line {note}"))
                };
                loaded.problems = made.warnings.into_iter().map(line).collect();
                loaded
            }
            Err(Error::File { line, problem, .. }) => {
                Loaded::problem(format!("line {line}: {problem}"))
            }
            Err(error) => Loaded::problem(error.to_string()),
        }
    }
}

inventory::submit! { LinkedLoader::new(|| Arc::new(PythonFiles::default())) }
