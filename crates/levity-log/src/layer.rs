//! Code shared by the `tracing` layers: fields, and the run of an event.
//!
//! A span with the field `levity.run` belongs to that run; an event belongs to the innermost such
//! span around it. The id is stored in the extensions of the span, since fields cannot be read back
//! from it.

use std::borrow::Cow;
use std::fmt;

use levity_core::RunId;
use tracing::field::{Field as Name, Visit};
use tracing::span::Attributes;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::clock;
use crate::entry::{Entry, Field};

/// The run of a span, stored in the span's extensions.
struct SpanRun(RunId);

/// Stores the run of a new span, if the span has one.
pub(crate) fn store_span_run<S>(attributes: &Attributes<'_>, id: &tracing::Id, cx: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let mut found = RunVisitor(None);
    attributes.record(&mut found);
    if let (Some(run), Some(span)) = (found.0, cx.span(id)) {
        span.extensions_mut().replace(SpanRun(run));
    }
}

/// Creates an entry for a `tracing` event, with the run of its span.
pub(crate) fn to_entry<S>(event: &Event<'_>, cx: &Context<'_, S>) -> Entry
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let meta = event.metadata();
    let mut fields = FieldVisitor::default();
    event.record(&mut fields);
    let message_text = fields.message.unwrap_or_else(|| meta.name().to_owned());
    let mut entry = Entry::new(clock::timestamp(), (*meta.level()).into(), message_text);
    entry.fields = fields.fields;
    entry.fields.push(("target".into(), meta.target().into()));
    let mut spans = cx.event_scope(event).into_iter().flatten();
    entry.run = spans.find_map(|span| span.extensions().get::<SpanRun>().map(|run| run.0.clone()));
    entry
}

struct RunVisitor(Option<RunId>);

impl Visit for RunVisitor {
    fn record_str(&mut self, name: &Name, value: &str) {
        if name.name() == "levity.run" {
            self.0 = Some(value.into());
        }
    }

    fn record_debug(&mut self, _: &Name, _: &dyn fmt::Debug) {}
}

/// Collects the fields of an event; the field `message` is kept apart.
#[derive(Default)]
struct FieldVisitor {
    message: Option<String>,
    fields: Vec<(Cow<'static, str>, Field)>,
}

impl FieldVisitor {
    fn push(&mut self, name: &Name, field: impl Into<Field>) {
        self.fields.push((name.name().into(), field.into()));
    }
}

impl Visit for FieldVisitor {
    fn record_u64(&mut self, name: &Name, value: u64) {
        self.push(name, value);
    }

    fn record_str(&mut self, name: &Name, value: &str) {
        match name.name() {
            "message" => self.message = Some(value.to_owned()),
            _ => self.push(name, value),
        }
    }

    fn record_debug(&mut self, name: &Name, value: &dyn fmt::Debug) {
        match name.name() {
            "message" => self.message = Some(format!("{value:?}")),
            _ => self.push(name, format!("{value:?}")),
        }
    }
}
