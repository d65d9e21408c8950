//! The tool `write_file`.
//!
//! The workspace replaces the file in one step, so a crash or a cancelled call leaves the old or
//! the new file, never a part. A change is reported as progress of the call.

use async_trait::async_trait;
use levity_core::{FileChange, Hints, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_sandbox::{Workspace, WriteOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{check_cancelled, parse, path_error};
use super::display;

/// The tool `write_file`, which writes a whole file of a workspace.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// use levity_builtin_tools::WriteFile;
/// use levity_core::{Tool, ToolCx, ToolErrorKind};
/// use levity_sandbox::Workspace;
/// use serde_json::json;
///
/// let tool = WriteFile::new(Workspace::open(folder.path())?);
/// let cx = ToolCx::detached();
/// let output = tool.call(json!({"path": "src/lib.rs", "content": "//! New.\n"}), &cx).await?;
/// assert_eq!(output.value.expect("a value")["created"], true);
///
/// let denied = tool.call(json!({"path": ".env", "content": ""}), &cx).await.unwrap_err();
/// assert_eq!(denied.kind(), ToolErrorKind::Denied);
/// # Ok(())
/// # }
/// ```
///
/// Missing folders are created. The size of the content is limited only by the arguments of the
/// call.
#[derive(Debug)]
pub struct WriteFile {
    spec: ToolSpec,
    space: Workspace,
}

/// The arguments of a call, as the schema describes them.
#[derive(Deserialize)]
struct Args {
    path: String,
    content: String,
}

impl WriteFile {
    /// Creates the tool for the files of `workspace`.
    ///
    /// [`FileTools`](crate::FileTools) omits this tool if the workspace is read-only. If you add it
    /// yourself, every call fails:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # use levity_builtin_tools::WriteFile;
    /// # use levity_core::{Tool, ToolCx, ToolErrorKind};
    /// # use levity_sandbox::Workspace;
    /// # use serde_json::json;
    /// let tool = WriteFile::new(Workspace::builder(folder.path()).read_only().build()?);
    /// let args = json!({"path": "a.txt", "content": ""});
    /// let error = tool.call(args, &ToolCx::detached()).await.unwrap_err();
    /// assert_eq!(error.kind(), ToolErrorKind::Denied);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(workspace: Workspace) -> Self {
        Self {
            spec: spec(),
            space: workspace,
        }
    }

    fn run(&self, args: &Args, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        check_cancelled(cx)?;
        let bytes = args.content.as_bytes();
        let written = self
            .space
            .write_with(&args.path, bytes, WriteOptions::new().parents())
            .map_err(path_error)?;
        let change = FileChange::written(&*written.path).with_content(bytes);
        cx.progress.changed(&change);
        let lines = args.content.lines().count() as u64;
        let (verb, path) = (
            if written.created {
                "created"
            } else {
                "replaced"
            },
            display::path(&written.path),
        );
        let text = format!(
            "{verb} `{path}`: {}, {}",
            display::count(lines, "line"),
            display::count(bytes.len() as u64, "byte")
        );
        let mut output = ToolOutput::text(text);
        output.value = Some(json!({
            "path": written.path, "created": written.created, "lines": lines, "bytes": bytes.len(),
        }));
        Ok(output)
    }
}

fn spec() -> ToolSpec {
    let about = "Writes a file of the workspace whole, in place of what was there; folders that \
        are missing are made. \
                 To change a part of a file, use `edit_file`.";
    let input = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the workspace, such \
                as `src/main.rs`."},
            "content": {"type": "string", "description": "All that the file shall hold."},
        },
        "required": ["path", "content"],
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "created": {"type": "boolean", "description": "Whether there was no such file before."},
            "lines": {"type": "integer"},
            "bytes": {"type": "integer"},
        },
        "required": ["path", "created", "lines", "bytes"],
    });
    // Writing the same content again changes nothing more.
    let hints = Hints::new().idempotent().blocking();
    ToolSpec::new("write_file", about)
        .with_input(input)
        .with_output(output)
        .with_hints(hints)
}

#[async_trait]
impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn reports_changes(&self) -> bool {
        true
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.run(&parse(args)?, cx)
    }
}
