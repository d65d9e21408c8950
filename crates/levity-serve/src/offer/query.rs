//! The tool `query`: runs a prompt for an MCP client and reports progress, questions and the
//! answer.
//!
//! A query belongs to its request, unlike runs of the HTTP API: if the client cancels the call or
//! disconnects, the run is cancelled. Questions of the run are forwarded to the user of the client.
//! A call that is too long to be shown in full can only be denied, and so can any call if the token
//! lacks the scope `approve`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use levity_core::text::{chain, clipped, json_problem};
use levity_core::{
    Ask, AskKind, ConversationId, Decision, EffectId, Ending, Event, EventKind, Message, Part,
    Role, RunId, SharedError, Status, ToolCall, ToolError, ToolErrorKind, ToolResult, ToolSpec,
};
use levity_memory::is_valid_conversation_id;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::progress::{Progress, record_progress};
use crate::access::{Caller, TokenScope};
use crate::displayed_args::{DisplayedArgs, visible};
use crate::error::Error;
use crate::mcp::{
    Client, ClientModel, ElicitForm, ElicitReply, Handler, HandlerCall, HandlerReply, RequestError,
};
use crate::runner::Runner;
use crate::runs::{LiveRun, NewRun, RunOutcome, Runs};

/// Creates the agent that answers a query, with the model of the calling client.
///
/// # Contract
/// - `make` is called once for each query, and must not block.
/// - The agent has the runtime of the server's [`Runs`]: logs and later requests find runs only in
///   that journal.
/// - The model works only while the client waits for the query.
///
/// ```
/// use levity_loop::Agent;
/// use levity_serve::{ClientAgent, mcp::ClientModel};
///
/// let with_their_model =
///     |model: ClientModel| Agent::builder(model).instructions("Be brief.").build();
/// # fn check(_: impl ClientAgent) {}
/// # check(with_their_model);
/// ```
pub trait ClientAgent: Send + Sync {
    /// Creates an agent that uses `model`.
    ///
    /// # Errors
    /// Fails if the agent cannot be created.
    fn make(&self, model: ClientModel) -> Result<Arc<dyn Runner>, SharedError>;
}

impl<F, R, E> ClientAgent for F
where
    F: Fn(ClientModel) -> Result<R, E> + Send + Sync,
    R: Runner + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    fn make(&self, model: ClientModel) -> Result<Arc<dyn Runner>, SharedError> {
        Ok(Arc::new(self(model).map_err(SharedError::new)?))
    }
}

/// The tool `query`, which runs a prompt and returns the answer.
pub(super) struct Query {
    spec: ToolSpec,
    runs: Runs,
    client_agent: Option<Arc<dyn ClientAgent>>,
}

/// The maximum length of a session id.
const MAX_SESSION_ID: usize = 128;
/// The maximum number of bytes of messages in an answer, as JSON.
const MAX_HISTORY_BYTES: usize = 1 << 20;
/// The maximum length of the partial result that is reported if a run gave no answer.
const MAX_PARTIAL_TEXT: usize = 2_000;
const CANCEL_REASON: &str = "the client disconnected or cancelled the request";

/// The arguments of a call. Unknown ones were already rejected by the schema.
#[derive(Deserialize)]
struct Args {
    prompt: String,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    include_messages: bool,
}

/// The messages of a run as they arrive; if there are too many, the newest ones.
#[derive(Default)]
struct History {
    messages: VecDeque<Value>,
    bytes: usize,
    omitted: u64,
    /// The calls without a result, with their effects if they have started.
    open: Vec<(Option<EffectId>, ToolCall)>,
}

impl History {
    /// Records an event. For runners that keep no messages, events are the only source; each call
    /// that they leave open gets a result.
    fn record(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Goal { text } => self.push(&Message::user(text.clone())),
            EventKind::MessageReceived { message } => self.push(message),
            EventKind::ModelFinished { message, .. } => {
                self.answer_open();
                self.push(message);
                self.open = message.calls().map(|call| (None, call.clone())).collect();
            }
            EventKind::ToolStarted { effect, call } => {
                if let Some(open) = self.open.iter_mut().find(|(_, open)| open.id == call.id) {
                    open.0 = Some(*effect);
                }
            }
            EventKind::ToolFinished { result, .. } => {
                self.open.retain(|(_, call)| call.id != result.call);
                self.answer(result.clone());
            }
            EventKind::Denied { effect, reason } => {
                if let Some(at) = self
                    .open
                    .iter()
                    .position(|(open, _)| *open == Some(*effect))
                {
                    let (_, call) = self.open.remove(at);
                    self.push_denied(&call, format!("this call is not allowed: {reason}"));
                }
            }
            _ => {}
        }
    }

    /// Replaces the messages collected from events with the run's own.
    fn replace(&mut self, messages: &[Arc<Message>]) {
        *self = Self::default();
        messages.iter().for_each(|message| self.push(message));
    }

    /// Adds a result for each call whose result no event reported.
    fn answer_open(&mut self) {
        for (_, call) in std::mem::take(&mut self.open) {
            self.push_denied(
                &call,
                "the call was not made, or its result is unknown".to_owned(),
            );
        }
    }

    fn push_denied(&mut self, call: &ToolCall, reason: String) {
        self.answer(ToolResult::new(
            call,
            Err(ToolError::new(ToolErrorKind::Denied, reason)),
        ));
    }

    fn answer(&mut self, result: ToolResult) {
        self.push(&Message::new(Role::Tool, [Part::ToolResult(result)]));
    }

    fn push(&mut self, message: &Message) {
        let message = json!(message);
        self.bytes += message.to_string().len();
        self.messages.push_back(message);
        while self.bytes > MAX_HISTORY_BYTES {
            let Some(oldest) = self.messages.pop_front() else {
                return;
            };
            self.bytes -= oldest.to_string().len();
            self.omitted += 1;
        }
    }
}

type SharedHistory = Option<Arc<Mutex<History>>>;

impl Query {
    pub(super) fn new(runs: Runs) -> Self {
        let description = "Has an agent work on a prompt: it plans, uses its tools and answers. \
            Continues an earlier conversation if you pass its `session_id`.";
        let hints = levity_core::Hints::new().timeout(std::time::Duration::from_secs(3600));
        let spec = ToolSpec::new("query", description)
            .with_input(input())
            .with_output(output())
            .with_hints(hints);
        Self {
            spec,
            runs,
            client_agent: None,
        }
    }

    pub(super) fn describe(&mut self, text: impl Into<String>) {
        self.spec.description = text.into();
    }

    pub(super) fn set_client_agent(&mut self, agent: impl ClientAgent + 'static) {
        self.client_agent = Some(Arc::new(agent));
    }

    /// Starts a run with the prompt of a call.
    fn start(
        &self,
        args: Args,
        client: &Client,
        progress: &Arc<watch::Sender<Progress>>,
        history: &SharedHistory,
    ) -> Result<(Arc<LiveRun>, Option<ConversationId>), RequestError> {
        self.runs
            .check_prompt(&args.prompt)
            .map_err(|error| invalid_args(&error.to_string()))?;
        let session = self.session(args.session_id, client.caller())?;
        let (sender, history) = (progress.clone(), history.clone());
        let id = RunId::random(&**self.runs.runtime().world());
        let id = RunId::from(client.caller().own(id.as_str()));
        let root = id.clone();
        let messages_sink = history.clone();
        let mut new_run = NewRun::new(args.prompt).id(id).on_event(move |event| {
            if let Some(history) = history.as_ref().filter(|_| event.run == root) {
                history
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .record(event);
            }
            record_progress(&sender, event);
        });
        if let Some(history) = messages_sink {
            new_run = new_run.on_messages(move |messages| {
                history
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .replace(messages);
            });
        }
        if let Some(session) = &session {
            new_run = new_run.conversation(session.clone());
        }
        let started = match &self.client_agent {
            None => self.runs.start_for(client.caller(), new_run),
            Some(agent) => {
                let runner = agent.make(client.model()).map_err(|cause| {
                    ToolError::failed("cannot create the agent with this client's model")
                        .with_source(cause)
                })?;
                self.runs.start_by(&*runner, client.caller(), new_run)
            }
        };
        Ok((started.map_err(run_error)?, session))
    }

    /// Returns the conversation with the given id, or a new one.
    ///
    /// Without an id, an agent that keeps conversations gets a new one, so that every answer can be
    /// continued.
    fn session(
        &self,
        named: Option<String>,
        caller: &Caller,
    ) -> Result<Option<ConversationId>, RequestError> {
        let keeps = self.runs.supports_conversations();
        let own = |id: &str| ConversationId::new(caller.own(id));
        match named {
            None => {
                Ok(keeps
                    .then(|| own(ConversationId::random(&**self.runs.runtime().world()).as_str())))
            }
            Some(_) if !keeps => Err(invalid_args(
                "this agent keeps no conversations; leave out `session_id`, and include all \
                    context in `prompt`",
            )),
            Some(id) if is_session(&id, caller) => Ok(Some(own(&id))),
            Some(_) => Err(invalid_args(
                "`session_id` is invalid; use the one from an earlier answer, or leave it out",
            )),
        }
    }
}

/// Returns `true` if a client may use the id. The prefix of the caller counts towards the length
/// that stores accept.
fn is_session(id: &str, caller: &Caller) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let fits = is_valid_conversation_id(&caller.own(id));
    !id.is_empty() && id.len() <= MAX_SESSION_ID && id.bytes().all(plain) && fits
}

fn invalid_args(message: &str) -> RequestError {
    ToolError::new(ToolErrorKind::InvalidArgs, message).into()
}

/// Converts an error of starting a run into one for the calling model, which may try again if
/// waiting helps.
fn run_error(error: Error) -> RequestError {
    let failed = ToolError::failed(error.to_string()).with_retryable(error.is_retryable());
    match error {
        Error::Run { cause, .. } => failed.with_source(cause).into(),
        _ => failed.into(),
    }
}

#[async_trait]
impl Handler for Query {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, call: HandlerCall) -> Result<HandlerReply, RequestError> {
        let args =
            Args::deserialize(&call.args).map_err(|error| invalid_args(&json_problem(&error)))?;
        let (progress, updates) = watch::channel(Progress::default());
        let history = args.include_messages.then(Arc::<Mutex<History>>::default);
        let (run, session) = self.start(args, &call.client, &Arc::new(progress), &history)?;
        let guard = CancelOnDrop {
            runs: self.runs.clone(),
            run: run.clone(),
        };
        let outcome = follow(&self.runs, &run, &call, updates).await;
        drop(guard);
        reply(&run, session.as_ref(), &outcome, &history)
    }
}

/// Cancels a run on drop, when no client waits for it any more.
struct CancelOnDrop {
    runs: Runs,
    run: Arc<LiveRun>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.runs.cancel_in_background(&self.run, CANCEL_REASON);
    }
}

/// Reports the progress of a run to the client, forwards the run's questions to it, and waits for
/// the end.
///
/// Each question is sent to the client once. Several questions can be open at the same time, and
/// each decision is applied as soon as it arrives.
async fn follow(
    runs: &Runs,
    run: &LiveRun,
    call: &HandlerCall,
    mut updates: watch::Receiver<Progress>,
) -> RunOutcome {
    let mut deciding = FuturesUnordered::new();
    let mut asked: Vec<Ask> = Vec::new();
    let mut outcome = std::pin::pin!(run.outcome());
    loop {
        tokio::select! {
            outcome = &mut outcome => return outcome,
            Ok(()) = updates.changed() => {
                let Progress { steps, text, asks } = updates.borrow_and_update().clone();
                call.client.progress(steps as f64, None, text);
                if asks == 0 {
                    continue;
                }
                for ask in run.asks().await {
                    if !asked.iter().any(
                        |known| known.run == ask.run && known.effect == ask.effect,
                    ) {asked.push(ask.clone()); deciding.push(decide(call.client.clone(), ask));}
                }
            }
            Some((ask, decision)) = deciding.next() => {
                // A client can send more than fits into the journal.
                let decision = match runs.check_decision(&decision) {
                    Ok(()) => decision,
                    Err(error) => Decision::deny(format!("the user's reply is not used: {error}")),
                };
                if let Ok(control) = run.control() {
                    // An error means that the run has ended in the meantime and needs no decision.
                    let _ = control.decide(&ask, decision).await;
                }
            }
        }
    }
}

/// Lets a person decide through the client, if the client can ask one.
async fn decide(client: Client, ask: Ask) -> (Ask, Decision) {
    // Answering a question is part of a conversation with the agent; an approval requires its own
    // scope.
    if ask.wanted != AskKind::Answer && !client.caller().has_scope(TokenScope::Approve) {
        let decision = Decision::deny(client.caller().missing(TokenScope::Approve));
        return (ask, decision);
    }
    let args = DisplayedArgs::new(&ask.call.args);
    let form = match ask.wanted {
        AskKind::Answer => ElicitForm::new(visible(&ask.reason), answer_form()),
        _ => ElicitForm::new(question(&ask, &args), permission_form(args.is_complete)),
    };
    let decision = match client.elicit(form).await {
        Ok(ElicitReply::Accept(reply)) => decided(&ask, args.is_complete, &Value::Object(reply)),
        Ok(_) => Decision::deny("the user did not approve"),
        Err(error) => Decision::deny(format!("no user could be asked: {error}")),
    };
    (ask, decision)
}

fn question(ask: &Ask, args: &DisplayedArgs) -> String {
    let (name, reason, text) = (visible(&ask.call.name), visible(&ask.reason), &args.text);
    let question =
        format!("May the agent call `{name}` with {text}? Approval is required because {reason}.");
    match args.is_complete {
        true => question,
        false => format!("{question} {TOO_LONG}"),
    }
}

/// The note for a call that is too long to be displayed in full.
const TOO_LONG: &str = "The call is too long to be displayed in full, so it can only be denied \
    here. To allow such a call, start the run with `levity run` or the HTTP API, which show all of \
    it.";

/// Returns the schema of the approval form. Without permission to allow, `deny` is the only choice.
fn permission_form(may_allow: bool) -> Value {
    let decisions: &[&str] = if may_allow {
        &["allow", "deny"]
    } else {
        &["deny"]
    };
    json!({
        "type": "object",
        "properties": {
            "decision": {"type": "string", "title": "Decision", "enum": decisions},
            "reason": {"type": "string", "title": "Why", "description": "Sent to the agent if the \
                call is denied."},
        },
        "required": ["decision"],
    })
}

fn answer_form() -> Value {
    json!({
        "type": "object",
        "properties": {"answer": {"type": "string", "title": "Answer"}},
        "required": ["answer"],
    })
}

/// Converts the filled form. The completeness is checked again here, because a client can send any
/// value.
fn decided(ask: &Ask, is_complete: bool, reply: &Value) -> Decision {
    let word = |name: &str| reply[name].as_str().unwrap_or_default().to_owned();
    match ask.wanted {
        AskKind::Answer => Decision::answer(word("answer")),
        _ if word("decision") == "allow" && is_complete => Decision::Allow,
        _ if word("decision") == "allow" => {
            Decision::deny("the call is too long to be displayed in full")
        }
        _ => Decision::deny(match word("reason") {
            reason if reason.trim().is_empty() => "a user denied the call".to_owned(),
            reason => reason,
        }),
    }
}

/// Converts the outcome to the result of the tool. A run without an answer is an error of the tool,
/// with the beginning of its partial result.
fn reply(
    run: &LiveRun,
    session: Option<&ConversationId>,
    outcome: &RunOutcome,
    history: &SharedHistory,
) -> Result<HandlerReply, RequestError> {
    match outcome {
        RunOutcome::Ended(ending) if ending.status.is_answer() => {
            let mut value = answer_json(run, session, ending);
            if let Some(history) = history {
                let mut history = history.lock().unwrap_or_else(PoisonError::into_inner);
                history.answer_open();
                value["messages"] = std::mem::take(&mut history.messages).into_iter().collect();
                value["messages_left_out"] = history.omitted.into();
            }
            Ok(HandlerReply {
                value: Some(value),
                ..HandlerReply::text(ending.text.clone())
            })
        }
        RunOutcome::Ended(ending) => {
            let partial = match ending.text.trim() {
                "" => String::new(),
                text => format!(" Partial result: {}", clipped(text, MAX_PARTIAL_TEXT)),
            };
            let status = describe_status(&ending.status);
            Err(ToolError::failed(format!(
                "run `{}` gave no answer: {status}.{partial}",
                run.id()
            ))
            .into())
        }
        RunOutcome::Stopped(cause) => {
            let message = format!("run `{}` stopped before its end", run.id());
            Err(ToolError::failed(message).with_source(cause.clone()).into())
        }
    }
}

/// Describes the status of an ended run, with all causes.
fn describe_status(status: &Status) -> String {
    match status {
        Status::Failed(failure) => format!("failed: {}", chain(failure)),
        _ => status.to_string(),
    }
}

/// Returns the structured content of an answer.
fn answer_json(run: &LiveRun, session: Option<&ConversationId>, ending: &Ending) -> Value {
    let mut json = json!({
        "answer": ending.text,
        "run_id": run.id(),
        "complete": matches!(ending.status, Status::Complete),
        "statistics": statistics(ending),
    });
    if let Some(session) = session {
        json["session_id"] = json!(session);
    }
    if let Some(value) = &ending.value {
        json["value"] = value.clone();
    }
    json
}

/// Returns the statistics and usage of a run, for clients.
pub(crate) fn statistics(ending: &Ending) -> Value {
    let (stats, usage) = (&ending.stats, &ending.usage);
    let mut json = json!({
        "turns": stats.turns,
        "model_calls": stats.model_calls,
        "tool_calls": stats.tool_calls,
        "failed_calls": stats.failed_calls,
        "reasoning_steps": stats.reasoning_steps,
        "input_tokens": usage.input,
        "output_tokens": usage.output,
    });
    if let Some(cost) = usage.cost {
        json["cost_usd"] = json!(cost.nanos() as f64 / 1e9);
    }
    json
}

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "prompt": {"type": "string", "description": "The task or question, with all context \
                that it needs."},
            "session_id": {"type": "string", "description": "The `session_id` of an earlier \
                answer, to continue from there."},
            "include_messages": {"type": "boolean", "description": "If true, the result includes \
                all messages of this run: the prompt, the model's messages and the tool results."},
        },
        "required": ["prompt"],
        "additionalProperties": false,
    })
}

fn output() -> Value {
    let count = json!({"type": "integer"});
    let tokens = json!({"type": ["integer", "null"]});
    json!({
        "type": "object",
        "properties": {
            "answer": {"type": "string"},
            "session_id": {"type": "string", "description": "Pass it to the next query to continue \
                from here."},
            "run_id": {"type": "string"},
            "complete": {"type": "boolean", "description": "False if a limit made the agent answer \
                before it was done."},
            "value": {},
            "messages": {"type": "array", "items": {"type": "object"}},
            "messages_left_out": {"type": "integer", "description": "The number of oldest messages \
                that are omitted, because all messages exceed 1 MiB."},
            "statistics": {
                "type": "object",
                "properties": {
                    "turns": count, "model_calls": count, "tool_calls": count,
                    "failed_calls": count,
                    "reasoning_steps": count, "input_tokens": tokens, "output_tokens": tokens,
                    "cost_usd": {"type": "number"},
                },
                "required": ["turns", "tool_calls", "reasoning_steps"],
            },
        },
        "required": ["answer", "run_id", "complete", "statistics"],
    })
}
