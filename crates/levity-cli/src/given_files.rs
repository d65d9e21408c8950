//! The tool with which agents read the given files.
//!
//! `levity plan --file data/report.csv` shows a profile of the file to the planner, and this tool
//! gives its content to the agents. They may read exactly the named files, by the path as given or
//! by the name alone, and nothing beside them; no workspace is needed.
//!
//! Each file is read through a read-only workspace of its folder, and so by the same code, with the
//! same limits and the same checks, as files of a workspace.

use std::fs;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use levity::core::{Hints, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use levity::sandbox::Workspace;
use levity::tools::ReadFile;
use serde_json::{Value, json};

use crate::terminal::chain;

/// The maximum number of files in the description of the tool.
///
/// The description is part of every request, so a thousand files must not fill the context window.
const MAX_NAMED: usize = 50;

/// A tool that reads only the files given to a run. They may be anywhere, even without a
/// workspace.
pub(crate) struct ReadGivenFile {
    spec: ToolSpec,
    files: Vec<GivenFile>,
}

/// The link in a path is resolved when the tool is created; a link that changes later does not
/// change the file's folder.
struct GivenFile {
    /// The path as given, which plans and tasks use.
    path: String,
    /// Its name in its folder.
    name: String,
    read: ReadFile,
}

impl ReadGivenFile {
    /// The name by which catalogues of agents refer to the tool.
    pub(crate) const NAME: &'static str = "read_given_file";

    /// Creates the tool for these files; `report` receives those that it cannot read.
    ///
    /// An unreadable file is left out and the others work. The command has already refused files
    /// that do not exist.
    pub(crate) fn new(paths: &[PathBuf], report: impl Fn(&str)) -> Self {
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            match GivenFile::open(path) {
                Ok(file) => files.push(file),
                Err(problem) => report(&format!(
                    "agents cannot read `{}`: {problem}",
                    path.display()
                )),
            }
        }
        Self {
            spec: spec(&files),
            files,
        }
    }

    /// An exact path wins over a name. A name that several files share is an error that lists all
    /// paths, so the model can correct its call.
    fn find(&self, requested: &str) -> Result<&GivenFile, ToolError> {
        let exact = self.files.iter().find(|file| file.path == requested);
        let mut named = self.files.iter().filter(|file| file.name == requested);
        match (exact, named.next(), named.next()) {
            (Some(file), ..) | (None, Some(file), None) => Ok(file),
            (None, Some(_), Some(_)) => {
                let message = format!(
                    "several files are named `{requested}`; use the whole path: {}",
                    names(&self.files)
                );
                Err(ToolError::new(ToolErrorKind::InvalidArgs, message))
            }
            (None, None, _) => {
                let message = format!(
                    "`{requested}` is not a given file; the given files are: {}",
                    names(&self.files)
                );
                Err(ToolError::new(ToolErrorKind::NotFound, message))
            }
        }
    }
}

impl GivenFile {
    /// Fails if the file does not exist, if its name is not UTF-8, or if its folder cannot be
    /// opened.
    fn open(path: &Path) -> Result<Self, String> {
        let real = fs::canonicalize(path).map_err(|error| error.to_string())?;
        let (Some(folder), Some(name)) = (
            real.parent(),
            real.file_name().and_then(|name| name.to_str()),
        ) else {
            return Err("its name is not valid UTF-8".to_owned());
        };
        let space = Workspace::builder(folder)
            .read_only()
            .build()
            .map_err(|error| chain(&error))?;
        let (path, name) = (path.display().to_string(), name.to_owned());
        Ok(Self {
            path,
            name,
            read: ReadFile::new(space),
        })
    }
}

/// Lists at most 50 files, then the number of the others.
fn names(files: &[GivenFile]) -> String {
    let mut names: Vec<_> = files
        .iter()
        .take(MAX_NAMED)
        .map(|file| format!("`{}`", file.path))
        .collect();
    if let Some(more) = files.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

/// The output may be twice the limit of a read plus 4 KiB, because the result holds the text both
/// as text and as a JSON value.
fn spec(files: &[GivenFile]) -> ToolSpec {
    let max_read = ReadFile::MAX_READ;
    let about = format!(
        "Reads a text file that the user gave: {}. Shows up to {max_read} bytes at once; \
            `complete` states whether that is all, and `start_line` continues the reading.",
        names(files)
    );
    let input = json!({
        "type": "object",
        "properties": {
            "file": {"type": "string", "description": "The file, by its path as it was given, or \
                by its name."},
            "start_line": {"type": "integer", "minimum": 1, "description": "The first line to \
                read, from 1; default 1."},
            "lines": {"type": "integer", "minimum": 1, "description": "How many lines to read; \
                default: all that fit."},
        },
        "required": ["file"],
        "additionalProperties": false,
    });
    // The value repeats the text as JSON, where a character may take several bytes.
    let hints = Hints::new()
        .read_only()
        .blocking()
        .max_output(2 * max_read + (4 << 10));
    ToolSpec::new(ReadGivenFile::NAME, about)
        .with_input(input)
        .with_hints(hints)
}

#[async_trait]
impl Tool for ReadGivenFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Translates the call into one of `ReadFile`, with the name of the file inside its folder.
    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let file = self.find(args.get("file").and_then(Value::as_str).unwrap_or_default())?;
        let mut read_args = json!({"path": file.name});
        for key in ["start_line", "lines"] {
            if let Some(value) = args.get(key) {
                read_args[key] = value.clone();
            }
        }
        file.read.call(read_args, cx).await
    }
}
