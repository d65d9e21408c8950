//! The tool `search_files`.
//!
//! The engine is that of ripgrep. Up to 16 threads take jobs from one queue; results are kept by
//! path, so the first matches are the same in every run, whichever thread finds them. A search that
//! is cancelled stops within one step of the pattern: see `cancellable`.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use async_trait::async_trait;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use levity_core::{
    CancelToken, Hints, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec,
};
use levity_sandbox::{EntryKind, OpenFile, PathError, Workspace};
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{check_cancelled, parse, path_error};
use super::cancellable::{self, CancellableMatcher};
use super::hits::{Collector, FileHits, Hits, Size, overhead};
use super::queue::{Job, Queue};
use super::report::{Counts, report};
use super::walk::{Filter, Folder, Glob, is_unread};

/// The tool `search_files`, which searches the files of a workspace.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// use levity_builtin_tools::SearchFiles;
/// use levity_core::{Tool, ToolCx};
/// use levity_sandbox::Workspace;
/// use serde_json::json;
///
/// let workspace = Workspace::open(folder.path())?;
/// workspace.create_dir("src")?;
/// workspace.write("src/lib.rs", b"fn add() {}\nfn sub() {}\n")?;
/// let args = json!({"pattern": r"fn s\w+", "glob": "*.rs"});
/// let output = SearchFiles::new(workspace).call(args, &ToolCx::detached()).await?;
/// assert_eq!(output.as_text(), "src/lib.rs\n2: fn sub() {}\n\n[1 match, in 1 file]");
/// # Ok(())
/// # }
/// ```
///
/// A result has 100 matches by default and 2,000 at most, in at most 48 KiB. Patterns match within
/// one line. Hidden, ignored and binary files are omitted, and files with a line that needs more
/// than 32 MiB are reported as not searched. A result says how many folders could not be read, and
/// is then not complete.
#[derive(Debug)]
pub struct SearchFiles {
    spec: ToolSpec,
    space: Workspace,
}

/// The default and maximum number of matches in a result.
const DEFAULT_MAX: usize = 100;
const MAX: usize = 2_000;
/// The maximum number of context lines around a match.
const MAX_CONTEXT: usize = 20;
/// The maximum size of all matches in bytes, including their paths.
pub(super) const MAX_TEXT: usize = 48 << 10;
/// The memory that a thread may use for one line; a file with a longer line is not searched.
const MAX_HEAP: usize = 32 << 20;
const MAX_THREADS: usize = 16;
/// The number of files in one job.
const CHUNK: usize = 32;

/// The arguments of a call. Numbers beyond the limits are reduced to them.
#[derive(Deserialize)]
struct Args {
    pattern: String,
    #[serde(default = "default_path")]
    path: String,
    glob: Option<String>,
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    context: usize,
    #[serde(default)]
    hidden: bool,
    #[serde(default)]
    ignored: bool,
    max: Option<usize>,
}

fn default_path() -> String {
    ".".to_owned()
}

impl SearchFiles {
    /// Creates the tool for the files of `workspace`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # use levity_builtin_tools::SearchFiles;
    /// # use levity_core::{Tool, ToolCx};
    /// # use levity_sandbox::Workspace;
    /// # use serde_json::json;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.write("notes.txt", b"before\nsum(1)\nafter\n")?;
    /// let args = json!({"pattern": "SUM(1)", "literal": true, "ignore_case": true, "context": 1});
    /// let output = SearchFiles::new(workspace).call(args, &ToolCx::detached()).await?;
    /// assert_eq!(
    ///     output.as_text(),
    ///     "notes.txt\n1- before\n2: sum(1)\n3- after\n\n[1 match, in 1 file]"
    /// );
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
    /// - `InvalidArgs` if the pattern or the glob is invalid or too large.
    /// - `Denied` or `Failed` if the path cannot be used.
    /// - `Cancelled` if the call was cancelled; matches until then are discarded.
    fn run(&self, args: &Args, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let (matcher, step) = matcher(args)?;
        let max = args.max.unwrap_or(DEFAULT_MAX).clamp(1, MAX);
        // One match beyond the limit shows that there are more.
        let room = Size {
            matches: max + 1,
            bytes: MAX_TEXT + 1,
        };
        let meta = self.space.metadata(&args.path).map_err(path_error)?;
        let is_dir = meta.kind() == EntryKind::Dir;
        let base = if is_dir {
            self.space
                .dir(&args.path)
                .map_err(path_error)?
                .path()
                .to_owned()
        } else {
            String::new()
        };
        let glob = args
            .glob
            .as_deref()
            .map(|glob| Glob::new(glob, &base))
            .transpose()?;
        let search = Search {
            matcher,
            step,
            filter: Filter {
                no_hidden: !args.hidden,
                no_ignored: !args.ignored,
                glob,
                cancel: cx.cancel.clone(),
            },
            context: args.context.min(MAX_CONTEXT),
            hits: Hits::new(room),
            room,
            searched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            cx,
        };
        match is_dir {
            true => search.search_tree(Folder::open(&self.space, &args.path)?),
            false => search.search_one(self.space.open_file(&args.path).map_err(path_error)?),
        }
        check_cancelled(cx)?;
        let counts = Counts {
            searched: search.searched.into_inner(),
            failed: search.failed.into_inner(),
            unread: search.unread.into_inner(),
        };
        Ok(report(&search.hits.into_files(), max, counts))
    }
}

/// The message explains the usual mistakes, since the engine's own message is long.
fn matcher(args: &Args) -> Result<(RegexMatcher, usize), ToolError> {
    cancellable::compile(&args.pattern, args.literal, args.ignore_case).map_err(|error| {
        let text = "the pattern is invalid; it must be a regular expression that matches within \
            one \
            line: escape what is \
                    meant literally or set `literal`, and use `*` or `+` in place of large counts";
        ToolError::new(ToolErrorKind::InvalidArgs, text).with_source(error)
    })
}

/// A search in progress.
struct Search<'a> {
    matcher: RegexMatcher,
    /// The number of bytes that the pattern searches in one step.
    step: usize,
    filter: Filter,
    context: usize,
    hits: Hits,
    room: Size,
    searched: AtomicU64,
    failed: AtomicU64,
    unread: AtomicU64,
    cx: &'a ToolCx,
}

impl Search<'_> {
    /// Searches a folder tree on all cores.
    fn search_tree(&self, root: Folder) {
        let queue = Queue::new(Job::Folder(root));
        let threads = thread::available_parallelism()
            .map_or(1, NonZero::get)
            .min(MAX_THREADS);
        thread::scope(|scope| {
            for _ in 1..threads {
                // If a thread cannot be started, the other threads do its work.
                let _ = thread::Builder::new()
                    .name("search_files".into())
                    .spawn_scoped(scope, || self.work(&queue));
            }
            self.work(&queue);
        });
    }

    /// The loop of one thread. A cancelled search discards all jobs, and so ends the other threads.
    fn work(&self, queue: &Queue) {
        let mut searcher = self.searcher();
        while let Some(job) = queue.next() {
            if self.cx.cancel.is_cancelled() {
                queue.close();
            } else {
                queue.add(self.perform(job, &mut searcher));
            }
            queue.done();
        }
    }

    /// A NUL byte ends the search of a file: it is binary. One searcher per thread reuses its
    /// buffer.
    fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_HEAP))
            .before_context(self.context)
            .after_context(self.context)
            .build()
    }

    /// Performs a job and returns the jobs that follow from it, smallest path last.
    fn perform(&self, job: Job, searcher: &mut Searcher) -> Vec<Job> {
        match job {
            Job::Folder(folder) => self.list(Ok(folder)),
            Job::Below(above, name)
                if self
                    .hits
                    .may_include(&format!("{}/", above.dir.path_of(&name))) =>
            {
                self.list(above.enter(&name))
            }
            Job::Below(..) => Vec::new(),
            Job::Files(folder, names) => {
                for name in names {
                    self.search_name(&folder, &name, searcher);
                }
                Vec::new()
            }
        }
    }

    /// Turns a folder into jobs. The queue returns the last job first, so they are in reverse
    /// order: files are searched before subfolders, and both by name.
    ///
    /// A folder that cannot be read has no jobs, and is counted.
    fn list(&self, folder: Result<Folder, PathError>) -> Vec<Job> {
        let listed = folder.and_then(|mut folder| {
            let entries = folder.list(&self.filter)?.entries;
            Ok((folder, entries))
        });
        let (folder, entries) = match listed {
            Ok(listed) => listed,
            Err(error) => {
                self.unread
                    .fetch_add(u64::from(is_unread(&error)), Ordering::Relaxed);
                return Vec::new();
            }
        };
        let (mut files, mut jobs) = (Vec::new(), Vec::new());
        for entry in entries {
            match entry.kind {
                EntryKind::File
                    if self
                        .filter
                        .matches(&folder.dir.path_of(&entry.name), &entry.name) =>
                {
                    files.push(entry.name);
                }
                EntryKind::Dir if folder.may_descend() => {
                    jobs.push(Job::Below(folder.clone(), entry.name));
                }
                _ => {}
            }
        }
        jobs.reverse();
        jobs.extend(
            files
                .chunks(CHUNK)
                .rev()
                .map(|names| Job::Files(folder.clone(), names.to_vec())),
        );
        jobs
    }

    /// Files whose path is beyond the limit are skipped without opening them.
    fn search_name(&self, folder: &Folder, name: &str, searcher: &mut Searcher) {
        if self.cx.cancel.is_cancelled() || !self.hits.may_include(&folder.dir.path_of(name)) {
            return;
        }
        match folder.dir.file(name) {
            Ok(file) => self.search(file, searcher),
            Err(_) => drop(self.failed.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Searches a single file that the caller named; the glob and the ignore rules do not apply to
    /// it.
    fn search_one(&self, file: OpenFile) {
        self.search(file, &mut self.searcher());
    }

    /// Returns the matcher, which checks for cancellation between steps.
    fn cancellable(&self) -> CancellableMatcher<'_, RegexMatcher> {
        CancellableMatcher {
            inner: &self.matcher,
            step: self.step,
            cancel: &self.cx.cancel,
        }
    }

    /// A file that fails in the middle keeps the matches that were found before, and counts as
    /// failed.
    fn search(&self, file: OpenFile, searcher: &mut Searcher) {
        let path = file.path().to_owned();
        let matcher = self.cancellable();
        let mut collector = Collector {
            matcher: &matcher,
            max: self.room,
            overhead: overhead(&path),
            cancel: &self.cx.cancel,
            hits: FileHits::default(),
            gap: false,
        };
        let text = CancellableFile {
            file: file.into_file(),
            cancel: &self.cx.cancel,
        };
        match searcher.search_reader(&matcher, text, &mut collector) {
            Ok(()) => drop(self.searched.fetch_add(1, Ordering::Relaxed)),
            Err(_) => drop(self.failed.fetch_add(1, Ordering::Relaxed)),
        }
        self.hits.add(path, collector.hits);
    }
}

/// A file whose reads fail after cancellation, because a long file may have no match.
struct CancellableFile<'a> {
    file: File,
    cancel: &'a CancelToken,
}

impl Read for CancellableFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.cancel.is_cancelled() {
            true => Err(io::Error::other("the search was cancelled")),
            false => self.file.read(buffer),
        }
    }
}

fn spec() -> ToolSpec {
    let about = "Searches the text files of the workspace for a regular expression (as in \
        ripgrep), line by line. What \
                 `.gitignore` names is left out, and so are hidden and binary files. Shows the \
                 matching lines with \
                 their numbers, by file.";
    let input = json!({
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1, "description": "The regular expression, \
                such as `fn \\w+_test`."},
            "path": {"type": "string", "description": "The folder or file to search; default: the \
                workspace."},
            "glob": {"type": "string", "description": "Only files that match, such as `*.rs`, \
                `src/**/*.ts` or `!*.lock`."},
            "literal": {"type": "boolean", "description": "Whether the pattern is plain text; \
                default false."},
            "ignore_case": {"type": "boolean", "description": "Whether case does not matter; \
                default false."},
            "context": {"type": "integer", "minimum": 0, "maximum": MAX_CONTEXT,
                        "description": "How many lines to show before and after each match; \
                            default 0."},
            "hidden": {"type": "boolean", "description": "Whether to search files that begin with \
                a dot; default false."},
            "ignored": {"type": "boolean", "description": "Whether to search what `.gitignore` \
                names; default false."},
            "max": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX,
                "description": "How many matches to show; default 100.",
            },
        },
        "required": ["pattern"],
        "additionalProperties": false,
    });
    let found = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "line": {"type": "integer"},
            "text": {"type": "string"},
        },
        "required": ["path", "line", "text"],
    });
    let output = json!({
        "type": "object",
        "properties": {
            "matches": {"type": "array", "items": found},
            "complete": {"type": "boolean", "description": "Whether these are all."},
        },
        "required": ["matches", "complete"],
    });
    let hints = Hints::new().read_only().blocking().max_output(3 * MAX_TEXT);
    ToolSpec::new("search_files", about)
        .with_input(input)
        .with_output(output)
        .with_hints(hints)
}

#[async_trait]
impl Tool for SearchFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.run(&parse(args)?, cx)
    }
}

#[cfg(test)]
mod tests {
    use grep_matcher::Matcher as _;
    use levity_core::{CallId, RunId};

    use super::*;

    #[test]
    fn read_after_cancellation_returns_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("long"), "line\n").unwrap();
        let cancel = CancelToken::new();
        let file = File::open(folder.path().join("long")).unwrap();
        let mut text = CancellableFile {
            file,
            cancel: &cancel,
        };
        assert_eq!(text.read(&mut [0; 2]).unwrap(), 2);
        cancel.cancel();
        assert!(text.read(&mut [0; 2]).is_err());
    }

    #[test]
    fn search_within_file_stops_when_call_is_cancelled() {
        let cx = ToolCx::new(RunId::new("r"), CallId::new("c"), "key");
        let (matcher, step) = cancellable::compile("a+b", false, false).unwrap();
        let room = Size {
            matches: 1,
            bytes: 1,
        };
        let cancel = cx.cancel.clone();
        let search = Search {
            matcher,
            step,
            filter: Filter {
                no_hidden: false,
                no_ignored: false,
                glob: None,
                cancel,
            },
            context: 0,
            hits: Hits::new(room),
            room,
            searched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            cx: &cx,
        };
        assert_eq!(search.cancellable().step, step);
        assert!(search.cancellable().find(b"aab").unwrap().is_some());
        cx.cancel.cancel();
        assert!(search.cancellable().find(b"aab").is_err());
    }
}
