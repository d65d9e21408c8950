//! Log files of sessions: the handles, their settings, and the loggable part of an event.
//!
//! A handler copies an event into the queue and returns; the thread `levity-log` formats and
//! writes. The copy leaves out the content of tool results, which can be megabytes: only its size
//! is logged. Deltas are left out too, except for those that report waiting, notices and restarts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use levity_core::{Content, Delta, Event, EventKind, Secrets, ToolCall, ToolOutput, ToolResult};
use tracing::level_filters::LevelFilter;

use crate::entry::{Level, Style, json_size};
use crate::error::{Error, Result};

mod cleanup;
mod disk;
mod entry_builder;
mod folder;
mod log_layer;
mod queue;
mod writer;

pub use cleanup::{LogCleanup, Retention, clean};
use disk::Disk;
pub use log_layer::LogLayer;
use queue::{Destination, Queue, QueueItem};
use writer::Writer;

/// Log files of sessions: `general.log` has the events, `reasoning.log` the reasoning of models.
///
/// Logging never blocks: entries that do not fit into the queue are counted, and the count is
/// logged. A thread writes the files; it ends when all handles are dropped. Dropping the last
/// handle waits up to 2 seconds for pending entries.
///
/// Several processes may write to one folder.
///
/// ```
/// use std::time::Duration;
///
/// use levity_core::{Event, EventKind, RunId, Timestamp};
/// use levity_log::LogFiles;
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let folder = dir.path();
/// let logs = LogFiles::open(folder)?;
/// let (monday, tuesday) = (logs.session("monday"), logs.session("tuesday"));
/// monday(&Event::new(RunId::new("r1"), 1, Timestamp::default(), EventKind::Paused));
/// tuesday(&Event::new(RunId::new("r2"), 1, Timestamp::default(), EventKind::Resumed));
/// assert!(logs.flush(Duration::from_secs(5)));
/// assert!(folder.join("monday/general.log").exists());
/// assert!(folder.join("tuesday/general.log").exists());
/// # Ok::<(), levity_log::Error>(())
/// ```
#[derive(Clone)]
pub struct LogFiles {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Arc<Queue>,
    folder: PathBuf,
    level: LevelFilter,
    secrets: Secrets,
}

impl LogFiles {
    /// Opens logs in a folder, with the [defaults](LogFilesBuilder).
    ///
    /// A new folder is readable by its owner only, and so are the files.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        Self::builder(folder).open()
    }

    /// Returns a builder for logs in a folder.
    pub fn builder(folder: impl Into<PathBuf>) -> LogFilesBuilder {
        LogFilesBuilder {
            folder: folder.into(),
            json: false,
            max_file: LogFilesBuilder::DEFAULT_MAX_FILE,
            keep: LogFilesBuilder::DEFAULT_KEEP,
            max_text: LogFilesBuilder::DEFAULT_MAX_TEXT,
            queue: LogFilesBuilder::DEFAULT_QUEUE,
            level: LevelFilter::INFO,
            secrets: Secrets::new(),
        }
    }

    /// Returns the folder of the logs.
    pub fn folder(&self) -> &Path {
        &self.inner.folder
    }

    /// Returns a handler that logs the events of a session's runs; pass it to `on_event`. The
    /// session is usually the conversation. Its folder has the id as its name, or a similar name if
    /// the id is not a valid folder name.
    pub fn session(&self, id: &str) -> impl Fn(&Event) + Clone + Send + Sync + use<> {
        self.handler(Some(folder::name(id, &self.inner.secrets)))
    }

    /// Returns a handler that logs the events of runs without a session. Each run has a folder with
    /// its id, which also contains the runs below it.
    ///
    /// ```
    /// # use levity_core::{Event, EventKind, RunId, Timestamp};
    /// # use levity_log::LogFiles;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let folder = dir.path();
    /// let logs = LogFiles::open(folder)?;
    /// let watch = logs.runs();
    /// for run in ["r1", "r1.1", "r2"] {
    ///     watch(&Event::new(RunId::new(run), 1, Timestamp::default(), EventKind::Paused));
    /// }
    /// logs.flush(std::time::Duration::from_secs(5));
    /// let lines = |run| std::fs::read_to_string(folder.join(run).join("general.log")).unwrap();
    /// assert_eq!((lines("r1").lines().count(), lines("r2").lines().count()), (2, 1));
    /// # Ok::<(), levity_log::Error>(())
    /// ```
    pub fn runs(&self) -> impl Fn(&Event) + Clone + Send + Sync + use<> {
        self.handler(None)
    }

    fn handler(&self, folder: Option<String>) -> impl Fn(&Event) + Clone + Send + Sync + use<> {
        let destination = Destination::new(folder);
        let queue = self.inner.queue.clone();
        move |event: &Event| {
            if let Some((item, size)) = queue_item(&destination, event) {
                queue.push(&destination, size, item);
            }
        }
    }

    /// Returns the folder of a session.
    ///
    /// Ids are untrusted. One that is not a plain name of letters, digits, `.`, `_` and `-` gets a
    /// readable name and a hash.
    ///
    /// ```
    /// use levity_log::LogFiles;
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let logs = LogFiles::open(dir.path())?;
    /// assert_eq!(logs.session_folder("chat-7"), dir.path().join("chat-7"));
    /// let odd = logs.session_folder("../../etc");
    /// assert_eq!(odd.parent(), Some(dir.path()));
    /// # Ok::<(), levity_log::Error>(())
    /// ```
    pub fn session_folder(&self, id: &str) -> PathBuf {
        self.inner
            .folder
            .join(folder::name(id, &self.inner.secrets))
    }

    /// Returns a layer that writes `tracing` events to `general.log`: that of the session whose run
    /// they occur in, otherwise the one in the log folder itself.
    pub fn layer(&self) -> LogLayer {
        LogLayer::new(self.inner.queue.clone(), self.inner.level)
    }

    /// Waits up to `time` until all earlier entries are written, and returns `true` if they are.
    ///
    /// Call it before the program exits, or before it reads the files. An entry that could not be
    /// written counts as handled; [`dropped`](Self::dropped) has the number of those.
    pub fn flush(&self, time: Duration) -> bool {
        self.inner.queue.flush(time)
    }

    /// Returns the number of entries that did not fit into the queue or could not be written.
    ///
    /// ```
    /// # use levity_log::LogFiles;
    /// # let dir = tempfile::tempdir().unwrap();
    /// let logs = LogFiles::open(dir.path())?;
    /// assert_eq!(logs.dropped(), 0);
    /// # Ok::<(), levity_log::Error>(())
    /// ```
    pub fn dropped(&self) -> u64 {
        self.inner.queue.state.dropped()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.flush(Duration::from_secs(2));
    }
}

/// A builder for [`LogFiles`], with the settings of the log files.
///
/// ```
/// use levity_log::LogFiles;
/// use tracing::level_filters::LevelFilter;
///
/// # let dir = tempfile::tempdir().unwrap();
/// let logs = LogFiles::builder(dir.path().join("logs"))
///     .json()
///     .level(LevelFilter::DEBUG)
///     .max_file(1 << 20)
///     .keep(10)
///     .open()?;
/// assert!(logs.folder().is_dir());
/// # Ok::<(), levity_log::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `open`"]
pub struct LogFilesBuilder {
    folder: PathBuf,
    json: bool,
    max_file: u64,
    keep: usize,
    max_text: usize,
    queue: usize,
    level: LevelFilter,
    secrets: Secrets,
}

impl LogFilesBuilder {
    /// The default size at which a file is rotated: 10 MiB.
    pub const DEFAULT_MAX_FILE: u64 = 10 << 20;
    /// The default number of rotated files per log: 3.
    pub const DEFAULT_KEEP: usize = 3;
    /// The default number of bytes of a text that an entry shows: 300.
    pub const DEFAULT_MAX_TEXT: usize = 300;
    /// The default number of entries that may wait to be written: 8,192, with at most 16 MiB.
    pub const DEFAULT_QUEUE: usize = 8_192;

    /// Writes each entry as a JSON object.
    ///
    /// The keys are `at`, `level`, `run`, `event`, and the names of the fields.
    ///
    /// ```
    /// # use levity_core::{Event, EventKind, RunId, Timestamp};
    /// # use levity_log::LogFiles;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let folder = dir.path();
    /// let logs = LogFiles::builder(folder).json().open()?;
    /// let event = Event::new(RunId::new("r1"), 1, Timestamp::default(), EventKind::Paused);
    /// logs.session("s")(&event);
    /// logs.flush(std::time::Duration::from_secs(5));
    /// let line = std::fs::read_to_string(folder.join("s/general.log")).unwrap();
    /// let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
    /// assert_eq!((&entry["run"], &entry["event"]), (&"r1".into(), &"paused".into()));
    /// # Ok::<(), levity_log::Error>(())
    /// ```
    pub fn json(mut self) -> Self {
        self.json = true;
        self
    }

    /// Sets the size in bytes at which a file is rotated. A line is never cut, so a longer one gets
    /// a separate file.
    ///
    /// ```
    /// # use levity_core::{Event, EventKind, RunId, Timestamp};
    /// # use levity_log::LogFiles;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let folder = dir.path();
    /// let logs = LogFiles::builder(folder).max_file(100).keep(1).open()?;
    /// let watch = logs.session("s");
    /// for seq in 0..3 {
    ///     // Each line has 41 bytes, so two of them fit.
    ///     watch(&Event::new(RunId::new("r1"), seq, Timestamp::default(), EventKind::Paused));
    /// }
    /// logs.flush(std::time::Duration::from_secs(5));
    /// let text = |name| std::fs::read_to_string(folder.join("s").join(name)).unwrap();
    /// assert_eq!(text("general.log.1").lines().count(), 2);
    /// assert_eq!(text("general.log").lines().count(), 1);
    /// # Ok::<(), levity_log::Error>(())
    /// ```
    pub fn max_file(mut self, bytes: u64) -> Self {
        self.max_file = bytes;
        self
    }

    /// Sets the number of rotated files per log: `general.log.1` is the newest.
    ///
    /// With 0, a full file is removed.
    pub fn keep(mut self, files: usize) -> Self {
        self.keep = files;
        self
    }

    /// Sets how many bytes of a goal, an answer, arguments or an error an entry shows. Reasoning is
    /// shown whole, up to 256 KiB.
    ///
    /// ```
    /// # use levity_core::{Event, EventKind, RunId, Timestamp};
    /// # use levity_log::LogFiles;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let folder = dir.path();
    /// let logs = LogFiles::builder(folder).max_text(10).open()?;
    /// let goal = EventKind::Goal { text: "word ".repeat(100) };
    /// logs.session("s")(&Event::new(RunId::new("r1"), 1, Timestamp::default(), goal));
    /// logs.flush(std::time::Duration::from_secs(5));
    /// let line = std::fs::read_to_string(folder.join("s/general.log")).unwrap();
    /// assert!(line.contains("word word … (490 bytes more)"));
    /// # Ok::<(), levity_log::Error>(())
    /// ```
    pub fn max_text(mut self, bytes: usize) -> Self {
        self.max_text = bytes;
        self
    }

    /// Sets how many entries may wait to be written.
    pub fn queue(mut self, entries: usize) -> Self {
        self.queue = entries;
        self
    }

    /// Sets the lowest level that is written; `INFO` by default.
    ///
    /// The level applies to `general.log` and to the [layer](LogFiles::layer); reasoning is always
    /// written.
    pub fn level(mut self, level: LevelFilter) -> Self {
        self.level = level;
        self
    }

    /// Sets the secrets to redact in all output; common secret patterns by default. Add the secrets
    /// that you know.
    ///
    /// ```
    /// # use levity_core::{Event, EventKind, RunId, Secrets, Timestamp};
    /// # use levity_log::LogFiles;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let folder = dir.path();
    /// let logs = LogFiles::builder(folder).secrets(Secrets::new().known("correct-horse")).open()?;
    /// let goal = EventKind::Goal { text: "log in with correct-horse".into() };
    /// logs.session("s")(&Event::new(RunId::new("r1"), 1, Timestamp::default(), goal));
    /// logs.flush(std::time::Duration::from_secs(5));
    /// let line = std::fs::read_to_string(folder.join("s/general.log")).unwrap();
    /// assert!(line.contains("log in with") && !line.contains("correct-horse"));
    /// # Ok::<(), levity_log::Error>(())
    /// ```
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = secrets;
        self
    }

    /// Creates the folder and starts the writer.
    ///
    /// # Errors
    /// If the folder cannot be created, if the queue or file size is 0, or if no thread can be
    /// started.
    pub fn open(self) -> Result<LogFiles> {
        let invalid = |setting, reason: &str| {
            Err(Error::Setting {
                setting,
                reason: reason.to_owned(),
            })
        };
        if self.queue == 0 {
            return invalid("queue", "it must be at least 1");
        }
        if self.max_file == 0 {
            return invalid(
                "max_file",
                "it must be greater than 0; use at least some thousand bytes",
            );
        }
        disk::create_folder(&self.folder).map_err(|source| Error::Folder {
            path: self.folder.clone(),
            source,
        })?;
        let (queue, receiver) = Queue::new(self.queue);
        let secrets = self.secrets.clone();
        let style = Style {
            json: self.json,
            max_text: self.max_text,
            secrets,
        };
        let level = Level::from_filter(self.level);
        let disk = Disk::new(self.max_file, self.keep);
        let writer = Writer::new(self.folder.clone(), style, level, disk, queue.state.clone());
        let thread = std::thread::Builder::new().name("levity-log".to_owned());
        thread
            .spawn(move || writer.write(&receiver))
            .map_err(Error::Thread)?;
        let inner = Inner {
            queue: Arc::new(queue),
            folder: self.folder,
            level: self.level,
            secrets: self.secrets,
        };
        Ok(LogFiles {
            inner: Arc::new(inner),
        })
    }
}

impl fmt::Debug for LogFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogFiles")
            .field("folder", &self.inner.folder)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for LogFilesBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("LogFilesBuilder");
        debug
            .field("folder", &self.folder)
            .field("max_file", &self.max_file)
            .field("keep", &self.keep);
        debug.finish_non_exhaustive()
    }
}

/// Returns the loggable part of an event and its approximate size in bytes. Transient events and
/// the content of tool results are not logged.
fn queue_item(destination: &Arc<Destination>, event: &Event) -> Option<(QueueItem, usize)> {
    let (mut result_bytes, size) = (0, size_of(&event.kind));
    let kind = match &event.kind {
        EventKind::Delta {
            delta: Delta::Waiting { .. } | Delta::Notice { .. } | Delta::Restart { .. },
            ..
        } => event.kind.clone(),
        EventKind::Delta { .. } | EventKind::Progress { .. } => return None,
        EventKind::ToolFinished { effect, result } => {
            result_bytes = answer_size(result) as u64;
            EventKind::ToolFinished {
                effect: *effect,
                result: without_answer(result),
            }
        }
        kind => kind.clone(),
    };
    let event = Box::new(Event::new(event.run.clone(), event.seq, event.at, kind));
    Some((
        QueueItem::Event {
            destination: destination.clone(),
            event,
            result_bytes,
        },
        size,
    ))
}

/// Returns the call of a result and, if it failed, the error.
fn without_answer(result: &ToolResult) -> ToolResult {
    let call = ToolCall::new(
        result.call.clone(),
        result.name.clone(),
        serde_json::Value::Null,
    );
    let mut stripped = ToolResult::answering(call, Ok(ToolOutput::text("")));
    stripped.error = result.error;
    stripped.content = if result.is_error() {
        result.content.clone()
    } else {
        Vec::new()
    };
    stripped
}

/// Returns the size of a tool's answer: that of its texts or of its value, whichever is larger.
fn answer_size(result: &ToolResult) -> usize {
    let texts = result.content.iter().map(|content| match content {
        Content::Text(text) => text.len(),
        _ => 0,
    });
    texts
        .sum::<usize>()
        .max(result.value.as_ref().map_or(0, json_size))
}

/// Returns the approximate size of an event in bytes.
fn size_of(kind: &EventKind) -> usize {
    512 + match kind {
        EventKind::Goal { text } | EventKind::Note { text } => text.len(),
        EventKind::Plan { steps } => steps.iter().map(String::len).sum(),
        EventKind::ModelFinished { message, .. } | EventKind::MessageReceived { message } => {
            message.size()
        }
        EventKind::ToolStarted { call, .. } => json_size(&call.args),
        EventKind::ToolFinished { result, .. } if result.is_error() => answer_size(result),
        EventKind::Asked(ask) => json_size(&ask.call.args) + ask.reason.len(),
        EventKind::RunEnded(ending) | EventKind::ChildFinished { ending, .. } => ending.text.len(),
        EventKind::Custom { data, .. } => json_size(data),
        _ => 0,
    }
}
