//! The tool `read_file`.
//!
//! A file is scanned once, from its beginning to its end or to 256 MiB: the requested lines are
//! collected, and all lines are counted, so that the model learns how much remains. Memory is
//! bounded by the window, not by the file.

use std::fs::File;
use std::io::{self, Read};

use async_trait::async_trait;
use levity_core::{Hints, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_sandbox::Workspace;
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{check_cancelled, parse, path_error};
use super::decode::{Encoding, HEAD};
use super::display;
use super::lines::Window;

/// The tool `read_file`, which reads a text file of a workspace, whole or in parts.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// use levity_builtin_tools::ReadFile;
/// use levity_core::{Tool, ToolCx};
/// use levity_sandbox::Workspace;
/// use serde_json::json;
///
/// let workspace = Workspace::open(folder.path())?;
/// workspace.write("notes.txt", b"one\ntwo\nthree\n")?;
/// let args = json!({"path": "notes.txt", "start_line": 2, "lines": 1});
/// let output = ReadFile::new(workspace).call(args, &ToolCx::detached()).await?;
/// assert_eq!(
///     output.as_text(),
///     "two\n[lines 2-2 of 3 (14 bytes); continue with start_line 3]"
/// );
/// # Ok(())
/// # }
/// ```
///
/// Text in UTF-8 and UTF-16 is shown; invalid bytes become `\u{fffd}`. A binary file is reported
/// with its size and without its contents. A line longer than 8 KiB is cut.
#[derive(Debug)]
pub struct ReadFile {
    spec: ToolSpec,
    space: Workspace,
    max_read: usize,
}

/// The number of bytes of a file that are scanned to count its lines.
const MAX_SCAN: u64 = 256 << 20;
/// The number of bytes that are read of a UTF-16 file.
const MAX_WIDE: u64 = 16 << 20;

/// The arguments of a call. Serde fills in the defaults that the schema describes.
#[derive(Deserialize)]
struct Args {
    path: String,
    #[serde(default = "first_line")]
    start_line: u64,
    lines: Option<u64>,
    #[serde(default)]
    numbers: bool,
}

fn first_line() -> u64 {
    1
}

impl ReadFile {
    /// The default number of bytes that one call returns.
    pub const MAX_READ: usize = 100_000;

    /// Creates the tool for the files of `workspace`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # use levity_builtin_tools::ReadFile;
    /// # use levity_core::{Tool, ToolCx};
    /// # use levity_sandbox::Workspace;
    /// # use serde_json::json;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.write("program", b"\x7fELF\0\x01")?;
    /// let tool = ReadFile::new(workspace);
    /// let output = tool.call(json!({"path": "program"}), &ToolCx::detached()).await?;
    /// let value = output.value.expect("a value");
    /// // A binary file is a result: the model learns its size and that it is not text.
    /// assert_eq!((&value["binary"], &value["bytes"]), (&true.into(), &6.into()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(workspace: Workspace) -> Self {
        Self {
            spec: spec(Self::MAX_READ),
            space: workspace,
            max_read: Self::MAX_READ,
        }
    }

    /// Sets the number of bytes of a file that one call returns; 100 KB by default.
    ///
    /// The limit is also the number in the tool's description, so the model knows it. At least one
    /// line, or the beginning of it, is returned.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # use levity_builtin_tools::ReadFile;
    /// # use levity_core::{Tool, ToolCx};
    /// # use levity_sandbox::Workspace;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.write("a.txt", b"one\ntwo\nthree\n")?;
    /// let tool = ReadFile::new(workspace).max_read(8);
    /// let output = tool.call(serde_json::json!({"path": "a.txt"}), &ToolCx::detached()).await?;
    /// let value = output.value.expect("a value");
    /// assert_eq!((&value["content"], &value["complete"]), (&"one\ntwo\n".into(), &false.into()));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn max_read(mut self, bytes: usize) -> Self {
        self.max_read = bytes.max(1);
        self.spec = spec(self.max_read);
        self
    }

    /// Detects the encoding from the first 8 KiB, then scans the file.
    fn run(&self, args: &Args, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let file = self.space.open_file(&args.path).map_err(path_error)?;
        let (path, size) = (file.path().to_owned(), file.metadata().size());
        let failed =
            |error| ToolError::failed(format!("`{path}` cannot be read")).with_source(error);
        let mut file = file.into_file();
        let mut head = Vec::with_capacity(HEAD);
        (&mut file)
            .take(HEAD as u64)
            .read_to_end(&mut head)
            .map_err(failed)?;
        let Some(encoding) = Encoding::of(&head) else {
            return Ok(binary(&path, size));
        };

        let last = args.lines.map_or(u64::MAX, |lines| {
            args.start_line.saturating_add(lines).saturating_sub(1)
        });
        let mut window = Window::new(args.start_line, last, self.max_read, args.numbers);
        let text = head.strip_prefix(encoding.mark()).unwrap_or(&head);
        let scanned = match encoding.is_wide() {
            true => scan_utf16(&mut window, encoding, text, &mut file).map_err(failed)?,
            false => scan(&mut window, text, &mut file, cx, failed)?,
        };
        let total = window.finish();
        Part {
            path,
            size,
            total,
            scanned,
            first: args.start_line,
            window,
        }
        .into_output()
    }
}

/// Feeds the window; returns `false` if the file exceeds the scan limit.
///
/// Cancellation is checked for every 64 KiB.
fn scan(
    window: &mut Window,
    head: &[u8],
    file: &mut File,
    cx: &ToolCx,
    failed: impl Fn(io::Error) -> ToolError,
) -> Result<bool, ToolError> {
    window.feed(head);
    let (mut buffer, mut remaining) = (vec![0; 64 << 10], MAX_SCAN);
    while remaining > 0 {
        check_cancelled(cx)?;
        match file.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(count) => {
                window.feed(&buffer[..count]);
                remaining = remaining.saturating_sub(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(false)
}

/// Decodes a UTF-16 file as a whole, up to 16 MiB, since line endings are two bytes there; returns
/// `false` if the file is longer.
fn scan_utf16(
    window: &mut Window,
    encoding: Encoding,
    head: &[u8],
    file: &mut File,
) -> io::Result<bool> {
    let mut bytes = head.to_vec();
    file.take(MAX_WIDE).read_to_end(&mut bytes)?;
    window.feed(&encoding.decode(&bytes));
    Ok((bytes.len() as u64) < MAX_WIDE)
}

/// The part of a file that was read.
struct Part {
    path: String,
    size: u64,
    total: u64,
    /// Set if the whole file was scanned, so that `total` is exact.
    scanned: bool,
    first: u64,
    window: Window,
}

impl Part {
    /// # Errors
    /// Fails if the requested lines are beyond the end of a file that has lines.
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        let excerpt = &self.window.excerpt;
        if excerpt.last == 0 && self.total > 0 {
            let (path, lines) = (
                display::path(&self.path),
                display::count(self.total, "line"),
            );
            return Err(ToolError::failed(format!(
                "`{path}` has {lines}; request lines within that range"
            )));
        }
        let complete = self.first <= 1 && excerpt.last == self.total && self.scanned;
        let mut text = excerpt.text.clone();
        if let Some(note) = self.note(complete) {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&note);
        }
        let mut output = ToolOutput::text(text);
        output.value = Some(json!({
            "path": self.path, "content": excerpt.text, "first_line": self.first,
            "last_line": excerpt.last,
            "total_lines": self.total, "bytes": self.size, "complete": complete && !excerpt.cut,
            "binary": false,
        }));
        Ok(output)
    }

    /// Returns a note for the model about the rest of the file; `None` if all of it is shown.
    fn note(&self, complete: bool) -> Option<String> {
        let excerpt = &self.window.excerpt;
        if self.total == 0 {
            return Some("[the file is empty]".to_owned());
        }
        if complete {
            return None;
        }
        let more = if self.scanned { "" } else { "more than " };
        let seen = format!(
            "lines {}-{} of {more}{} ({} bytes)",
            self.first, excerpt.last, self.total, self.size
        );
        match excerpt.last < self.total {
            true => Some(format!(
                "[{seen}; continue with start_line {}]",
                excerpt.last + 1
            )),
            false => Some(format!("[{seen}]")),
        }
    }
}

/// Returns a result and not an error: the model asked for a file that exists, and should not retry.
fn binary(path: &str, size: u64) -> ToolOutput {
    let display = display::path(path);
    let text =
        format!("[`{display}` is not text in UTF-8 or UTF-16: {size} bytes, which are not shown]");
    let mut output = ToolOutput::text(text);
    output.value = Some(json!({
        "path": path, "content": "", "first_line": 1, "last_line": 0, "total_lines": 0,
        "bytes": size,
        "complete": false, "binary": true,
    }));
    output
}

fn spec(max_read: usize) -> ToolSpec {
    let about = format!(
        "Reads a text file of the workspace. Shows up to {max_read} bytes at once and, if that is \
            not the whole file, \
         how to continue. Use `start_line` and `lines` for a part of a long file.",
    );
    let input = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the workspace, such \
                as `src/main.rs`."},
            "start_line": {"type": "integer", "minimum": 1, "description": "The first line to \
                read, from 1; default 1."},
            "lines": {"type": "integer", "minimum": 1, "description": "How many lines to read; \
                default: all that fit."},
            "numbers": {"type": "boolean", "description": "Whether each line begins with its \
                number and a tab."},
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "content": {"type": "string"},
            "first_line": {"type": "integer"},
            "last_line": {"type": "integer"},
            "total_lines": {"type": "integer"},
            "bytes": {"type": "integer"},
            "complete": {"type": "boolean", "description": "Whether `content` is the whole file."},
            "binary": {"type": "boolean"},
        },
        "required": [
            "path", "content", "first_line", "last_line", "total_lines", "bytes", "complete",
            "binary",
        ],
    });
    // The value repeats the text as JSON, in which a char may take several bytes.
    let max_output = max_read.saturating_mul(2).saturating_add(4 << 10);
    ToolSpec::new("read_file", about)
        .with_input(input)
        .with_output(output)
        .with_hints(Hints::new().read_only().blocking().max_output(max_output))
}

#[async_trait]
impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.run(&parse(args)?, cx)
    }
}
