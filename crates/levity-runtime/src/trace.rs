//! Spans of runs and effects, named after OpenTelemetry's conventions for generative AI.
//!
//! Nothing is created and nothing formatted unless a subscriber is interested in the span: each
//! place checks once, and otherwise holds a null pointer.

use std::fmt::Display;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::text::chain;
use levity_core::{
    ConversationId, Effect, Ending, Executor, Machine, ModelCall, ModelCard, Outcome, RunId,
    Secrets, Status, ToolRun,
};
use levity_driver::Action;
use tracing::field::{Empty, display};
use tracing::instrument::Instrument;
use tracing::{Level, Span};

mod contents;
mod names;

use names::{Operation, finish, model_error, provider, tool_error};

/// The target of all spans here, which a filter names.
const TARGET: &str = "levity";

/// The span of a run, if a subscriber is interested. A pointer, so that an untraced run needs no
/// room for it.
#[derive(Default)]
pub(crate) struct Trace(Option<Box<Traced>>);

struct Traced {
    span: Span,
    conversation: Option<ConversationId>,
    /// The executor's models, by slot, once one is called.
    models: Option<Arc<[(String, ModelCard)]>>,
}

/// The parent span of a run or an effect.
#[derive(Default)]
pub(crate) struct ParentSpan(Option<Box<Span>>);

impl ParentSpan {
    /// Returns the current span, for a task that is started here and could not find it otherwise.
    pub(crate) fn here() -> Self {
        if !tracing::enabled!(target: TARGET, Level::INFO) {
            return Self(None);
        }
        let span = Span::current();
        Self((!span.is_none()).then(|| Box::new(span)))
    }

    /// Runs a future within the parent span.
    pub(crate) fn within<T: 'static>(self, work: BoxFuture<'static, T>) -> BoxFuture<'static, T> {
        match self.0 {
            Some(span) => Box::pin(work.instrument(*span)),
            None => work,
        }
    }
}

impl Trace {
    /// Starts the span of a run.
    pub(crate) fn run(
        run: &RunId,
        machine: &dyn Machine,
        name: Option<&str>,
        again: bool,
        above: ParentSpan,
    ) -> Self {
        if !tracing::enabled!(target: TARGET, Level::INFO) {
            return Self(None);
        }
        let operation = Operation::of(&machine.kind());
        let parent = above.0.and_then(|above| above.id());
        let span = tracing::info_span!(
            target: TARGET,
            parent: parent,
            "run",
            otel.name = display(operation.title(name)),
            otel.kind = "internal",
            otel.status_code = Empty,
            gen_ai.operation.name = operation.as_str(),
            gen_ai.agent.name = Empty,
            gen_ai.workflow.name = Empty,
            gen_ai.tool.name = Empty,
            gen_ai.conversation.id = Empty,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            error.type = Empty,
            levity.run = run.as_str(),
            levity.resumed = again,
            levity.status = Empty,
            levity.turns = Empty,
            levity.tool_calls = Empty,
            levity.cost = Empty,
        );
        if span.is_disabled() {
            return Self(None);
        }
        if let Some(name) = name {
            span.record(operation.name_field(), name);
        }
        Self(Some(Box::new(Traced {
            span,
            conversation: None,
            models: None,
        })))
    }

    /// Returns the parent span for the run's effects.
    pub(crate) fn above(&self) -> ParentSpan {
        ParentSpan(self.0.as_ref().map(|traced| Box::new(traced.span.clone())))
    }

    /// Returns `true` if a subscriber is interested in the span.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Inspects starting effects: a save names the conversation that the run belongs to.
    pub(crate) fn begins(&mut self, actions: &[Action]) {
        let Some(traced) = self
            .0
            .as_mut()
            .filter(|traced| traced.conversation.is_none())
        else {
            return;
        };
        let saved = actions.iter().find_map(|action| match action {
            Action::Perform(_, Effect::Save(save)) => Some(&save.conversation),
            _ => None,
        });
        if let Some(id) = saved {
            traced.span.record("gen_ai.conversation.id", id.as_str());
            traced.conversation = Some(id.clone());
        }
    }

    /// Starts the span of an effect.
    pub(crate) fn effect(
        &mut self,
        effect: &Effect,
        executor: &dyn Executor,
        contents: Option<&Secrets>,
    ) -> EffectTrace {
        let Some(traced) = &mut self.0 else {
            return EffectTrace(None);
        };
        let span = match effect {
            Effect::Model(call) => traced.chat(call, executor),
            Effect::Tool(run) => traced.tool(run),
            _ => return EffectTrace(None),
        };
        if span.is_disabled() {
            return EffectTrace(None);
        }
        if let Some(secrets) = contents {
            contents::record_input(&span, effect, secrets);
        }
        EffectTrace(Some(Box::new((span, contents.cloned()))))
    }

    /// Records the ending of the run.
    pub(crate) fn ended(&self, ending: Option<&Ending>) {
        let (Some(traced), Some(ending)) = (&self.0, ending) else {
            return;
        };
        let span = &traced.span;
        span.record("levity.turns", ending.stats.turns);
        span.record("levity.tool_calls", ending.stats.tool_calls);
        record(span, "gen_ai.usage.input_tokens", ending.usage.input);
        record(span, "gen_ai.usage.output_tokens", ending.usage.output);
        if let Some(cost) = ending.usage.cost {
            span.record("levity.cost", display(cost));
        }
        span.record("levity.status", names::status(&ending.status));
        match &ending.status {
            Status::Failed(failure) => failed(span, names::failure(failure)),
            Status::Partial(_) => failed(span, "limit"),
            _ => {}
        }
    }

    /// Records that the run stopped before its end.
    pub(crate) fn stopped(&self, error: &levity_core::RuntimeError) {
        let Some(traced) = &self.0 else { return };
        if matches!(error, levity_core::RuntimeError::Parked { .. }) {
            traced.span.record("levity.status", "parked");
            return;
        }
        traced.span.record("levity.status", "stopped");
        failed(&traced.span, "stopped");
        traced.span.in_scope(|| {
            tracing::error!(target: TARGET, error = %chain(error), "the run could not continue");
        });
    }
}

impl Traced {
    fn chat(&mut self, call: &ModelCall, executor: &dyn Executor) -> Span {
        let models = self.models.get_or_insert_with(|| executor.inspect().models);
        let card = models
            .iter()
            .find(|(slot, _)| **slot == *call.slot)
            .map(|(_, card)| card);
        let (model, by) = (
            card.map(|card| card.id.as_str()),
            card.map(|card| provider(&card.provider)),
        );
        let span = tracing::info_span!(
            target: TARGET,
            parent: &self.span,
            "chat",
            otel.name = display(SpanName("chat", model)),
            otel.kind = "client",
            otel.status_code = Empty,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = by,
            gen_ai.request.model = model,
            gen_ai.request.max_tokens = Empty,
            gen_ai.conversation.id = Empty,
            gen_ai.response.model = Empty,
            gen_ai.response.finish_reasons = Empty,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            gen_ai.usage.cache_read.input_tokens = Empty,
            gen_ai.usage.cache_creation.input_tokens = Empty,
            gen_ai.usage.reasoning.output_tokens = Empty,
            gen_ai.input.messages = Empty,
            gen_ai.output.messages = Empty,
            gen_ai.system_instructions = Empty,
            error.type = Empty,
            levity.slot = &*call.slot,
            levity.cost = Empty,
        );
        record(
            &span,
            "gen_ai.request.max_tokens",
            call.request.options.max_tokens,
        );
        if let Some(id) = &self.conversation {
            span.record("gen_ai.conversation.id", id.as_str());
        }
        span
    }

    fn tool(&self, run: &ToolRun) -> Span {
        tracing::info_span!(
            target: TARGET,
            parent: &self.span,
            "execute_tool",
            otel.name = display(SpanName("execute_tool", Some(&run.call.name))),
            otel.kind = "internal",
            otel.status_code = Empty,
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = run.call.name.as_str(),
            gen_ai.tool.call.id = run.call.id.as_str(),
            gen_ai.tool.type = "function",
            gen_ai.tool.call.arguments = Empty,
            gen_ai.tool.call.result = Empty,
            error.type = Empty,
        )
    }
}

/// The span of an effect, if a subscriber is interested, with the secrets to redact if contents are
/// recorded.
pub(crate) struct EffectTrace(Option<Box<(Span, Option<Secrets>)>>);

impl EffectTrace {
    /// Performs the effect within its span, and records its outcome there.
    pub(crate) fn around<T: Send + 'static>(
        self,
        perform: BoxFuture<'static, T>,
        outcome: fn(&T) -> Option<&Outcome>,
    ) -> BoxFuture<'static, T> {
        let Some(traced) = self.0 else { return perform };
        let (span, contents) = *traced;
        let recorded = span.clone();
        Box::pin(
            async move {
                let finished = perform.await;
                if let Some(outcome) = outcome(&finished) {
                    record_outcome(&recorded, outcome, contents.as_ref());
                }
                finished
            }
            .instrument(span),
        )
    }
}

fn record_outcome(span: &Span, outcome: &Outcome, contents: Option<&Secrets>) {
    match outcome {
        Outcome::Model(Ok(response)) => {
            let usage = &response.usage;
            span.record("gen_ai.response.finish_reasons", finish(&response.finish));
            if let Some(model) = &response.model {
                span.record("gen_ai.response.model", &**model);
            }
            record(span, "gen_ai.usage.input_tokens", usage.input);
            record(span, "gen_ai.usage.output_tokens", usage.output);
            record(span, "gen_ai.usage.cache_read.input_tokens", usage.cached);
            record(
                span,
                "gen_ai.usage.cache_creation.input_tokens",
                usage.cache_written,
            );
            record(
                span,
                "gen_ai.usage.reasoning.output_tokens",
                usage.reasoning,
            );
            if let Some(cost) = usage.cost {
                span.record("levity.cost", display(cost));
            }
        }
        Outcome::Model(Err(error)) => failed(span, model_error(error.kind())),
        Outcome::Tool(result) => {
            if let Some(kind) = result.error {
                failed(span, tool_error(kind));
            }
        }
        Outcome::Unknown => failed(span, "unknown"),
        _ => {}
    }
    if let Some(secrets) = contents {
        contents::record_output(span, outcome, secrets);
    }
}

fn record(span: &Span, field: &str, value: Option<u64>) {
    if let Some(value) = value {
        span.record(field, value);
    }
}

fn failed(span: &Span, kind: &'static str) {
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}

/// An operation, and its object if that is known.
struct SpanName<'a>(&'a str, Option<&'a str>);

impl Display for SpanName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.1.filter(|what| !what.is_empty()) {
            Some(what) => write!(f, "{} {what}", self.0),
            None => f.write_str(self.0),
        }
    }
}
