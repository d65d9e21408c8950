//! The tool `write_artifact`.
//!
//! An agent that only formats results must be able to store them, but not to change anything else.
//! The tool therefore writes below one folder of the workspace. Paths are checked as text first; a
//! link in the folder could still lead elsewhere in the workspace, so links are refused.

use async_trait::async_trait;
use levity_core::{
    FileChange, Hints, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec,
};
use levity_sandbox::{EntryKind, PathError, Workspace, WriteOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{check_cancelled, parse, path_error};
use super::display;

/// The tool `write_artifact`, which writes files for the user into the folder `artifacts` of a
/// workspace, and nowhere else.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// use levity_builtin_tools::WriteArtifact;
/// use levity_core::{Tool, ToolCx, ToolErrorKind};
/// use levity_sandbox::Workspace;
/// use serde_json::json;
///
/// let tool = WriteArtifact::new(Workspace::open(folder.path())?);
/// let cx = ToolCx::detached();
/// let output = tool.call(json!({"path": "report.md", "content": "# Tides\n"}), &cx).await?;
/// assert_eq!(output.as_text(), "created `artifacts/report.md`: 1 line, 8 bytes");
///
/// let outside = json!({"path": "../levity.toml", "content": ""});
/// let denied = tool.call(outside, &cx).await.unwrap_err();
/// assert_eq!(denied.kind(), ToolErrorKind::Denied);
/// # Ok(())
/// # }
/// ```
///
/// Missing folders are created, also `artifacts` itself. A path may begin with `artifacts/`. The
/// rules of the workspace apply in addition.
#[derive(Debug)]
pub struct WriteArtifact {
    spec: ToolSpec,
    space: Workspace,
}

/// The arguments of a call, as the schema describes them.
#[derive(Deserialize)]
struct Args {
    path: String,
    content: String,
}

impl WriteArtifact {
    /// The folder into which the tool writes.
    pub const FOLDER: &'static str = "artifacts";

    /// Creates the tool for the folder `artifacts` of `workspace`.
    pub fn new(workspace: Workspace) -> Self {
        Self {
            spec: spec(),
            space: workspace,
        }
    }

    fn run(&self, args: &Args, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        check_cancelled(cx)?;
        let path = below_folder(&args.path)?;
        self.reject_links(&path)?;
        let bytes = args.content.as_bytes();
        let options = WriteOptions::new().parents();
        let written = self
            .space
            .write_with(&path, bytes, options)
            .map_err(path_error)?;
        cx.progress.changed(&FileChange::written(&*written.path));
        let verb = if written.created {
            "created"
        } else {
            "replaced"
        };
        let lines = args.content.lines().count() as u64;
        let text = format!(
            "{verb} `{}`: {}, {}",
            display::path(&written.path),
            display::count(lines, "line"),
            display::count(bytes.len() as u64, "byte")
        );
        let mut output = ToolOutput::text(text);
        output.value = Some(json!({"path": written.path, "created": written.created}));
        Ok(output)
    }

    /// Refuses a path that leads through a link, or to one.
    fn reject_links(&self, path: &str) -> Result<(), ToolError> {
        let mut folder = self.space.dir(".").map_err(path_error)?;
        let mut names = path.split('/').peekable();
        while let Some(name) = names.next() {
            match folder.metadata(name) {
                Err(PathError::NotFound(_)) => return Ok(()),
                Ok(metadata) if metadata.kind() == EntryKind::Link => {
                    let at = folder.path_of(name);
                    return Err(denied(format!(
                        "`{}` is a link; choose a path without links",
                        display::path(&at)
                    )));
                }
                Ok(_) if names.peek().is_none() => return Ok(()),
                Ok(_) => folder = folder.dir(name).map_err(path_error)?,
                Err(error) => return Err(path_error(error)),
            }
        }
        Ok(())
    }
}

/// Returns the path relative to the workspace. The folder's own name in front is optional, because
/// models write both.
fn below_folder(path: &str) -> Result<String, ToolError> {
    let mut names: Vec<&str> = path
        .split('/')
        .filter(|name| !matches!(*name, "" | "."))
        .collect();
    if path.starts_with('/') || names.contains(&"..") {
        return Err(denied(format!(
            "`{}` is outside of `{}`; use a path such as `report.md`",
            display::path(path),
            WriteArtifact::FOLDER
        )));
    }
    if names.first() == Some(&WriteArtifact::FOLDER) {
        names.remove(0);
    }
    if names.is_empty() {
        let problem = "the path names no file; use a path such as `report.md`";
        return Err(ToolError::new(ToolErrorKind::InvalidArgs, problem));
    }
    Ok(format!("{}/{}", WriteArtifact::FOLDER, names.join("/")))
}

fn denied(problem: String) -> ToolError {
    ToolError::new(ToolErrorKind::Denied, problem)
}

fn spec() -> ToolSpec {
    let about = "Writes a file for the user into the folder `artifacts`, whole, in place of what \
        was there; folders that are missing are made. It writes nowhere else.";
    let input = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to `artifacts`, such as \
                `report.md`."},
            "content": {"type": "string", "description": "All that the file shall hold."},
        },
        "required": ["path", "content"],
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the workspace."},
            "created": {"type": "boolean", "description": "Whether there was no such file before."},
        },
        "required": ["path", "created"],
    });
    // Writing the same content again changes nothing more.
    let hints = Hints::new().idempotent().blocking();
    ToolSpec::new("write_artifact", about)
        .with_input(input)
        .with_output(output)
        .with_hints(hints)
}

#[async_trait]
impl Tool for WriteArtifact {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.run(&parse(args)?, cx)
    }
}
