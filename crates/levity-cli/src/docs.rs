//! `levity docs`: an index of the documents of a folder.
//!
//! The index is a SQLite file in the user's state folder, or the file of `--index`. It lies outside
//! of the folder, so a copied folder cannot bring one. The folder is only read, and files that a
//! workspace denies, such as `.env`, are not indexed.
//!
//! Names and texts of documents are untrusted; terminals get them without control characters.
//!
//! ```console
//! $ levity docs add guide
//! 2 added, 0 unchanged, 0 removed
//! $ levity docs search "When is high water?" --dir guide
//! p1 tides.md, lines 1 to 3  (Tides)
//!   # Tides
//!
//!   High water is at six.
//! ```
//!
//! # JSON
//! `--json` prints one object for each call of `add`, `search` and `status`, and one object for
//! each document of `list`. Fields may be added later:
//!
//! - `add`: `added`, `unchanged`, `removed` and `passages` are numbers; `left_out` names each file
//!   with its reason; `complete` is `false` if the folder has too many files.
//! - `search`: `passages`, each with `id`, `document`, `kind`, `hash`, `number`, `context`, `text`,
//!   `page`, `lines` and `score`. The score is at most 1, and comparable only within one result.
//! - `list`: `name`, `kind`, `hash`, `bytes`, `changed`, `file`, `indexed` and `passages`.
//! - `status`: `file`, `documents`, `passages` and `bytes`.
//!
//! # Why the index is not in the folder
//! An index contains the texts that an agent reads as documents of the user. Whoever wrote a cloned
//! folder could put an index into it whose passages differ from the files, or a file that damages
//! the reader. In the state folder, only this user can write it. Two folders never share an index,
//! because its name contains a digest of the folder's path; a moved folder gets a new index.
//!
//! # Why files are read each time
//! Times of change are not reliable: copies and version control set them freely. Reading and
//! hashing is fast compared with splitting and indexing, which only new texts need. `watch` reads
//! all files when it starts, and then relies on sizes and times.
//!
//! # Other formats
//! PDF, Office, EPUB and e-mail files, and archives are read by processes of this program, each in
//! a sandbox without network and files. Builds without the feature `formats` leave such files out.
//!
//! Exit codes: 0, 1 if nothing is found or the index cannot be used, 2 for a wrong call.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use levity::docs::{
    DocumentIndex, FolderReport, FolderUpdate, FolderWatch, Passage, SearchOptions,
};
use levity::sandbox::Workspace;
use serde_json::json;

use crate::own_files;
use crate::settings::plain;
use crate::state;
use crate::terminal::{chain, note, print_json, print_text, report_error, shell_quote};

/// The maximum number of left out files that are named in a text for people. `--json` names all of
/// them.
const MAX_NAMED: usize = 5;

/// Search the documents of a folder.
///
/// No model is needed, and nothing is sent anywhere.
#[derive(Args)]
pub(crate) struct Docs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Index the files of a folder, or bring their index up to date.
    Add(Add),
    /// Keep the index of a folder up to date, until the command is stopped.
    Watch(Add),
    /// Find passages that answer a question.
    Search(Search),
    /// List the documents of the index.
    List(List),
    /// Print the size of the index.
    Status(Status),
}

/// The folder and its index, for every action.
///
/// The folder need not be the current one, and it may be untrusted: nothing in it is a setting of
/// this command.
#[derive(Args)]
pub(crate) struct Place {
    /// The folder with the documents.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The SQLite file of the index; by default, a file for the folder in the user's state folder.
    #[arg(long, value_name = "FILE")]
    index: Option<PathBuf>,
}

/// The arguments of an update. The folder can be given as a word or by `--dir`, as for the other
/// actions.
#[derive(Args)]
struct Add {
    /// The folder with the documents; the current folder by default.
    #[arg(value_name = "DIR", conflicts_with = "dir")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// The maximum size of a file, in MiB.
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = 8,
        value_parser = clap::value_parser!(u64).range(1..=64),
    )]
    max_file: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// The arguments of a search. They correspond to `SearchOptions` of the library.
#[derive(Args)]
struct Search {
    /// The question, in words. Quotes are not needed, and no sign has a special meaning.
    #[arg(value_name = "QUESTION", required = true)]
    question: Vec<String>,
    #[command(flatten)]
    place: Place,
    /// The maximum number of passages.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=100),
    )]
    limit: u64,
    /// Search only documents whose names match this pattern, such as `guide/*`. `*` stands for any
    /// characters, also `/`.
    #[arg(long, value_name = "PATTERN")]
    path: Option<String>,
    /// Print the passages as JSON.
    #[arg(long)]
    json: bool,
}

/// The arguments of a list, which may be long.
#[derive(Args)]
struct List {
    #[command(flatten)]
    place: Place,
    /// Print one JSON object for each document.
    #[arg(long)]
    json: bool,
}

/// The arguments of the numbers.
#[derive(Args)]
struct Status {
    #[command(flatten)]
    place: Place,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command: 0, 1 if nothing is found or the index cannot be used, 2 for a wrong call.
pub(crate) async fn docs(args: Docs) -> ExitCode {
    let ended = match args.action {
        Action::Add(args) => args.run().await,
        Action::Watch(args) => args.watch().await,
        Action::Search(args) => args.run().await,
        Action::List(args) => args.run().await,
        Action::Status(args) => args.run().await,
    };
    match ended {
        Ok(code) => code,
        Err((problem, code)) => report_error(&problem, code),
    }
}

/// The problem in words, and the exit code: 2 for a wrong call, 1 for a failure.
type Problem = (String, u8);

impl Place {
    /// Opens the folder for reading. The workspace denies files with secrets, such as `.env`, so
    /// they are not indexed.
    pub(crate) fn workspace(&self) -> Result<Workspace, String> {
        let builder = own_files::deny(&self.dir, Workspace::builder(&self.dir))?;
        builder
            .read_only()
            .build()
            .map_err(|error| format!("{}: {}", self.dir.display(), chain(&error)))
    }

    /// Returns the file of the index: that of `--index`, or one in the user's state folder.
    fn file(&self) -> Result<PathBuf, String> {
        if let Some(file) = &self.index {
            return Ok(file.clone());
        }
        let folder = std::fs::canonicalize(&self.dir)
            .map_err(|error| format!("cannot open `{}`: {error}", self.dir.display()))?;
        let indexes = state::folder()?.join("docs");
        Ok(indexes.join(format!("{}.db", state::name_of(&folder))))
    }

    /// Opens the index, and creates it if there is none.
    ///
    /// Its folder in the user's state is created too, but that of `--index` must exist: a typing
    /// mistake would otherwise create folders.
    pub(crate) fn open_or_create(&self) -> Result<DocumentIndex, String> {
        let file = self.file()?;
        if self.index.is_none()
            && let Some(folder) = file.parent()
        {
            state::create(folder)?;
        }
        open(&file)
    }

    /// Opens an index that exists. The error names the command that creates it.
    fn open(&self) -> Result<DocumentIndex, Problem> {
        let file = self.file().map_err(|problem| (problem, 2))?;
        if !file.exists() {
            let dir = self.dir.to_string_lossy();
            let folder = shell_quote(&dir);
            let option = self.index.as_ref().map_or_else(String::new, |index| {
                format!(" --index {}", shell_quote(&index.to_string_lossy()))
            });
            let problem = format!(
                "there is no index of this folder yet; create it with `levity docs add \
                 {folder}{option}`"
            );
            return Err((problem, 1));
        }
        open(&file).map_err(|problem| (problem, 1))
    }
}

/// Opens the index of a folder for agents that work in it; none if the user has created none.
///
/// Agents can work without it, so an index that cannot be opened is only reported.
pub(crate) fn index_of(folder: &Path, report: impl Fn(&str)) -> Option<DocumentIndex> {
    let place = Place {
        dir: folder.to_owned(),
        index: None,
    };
    let file = place.file().ok().filter(|file| file.exists())?;
    let opened = DocumentIndex::open(file).map_err(|error| chain(&error));
    let warn = |problem: &String| report(&format!("agents cannot search documents: {problem}"));
    opened.inspect_err(warn).ok()
}

/// Opens the file of an index, and prints warnings about it, for instance that other users can read
/// it.
///
/// A file of another program is refused and stays unchanged.
fn open(file: &Path) -> Result<DocumentIndex, String> {
    let index = DocumentIndex::open(file).map_err(|error| chain(&error))?;
    index.warnings().iter().for_each(|warning| note(warning));
    Ok(index)
}

/// Brings an index up to date with its folder, for `levity docs add` and `levity serve docs`.
///
/// An update that is killed leaves a valid index, which the next call completes. It reports
/// progress of long updates on standard error.
pub(crate) async fn update(
    index: &DocumentIndex,
    workspace: &Workspace,
    max_file_bytes: u64,
    readers: &Readers,
) -> Result<FolderReport, String> {
    let update = readers
        .for_update(FolderUpdate::new(index, workspace))
        .max_file_bytes(max_file_bytes)
        .on_progress(|at| {
            if at.done < at.files {
                note(&format!("{} of {} files", at.done, at.files));
            }
        });
    update.run().await.map_err(|error| chain(&error))
}

/// Reads PDF, Office and other files, if this build can.
pub(crate) struct Readers {
    #[cfg(feature = "formats")]
    reader: levity::docs::FormatReader,
}

impl Readers {
    /// Prepares the reader. It starts no process before the first file.
    pub(crate) fn new() -> Result<Self, String> {
        Ok(Self {
            #[cfg(feature = "formats")]
            reader: levity::docs::FormatReader::new().map_err(|error| chain(&error))?,
        })
    }

    pub(crate) fn for_update<'a>(&self, update: FolderUpdate<'a>) -> FolderUpdate<'a> {
        #[cfg(feature = "formats")]
        let update = update.reader(&self.reader);
        update
    }

    pub(crate) fn for_watch<'a>(&self, watch: FolderWatch<'a>) -> FolderWatch<'a> {
        #[cfg(feature = "formats")]
        let watch = watch.reader(&self.reader);
        watch
    }

    #[cfg(feature = "serve")]
    pub(crate) fn for_server(
        &self,
        server: levity::serve::DocumentServer,
    ) -> levity::serve::DocumentServer {
        #[cfg(feature = "formats")]
        let server = server.reader(self.reader.clone());
        server
    }
}

impl Add {
    /// Opens the folder and its index.
    fn open(&mut self) -> Result<(DocumentIndex, Workspace, Readers), Problem> {
        if let Some(folder) = self.folder.take() {
            self.place.dir = folder;
        }
        let workspace = self.place.workspace().map_err(|problem| (problem, 2))?;
        let index = self
            .place
            .open_or_create()
            .map_err(|problem| (problem, 1))?;
        let readers = Readers::new().map_err(|problem| (problem, 1))?;
        Ok((index, workspace, readers))
    }

    /// Brings the index up to date, and prints what has changed and which files were left out.
    async fn run(mut self) -> Result<ExitCode, Problem> {
        let (index, workspace, readers) = self.open()?;
        let report = update(&index, &workspace, self.max_file << 20, &readers).await;
        let report = report.map_err(|problem| (problem, 1))?;
        self.print(&report);
        Ok(ExitCode::SUCCESS)
    }

    /// Prints each change until the command is stopped.
    async fn watch(mut self) -> Result<ExitCode, Problem> {
        let (index, workspace, readers) = self.open()?;
        let watch = readers
            .for_watch(FolderWatch::new(&index, &workspace))
            .max_file_bytes(self.max_file << 20)
            .on_change(|report| self.print(report));
        let ended = watch.run().await;
        ended.map_err(|error| (chain(&error), 1))?;
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, report: &FolderReport) {
        if self.json {
            print_json(&to_json(report));
        } else {
            print_text(&to_text(report));
        }
    }
}

/// Returns a report for programs. It names every file that was left out.
fn to_json(report: &FolderReport) -> serde_json::Value {
    let skipped = report.skipped.iter();
    let skipped: Vec<_> = skipped
        .map(|file| json!({"path": file.path, "reason": file.reason}))
        .collect();
    json!({
        "added": report.added,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "passages": report.passages,
        "left_out": skipped,
        "complete": !report.incomplete,
    })
}

/// Returns a report for people. It names a few of the files that were left out.
fn to_text(report: &FolderReport) -> String {
    let mut text = format!(
        "{} added, {} unchanged, {} removed\n",
        report.added, report.unchanged, report.removed
    );
    for file in report.skipped.iter().take(MAX_NAMED) {
        text.push_str(&format!(
            "left out: {} ({})\n",
            plain(&file.path),
            plain(&file.reason)
        ));
    }
    let more = report.skipped.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        text.push_str(&format!("and {more} more files; `--json` names all\n"));
    }
    if report.incomplete {
        text.push_str("the folder has more files than could be listed, so none was removed\n");
    }
    text
}

impl Search {
    /// Prints the best passages. A search without a result is not an error of the call, so its code
    /// is 1, as for `grep`.
    async fn run(self) -> Result<ExitCode, Problem> {
        let index = self.place.open()?;
        let limit = usize::try_from(self.limit).unwrap_or(1);
        let mut options = SearchOptions::new().limit(limit);
        options.path = self.path;
        let found = index.search(&self.question.join(" "), &options).await;
        let found = found.map_err(|error| (chain(&error), 1))?;
        match self.json {
            true => print_json(&json!({"passages": found.passages})),
            false => found
                .passages
                .iter()
                .for_each(|passage| print_text(&shown(passage))),
        }
        if found.passages.is_empty() {
            if !self.json {
                note("no passage contains a word of the question");
            }
            return Ok(ExitCode::from(1));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns a passage for people: its id and place, its headings, and its text.
///
/// The text is indented, so that it cannot imitate the first line of another passage.
fn shown(passage: &Passage) -> String {
    let headings = match passage.context.as_str() {
        "" => String::new(),
        context => format!("  ({})", plain(context)),
    };
    let mut text = format!("{} {}{headings}\n", passage.id, plain(&passage.place()));
    for line in passage.text.lines() {
        text.push_str(&format!("  {line}\n"));
    }
    text.push('\n');
    text
}

impl List {
    /// Prints the documents page by page, so that a large index needs little memory.
    async fn run(self) -> Result<ExitCode, Problem> {
        let index = self.place.open()?;
        let mut after = String::new();
        loop {
            let page = index.documents(&after, 1_000).await;
            let page = page.map_err(|error| (chain(&error), 1))?;
            let Some(last) = page.last() else {
                return Ok(ExitCode::SUCCESS);
            };
            after.clone_from(&last.name);
            for info in page {
                match self.json {
                    true => print_json(&json!(info)),
                    false => print_text(&format!(
                        "{}  {} passages\n",
                        plain(&info.name),
                        info.passages
                    )),
                }
            }
        }
    }
}

impl Status {
    /// Prints the numbers of documents and passages, and the path of the index.
    async fn run(self) -> Result<ExitCode, Problem> {
        let index = self.place.open()?;
        let status = index.status().await.map_err(|error| (chain(&error), 1))?;
        let file = self.place.file().map_err(|problem| (problem, 2))?;
        match self.json {
            true => print_json(&json!({
                "file": file.to_string_lossy(),
                "documents": status.documents,
                "passages": status.passages,
                "bytes": status.bytes,
            })),
            false => print_text(&format!(
                "{} documents with {} passages and {} bytes of text in {}\n",
                status.documents,
                status.passages,
                status.bytes,
                file.display()
            )),
        }
        Ok(ExitCode::SUCCESS)
    }
}
