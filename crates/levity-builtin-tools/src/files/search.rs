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
use levity_sandbox::{Kind, OpenFile, Workspace};
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{alive, parse, refused};
use super::hits::{Collector, FileHits, Hits, Size, overhead};
use super::queue::{Job, Queue};
use super::report::report;
use super::steady::{self, Steady};
use super::walk::{Filter, Folder, Glob};

/// Searches the files of a workspace: `search_files`.
#[derive(Debug)]
pub struct SearchFiles {
    spec: ToolSpec,
    space: Workspace,
}

/// How many matches are shown, unless told otherwise, and at most.
const DEFAULT_MAX: usize = 100;
const MAX: usize = 2_000;
/// How many lines around a match are shown at most.
const MAX_CONTEXT: usize = 20;
/// How many bytes the matches have at most, those of their paths included.
pub(super) const MAX_TEXT: usize = 48 << 10;
/// How much memory a thread takes for a long line; a file with a longer one is not searched.
const MAX_HEAP: usize = 32 << 20;
const MAX_THREADS: usize = 16;
/// How many files a thread takes at once.
const CHUNK: usize = 32;

#[derive(Deserialize)]
struct Args {
    pattern: String,
    #[serde(default = "here")]
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

fn here() -> String {
    ".".to_owned()
}

impl SearchFiles {
    /// The tool for the files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self {
            spec: spec(),
            space: workspace,
        }
    }

    fn run(&self, args: &Args, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let (matcher, step) = matcher(args)?;
        let max = args.max.unwrap_or(DEFAULT_MAX).clamp(1, MAX);
        // One more than is shown tells whether there are more.
        let room = Size {
            matches: max + 1,
            bytes: MAX_TEXT + 1,
        };
        let meta = self.space.metadata(&args.path).map_err(refused)?;
        let is_dir = meta.kind() == Kind::Dir;
        let base = if is_dir {
            self.space
                .dir(&args.path)
                .map_err(refused)?
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
            cx,
        };
        match is_dir {
            true => search.tree(Folder::open(&self.space, &args.path)?),
            false => search.one(self.space.open_file(&args.path).map_err(refused)?),
        }
        alive(cx)?;
        let (searched, failed) = (search.searched.into_inner(), search.failed.into_inner());
        Ok(report(&search.hits.into_files(), max, searched, failed))
    }
}

fn matcher(args: &Args) -> Result<(RegexMatcher, usize), ToolError> {
    steady::compile(&args.pattern, args.literal, args.ignore_case).map_err(|error| {
        let text = "the pattern cannot be used; it is a regular expression that matches within one \
            line: escape what is \
                    meant literally or set `literal`, and use `*` or `+` in place of large counts";
        ToolError::new(ToolErrorKind::InvalidArgs, text).with_source(error)
    })
}

/// A search under way.
struct Search<'a> {
    matcher: RegexMatcher,
    /// How much text the pattern is given at once.
    step: usize,
    filter: Filter,
    context: usize,
    hits: Hits,
    room: Size,
    searched: AtomicU64,
    failed: AtomicU64,
    cx: &'a ToolCx,
}

impl Search<'_> {
    /// Searches a tree on all cores.
    fn tree(&self, root: Folder) {
        let queue = Queue::new(Job::Folder(root));
        let threads = thread::available_parallelism()
            .map_or(1, NonZero::get)
            .min(MAX_THREADS);
        thread::scope(|scope| {
            for _ in 1..threads {
                // Where no thread can be had, those that are there do the work.
                let _ = thread::Builder::new()
                    .name("search_files".into())
                    .spawn_scoped(scope, || self.work(&queue));
            }
            self.work(&queue);
        });
    }

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

    fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_HEAP))
            .before_context(self.context)
            .after_context(self.context)
            .build()
    }

    /// Does a job, and returns what follows from it, the smallest path last.
    fn perform(&self, job: Job, searcher: &mut Searcher) -> Vec<Job> {
        match job {
            Job::Folder(folder) => self.list(folder),
            Job::Below(above, name)
                if self.hits.wants(&format!("{}/", above.dir.path_of(&name))) =>
            {
                above
                    .enter(&name)
                    .map(|folder| self.list(folder))
                    .unwrap_or_default()
            }
            Job::Below(..) => Vec::new(),
            Job::Files(folder, names) => {
                for name in names {
                    self.file(&folder, &name, searcher);
                }
                Vec::new()
            }
        }
    }

    fn list(&self, mut folder: Folder) -> Vec<Job> {
        let entries = folder.list(&self.filter).unwrap_or_default().entries;
        let (mut files, mut jobs) = (Vec::new(), Vec::new());
        for entry in entries {
            match entry.kind {
                Kind::File
                    if self
                        .filter
                        .wants(&folder.dir.path_of(&entry.name), &entry.name) =>
                {
                    files.push(entry.name);
                }
                Kind::Dir if folder.may_go_deeper() => {
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

    fn file(&self, folder: &Folder, name: &str, searcher: &mut Searcher) {
        if self.cx.cancel.is_cancelled() || !self.hits.wants(&folder.dir.path_of(name)) {
            return;
        }
        match folder.dir.file(name) {
            Ok(file) => self.search(file, searcher),
            Err(_) => drop(self.failed.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn one(&self, file: OpenFile) {
        self.search(file, &mut self.searcher());
    }

    /// The pattern, which looks between its steps whether anybody still waits.
    fn steady(&self) -> Steady<'_, RegexMatcher> {
        Steady {
            inner: &self.matcher,
            step: self.step,
            cancel: &self.cx.cancel,
        }
    }

    fn search(&self, file: OpenFile, searcher: &mut Searcher) {
        let path = file.path().to_owned();
        let matcher = self.steady();
        let mut collector = Collector {
            matcher: &matcher,
            max: self.room,
            overhead: overhead(&path),
            cancel: &self.cx.cancel,
            hits: FileHits::default(),
            gap: false,
        };
        let text = Stoppable {
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

/// A file that cannot be read any more when nobody waits: most of a long one may have no match.
struct Stoppable<'a> {
    file: File,
    cancel: &'a CancelToken,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.cancel.is_cancelled() {
            true => Err(io::Error::other("the search was stopped")),
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
            "max": {"type": "integer", "minimum": 1, "maximum": MAX, "description": "How many matches to show; default 100."},
        },
        "required": ["pattern"],
        "additionalProperties": false,
    });
    let found = json!({
        "type": "object",
        "properties": {"path": {"type": "string"}, "line": {"type": "integer"}, "text": {"type": "string"}},
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
    fn a_long_file_without_a_match_can_be_stopped() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("long"), "line\n").unwrap();
        let cancel = CancelToken::new();
        let file = File::open(folder.path().join("long")).unwrap();
        let mut text = Stoppable {
            file,
            cancel: &cancel,
        };
        assert_eq!(text.read(&mut [0; 2]).unwrap(), 2);
        cancel.cancel();
        assert!(text.read(&mut [0; 2]).is_err());
    }

    #[test]
    fn pattern_stops_within_a_file_when_its_call_does() {
        let cx = ToolCx::new(RunId::new("r"), CallId::new("c"), "key");
        let (matcher, step) = steady::compile("a+b", false, false).unwrap();
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
            cx: &cx,
        };
        assert_eq!(search.steady().step, step);
        assert!(search.steady().find(b"aab").unwrap().is_some());
        cx.cancel.cancel();
        assert!(search.steady().find(b"aab").is_err());
    }
}
