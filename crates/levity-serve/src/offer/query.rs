use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use levity_core::text::{chain, clipped, json_problem};
use levity_core::{
    Ask, ConversationId, Decision, EffectId, Ending, Event, EventKind, Message, Part, Role, RunId,
    SharedError, Status, ToolCall, ToolError, ToolErrorKind, ToolResult, ToolSpec, Wanted,
};
use levity_memory::conversation_id_fits;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::words::{News, noted};
use crate::access::{Caller, TokenScope};
use crate::error::Error;
use crate::mcp::{
    Client, ClientModel, ElicitForm, ElicitReply, Handler, HandlerCall, HandlerReply, RequestError,
};
use crate::runner::Runner;
use crate::runs::{LiveRun, NewRun, RunOutcome, Runs};
use crate::shown::{ShownArgs, visible};

/// Makes the agent that answers a query, with the model of the client that asks.
///
/// ```
/// use levity_loop::Agent;
/// use levity_serve::{ClientAgent, mcp::ClientModel};
///
/// let with_their_model = |model: ClientModel| Agent::builder(model).instructions("Be brief.").build();
/// # fn check(_: impl ClientAgent) {}
/// # check(with_their_model);
/// ```
pub trait ClientAgent: Send + Sync {
    /// Makes it.
    ///
    /// # Errors
    /// When it cannot be made.
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

/// The tool `query`: has a run work on a prompt, and answers with what it came to.
pub(super) struct Query {
    spec: ToolSpec,
    runs: Runs,
    made_by: Option<Arc<dyn ClientAgent>>,
}

/// How long an id of a session may be.
const LONGEST_SESSION: usize = 128;
/// How many bytes of messages an answer has at most, as JSON.
const LONGEST_HISTORY: usize = 1 << 20;
/// How much of what a run had reached is told when it gave no answer.
const SHOWN_TEXT: usize = 2_000;
const GONE: &str = "whoever asked for it has left or took it back";

#[derive(Deserialize)]
struct Args {
    prompt: String,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    include_messages: bool,
}

/// The messages of a run as they come, the newest of them where there are too many.
#[derive(Default)]
struct History {
    messages: VecDeque<Value>,
    bytes: usize,
    left_out: u64,
    /// The calls that no message answers yet, with their effects as far as they have begun.
    open: Vec<(Option<EffectId>, ToolCall)>,
}

impl History {
    /// Takes in what happened. Machines that keep no messages say no more than this; each call that
    /// they leave open gets an answer.
    fn note(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Goal { text } => self.push(&Message::user(text.clone())),
            EventKind::Said { message } => self.push(message),
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
                    self.refuse(&call, format!("this call is not allowed: {reason}"));
                }
            }
            _ => {}
        }
    }

    /// Takes the messages of a run in place of what its events said.
    fn replace(&mut self, messages: &[Arc<Message>]) {
        *self = Self::default();
        messages.iter().for_each(|message| self.push(message));
    }

    /// Answers calls of which no event says what came of them.
    fn answer_open(&mut self) {
        for (_, call) in std::mem::take(&mut self.open) {
            self.refuse(
                &call,
                "the call was not made, or its result is not known here".to_owned(),
            );
        }
    }

    fn refuse(&mut self, call: &ToolCall, why: String) {
        self.answer(ToolResult::new(
            call,
            Err(ToolError::new(ToolErrorKind::Denied, why)),
        ));
    }

    fn answer(&mut self, result: ToolResult) {
        self.push(&Message::new(Role::Tool, [Part::ToolResult(result)]));
    }

    fn push(&mut self, message: &Message) {
        let message = json!(message);
        self.bytes += message.to_string().len();
        self.messages.push_back(message);
        while self.bytes > LONGEST_HISTORY {
            let Some(oldest) = self.messages.pop_front() else {
                return;
            };
            self.bytes -= oldest.to_string().len();
            self.left_out += 1;
        }
    }
}

type Histories = Option<Arc<Mutex<History>>>;

impl Query {
    pub(super) fn new(runs: Runs) -> Self {
        let about = "Has an agent work on a prompt: it plans, uses its tools and answers. Goes on \
            with an earlier \
                     conversation when it is given that one's `session_id`.";
        let hints = levity_core::Hints::new().timeout(std::time::Duration::from_secs(3600));
        let spec = ToolSpec::new("query", about)
            .with_input(input())
            .with_output(output())
            .with_hints(hints);
        Self {
            spec,
            runs,
            made_by: None,
        }
    }

    pub(super) fn describe(&mut self, text: impl Into<String>) {
        self.spec.description = text.into();
    }

    pub(super) fn made_by(&mut self, agent: impl ClientAgent + 'static) {
        self.made_by = Some(Arc::new(agent));
    }

    /// Begins the run.
    fn start(
        &self,
        args: Args,
        client: &Client,
        news: &Arc<watch::Sender<News>>,
        history: &Histories,
    ) -> Result<(Arc<LiveRun>, Option<ConversationId>), RequestError> {
        self.runs
            .check_prompt(&args.prompt)
            .map_err(|error| wrong(&error.to_string()))?;
        let session = self.session(args.session_id, client.caller())?;
        let (told, history) = (news.clone(), history.clone());
        let id = RunId::random(&**self.runs.runtime().world());
        let id = RunId::from(client.caller().own(id.as_str()));
        let root = id.clone();
        let whole = history.clone();
        let mut order = NewRun::new(args.prompt).id(id).on_event(move |event| {
            if let Some(history) = history.as_ref().filter(|_| event.run == root) {
                history
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .note(event);
            }
            noted(&told, event);
        });
        if let Some(history) = whole {
            order = order.on_messages(move |messages| {
                history
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .replace(messages);
            });
        }
        if let Some(session) = &session {
            order = order.conversation(session.clone());
        }
        let begun = match &self.made_by {
            None => self.runs.start_for(client.caller(), order),
            Some(agent) => {
                let runner = agent.make(client.model()).map_err(|cause| {
                    ToolError::failed("the agent cannot be made with this client's model")
                        .with_source(cause)
                })?;
                self.runs.start_by(&*runner, client.caller(), order)
            }
        };
        Ok((begun.map_err(refused)?, session))
    }

    /// The conversation that is meant: the one that was named, or a new one.
    fn session(
        &self,
        named: Option<String>,
        caller: &Caller,
    ) -> Result<Option<ConversationId>, RequestError> {
        let keeps = self.runs.talks();
        let own = |id: &str| ConversationId::new(caller.own(id));
        match named {
            None => {
                Ok(keeps
                    .then(|| own(ConversationId::random(&**self.runs.runtime().world()).as_str())))
            }
            Some(_) if !keeps => Err(wrong(
                "this agent keeps no conversations; leave `session_id` out, and say all that \
                    matters in `prompt`",
            )),
            Some(id) if is_session(&id, caller) => Ok(Some(own(&id))),
            Some(_) => Err(wrong(
                "`session_id` is none: take the one that an earlier answer had, or leave it out",
            )),
        }
    }
}

fn is_session(id: &str, caller: &Caller) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let fits = conversation_id_fits(&caller.own(id));
    !id.is_empty() && id.len() <= LONGEST_SESSION && id.bytes().all(plain) && fits
}

fn wrong(message: &str) -> RequestError {
    ToolError::new(ToolErrorKind::InvalidArgs, message).into()
}

fn refused(error: Error) -> RequestError {
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
        let args = Args::deserialize(&call.args).map_err(|error| wrong(&json_problem(&error)))?;
        let (news, heard) = watch::channel(News::default());
        let history = args.include_messages.then(Arc::<Mutex<History>>::default);
        let (run, session) = self.start(args, &call.client, &Arc::new(news), &history)?;
        let leash = Leash {
            runs: self.runs.clone(),
            run: run.clone(),
        };
        let outcome = follow(&run, &call, heard).await;
        drop(leash);
        reply(&run, session.as_ref(), &outcome, &history)
    }
}

/// Cancels a run that nobody waits for any more.
struct Leash {
    runs: Runs,
    run: Arc<LiveRun>,
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.runs.cancel_soon(&self.run, GONE);
    }
}

/// Tells the client how far a run is, has it asked what the run asks, and waits for the end.
async fn follow(run: &LiveRun, call: &HandlerCall, mut heard: watch::Receiver<News>) -> RunOutcome {
    let mut deciding = FuturesUnordered::new();
    let mut asked: Vec<Ask> = Vec::new();
    let mut outcome = std::pin::pin!(run.outcome());
    loop {
        tokio::select! {
            outcome = &mut outcome => return outcome,
            Ok(()) = heard.changed() => {
                let News { steps, text, asks } = heard.borrow_and_update().clone();
                call.client.progress(steps as f64, None, text);
                if asks == 0 {
                    continue;
                }
                for ask in run.asks().await {
                    if !asked.iter().any(|known| known.run == ask.run && known.effect == ask.effect) {
                        asked.push(ask.clone());
                        deciding.push(decide(call.client.clone(), ask));
                    }
                }
            }
            Some((ask, decision)) = deciding.next() => {
                if let Ok(control) = run.control() {
                    // Nobody waits for it any more when the run has ended meanwhile.
                    let _ = control.decide(&ask, decision).await;
                }
            }
        }
    }
}

/// Has a person decide by the client, if it can ask one.
async fn decide(client: Client, ask: Ask) -> (Ask, Decision) {
    // Answering is part of a conversation with the agent; allowing something is more.
    if ask.wanted != Wanted::Answer && !client.caller().may(TokenScope::Approve) {
        let decision = Decision::deny(client.caller().missing(TokenScope::Approve));
        return (ask, decision);
    }
    let args = ShownArgs::new(&ask.call.args);
    let form = match ask.wanted {
        Wanted::Answer => ElicitForm::new(visible(&ask.reason), answer_form()),
        _ => ElicitForm::new(question(&ask, &args), permission_form(args.is_whole)),
    };
    let decision = match client.elicit(form).await {
        Ok(ElicitReply::Accept(said)) => decided(&ask, args.is_whole, &Value::Object(said)),
        Ok(_) => Decision::deny("the person at the other end did not agree"),
        Err(error) => Decision::deny(format!("nobody could be asked: {error}")),
    };
    (ask, decision)
}

fn question(ask: &Ask, args: &ShownArgs) -> String {
    let (name, reason, text) = (visible(&ask.call.name), visible(&ask.reason), &args.text);
    let question =
        format!("May the agent call `{name}` with {text}? It is asked because {reason}.");
    match args.is_whole {
        true => question,
        false => format!("{question} {TOO_LONG}"),
    }
}

/// What is told of a call that is too long to be shown whole.
const TOO_LONG: &str = "The call is too long to be shown whole, so it can only be denied here. To \
    allow such a call, start the                         run by `levity run` or by the HTTP API, \
    which show all of it.";

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
            "reason": {"type": "string", "title": "Why", "description": "The agent is told, when \
                it is denied."},
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

fn decided(ask: &Ask, is_whole: bool, said: &Value) -> Decision {
    let word = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
    match ask.wanted {
        Wanted::Answer => Decision::answer(word("answer")),
        _ if word("decision") == "allow" && is_whole => Decision::Allow,
        _ if word("decision") == "allow" => {
            Decision::deny("the call is too long to be shown to a person whole")
        }
        _ => Decision::deny(match word("reason") {
            reason if reason.trim().is_empty() => "a person denied it".to_owned(),
            reason => reason,
        }),
    }
}

fn reply(
    run: &LiveRun,
    session: Option<&ConversationId>,
    outcome: &RunOutcome,
    history: &Histories,
) -> Result<HandlerReply, RequestError> {
    match outcome {
        RunOutcome::Ended(ending) if ending.status.is_answer() => {
            let mut value = told(run, session, ending);
            if let Some(history) = history {
                let mut history = history.lock().unwrap_or_else(PoisonError::into_inner);
                history.answer_open();
                value["messages"] = std::mem::take(&mut history.messages).into_iter().collect();
                value["messages_left_out"] = history.left_out.into();
            }
            Ok(HandlerReply {
                value: Some(value),
                ..HandlerReply::text(ending.text.clone())
            })
        }
        RunOutcome::Ended(ending) => {
            let reached = match ending.text.trim() {
                "" => String::new(),
                text => format!(" What it had reached: {}", clipped(text, SHOWN_TEXT)),
            };
            let why = why(&ending.status);
            Err(ToolError::failed(format!(
                "run `{}` gave no answer: {why}.{reached}",
                run.id()
            ))
            .into())
        }
        RunOutcome::Stopped(cause) => {
            let message = format!("run `{}` could not be driven to its end", run.id());
            Err(ToolError::failed(message).with_source(cause.clone()).into())
        }
    }
}

/// How a run ended, and all that it came from.
fn why(status: &Status) -> String {
    match status {
        Status::Failed(failure) => format!("failed: {}", chain(failure)),
        _ => status.to_string(),
    }
}

/// What an answer has beside its words.
fn told(run: &LiveRun, session: Option<&ConversationId>, ending: &Ending) -> Value {
    let mut told = json!({
        "answer": ending.text,
        "run_id": run.id(),
        "complete": matches!(ending.status, Status::Complete),
        "statistics": statistics(ending),
    });
    if let Some(session) = session {
        told["session_id"] = json!(session);
    }
    if let Some(value) = &ending.value {
        told["value"] = value.clone();
    }
    told
}

/// What a run did and used, for clients.
pub(crate) fn statistics(ending: &Ending) -> Value {
    let (stats, usage) = (&ending.stats, &ending.usage);
    let mut told = json!({
        "turns": stats.turns,
        "model_calls": stats.model_calls,
        "tool_calls": stats.tool_calls,
        "failed_calls": stats.failed_calls,
        "reasoning_steps": stats.reasoning_steps,
        "input_tokens": usage.input,
        "output_tokens": usage.output,
    });
    if let Some(cost) = usage.cost {
        told["cost_usd"] = json!(cost.nanos() as f64 / 1e9);
    }
    told
}

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "prompt": {"type": "string", "description": "What is to be done or answered, with all \
                that is needed for it."},
            "session_id": {"type": "string", "description": "The `session_id` of an earlier \
                answer, to go on from there."},
            "include_messages": {"type": "boolean", "description": "Whether the result has all \
                messages of this run: the prompt, what the model said, what tools answered."},
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
            "session_id": {"type": "string", "description": "Give it to the next query to go on \
                from here."},
            "run_id": {"type": "string"},
            "complete": {"type": "boolean", "description": "False when a limit made the agent \
                answer before it was done."},
            "value": {},
            "messages": {"type": "array", "items": {"type": "object"}},
            "messages_left_out": {"type": "integer", "description": "How many of the oldest \
                messages are left out, since there is more than 1 MiB of them."},
            "statistics": {
                "type": "object",
                "properties": {
                    "turns": count, "model_calls": count, "tool_calls": count, "failed_calls": count,
                    "reasoning_steps": count, "input_tokens": tokens, "output_tokens": tokens,
                    "cost_usd": {"type": "number"},
                },
                "required": ["turns", "tool_calls", "reasoning_steps"],
            },
        },
        "required": ["answer", "run_id", "complete", "statistics"],
    })
}
