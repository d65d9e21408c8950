//! The tool `edit_file`.
//!
//! A model names the text to replace and not a line number, since line numbers change with each
//! edit and are easy to get wrong. The text must occur exactly once, so an edit never changes a
//! place that the model did not mean. If it does not occur, the error quotes the most similar
//! place, such as the same text with other white space.

use async_trait::async_trait;
use levity_core::{
    FileChange, Hints, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec,
};
use levity_sandbox::{PathError, Workspace};
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{check_cancelled, parse, path_error};
use super::decode::Encoding;
use super::replace::{ReplaceError, Replacement, replace};
use super::{display, suggestion};

/// The tool `edit_file`, which replaces text in a file of a workspace.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// use levity_builtin_tools::EditFile;
/// use levity_core::{Tool, ToolCx};
/// use levity_sandbox::Workspace;
/// use serde_json::json;
///
/// let workspace = Workspace::open(folder.path())?;
/// workspace.write("a.txt", b"one\ntwo\nthree\n")?;
/// let tool = EditFile::new(workspace.clone());
/// let cx = ToolCx::detached();
/// let output = tool.call(json!({"path": "a.txt", "old": "two", "new": "2"}), &cx).await?;
/// assert_eq!(output.as_text(), "edited `a.txt` in 1 place; the new text is in line 2");
/// assert_eq!(workspace.read("a.txt", 100)?, b"one\n2\nthree\n");
///
/// let error = tool.call(json!({"path": "a.txt", "old": "four", "new": "4"}), &cx).await;
/// assert!(error.unwrap_err().to_string().contains("`old` is not in `a.txt`"));
/// # Ok(())
/// # }
/// ```
///
/// Line endings, the encoding and a byte order mark of the file are preserved. Files of up to 16
/// MiB can be edited. The tool reads and writes without a lock: of two simultaneous edits of one
/// file, one may be lost.
#[derive(Debug)]
pub struct EditFile {
    spec: ToolSpec,
    space: Workspace,
}

/// The maximum size of a file that can be edited, in bytes.
const MAX_EDIT: u64 = 16 << 20;
/// The maximum number of line ranges in a result.
const MAX_RANGES: usize = 100;

/// The arguments of a call, as the schema describes them.
#[derive(Deserialize)]
struct Args {
    path: String,
    old: String,
    new: String,
    #[serde(default)]
    all: bool,
}

impl EditFile {
    /// Creates the tool for the files of `workspace`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # use levity_builtin_tools::EditFile;
    /// # use levity_core::{Tool, ToolCx};
    /// # use levity_sandbox::Workspace;
    /// # use serde_json::json;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.write("a.txt", b"tide\nlow tide\n")?;
    /// let tool = EditFile::new(workspace.clone());
    /// let cx = ToolCx::detached();
    /// let args = json!({"path": "a.txt", "old": "tide", "new": "water"});
    /// let error = tool.call(args, &cx).await.unwrap_err().to_string();
    /// assert!(error.contains("occurs 2 times in `a.txt`, in lines 1, 2"));
    ///
    /// let args = json!({"path": "a.txt", "old": "tide", "new": "water", "all": true});
    /// assert_eq!(tool.call(args, &cx).await?.value.expect("a value")["replaced"], 2);
    /// assert_eq!(workspace.read("a.txt", 100)?, b"water\nlow water\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(workspace: Workspace) -> Self {
        Self {
            spec: spec(),
            space: workspace,
        }
    }

    /// # Errors
    /// - `InvalidArgs` if `old` is empty or equals `new`.
    /// - `Failed` if the file is binary, too large or invalid UTF-16, or if `old` is missing or
    ///   ambiguous.
    /// - `Denied` if the workspace refuses the path.
    fn run(&self, args: &Args, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        check_cancelled(cx)?;
        let invalid = |text: &str| Err(ToolError::new(ToolErrorKind::InvalidArgs, text));
        if args.old.is_empty() {
            return invalid(
                "`old` is empty; give the text to replace, or use `write_file` for a new file",
            );
        }
        if args.old == args.new {
            return invalid("`old` and `new` are the same, so nothing would change");
        }
        let bytes = self.space.read(&args.path, MAX_EDIT).map_err(too_long)?;
        let Some(encoding) = Encoding::of(&bytes) else {
            return Err(ToolError::failed(format!(
                "`{}` is not text, so it cannot be edited",
                args.path
            )));
        };
        let (mark, body) = bytes.split_at(if bytes.starts_with(encoding.mark()) {
            encoding.mark().len()
        } else {
            0
        });
        let text = encoding.decode(body);
        // Invalid UTF-16 would not survive, also outside of the replaced text.
        if encoding.is_wide() && encoding.encode(&text) != body {
            return Err(ToolError::failed(format!(
                "`{}` has invalid UTF-16, which an edit would change; use a command",
                args.path
            )));
        }
        let replaced = replace(&text, &args.old, &args.new, args.all, MAX_EDIT as usize)
            .map_err(|error| replace_error(args, &text, &error))?;
        let whole = [mark, &encoding.encode(&replaced.text)].concat();
        check_cancelled(cx)?;
        let written = self.space.write(&args.path, &whole).map_err(path_error)?;
        let change = FileChange::written(&*written.path).with_content(&whole);
        cx.progress.changed(&change);
        Ok(edit_output(&written.path, &replaced))
    }
}

/// Replaces the workspace's advice to read a part, which does not help an edit.
fn too_long(error: PathError) -> ToolError {
    match error {
        PathError::TooLarge { path, size, max } => ToolError::failed(format!(
            "`{path}` has {size} bytes, and the limit for edits is {max}; use a \
                command, or write another file"
        )),
        error => path_error(error),
    }
}

/// Builds the output for the model.
fn edit_output(path: &str, replaced: &Replacement) -> ToolOutput {
    let ranges = replaced.lines.iter().take(MAX_RANGES);
    let value: Vec<_> = ranges
        .clone()
        .map(|&(first, last)| json!({"first": first, "last": last}))
        .collect();
    let shown: Vec<_> = ranges
        .take(10)
        .map(|&(first, last)| match first == last {
            true => format!("line {first}"),
            false => format!("lines {first}-{last}"),
        })
        .collect();
    let more = match replaced.lines.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let places = display::count(replaced.lines.len() as u64, "place");
    let (path_shown, shown) = (display::path(path), shown.join(", "));
    let mut output = ToolOutput::text(format!(
        "edited `{path_shown}` in {places}; the new text is in {shown}{more}"
    ));
    output.value = Some(json!({"path": path, "replaced": replaced.lines.len(), "lines": value}));
    output
}

/// Converts the error into a message with line numbers or a suggestion.
fn replace_error(args: &Args, text: &[u8], error: &ReplaceError) -> ToolError {
    let path = display::path(&args.path);
    ToolError::failed(match error {
        ReplaceError::NotFound => format!(
            "`old` is not in `{path}`; {}",
            suggestion::suggest(text, &args.old)
        ),
        ReplaceError::TooLarge(size) => {
            format!("`{path}` would have {size} bytes, and the limit is {MAX_EDIT}; replace less")
        }
        ReplaceError::Ambiguous(lines) => format!(
            "`old` occurs {} times in `{path}`, in lines {}; add more of the text around it, or \
                set \
                `all` to replace every one",
            lines.len(),
            display::numbers(lines, 20),
        ),
    })
}

fn spec() -> ToolSpec {
    let about = "Replaces text in a file of the workspace. `old` must be in the file exactly once, \
        white space \
                 included, unless `all` is set; read the file first, and give enough lines around \
                 the change to make \
                 it the only one. Ends of lines stay as they are in the file.";
    let input = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the workspace, such \
                as `src/main.rs`."},
            "old": {"type": "string", "minLength": 1, "description": "The text to replace, exactly \
                as it is."},
            "new": {"type": "string", "description": "The text to put there; empty to remove the \
                old one."},
            "all": {"type": "boolean", "description": "Whether to replace every `old`; default \
                false."},
        },
        "required": ["path", "old", "new"],
        "additionalProperties": false,
    });
    let range = json!({
        "type": "object",
        "properties": {"first": {"type": "integer"}, "last": {"type": "integer"}},
        "required": ["first", "last"],
    });
    let output = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "replaced": {"type": "integer", "description": "In how many places."},
            "lines": {"type": "array", "items": range, "description": "Where the new text is; the \
                first places of many."},
        },
        "required": ["path", "replaced", "lines"],
    });
    let hints = Hints::new().blocking();
    ToolSpec::new("edit_file", about)
        .with_input(input)
        .with_output(output)
        .with_hints(hints)
}

#[async_trait]
impl Tool for EditFile {
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
