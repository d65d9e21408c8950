//! Reads PDF, Office and other files in processes of their own.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use levity_formats::{FileTexts, FormatError, Limits};
use levity_sandbox::{CommandLimit, Exit, Level, Sandbox, Workspace};

use crate::DocumentError;

/// The variable that turns a program into a reader of one file.
const VARIABLE: &str = "LEVITY_READ_FILE";
/// The stack of the thread that reads. Some parsers recurse with the nesting of a file.
const STACK: usize = 64 << 20;
/// The maximum size of the reply of a reader: JSON can be longer than the texts in it.
const MAX_REPLY: usize = 160 << 20;
/// A reader needs one process. Creating the sandbox needs a few more.
const MAX_PROCESSES: u32 = 8;
/// The maximum size of a file's name.
const MAX_NAME: usize = 4_096;

/// Set when the program has called [`FormatReader::serve_if_child`].
static SERVES: AtomicBool = AtomicBool::new(false);

/// Reads PDF, Office, OpenDocument, EPUB and e-mail files, and archives, each in a process of its
/// own.
///
/// Such files are untrusted, and parsers of complex formats have errors. So the program starts
/// itself again for each file, within a sandbox: without network and files, and with limits on time
/// and memory. A hostile file costs one failed process, and the update of a folder reports it.
///
/// Call [`serve_if_child`](Self::serve_if_child) first in `main`:
///
/// ```no_run
/// use levity_docs::{DocumentIndex, FolderUpdate, FormatReader};
/// use levity_sandbox::Workspace;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     FormatReader::serve_if_child();
///     tokio::runtime::Runtime::new()?.block_on(index())
/// }
///
/// async fn index() -> Result<(), Box<dyn std::error::Error>> {
///     let index = DocumentIndex::open("documents.db")?;
///     let workspace = Workspace::builder("guide").read_only().build()?;
///     let reader = FormatReader::new()?;
///     let report = FolderUpdate::new(&index, &workspace).reader(&reader).run().await?;
///     println!("{} added", report.added);
///     Ok(())
/// }
/// ```
///
/// A file has 20 seconds of CPU time, three times as much time in all, 768 MiB of memory, and the
/// default limits of the crate `levity-formats` for its texts.
#[derive(Clone, Debug)]
pub struct FormatReader {
    settings: Arc<Settings>,
    /// The sandbox, or the reason why there is none. Creating one takes some processes, so it waits
    /// for the first file.
    place: Arc<OnceLock<Result<Place, String>>>,
}

/// A sandbox whose workspace is an empty folder.
#[derive(Debug)]
struct Place {
    sandbox: Sandbox,
    _folder: EmptyFolder,
}

#[derive(Debug)]
struct Settings {
    program: PathBuf,
    time: Duration,
    memory: u64,
    level: Level,
}

/// The reason why a file has no texts.
pub(crate) enum ReadError {
    /// The file cannot be read, now or later.
    File(String),
    /// No file can be read at the moment.
    Reader(String),
}

/// Settings of a [`FormatReader`].
///
/// ```
/// use std::time::Duration;
///
/// use levity_docs::FormatReader;
///
/// # fn main() -> Result<(), levity_docs::DocumentError> {
/// FormatReader::serve_if_child();
/// let reader = FormatReader::builder().time_limit(Duration::from_secs(5)).build()?;
/// println!("{reader:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct FormatReaderBuilder {
    program: Option<PathBuf>,
    time: Duration,
    memory: u64,
    level: Level,
}

impl FormatReaderBuilder {
    /// Sets the program that reads files; the current program by default. It must call
    /// [`FormatReader::serve_if_child`] first in `main`.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Sets the limit of CPU time for one file; 20 seconds by default. The limit of time is three
    /// times as long.
    pub fn time_limit(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Sets the memory limit for one file, in bytes; 768 MiB by default.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Sets the minimum level of isolation; [`Level::Guarded`] by default. Choose
    /// [`Level::Open`] only for files that you trust.
    pub fn require_level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Creates the reader. The first file that it reads tests what the system can enforce; if that
    /// is too little, no file is read, and the report of the update says so.
    ///
    /// # Errors
    /// [`Refused`](crate::DocumentErrorKind::Refused) if the current program never called
    /// [`FormatReader::serve_if_child`].
    pub fn build(self) -> Result<FormatReader, DocumentError> {
        let program = match self.program {
            Some(program) => program,
            None if SERVES.load(Ordering::Relaxed) => std::env::current_exe().map_err(|error| {
                DocumentError::refused(format!("the path of this program is unknown: {error}"))
            })?,
            None => {
                return Err(DocumentError::refused(
                    "this program cannot read files in processes of its own yet; call \
                     `FormatReader::serve_if_child()` first in `main`",
                ));
            }
        };
        let settings = Settings {
            program,
            time: self.time,
            memory: self.memory,
            level: self.level,
        };
        Ok(FormatReader {
            settings: Arc::new(settings),
            place: Arc::default(),
        })
    }
}

impl Place {
    fn new(settings: &Settings) -> Result<Self, String> {
        let unusable = |error: &dyn std::error::Error| {
            format!(
                "files in formats such as PDF cannot be read safely here: {}",
                levity_core::text::chain(error)
            )
        };
        let folder = EmptyFolder::new().map_err(|error| unusable(&error))?;
        let workspace = Workspace::builder(&folder.0).read_only().build();
        let workspace = workspace.map_err(|error| unusable(&error))?;
        let sandbox = Sandbox::builder(workspace)
            .require_level(settings.level)
            .allow_read(&settings.program)
            .time_limit(settings.time * 3)
            .cpu_time_limit(settings.time)
            .memory_limit(settings.memory)
            .max_processes(MAX_PROCESSES)
            .max_output(MAX_REPLY)
            .build()
            .map_err(|error| unusable(&error))?;
        Ok(Self {
            sandbox,
            _folder: folder,
        })
    }
}

impl FormatReader {
    /// Creates a reader with the default settings, which starts the current program again.
    ///
    /// # Errors
    /// As [`FormatReaderBuilder::build`].
    pub fn new() -> Result<Self, DocumentError> {
        Self::builder().build()
    }

    /// Returns a builder for a reader with other settings.
    pub fn builder() -> FormatReaderBuilder {
        FormatReaderBuilder {
            program: None,
            time: Duration::from_secs(20),
            memory: 768 << 20,
            level: Level::Guarded,
        }
    }

    /// Reads one file and ends the process, if a [`FormatReader`] started it. Otherwise, it returns
    /// at once.
    ///
    /// Call it first in `main`, before other threads, connections or files exist.
    pub fn serve_if_child() {
        if std::env::var_os(VARIABLE).is_none() {
            SERVES.store(true, Ordering::Relaxed);
            return;
        }
        let read = std::thread::Builder::new().stack_size(STACK).spawn(serve);
        let served = read.is_ok_and(|thread| thread.join().is_ok_and(|served| served.is_ok()));
        exit(i32::from(!served));
    }

    /// Reads the texts of a file in memory. The name is that of the file.
    pub(crate) async fn read(&self, name: &str, bytes: &[u8]) -> Result<FileTexts, ReadError> {
        let sandbox = self.sandbox().await.map_err(ReadError::Reader)?;
        let name = serde_json::to_vec(name);
        let mut input = name.map_err(|error| ReadError::File(error.to_string()))?;
        input.push(b'\n');
        input.extend_from_slice(bytes);
        let program: OsString = self.settings.program.clone().into();
        let command = sandbox.command([program]).env(VARIABLE, "1").stdin(input);
        let ended = command.run().await.map_err(|error| {
            let cause = levity_core::text::chain(&error);
            ReadError::Reader(format!("the reader could not start: {cause}"))
        })?;
        if !ended.is_success() {
            return Err(ReadError::File(failure(ended.exit)));
        }
        let reply: Result<Result<FileTexts, FormatError>, _> =
            serde_json::from_str(&ended.stdout.text);
        match reply {
            Ok(Ok(texts)) => Ok(texts),
            Ok(Err(error)) => Err(ReadError::File(error.to_string())),
            Err(_) => Err(ReadError::File("the reader failed".into())),
        }
    }

    /// Returns the sandbox, and creates it for the first file.
    async fn sandbox(&self) -> Result<Sandbox, String> {
        let (settings, place) = (self.settings.clone(), self.place.clone());
        let get = move || {
            let place = place.get_or_init(|| Place::new(&settings));
            place
                .as_ref()
                .map(|place| place.sandbox.clone())
                .map_err(Clone::clone)
        };
        let got = tokio::task::spawn_blocking(get).await;
        got.map_err(|error| format!("the sandbox could not be created: {error}"))?
    }
}

/// Describes the end of a reader that has no reply.
fn failure(exit: Exit) -> String {
    match exit {
        Exit::Limit(CommandLimit::Time | CommandLimit::CpuTime) => {
            "reading it takes too long; it may be damaged".into()
        }
        Exit::Limit(CommandLimit::Memory) => {
            "reading it takes too much memory; it may be damaged".into()
        }
        Exit::Limit(limit) => format!("reading it exceeds the limit of {limit}"),
        _ => "the reader failed; the file may be damaged".into(),
    }
}

/// Reads the name and the bytes of a file from the standard input, and prints its texts.
fn serve() -> std::io::Result<()> {
    // The message of a panic is of no use here: the parent reports that the reader failed.
    std::panic::set_hook(Box::new(|_| {}));
    let mut input = Vec::new();
    std::io::stdin().lock().read_to_end(&mut input)?;
    let end = input
        .iter()
        .take(MAX_NAME * 6)
        .position(|byte| *byte == b'\n');
    let (name, bytes) = input.split_at(end.map_or(0, |end| end + 1));
    let name: String = serde_json::from_slice(name)?;
    let reply = levity_formats::read(&name, bytes, &Limits::new());
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    serde_json::to_writer(&mut output, &reply)?;
    output.flush()
}

/// A folder without files, in which readers run.
#[derive(Debug)]
struct EmptyFolder(PathBuf);

impl EmptyFolder {
    fn new() -> std::io::Result<Self> {
        let name = format!("levity-reader-{}", levity_system::secret::random()?);
        let path = std::env::temp_dir().join(name);
        levity_system::files::make_own_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for EmptyFolder {
    fn drop(&mut self) {
        // The folder is empty, so a failure leaves only its name behind.
        drop(fs::remove_dir(&self.0));
    }
}
