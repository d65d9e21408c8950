use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::text::chain;
use levity_core::{
    Deltas, History, Message, Model, ModelCard, ModelError, Request, Response, Role, Tool, ToolCx, ToolError,
    ToolOutput, ToolSpec, Usage, Worst,
};
use levity_loop::{Agent, AgentBuilder, Answer};
use serde_json::Value;

use super::Subject;
use crate::{Call, Case, Transcript};

/// The reply that ends a run once a call has reached a tool.
const END: &str = "The call reached its tool, and the evaluation ends the run here.";

/// An agent of levity, as a subject.
///
/// The tools of a case do nothing but note their calls. The first turn in which a call reaches a tool ends the run, without
/// another call of the model: calls in later turns would be answers to made-up results. A call with arguments that do not
/// fit goes back to the model, as in any run.
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
    configure: Arc<dyn Fn(AgentBuilder) -> AgentBuilder + Send + Sync>,
}

impl AgentSubject {
    /// An agent with levity's defaults on this model.
    pub fn new(name: impl Into<String>, model: impl Model + 'static) -> Self {
        Self { name: name.into(), model: Arc::new(model), configure: Arc::new(|agent| agent) }
    }

    /// Sets how each agent is built: options, instructions, the runtime with its journal. The model stays.
    #[must_use]
    pub fn configure(
        mut self,
        configure: impl Fn(AgentBuilder) -> AgentBuilder + Send + Sync + 'static,
    ) -> Self {
        self.configure = Arc::new(configure);
        self
    }
}

#[async_trait]
impl Subject for AgentSubject {
    fn name(&self) -> &str {
        &self.name
    }

    async fn answer(&self, case: &Case) -> Transcript {
        let (calls, replies) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let model = UntilCalled { inner: self.model.clone(), replies: replies.clone() };
        let tools = case.tools.iter().map(|tool| {
            let spec = ToolSpec::new(&*tool.name, &*tool.description).with_input(tool.parameters.clone());
            NotingTool { spec, calls: calls.clone() }
        });
        let (system, history, goal) = conversation(case);
        let mut agent = (self.configure)(Agent::builder(model.clone())).model(model);
        if let Some(system) = system {
            agent = agent.instructions(system);
        }
        let answer = match tools.fold(agent, AgentBuilder::tool).build() {
            Ok(agent) => agent.run(goal).history(history).await,
            Err(error) => Err(error),
        };
        let calls = std::mem::take(&mut *calls.lock().unwrap_or_else(PoisonError::into_inner));
        let (reached, error) = match &answer {
            Ok(answer) => (Some(answer), None),
            Err(error) => (error.partial(), Some(chain(error))),
        };
        let mut transcript =
            reached.map_or_else(Transcript::default, |answer| told(answer, !calls.is_empty()));
        transcript.replies = Some(replies.load(Ordering::Relaxed));
        (transcript.calls, transcript.error) = (calls, error);
        transcript
    }
}

impl fmt::Debug for AgentSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSubject").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The instructions, what was said before, and the goal.
fn conversation(case: &Case) -> (Option<String>, History, Message) {
    let (system, said): (Vec<_>, Vec<_>) =
        case.messages.iter().partition(|message| message.role == Role::System);
    let system: Vec<&str> = system.iter().map(|message| &*message.content).collect();
    let system = (!system.is_empty()).then(|| system.join("\n\n"));
    let (goal, before) = said.split_last().map_or((None, &[][..]), |(goal, before)| (Some(goal), before));
    let mut history = History::new();
    for message in before {
        let message = match message.role {
            Role::Assistant => Message::assistant(&*message.content),
            _ => Message::user(&*message.content),
        };
        // A text is neither a call nor a result, so it always has its place.
        let _ = history.say(message);
    }
    (system, history, Message::user(goal.map_or("", |goal| &*goal.content)))
}

fn told(answer: &Answer, called: bool) -> Transcript {
    let mut messages = answer.history().messages();
    if called && messages.last().is_some_and(|message| message.text() == END) {
        messages = &messages[..messages.len() - 1];
    }
    let said = messages.iter().rev().find(|message| message.role == Role::Assistant);
    let text = said.map_or_else(|| answer.text().to_owned(), |message| message.text().into_owned());
    let mut transcript = Transcript::new().with_text(text).with_usage(answer.usage());
    transcript.run = Some(answer.run().to_string());
    transcript.messages = messages.iter().filter_map(|message| serde_json::to_value(message).ok()).collect();
    transcript
}

/// A tool of a case, which notes that it was called.
struct NotingTool {
    spec: ToolSpec,
    calls: Arc<Mutex<Vec<Call>>>,
}

#[async_trait]
impl Tool for NotingTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        let call = Call::new(&*self.spec.name, arguments);
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        Ok(ToolOutput::text("done"))
    }
}

/// A model that is not asked again once a call has reached a tool.
#[derive(Clone)]
struct UntilCalled {
    inner: Arc<dyn Model>,
    replies: Arc<AtomicU64>,
}

impl UntilCalled {
    /// The end, if a call of the last turn reached a tool. Notes of the loop may stand behind the results.
    fn end(&self, request: &Request) -> Option<Response> {
        let messages = request.history.messages().iter().rev();
        let mut since = messages.take_while(|message| message.role != Role::Assistant);
        if since.any(|message| message.results().any(|result| !result.is_error())) {
            return Some(Response::new(Message::assistant(END)).with_usage(Usage::new(0, 0)));
        }
        self.replies.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Model for UntilCalled {
    fn card(&self) -> &ModelCard {
        self.inner.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        match self.end(&request) {
            Some(end) => Ok(Deltas::from_response(&end)),
            None => self.inner.stream(request).await,
        }
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        match self.end(&request) {
            Some(end) => Ok(end),
            None => self.inner.complete(request).await,
        }
    }

    fn worst(&self, request: &Request) -> Worst {
        self.inner.worst(request)
    }
}
