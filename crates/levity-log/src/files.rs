use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use levity_core::{Content, Delta, Event, EventKind, Secrets, ToolCall, ToolOutput, ToolResult};
use tracing::level_filters::LevelFilter;

use crate::entry::{Level, Style, json_size};
use crate::error::{Error, Result};

mod disk;
mod folder;
mod queue;
mod story;
mod sweep;
mod traced;
mod writer;

use disk::Disk;
use queue::{Note, Place, Queue};
pub use sweep::{LogCleanup, Retention, clean};
pub use traced::LogLayer;
use writer::Writer;

/// Log files of sessions: `general.log` has what happened, `reasoning.log` what models thought.
///
/// Whoever logs never waits: what does not fit into the queue is counted, and said in the log. A
/// thread writes; it ends when nobody is left who could log. Dropping the last handle waits for
/// what was logged, for 2 seconds at most.
///
/// Several processes may write to one folder.
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
    /// Keeps logs in a folder, with the [defaults](LogFilesBuilder).
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        Self::builder(folder).open()
    }

    /// Begins to say how logs are kept in a folder.
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

    /// Where the logs are.
    pub fn folder(&self) -> &Path {
        &self.inner.folder
    }

    /// Logs the events of runs that belong to a session: give it to `on_event`. The session is
    /// usually the conversation; its folder bears its id, or something like it where that is no
    /// name for a folder.
    pub fn session(&self, id: &str) -> impl Fn(&Event) + Clone + Send + Sync + use<> {
        self.watch(Some(folder::name(id, &self.inner.secrets)))
    }

    /// Logs the events of runs that belong to no session: each has a folder with its id, and runs
    /// below it are there, too.
    pub fn runs(&self) -> impl Fn(&Event) + Clone + Send + Sync + use<> {
        self.watch(None)
    }

    fn watch(&self, folder: Option<String>) -> impl Fn(&Event) + Clone + Send + Sync + use<> {
        let place = Place::new(folder);
        let queue = self.inner.queue.clone();
        move |event: &Event| {
            if let Some((note, size)) = noted(&place, event) {
                queue.push(&place, size, note);
            }
        }
    }

    /// The folder of a session.
    pub fn session_folder(&self, id: &str) -> PathBuf {
        self.inner
            .folder
            .join(folder::name(id, &self.inner.secrets))
    }

    /// Writes what is logged by `tracing` to `general.log`: of the session whose run it is logged
    /// in, otherwise to the one in the folder itself.
    pub fn layer(&self) -> LogLayer {
        LogLayer::new(self.inner.queue.clone(), self.inner.level)
    }

    /// Waits until what was logged so far is written, and says whether it is; not longer than
    /// `time`.
    pub fn flush(&self, time: Duration) -> bool {
        self.inner.queue.flush(time)
    }

    /// How many entries did not fit into the queue or could not be written.
    pub fn dropped(&self) -> u64 {
        self.inner.queue.count.dropped()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.flush(Duration::from_secs(2));
    }
}

/// How logs are kept.
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
    /// How long a file becomes before it is an old one: 10 MiB.
    pub const DEFAULT_MAX_FILE: u64 = 10 << 20;
    /// How many old files are kept of each: 3.
    pub const DEFAULT_KEEP: usize = 3;
    /// How much of a text an entry shows: 300 bytes.
    pub const DEFAULT_MAX_TEXT: usize = 300;
    /// How many entries may wait to be written: 8,192, and 16 MiB of them.
    pub const DEFAULT_QUEUE: usize = 8_192;

    /// Writes each entry as a JSON object.
    pub fn json(mut self) -> Self {
        self.json = true;
        self
    }

    /// How many bytes a file has before it becomes an old one. A line is never cut, so one that is
    /// longer has a file of its own.
    pub fn max_file(mut self, bytes: u64) -> Self {
        self.max_file = bytes;
        self
    }

    /// How many old files are kept of each: `general.log.1` is the newest.
    pub fn keep(mut self, files: usize) -> Self {
        self.keep = files;
        self
    }

    /// How many bytes of a goal, an answer, arguments or an error an entry shows. Thoughts are
    /// shown whole, up to 256 KiB.
    pub fn max_text(mut self, bytes: usize) -> Self {
        self.max_text = bytes;
        self
    }

    /// How many entries may wait to be written.
    pub fn queue(mut self, entries: usize) -> Self {
        self.queue = entries;
        self
    }

    /// The least level of what is written; `INFO` by default.
    pub fn level(mut self, level: LevelFilter) -> Self {
        self.level = level;
        self
    }

    /// What is left out of all that is written: what usually is a secret, by default. Tell it those
    /// that you know.
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = secrets;
        self
    }

    /// Makes the folder and begins.
    ///
    /// # Errors
    /// When the folder cannot be made, there is no room in the queue or in a file, or there is no
    /// thread left.
    pub fn open(self) -> Result<LogFiles> {
        let wrong = |setting, reason: &str| {
            Err(Error::Setting {
                setting,
                reason: reason.to_owned(),
            })
        };
        if self.queue == 0 {
            return wrong("queue", "nothing could ever be written; say at least 1");
        }
        if self.max_file == 0 {
            return wrong(
                "max_file",
                "no line fits into no bytes; say at least some thousands",
            );
        }
        disk::make(&self.folder).map_err(|source| Error::Folder {
            path: self.folder.clone(),
            source,
        })?;
        let (queue, waiting) = Queue::new(self.queue);
        let secrets = self.secrets.clone();
        let style = Style {
            json: self.json,
            max_text: self.max_text,
            secrets,
        };
        let level = Level::of(self.level);
        let disk = Disk::new(self.max_file, self.keep);
        let writer = Writer::new(self.folder.clone(), style, level, disk, queue.count.clone());
        let thread = std::thread::Builder::new().name("levity-log".to_owned());
        thread
            .spawn(move || writer.write(&waiting))
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

/// What is kept of an event, and about how many bytes that is. What lasts only a moment is not
/// kept, nor is what a tool answered.
fn noted(place: &Arc<Place>, event: &Event) -> Option<(Note, usize)> {
    let (mut answered, size) = (0, size_of(&event.kind));
    let kind = match &event.kind {
        EventKind::Delta {
            delta: Delta::Waiting { .. } | Delta::Notice { .. } | Delta::Restart { .. },
            ..
        } => event.kind.clone(),
        EventKind::Delta { .. } | EventKind::Progress { .. } => return None,
        EventKind::ToolFinished { effect, result } => {
            answered = answer_size(result) as u64;
            EventKind::ToolFinished {
                effect: *effect,
                result: without_answer(result),
            }
        }
        kind => kind.clone(),
    };
    let event = Box::new(Event::new(event.run.clone(), event.seq, event.at, kind));
    Some((
        Note::Event {
            place: place.clone(),
            event,
            answered,
        },
        size,
    ))
}

/// Which call it was and, where it failed, why.
fn without_answer(result: &ToolResult) -> ToolResult {
    let call = ToolCall::new(
        result.call.clone(),
        result.name.clone(),
        serde_json::Value::Null,
    );
    let mut kept = ToolResult::answering(call, Ok(ToolOutput::text("")));
    kept.error = result.error;
    kept.content = if result.is_error() {
        result.content.clone()
    } else {
        Vec::new()
    };
    kept
}

fn answer_size(result: &ToolResult) -> usize {
    let texts = result.content.iter().map(|content| match content {
        Content::Text(text) => text.len(),
        _ => 0,
    });
    texts
        .sum::<usize>()
        .max(result.value.as_ref().map_or(0, json_size))
}

/// About how many bytes are kept of an event.
fn size_of(kind: &EventKind) -> usize {
    512 + match kind {
        EventKind::Goal { text } | EventKind::Note { text } => text.len(),
        EventKind::Plan { steps } => steps.iter().map(String::len).sum(),
        EventKind::ModelFinished { message, .. } | EventKind::Said { message } => message.size(),
        EventKind::ToolStarted { call, .. } => json_size(&call.args),
        EventKind::ToolFinished { result, .. } if result.is_error() => answer_size(result),
        EventKind::Asked(ask) => json_size(&ask.call.args) + ask.reason.len(),
        EventKind::RunEnded(ending) | EventKind::ChildFinished { ending, .. } => ending.text.len(),
        EventKind::Custom { data, .. } => json_size(data),
        _ => 0,
    }
}
