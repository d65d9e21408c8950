//! The `tracing` layer of the exporter.
//!
//! A span is built in the extensions of the `tracing` span and moves to the queue when it closes. A
//! span without an exported parent starts a new trace.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Record};
use tracing::{Event, Id, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::export::{SpanQueue, is_exporter_thread};
use super::span::{EventFields, Span, SpanEvent};
use crate::clock;

/// A layer that exports spans to a collector; see [`Otlp::layer`](super::Otlp::layer).
///
/// It exports spans and the events within them down to the level `INFO`, unless
/// [`level`](Self::level) sets another.
///
/// ```
/// use levity_log::Otlp;
/// use tracing::level_filters::LevelFilter;
/// use tracing_subscriber::layer::SubscriberExt as _;
///
/// let otlp = Otlp::builder("http://127.0.0.1:9").open()?;
/// let layer = otlp.layer().level(LevelFilter::WARN);
/// let subscriber = tracing_subscriber::registry().with(layer);
/// tracing::subscriber::with_default(subscriber, || {
///     let _span = tracing::info_span!("below the level").entered();
/// });
/// assert_eq!(otlp.dropped(), 0);
/// # Ok::<(), levity_log::Error>(())
/// ```
#[derive(Clone)]
pub struct OtlpLayer {
    queue: Arc<SpanQueue>,
    ids: Arc<Ids>,
    level: LevelFilter,
}

impl OtlpLayer {
    pub(super) fn new(queue: Arc<SpanQueue>) -> Self {
        Self {
            queue,
            ids: Arc::new(Ids::new()),
            level: LevelFilter::INFO,
        }
    }

    /// Sets the lowest exported level.
    #[must_use]
    pub fn level(mut self, level: LevelFilter) -> Self {
        self.level = level;
        self
    }

    fn is_enabled(&self, level: tracing::Level) -> bool {
        // Spans of the exporter itself are not exported, to avoid an endless loop.
        level <= self.level && !is_exporter_thread()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for OtlpLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let meta = attributes.metadata();
        let Some(span) = cx.span(id).filter(|_| self.is_enabled(*meta.level())) else {
            return;
        };
        // A span that is not exported is left out of the tree.
        let parent_ids = span.scope().skip(1).find_map(|parent_ids| {
            parent_ids
                .extensions()
                .get::<Span>()
                .map(|parent_ids| (parent_ids.trace, parent_ids.id))
        });
        let (trace, parent) = match parent_ids {
            Some((trace, parent)) => (trace, Some(parent)),
            None => (self.ids.trace(), None),
        };
        let mut new_span = Span::new(meta.name(), trace, self.ids.next(), parent, nanos());
        attributes.record(&mut new_span);
        span.extensions_mut().replace(new_span);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: Context<'_, S>) {
        if let Some(span) = cx.span(id)
            && let Some(span) = span.extensions_mut().get_mut::<Span>()
        {
            values.record(span);
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let meta = event.metadata();
        if !self.is_enabled(*meta.level()) {
            return;
        }
        let mut fields = EventFields::default();
        let mut spans = cx.event_scope(event).into_iter().flatten();
        let Some(span) = spans.find(|span| span.extensions().get::<Span>().is_some()) else {
            return;
        };
        event.record(&mut fields);
        fields
            .attributes
            .push(("level", super::span::Value::Text(meta.level().to_string())));
        let name = fields.message.unwrap_or_else(|| meta.name().to_owned());
        if let Some(span) = span.extensions_mut().get_mut::<Span>() {
            span.push(SpanEvent {
                at: nanos(),
                name,
                attributes: fields.attributes,
            });
        }
    }

    fn on_close(&self, id: Id, cx: Context<'_, S>) {
        let Some(span) = cx.span(&id) else { return };
        if let Some(mut span) = span.extensions_mut().remove::<Span>() {
            span.ended = nanos();
            self.queue.push(span);
        }
    }
}

impl fmt::Debug for OtlpLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpLayer")
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

fn nanos() -> u64 {
    u64::try_from(clock::now().as_nanos()).unwrap_or(u64::MAX)
}

/// A generator of ids that no other process uses: a sequence with a random start.
struct Ids(AtomicU64, AtomicU64);

impl Ids {
    fn new() -> Self {
        // Without system randomness, the time is the fallback.
        let random = || AtomicU64::new(getrandom::u64().unwrap_or_else(|_| nanos()));
        Self(random(), random())
    }

    fn next(&self) -> u64 {
        // An odd step visits each number once; the mixing makes adjacent numbers look unrelated,
        // and stays unique.
        let mut id = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (id ^ (id >> 31)).max(1)
    }

    fn trace(&self) -> u128 {
        (u128::from(self.1.load(Ordering::Relaxed)) << 64) | u128::from(self.next())
    }
}
