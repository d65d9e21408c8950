//! The tool `list_files`.
//!
//! The walk is depth first and sorted by name, so a list that is cut is the beginning of the whole
//! one. Limits count entries and bytes: a folder may contain few files with very long names.

use async_trait::async_trait;
use levity_core::{Hints, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_sandbox::{EntryKind, Listing, PathError, Workspace};
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{check_cancelled, parse};
use super::display;
use super::walk::{Filter, Folder, Glob, is_unread};

/// The tool `list_files`, which lists the files of a workspace.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// use levity_builtin_tools::ListFiles;
/// use levity_core::{Tool, ToolCx};
/// use levity_sandbox::Workspace;
/// use serde_json::json;
///
/// let workspace = Workspace::open(folder.path())?;
/// workspace.create_dir("src")?;
/// workspace.write("src/lib.rs", b"//! A crate.\n")?;
/// workspace.write(".gitignore", b"*.log\n")?;
/// workspace.write("build.log", b"")?;
/// let tool = ListFiles::new(workspace);
/// let cx = ToolCx::detached();
/// assert_eq!(tool.call(json!({}), &cx).await?.as_text(), "src/\n");
/// let sources = tool.call(json!({"glob": "*.rs"}), &cx).await?;
/// assert_eq!(sources.as_text(), "src/lib.rs (13)\n");
/// # Ok(())
/// # }
/// ```
///
/// A list has 500 entries by default and 5,000 at most, in at most 48 KiB. Folders deeper than 100
/// levels are not entered. Hidden files, ignored files and denied files are omitted; the first two
/// can be requested. A list names a folder that could not be read, and is then not complete.
#[derive(Debug)]
pub struct ListFiles {
    spec: ToolSpec,
    space: Workspace,
}

/// The default and maximum number of entries in a list.
const DEFAULT_MAX: usize = 500;
const MAX: usize = 5_000;
/// The maximum size of a list's text, in bytes.
const MAX_TEXT: usize = 48 << 10;

/// The arguments of a call. `recursive` follows `glob` if it is absent.
#[derive(Deserialize)]
struct Args {
    #[serde(default = "default_path")]
    path: String,
    recursive: Option<bool>,
    glob: Option<String>,
    #[serde(default)]
    hidden: bool,
    #[serde(default)]
    ignored: bool,
    max: Option<usize>,
}

fn default_path() -> String {
    ".".to_owned()
}

impl ListFiles {
    /// Creates the tool for the files of `workspace`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # use levity_builtin_tools::ListFiles;
    /// # use levity_core::{Tool, ToolCx};
    /// # use levity_sandbox::Workspace;
    /// # use serde_json::json;
    /// let workspace = Workspace::open(folder.path())?;
    /// for name in ["a.txt", "b.txt", "c.txt"] {
    ///     workspace.write(name, b"")?;
    /// }
    /// let output = ListFiles::new(workspace).call(json!({"max": 2}), &ToolCx::detached()).await?;
    /// let value = output.value.expect("a value");
    /// assert_eq!(value["entries"][1]["path"], "b.txt");
    /// assert_eq!(value["complete"], false);
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
        let folder = Folder::open(&self.space, &args.path)?;
        let glob = args
            .glob
            .as_deref()
            .map(|glob| Glob::new(glob, folder.dir.path()))
            .transpose()?;
        let mut list = List {
            recursive: args.recursive.unwrap_or(glob.is_some()),
            filter: Filter {
                no_hidden: !args.hidden,
                no_ignored: !args.ignored,
                glob,
                cancel: cx.cancel.clone(),
            },
            max: args.max.unwrap_or(DEFAULT_MAX).min(MAX),
            room: MAX_TEXT,
            entries: Vec::new(),
            complete: true,
            unreadable: 0,
            unread: 0,
            first_unread: None,
            cx,
        };
        list.fill(folder)?;
        Ok(list.into_output())
    }
}

/// A list that is being filled, with the room that remains.
struct List<'a> {
    recursive: bool,
    filter: Filter,
    max: usize,
    room: usize,
    entries: Vec<ListEntry>,
    complete: bool,
    unreadable: usize,
    /// The number of folders that could not be read, and the path of the first one.
    unread: u64,
    first_unread: Option<String>,
    cx: &'a ToolCx,
}

/// An entry of the list; only regular files have a size.
struct ListEntry {
    path: String,
    kind: EntryKind,
    size: Option<u64>,
}

impl List<'_> {
    /// Walks depth first in order of names, so that a truncated list is deterministic.
    fn fill(&mut self, folder: Folder) -> Result<(), ToolError> {
        let mut stack = Vec::new();
        stack.push(self.open(folder));
        while let Some((folder, mut entries)) = stack.pop() {
            check_cancelled(self.cx)?;
            while let Some(entry) = entries.next() {
                check_cancelled(self.cx)?;
                let path = folder.dir.path_of(&entry.name);
                if self.filter.matches(&path, &entry.name) && !self.add(&folder, path, &entry) {
                    return Ok(());
                }
                if !self.recursive || entry.kind != EntryKind::Dir || !folder.may_descend() {
                    continue;
                }
                match folder.enter(&entry.name) {
                    Ok(inner) => {
                        stack.push((folder, entries));
                        stack.push(self.open(inner));
                        break;
                    }
                    Err(error) => self.skip(folder.dir.path_of(&entry.name), &error),
                }
            }
        }
        Ok(())
    }

    /// Reads the entries of a folder. A folder that cannot be read has none, and is reported.
    fn open(
        &mut self,
        mut folder: Folder,
    ) -> (Folder, std::vec::IntoIter<levity_sandbox::FolderEntry>) {
        let listing = folder.list(&self.filter).unwrap_or_else(|error| {
            self.skip(folder.dir.path().to_owned(), &error);
            Listing::default()
        });
        self.complete &= !listing.truncated;
        self.unreadable += listing.unreadable;
        (folder, listing.entries.into_iter())
    }

    /// Counts a folder that could not be read.
    fn skip(&mut self, path: String, error: &PathError) {
        if is_unread(error) {
            self.unread += 1;
            self.first_unread.get_or_insert(path);
        }
    }

    /// Adds an entry; returns `false` if it exceeds the limits.
    fn add(&mut self, folder: &Folder, path: String, entry: &levity_sandbox::FolderEntry) -> bool {
        let cost = path.len() + 24;
        if self.entries.len() >= self.max || cost > self.room {
            self.complete = false;
            return false;
        }
        self.room -= cost;
        let file_size = || {
            folder
                .dir
                .metadata(&entry.name)
                .ok()
                .map(|meta| meta.size())
        };
        let size = if entry.kind == EntryKind::File {
            file_size()
        } else {
            None
        };
        self.entries.push(ListEntry {
            path,
            kind: entry.kind,
            size,
        });
        true
    }

    /// Builds the text and the value. Notes about omissions follow the entries.
    fn into_output(self) -> ToolOutput {
        let mut text: String = self.entries.iter().map(ListEntry::line).collect();
        if self.entries.is_empty() && self.unread == 0 {
            text.push_str("[nothing to list; hidden and ignored files are omitted by default]\n");
        }
        if !self.complete {
            let count = self.entries.len();
            text.push_str(&format!(
                "[the first {count} entries; there are more: list a folder of them, or use \
                    `glob`]\n"
            ));
        }
        if self.unreadable > 0 {
            text.push_str(&format!(
                "[omitted: {} whose names are not UTF-8]\n",
                self.unreadable
            ));
        }
        if let Some(first) = &self.first_unread {
            let path = display::path(if first.is_empty() { "." } else { first });
            let more = match self.unread {
                1 => String::new(),
                unread => format!(" and {}", display::count(unread - 1, "more folder")),
            };
            text.push_str(&format!("[could not be read: {path}/{more}]\n"));
        }
        let entry = |listed: &ListEntry| match listed.size {
            Some(size) => {
                json!({"path": listed.path, "kind": listed.kind.to_string(), "size": size})
            }
            None => json!({"path": listed.path, "kind": listed.kind.to_string()}),
        };
        let entries: Vec<_> = self.entries.iter().map(entry).collect();
        let mut output = ToolOutput::text(text);
        let complete = self.complete && self.unread == 0;
        output.value = Some(json!({"entries": entries, "complete": complete}));
        output
    }
}

impl ListEntry {
    /// Formats an entry: `src/` for a folder, `a.txt (12)` for a file of 12 bytes, `b (link)` for a
    /// link.
    fn line(&self) -> String {
        let path = display::path(&self.path);
        match (self.kind, self.size) {
            (EntryKind::Dir, _) => format!("{path}/\n"),
            (EntryKind::Link, _) => format!("{path} (link)\n"),
            (_, Some(size)) => format!("{path} ({size})\n"),
            _ => format!("{path} (special)\n"),
        }
    }
}

fn spec() -> ToolSpec {
    let about = "Lists the files and folders of a folder of the workspace, or of all folders below \
        it. What `.gitignore` \
                 names is left out, and so are hidden files. Folders end in `/`; behind a file is \
                 its size in bytes.";
    let input = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The folder, relative to the workspace; \
                default: the workspace itself."},
            "recursive": {"type": "boolean", "description": "Whether to list folders below it, \
                too; default: only with `glob`."},
            "glob": {"type": "string", "description": "Only what matches, such as `*.rs`, \
                `src/**/*.ts` or `!*.lock`."},
            "hidden": {"type": "boolean", "description": "Whether to list names that begin with a \
                dot; default false."},
            "ignored": {"type": "boolean", "description": "Whether to list what `.gitignore` \
                names; default false."},
            "max": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX,
                "description": "How many entries to list; default 500.",
            },
        },
        "additionalProperties": false,
    });
    let entry = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "kind": {"enum": ["file", "folder", "link", "other"]},
            "size": {"type": "integer"},
        },
        "required": ["path", "kind"],
    });
    let output = json!({
        "type": "object",
        "properties": {
            "entries": {"type": "array", "items": entry},
            "complete": {"type": "boolean", "description": "Whether these are all."},
        },
        "required": ["entries", "complete"],
    });
    let hints = Hints::new().read_only().blocking().max_output(3 * MAX_TEXT);
    ToolSpec::new("list_files", about)
        .with_input(input)
        .with_output(output)
        .with_hints(hints)
}

#[async_trait]
impl Tool for ListFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.run(&parse(args)?, cx)
    }
}
