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
    pub fn flush(&self, time: Duration) -> bool {
        self.inner.queue.flush(time)
    }

    /// Returns the number of entries that did not fit into the queue or could not be written.
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
    pub fn json(mut self) -> Self {
        self.json = true;
        self
    }

    /// Sets the size in bytes at which a file is rotated. A line is never cut, so a longer one gets
    /// a separate file.
    pub fn max_file(mut self, bytes: u64) -> Self {
        self.max_file = bytes;
        self
    }

    /// Sets the number of rotated files per log: `general.log.1` is the newest.
    pub fn keep(mut self, files: usize) -> Self {
        self.keep = files;
        self
    }

    /// Sets how many bytes of a goal, an answer, arguments or an error an entry shows. Reasoning is
    /// shown whole, up to 256 KiB.
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
    pub fn level(mut self, level: LevelFilter) -> Self {
        self.level = level;
        self
    }

    /// Sets the secrets to redact in all output; common secret patterns by default. Add the secrets
    /// that you know.
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
