//! What layers of `tracing` share: fields, and the run that something is logged in.

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

/// The run that a span is of; kept with the span.
struct OfRun(RunId);

/// Notes which run a new span is of, if it is one.
pub(crate) fn note_run<S>(attributes: &Attributes<'_>, id: &tracing::Id, cx: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let mut found = Run(None);
    attributes.record(&mut found);
    if let (Some(run), Some(span)) = (found.0, cx.span(id)) {
        span.extensions_mut().replace(OfRun(run));
    }
}

/// An entry of something that was logged, with the run that it was logged in.
pub(crate) fn entry<S>(event: &Event<'_>, cx: &Context<'_, S>) -> Entry
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let meta = event.metadata();
    let mut fields = Fields::default();
    event.record(&mut fields);
    let what = fields.message.unwrap_or_else(|| meta.name().to_owned());
    let mut entry = Entry::new(clock::timestamp(), (*meta.level()).into(), what);
    entry.fields = fields.fields;
    entry.fields.push(("target".into(), meta.target().into()));
    let mut spans = cx.event_scope(event).into_iter().flatten();
    entry.run = spans.find_map(|span| span.extensions().get::<OfRun>().map(|run| run.0.clone()));
    entry
}

struct Run(Option<RunId>);

impl Visit for Run {
    fn record_str(&mut self, name: &Name, value: &str) {
        if name.name() == "levity.run" {
            self.0 = Some(value.into());
        }
    }

    fn record_debug(&mut self, _: &Name, _: &dyn fmt::Debug) {}
}

#[derive(Default)]
struct Fields {
    message: Option<String>,
    fields: Vec<(Cow<'static, str>, Field)>,
}

impl Fields {
    fn push(&mut self, name: &Name, field: impl Into<Field>) {
        self.fields.push((name.name().into(), field.into()));
    }
}

impl Visit for Fields {
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
