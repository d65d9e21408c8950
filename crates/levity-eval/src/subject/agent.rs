//! A levity agent as a subject.
//!
//! Two wrappers make a run measurable. `RecordingTool` replaces the tools of a case and stores
//! their calls. `WatchedModel` counts replies, and ends the run without asking the model once
//! nothing more can be learned from it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::text::chain;
use levity_core::{
    CostBound, Deltas, History, Message, Model, ModelCard, ModelError, Request, Response, Role,
    Tool, ToolCx, ToolError, ToolOutput, ToolSpec, Usage,
};
use levity_loop::{Agent, AgentBuilder, Answer};
use serde_json::Value;

use super::Subject;
use crate::{Case, CaseMessage, ToolHost, ToolSession, Transcript, TrialCall};

mod turns;

/// The reply that ends a run early.
const END: &str = "The evaluation ends the run here.";

/// A levity agent as a subject.
///
/// The tools of a case only record their calls. The run ends with the first turn in which a call
/// reaches a tool, without another model call: later calls would depend on made-up results. As in
/// any run, a call with invalid arguments goes back to the model.
///
/// The tools of a case with an [environment](Case::environment) run in a [`ToolHost`]. Each turn of
/// such a case is a run that continues the conversation, and it ends when the agent has answered.
///
/// ```
/// use levity_eval::AgentSubject;
/// use levity_runtime::{MemoryJournal, Runtime};
/// use levity_test::ScriptedModel;
///
/// let runtime = Runtime::new().with_journal(MemoryJournal::new());
/// let subject = AgentSubject::new("levity", ScriptedModel::new())
///     .configure(move |agent| agent.instructions("Be brief.").runtime(runtime.clone()));
/// # let _ = subject;
/// ```
#[derive(Clone)]
pub struct AgentSubject {
    name: String,
    model: Arc<dyn Model>,
    tool_host: Option<ToolHost>,
    configure: Arc<dyn Fn(AgentBuilder) -> AgentBuilder + Send + Sync>,
}

impl AgentSubject {
    /// Creates an agent with levity's defaults and this model.
    pub fn new(name: impl Into<String>, model: impl Model + 'static) -> Self {
        Self {
            name: name.into(),
            model: Arc::new(model),
            tool_host: None,
            configure: Arc::new(|agent| agent),
        }
    }

    /// Sets a function that configures each agent: options, instructions, the runtime with its
    /// journal. It cannot change the model.
    #[must_use]
    pub fn configure(
        mut self,
        configure: impl Fn(AgentBuilder) -> AgentBuilder + Send + Sync + 'static,
    ) -> Self {
        self.configure = Arc::new(configure);
        self
    }

    /// Sets the program that runs the tools of cases with an [environment](Case::environment).
    /// Without one, such cases fail.
    #[must_use]
    pub fn tool_host(mut self, host: ToolHost) -> Self {
        self.tool_host = Some(host);
        self
    }

    fn agent(&self, model: WatchedModel, system: Option<String>) -> AgentBuilder {
        let agent = (self.configure)(Agent::builder(model.clone())).model(model);
        match system {
            Some(system) => agent.instructions(system),
            None => agent,
        }
    }
}

#[async_trait]
impl Subject for AgentSubject {
    fn name(&self) -> &str {
        &self.name
    }

    async fn answer(&self, case: &Case) -> Transcript {
        if case.is_conversation() {
            return self.converse(case).await;
        }
        let (calls, replies) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(AtomicU64::new(0)),
        );
        let model = WatchedModel {
            inner: self.model.clone(),
            replies: replies.clone(),
            end: End::Called,
        };
        let tools = case.tools.iter().map(|tool| {
            let spec =
                ToolSpec::new(&*tool.name, &*tool.description).with_input(tool.parameters.clone());
            RecordingTool {
                spec,
                calls: calls.clone(),
            }
        });
        let (system, before, goal) = conversation(&case.messages);
        let history = append_messages(History::new(), before);
        let answer = match tools
            .fold(self.agent(model, system), AgentBuilder::tool)
            .build()
        {
            Ok(agent) => agent.run(goal).history(history).await,
            Err(error) => Err(error),
        };
        let calls = std::mem::take(&mut *calls.lock().unwrap_or_else(PoisonError::into_inner));
        let (reached, error) = match answer {
            Ok(answer) => (Some(answer), None),
            Err(error) => (error.partial_as(), Some(chain(&error))),
        };
        let mut transcript = reached.map_or_else(Transcript::default, |answer: Answer| {
            transcript(&answer, !calls.is_empty())
        });
        transcript.replies = Some(replies.load(Ordering::Relaxed));
        (transcript.calls, transcript.error) = (calls, error);
        transcript
    }
}

impl fmt::Debug for AgentSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSubject")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Returns the instructions, the earlier messages and the goal.
fn conversation(messages: &[CaseMessage]) -> (Option<String>, Vec<Message>, Message) {
    let (system, texts): (Vec<_>, Vec<_>) = messages
        .iter()
        .partition(|message| message.role == Role::System);
    let system: Vec<&str> = system.iter().map(|message| &*message.content).collect();
    let system = (!system.is_empty()).then(|| system.join("\n\n"));
    let (goal, before) = texts
        .split_last()
        .map_or((None, &[][..]), |(goal, before)| (Some(goal), before));
    let before = before.iter().map(|message| match message.role {
        Role::Assistant => Message::assistant(&*message.content),
        _ => Message::user(&*message.content),
    });
    (
        system,
        before.collect(),
        Message::user(goal.map_or("", |goal| &*goal.content)),
    )
}

/// Appends text messages to a history.
fn append_messages(mut history: History, messages: Vec<Message>) -> History {
    for message in messages {
        // A text message is neither a call nor a result, so it is valid at any position.
        let _ = history.push(message);
    }
    history
}

/// Converts an answer; the reply that only ended the run is left out.
fn transcript(answer: &Answer, called: bool) -> Transcript {
    let mut messages = answer.history().messages();
    if called && messages.last().is_some_and(|message| message.text() == END) {
        messages = &messages[..messages.len() - 1];
    }
    let texts = messages
        .iter()
        .rev()
        .find(|message| message.role == Role::Assistant);
    let text = texts.map_or_else(
        || answer.text().to_owned(),
        |message| message.text().into_owned(),
    );
    let mut transcript = Transcript::new().with_text(text).with_usage(answer.usage());
    transcript.run = Some(answer.run().to_string());
    transcript.messages = messages
        .iter()
        .filter_map(|message| serde_json::to_value(message).ok())
        .collect();
    transcript
}

/// A tool of a case that records its calls.
struct RecordingTool {
    spec: ToolSpec,
    calls: Arc<Mutex<Vec<TrialCall>>>,
}

#[async_trait]
impl Tool for RecordingTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        let call = TrialCall::new(&*self.spec.name, arguments);
        self.calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(call);
        Ok(ToolOutput::text("done"))
    }
}

/// A model that counts its replies, and is not called again once the run must end.
#[derive(Clone)]
struct WatchedModel {
    inner: Arc<dyn Model>,
    replies: Arc<AtomicU64>,
    end: End,
}

/// The condition that ends a run.
#[derive(Clone)]
enum End {
    /// A call has reached a tool.
    Called,
    /// The tools no longer answer.
    ToolsFailed(Option<Arc<ToolSession>>),
}

impl WatchedModel {
    /// Returns the last reply, if the run must end.
    async fn end(&self, request: &Request) -> Option<Response> {
        let is_over = match &self.end {
            End::Called => is_called(request),
            End::ToolsFailed(Some(session)) => session.failure().await.is_some(),
            End::ToolsFailed(None) => false,
        };
        if is_over {
            return Some(Response::new(Message::assistant(END)).with_usage(Usage::new(0, 0)));
        }
        self.replies.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// Returns `true` if a call of the last turn reached a tool. Notes of the loop may follow the
/// results.
fn is_called(request: &Request) -> bool {
    let messages = request.history.messages().iter().rev();
    let mut since = messages.take_while(|message| message.role != Role::Assistant);
    since.any(|message| message.results().any(|result| !result.is_error()))
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Model for WatchedModel {
    fn card(&self) -> &ModelCard {
        self.inner.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        match self.end(&request).await {
            Some(end) => Ok(Deltas::from_response(&end)),
            None => self.inner.stream(request).await,
        }
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        match self.end(&request).await {
            Some(end) => Ok(end),
            None => self.inner.complete(request).await,
        }
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        self.inner.cost_bound(request)
    }
}
