//! The `tracing` layer of the log files.
//!
//! It only queues entries. The writer finds the session by the root run of the entry, and uses the
//! log folder's own `general.log` for runs that it does not know.

use std::fmt;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing::span::Attributes;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::queue::{Queue, QueueItem};
use crate::layer::{store_span_run, to_entry};

/// A layer that writes `tracing` events to log files; see
/// [`LogFiles::layer`](super::LogFiles::layer).
///
/// ```
/// use levity_log::LogFiles;
/// use tracing_subscriber::layer::SubscriberExt as _;
///
/// # fn main() -> levity_log::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let folder = dir.path();
/// let logs = LogFiles::open(folder)?;
/// let subscriber = tracing_subscriber::registry().with(logs.layer());
/// tracing::subscriber::with_default(subscriber, || {
///     tracing::info!(port = 8080, "the server is up");
/// });
/// assert!(logs.flush(std::time::Duration::from_secs(5)));
/// let general = std::fs::read_to_string(folder.join("general.log")).unwrap();
/// assert!(general.contains("INFO  - the server is up port=8080"), "{general}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LogLayer {
    queue: Arc<Queue>,
    level: LevelFilter,
}

impl LogLayer {
    pub(super) fn new(queue: Arc<Queue>, level: LevelFilter) -> Self {
        Self { queue, level }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &tracing::Id, cx: Context<'_, S>) {
        store_span_run(attributes, id, &cx);
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        if *event.metadata().level() <= self.level {
            let entry = to_entry(event, &cx);
            self.queue.push(
                &self.queue.state.common,
                entry.size(),
                QueueItem::Line(entry),
            );
        }
    }
}

impl fmt::Debug for LogLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogLayer")
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}
