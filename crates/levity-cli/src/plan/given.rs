//! The files that were given, for agents to read.

use std::fs;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use levity::core::{Hints, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use levity::sandbox::Workspace;
use levity::tools::ReadFile;
use serde_json::{Value, json};

use crate::terminal::chain;

/// How many files a description names.
const MOST_NAMED: usize = 50;

/// Reads the files that were given to a plan, and no others: wherever they lie, also without a
/// workspace.
pub(super) struct ReadGivenFile {
    spec: ToolSpec,
    files: Vec<Given>,
}

struct Given {
    /// As it was given, which is how the plan knows it.
    path: String,
    /// Its name in its folder.
    name: String,
    read: ReadFile,
}

impl ReadGivenFile {
    pub(super) const NAME: &'static str = "read_given_file";

    /// The tool for these files; `tell` says which of them it cannot read.
    pub(super) fn new(paths: &[PathBuf], tell: impl Fn(&str)) -> Self {
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            match Given::open(path) {
                Ok(given) => files.push(given),
                Err(problem) => tell(&format!(
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

    fn find(&self, wanted: &str) -> Result<&Given, ToolError> {
        let exact = self.files.iter().find(|given| given.path == wanted);
        let mut named = self.files.iter().filter(|given| given.name == wanted);
        match (exact, named.next(), named.next()) {
            (Some(given), ..) | (None, Some(given), None) => Ok(given),
            (None, Some(_), Some(_)) => {
                let message = format!(
                    "several files are named `{wanted}`; use the whole path: {}",
                    names(&self.files)
                );
                Err(ToolError::new(ToolErrorKind::InvalidArgs, message))
            }
            (None, None, _) => {
                let message = format!(
                    "`{wanted}` was not given; there are: {}",
                    names(&self.files)
                );
                Err(ToolError::new(ToolErrorKind::NotFound, message))
            }
        }
    }
}

impl Given {
    fn open(path: &Path) -> Result<Self, String> {
        let real = fs::canonicalize(path).map_err(|error| error.to_string())?;
        let (Some(folder), Some(name)) = (
            real.parent(),
            real.file_name().and_then(|name| name.to_str()),
        ) else {
            return Err("its name is no text".to_owned());
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

fn names(files: &[Given]) -> String {
    let mut names: Vec<_> = files
        .iter()
        .take(MOST_NAMED)
        .map(|given| format!("`{}`", given.path))
        .collect();
    if let Some(more) = files.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

fn spec(files: &[Given]) -> ToolSpec {
    let most = ReadFile::MAX_READ;
    let about = format!(
        "Reads a text file that the user gave: {}. Shows up to {most} bytes at once; `complete` \
            says whether that is all, and \
         `start_line` reads on.",
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
    // The value repeats the text as JSON, where a char may take several bytes.
    let hints = Hints::new()
        .read_only()
        .blocking()
        .max_output(2 * most + (4 << 10));
    ToolSpec::new(ReadGivenFile::NAME, about)
        .with_input(input)
        .with_hints(hints)
}

#[async_trait]
impl Tool for ReadGivenFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let given = self.find(args.get("file").and_then(Value::as_str).unwrap_or_default())?;
        let mut wanted = json!({"path": given.name});
        for key in ["start_line", "lines"] {
            if let Some(value) = args.get(key) {
                wanted[key] = value.clone();
            }
        }
        given.read.call(wanted, cx).await
    }
}
