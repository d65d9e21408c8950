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
use crate::layer::{entry, note_run};

/// Writes what is logged by `tracing` to a stream at once, such as the terminal, a line each:
/// without secrets, and without what a terminal would obey. Whoever logs waits for the stream; for
/// runs, rather use [`LogFiles`](crate::LogFiles).
///
/// ```
/// use levity_core::Secrets;
/// use levity_log::Lines;
/// use tracing_subscriber::{Layer as _, filter::Targets, layer::SubscriberExt as _};
///
/// let only: Targets = "levity=debug,warn".parse().unwrap();
/// let lines = Lines::new(std::io::stderr(), Secrets::new()).with_filter(only);
/// let subscriber = tracing_subscriber::registry().with(lines);
/// # tracing::subscriber::with_default(subscriber, || tracing::info!(target: "other", "not shown"));
/// ```
pub struct Lines<W> {
    stream: Mutex<W>,
    style: Style,
}

impl<W: Write + Send + 'static> Lines<W> {
    /// Writes to `stream`, all but these secrets.
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

impl<W: Write + Send + 'static, S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines<W> {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &tracing::Id, cx: Context<'_, S>) {
        note_run(attributes, id, &cx);
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let line = entry(event, &cx).line(&self.style);
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        // There is nowhere to say that the stream is gone.
        let _ = stream
            .write_all(line.as_bytes())
            .and_then(|()| stream.flush());
    }
}

impl<W> fmt::Debug for Lines<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}
