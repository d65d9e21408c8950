//! Log lines on a stream, written directly by the thread that logs.
//!
//! It suits programs of the command line, in which a short wait is acceptable. Texts are cut at 4
//! KiB.

use std::fmt;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use levity_core::Secrets;
use tracing::span::Attributes;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::entry::Style;
use crate::layer::{store_span_run, to_entry};

/// A layer that writes `tracing` events to a stream at once, such as the terminal, one line each.
///
/// The lines contain no secrets and no terminal control characters. The logging code waits for the
/// stream; for runs, use [`LogFiles`](crate::LogFiles) instead.
///
/// ```
/// use levity_core::Secrets;
/// use levity_log::LineLayer;
/// use tracing_subscriber::{Layer as _, filter::Targets, layer::SubscriberExt as _};
///
/// let only: Targets = "levity=debug,warn".parse().unwrap();
/// let lines = LineLayer::new(std::io::stderr(), Secrets::new()).with_filter(only);
/// let subscriber = tracing_subscriber::registry().with(lines);
/// # let log = || tracing::info!(target: "other", "not shown");
/// # tracing::subscriber::with_default(subscriber, log);
/// ```
pub struct LineLayer<W> {
    stream: Mutex<W>,
    style: Style,
}

impl<W: Write + Send + 'static> LineLayer<W> {
    /// Creates a layer that writes to `stream` and redacts these secrets.
    ///
    /// ```
    /// use levity_core::Secrets;
    /// use levity_log::LineLayer;
    /// use tracing_subscriber::layer::SubscriberExt as _;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// let path = dir.path().join("out.log");
    /// let secrets = Secrets::new().known("hunter2hunter2");
    /// let lines = LineLayer::new(std::fs::File::create(&path)?, secrets);
    /// tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
    ///     tracing::warn!(user = "ada", "logged in with hunter2hunter2");
    /// });
    /// let text = std::fs::read_to_string(&path)?;
    /// assert!(text.contains("WARN") && text.contains("user=ada"));
    /// assert!(!text.contains("hunter2"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(stream: W, secrets: Secrets) -> Self {
        let style = Style {
            json: false,
            max_text: 4 << 10,
            secrets,
        };
        Self {
            stream: Mutex::new(stream),
            style,
        }
    }
}

impl<W: Write + Send + 'static, S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LineLayer<W> {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &tracing::Id, cx: Context<'_, S>) {
        store_span_run(attributes, id, &cx);
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let line = to_entry(event, &cx).line(&self.style);
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        // There is no place to report a failed stream.
        let _ = stream
            .write_all(line.as_bytes())
            .and_then(|()| stream.flush());
    }
}

impl<W> fmt::Debug for LineLayer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineLayer").finish_non_exhaustive()
    }
}
