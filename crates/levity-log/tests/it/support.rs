//! Helpers shared by the tests.

use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_core::{Event, EventKind, Hints, ModelCard, RunId, Timestamp, ToolError, ToolOutput};
use levity_loop::{Agent, AgentBuilder};
use levity_memory::InMemory;
use levity_test::{RecordingTool, ScriptedModel, Turn};
use serde_json::json;
use tracing::Dispatch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// A timeout that is long enough for any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a future with this subscriber on all threads.
pub(crate) fn within<T>(dispatch: &Dispatch, work: impl Future<Output = T>) -> T {
    let for_threads = dispatch.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&for_threads)))
        .build()
        .unwrap();
    tracing::dispatcher::with_default(dispatch, || runtime.block_on(work))
}

/// Creates a subscriber with one layer.
pub(crate) fn with<L: Layer<tracing_subscriber::Registry> + Send + Sync>(layer: L) -> Dispatch {
    Dispatch::new(tracing_subscriber::registry().with(layer))
}

fn card(id: &str) -> ModelCard {
    ModelCard::new("anthropic", id)
}

/// Creates an agent with a blocking tool that logs, a failing tool, a subagent and a memory.
pub(crate) fn lead() -> AgentBuilder {
    let model = ScriptedModel::new()
        .with_card(card("big"))
        .turn(
            Turn::new()
                .thinking("First the weather,\nthen the sum.")
                .call_with_id("c-1", "weather", json!({"city": "Paris"}))
                .call_with_id("c-2", "broken", json!({}))
                .usage(100, 20),
        )
        .turn(
            Turn::new()
                .call_with_id("c-3", "adder", json!({"task": "2 + 5"}))
                .usage(150, 10),
        )
        .turn(Turn::new().text("Sunny, and 7.").usage(200, 5));
    let helper = ScriptedModel::new()
        .with_card(card("small"))
        .turn(Turn::new().text("7").usage(30, 2));
    let helper = Agent::builder(helper).build().unwrap();
    Agent::builder(model)
        .name("lead")
        .tool(weather())
        .tool(RecordingTool::new("broken", |_| {
            Err(ToolError::failed("out of order"))
        }))
        .agent("adder", "Adds numbers.", helper)
        .memory(InMemory::new())
}

/// A tool that runs and logs on a separate thread.
fn weather() -> RecordingTool {
    let weather = RecordingTool::new("weather", |_| {
        tracing::info!(station = "LFPG", "looked at the sky");
        Ok(ToolOutput::text("sunny"))
    });
    weather.with_hints(Hints::new().read_only().blocking())
}

/// Creates an event of a run.
pub(crate) fn event(run: &str, at: u64, kind: EventKind) -> Event {
    Event::new(RunId::new(run), 0, Timestamp::from_millis(at), kind)
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path.as_ref())
        .unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

/// Reads all files below a folder as one text.
pub(crate) fn all(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => text.push_str(&all(&entry.path())),
            false => text.push_str(&String::from_utf8_lossy(
                &std::fs::read(entry.path()).unwrap(),
            )),
        }
    }
    text
}

/// A recorded span.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedSpan {
    pub(crate) name: String,
    pub(crate) parent: Option<String>,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) logged: Vec<String>,
    pub(crate) closed: bool,
}

impl RecordedSpan {
    pub(crate) fn get(&self, field: &str) -> Option<&str> {
        self.fields
            .iter()
            .rev()
            .find(|(name, _)| name == field)
            .map(|(_, value)| value.as_str())
    }
}

/// A layer that records all spans of levity and of tests.
#[derive(Clone, Default)]
pub(crate) struct Spans(Arc<Mutex<Vec<(u64, RecordedSpan)>>>);

impl Spans {
    fn with(&self, id: &Id, change: impl FnOnce(&mut RecordedSpan)) {
        let mut spans = self.0.lock().unwrap();
        if let Some((_, seen)) = spans
            .iter_mut()
            .rev()
            .find(|(known, _)| *known == id.into_u64())
        {
            change(seen);
        }
    }

    pub(crate) fn all(&self) -> Vec<RecordedSpan> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .map(|(_, seen)| seen.clone())
            .collect()
    }

    #[track_caller]
    pub(crate) fn named(&self, name: &str) -> RecordedSpan {
        let found = self
            .all()
            .into_iter()
            .find(|seen| seen.get("otel.name") == Some(name));
        found.unwrap_or_else(|| panic!("no span `{name}` among {:#?}", self.all()))
    }
}

struct Into<'a>(&'a mut Vec<(String, String)>);

impl Visit for Into<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name().to_owned(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push((field.name().to_owned(), format!("{value:?}")));
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let mut seen = RecordedSpan {
            name: attributes.metadata().name().to_owned(),
            ..RecordedSpan::default()
        };
        attributes.record(&mut Into(&mut seen.fields));
        let parent = cx
            .span(id)
            .and_then(|span| Some(span.parent()?.id().into_u64()));
        let mut spans = self.0.lock().unwrap();
        let above =
            parent.and_then(|parent| spans.iter().rev().find(|(known, _)| *known == parent));
        seen.parent =
            above.map(|(_, above)| above.get("otel.name").unwrap_or(&above.name).to_owned());
        spans.push((id.into_u64(), seen));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.with(id, |seen| values.record(&mut Into(&mut seen.fields)));
    }

    fn on_event(&self, event: &tracing::Event<'_>, cx: Context<'_, S>) {
        let mut fields = Vec::new();
        event.record(&mut Into(&mut fields));
        let words = fields
            .into_iter()
            .find(|(name, _)| name == "message")
            .map(|(_, words)| words);
        if let Some(span) = cx.event_span(event) {
            self.with(&span.id(), |seen| seen.logged.extend(words));
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.with(&id, |seen| seen.closed = true);
    }
}
