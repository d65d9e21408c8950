use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Record};
use tracing::{Event, Id, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::export::{Line, is_exporter};
use super::span::{Logged, Moment, Span};
use crate::clock;

/// Takes spans, to be sent to a collector; see [`Otlp::layer`](super::Otlp::layer).
///
/// It takes spans and what is logged within them down to the level `INFO`, unless
/// [told](Self::level) otherwise.
#[derive(Clone)]
pub struct OtlpLayer {
    line: Arc<Line>,
    ids: Arc<Ids>,
    level: LevelFilter,
}

impl OtlpLayer {
    pub(super) fn new(line: Arc<Line>) -> Self {
        Self {
            line,
            ids: Arc::new(Ids::new()),
            level: LevelFilter::INFO,
        }
    }

    /// The least level of what is taken.
    #[must_use]
    pub fn level(mut self, level: LevelFilter) -> Self {
        self.level = level;
        self
    }

    fn takes(&self, level: tracing::Level) -> bool {
        // What sending itself does is not sent: there would be no end of it.
        level <= self.level && !is_exporter()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for OtlpLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let meta = attributes.metadata();
        let Some(span) = cx.span(id).filter(|_| self.takes(*meta.level())) else {
            return;
        };
        // A span between that is not taken is left out of the tree.
        let above = span.scope().skip(1).find_map(|above| {
            above
                .extensions()
                .get::<Span>()
                .map(|above| (above.trace, above.id))
        });
        let (trace, parent) = match above {
            Some((trace, parent)) => (trace, Some(parent)),
            None => (self.ids.trace(), None),
        };
        let mut made = Span::new(meta.name(), trace, self.ids.next(), parent, nanos());
        attributes.record(&mut made);
        span.extensions_mut().replace(made);
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
        if !self.takes(*meta.level()) {
            return;
        }
        let mut logged = Logged::default();
        let mut spans = cx.event_scope(event).into_iter().flatten();
        let Some(span) = spans.find(|span| span.extensions().get::<Span>().is_some()) else {
            return;
        };
        event.record(&mut logged);
        logged
            .attributes
            .push(("level", super::span::Value::Text(meta.level().to_string())));
        let name = logged.words.unwrap_or_else(|| meta.name().to_owned());
        if let Some(span) = span.extensions_mut().get_mut::<Span>() {
            span.push(Moment {
                at: nanos(),
                name,
                attributes: logged.attributes,
            });
        }
    }

    fn on_close(&self, id: Id, cx: Context<'_, S>) {
        let Some(span) = cx.span(&id) else { return };
        if let Some(mut span) = span.extensions_mut().remove::<Span>() {
            span.ended = nanos();
            self.line.push(span);
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

/// Ids that no other process makes: from a random beginning, each number once.
struct Ids(AtomicU64, AtomicU64);

impl Ids {
    fn new() -> Self {
        // Without the system's randomness, the time is what there is.
        let random = || AtomicU64::new(getrandom::u64().unwrap_or_else(|_| nanos()));
        Self(random(), random())
    }

    fn next(&self) -> u64 {
        // An odd step meets each number once; mixing makes neighbours unlike each other and keeps
        // them apart.
        let mut id = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (id ^ (id >> 31)).max(1)
    }

    fn trace(&self) -> u128 {
        (u128::from(self.1.load(Ordering::Relaxed)) << 64) | u128::from(self.next())
    }
}
