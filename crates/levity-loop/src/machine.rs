use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::{
    CallId, Context, Digest, Effect, EffectId, Ending, EventKind, Exchange, Failure, Finish, History, Input,
    Limit, Machine, MachineKind, Message, Outcome, OutputSchema, Part, Phase, Response, Role, RunId, Stats,
    Status, Step, ToolError, ToolErrorKind, Usage, WorkspaceView,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod act;
mod end;
mod observe;
mod plan;
mod read;

use crate::notes;
use crate::output::OutputCheck;
use crate::reads::MOST_KEPT;
use crate::spec::AgentSpec;
use crate::strategy::steps;

/// How often an empty reply is answered with a reminder before the run fails.
const EMPTY_REPLIES: u32 = 2;

/// What the machine is called in a journal, and the version of the state it writes there.
const KIND: &str = "agent";
const VERSION: u32 = 1;

const UNKNOWN: &str = "the program ended while this call ran; whether it took effect is not known, so look before \
                       you call it again";

/// The agent's loop: goal, plan, act, observe, reflect, and again, until there is an answer.
///
/// It decides and does nothing; see [`Machine`]. [`Agent::machine`](crate::Agent::machine) makes one.
pub struct AgentMachine {
    spec: Arc<AgentSpec>,
    output: Option<OutputCheck>,
    state: State,
}

/// Shows where the loop stands, and nothing of what was said.
impl fmt::Debug for AgentMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentMachine")
            .field("phase", &self.state.phase)
            .field("turns", &self.state.stats.turns)
            .field("messages", &self.state.history.len())
            .finish_non_exhaustive()
    }
}

/// All that changes while the loop runs.
#[derive(Serialize, Deserialize)]
struct State {
    goal: Arc<Message>,
    system: Option<Arc<str>>,
    output: Option<Arc<OutputSchema>>,
    /// Whether the answer is also read as a type of the host's, which cannot be saved.
    typed: bool,
    history: History,
    run: Option<RunId>,
    phase: Phase,
    exchange: Option<Exchange>,
    waiting: BTreeMap<EffectId, Waiting>,
    said: Vec<Arc<Message>>,
    plan: Vec<String>,
    failures: BTreeMap<String, Failed>,
    edited: BTreeMap<CallId, Value>,
    wrap: Option<Limit>,
    /// Whether the cheap model is called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cheap: bool,
    enough: bool,
    announced: bool,
    offered: bool,
    /// Whether there are earlier results to read, so that the tool for it is offered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    reads: bool,
    /// How many bytes of them are read at a time; what the agent has now, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_piece: Option<usize>,
    wrong_answers: u32,
    empty_replies: u32,
    next: EffectId,
    usage: Usage,
    stats: Stats,
    finish: Option<Finish>,
    ending: Option<Ending>,
}

/// What an effect under way is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Waiting {
    Plan,
    Reply,
    Reflection,
    Tool(CallId),
    Decision(CallId),
    Answer(CallId),
    Child(CallId),
    Wait(CallId),
}

/// How a call with certain arguments failed, and how often in a row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Failed {
    how: Digest,
    times: u32,
}

/// Why no more tools are offered.
#[derive(Clone, Copy)]
enum Closing {
    Limit(Limit),
    Enough,
}

impl AgentMachine {
    pub(crate) fn new(
        spec: Arc<AgentSpec>,
        goal: Message,
        mut history: History,
        system: Option<Arc<str>>,
        output: Option<OutputCheck>,
    ) -> Self {
        history.keep_wholes(MOST_KEPT);
        let state = State {
            goal: Arc::new(goal),
            system,
            output: output.as_ref().map(|output| output.schema.clone()),
            typed: output.as_ref().is_some_and(OutputCheck::is_typed),
            reads: history.kept() > 0,
            history,
            run: None,
            phase: Phase::Goal,
            exchange: None,
            waiting: BTreeMap::new(),
            said: Vec::new(),
            plan: Vec::new(),
            failures: BTreeMap::new(),
            edited: BTreeMap::new(),
            wrap: None,
            cheap: false,
            enough: false,
            announced: false,
            offered: false,
            max_piece: Some(spec.max_piece),
            wrong_answers: 0,
            empty_replies: 0,
            next: EffectId::new(0),
            usage: Usage::default(),
            stats: Stats::default(),
            finish: None,
            ending: None,
        };
        Self { spec, output, state }
    }

    pub(crate) fn restore(
        spec: Arc<AgentSpec>,
        state: &Value,
        output: Option<OutputCheck>,
    ) -> Result<Self, String> {
        // What the reader says would quote the conversation.
        let state = State::deserialize(state)
            .map_err(|_| "its state is not one that this version of the agent can read".to_owned())?;
        let (then, now) = (state.output.as_ref(), output.as_ref().map(|output| &output.schema));
        let name = |schema: Option<&Arc<OutputSchema>>| {
            schema.map_or("plain text", |schema| &*schema.name).to_owned()
        };
        if (state.typed || now.is_some()) && then != now {
            let (then, now) = (name(then), name(now));
            return Err(format!(
                "its answer is wanted as `{then}`, not as `{now}`; resume it with `.typed()`"
            ));
        }
        let output = output.or_else(|| state.output.clone().map(OutputCheck::new));
        Ok(Self { spec, output, state })
    }

    /// Builds the machine of a run that is only looked at: its answer is not read as a type.
    pub(crate) fn restore_untyped(spec: Arc<AgentSpec>, state: &Value) -> Result<Self, String> {
        let state = State::deserialize(state)
            .map_err(|_| "its state is not one that this version of the agent can read".to_owned())?;
        let output = state.output.clone().map(OutputCheck::new);
        Ok(Self { spec, output, state })
    }

    /// Says something else before the conversation from now on.
    pub(crate) fn with_system(mut self, system: Option<Arc<str>>) -> Self {
        self.state.system = system;
        self
    }

    /// The conversation so far. Calls under way are not in it yet.
    pub fn history(&self) -> &History {
        &self.state.history
    }

    /// Where the loop stands.
    pub fn phase(&self) -> Phase {
        self.state.phase
    }

    /// What it was told to do, where, what it did and what came of it.
    pub fn context(&self) -> Context {
        Context::new(self.state.goal.text())
            .with_workspace(self.spec.workspace.clone())
            .with_history(&self.state.history)
    }

    /// The conversation, the goal and the workspace. Calls that were under way when the run was left are
    /// in the conversation, as calls of which nobody knows what came.
    pub(crate) fn into_parts(mut self) -> (History, Arc<Message>, WorkspaceView) {
        if let Some(exchange) = self.state.exchange.take() {
            self.state.history.close(exchange, &ToolError::new(ToolErrorKind::Unknown, UNKNOWN));
        }
        (self.state.history, self.state.goal, self.spec.workspace.clone())
    }

    /// What it has used and done so far.
    pub(crate) fn so_far(&self) -> (Usage, Stats) {
        (self.state.usage, self.state.stats)
    }

    fn enter(&mut self, phase: Phase, step: &mut Step) {
        self.state.phase = phase;
        step.tell(EventKind::Phase(phase));
    }

    fn want(&mut self, waiting: Waiting, effect: impl FnOnce(EffectId) -> Effect, step: &mut Step) {
        let id = self.state.next;
        self.state.next = id.next();
        self.state.waiting.insert(id, waiting);
        step.want(id, effect(id));
    }

    fn note(&mut self, text: String, step: &mut Step) {
        self.add(Message::system(text.clone()));
        step.tell(EventKind::Note { text });
    }

    /// Adds a message that has been rid of calls and results, so it always has its place.
    fn add(&mut self, message: impl Into<Arc<Message>>) {
        let added = self.state.history.say(message);
        debug_assert!(added.is_ok(), "a message with calls or results must go through an exchange");
    }

    fn finished(&mut self, effect: EffectId, outcome: Outcome, step: &mut Step) {
        let Some(waiting) = self.state.waiting.remove(&effect) else { return };
        match (waiting, outcome) {
            (Waiting::Plan | Waiting::Reply | Waiting::Reflection, Outcome::Model(Err(error))) => {
                self.state.stats.model_calls = self.state.stats.model_calls.saturating_add(1);
                self.stop(Status::Failed(Failure::Model(error)), step);
            }
            (waiting @ (Waiting::Plan | Waiting::Reply | Waiting::Reflection), Outcome::Refused(limit)) => {
                self.refused(&waiting, limit, step);
            }
            (waiting, Outcome::Model(Ok(response))) => self.replied(&waiting, response, step),
            (Waiting::Tool(_), Outcome::Tool(result)) => self.answered(result, step),
            (
                Waiting::Tool(call) | Waiting::Child(call) | Waiting::Wait(call),
                Outcome::NeedsApproval { reason },
            ) => {
                self.ask(&call, reason, step);
            }
            (
                Waiting::Tool(call) | Waiting::Child(call) | Waiting::Wait(call),
                Outcome::Denied { reason },
            ) => {
                let message = format!("this call is not allowed: {reason}");
                self.call_failed(&call, ToolError::new(ToolErrorKind::Denied, message), step);
            }
            (Waiting::Decision(call), Outcome::Decision(decision)) => self.decided(&call, decision, step),
            (Waiting::Answer(call), Outcome::Decision(decision)) => self.user_answered(&call, decision, step),
            (Waiting::Wait(call), Outcome::Woken) => self.woken(&call, step),
            (Waiting::Child(call), Outcome::Child(ending)) => self.child_ended(&call, *ending, step),
            (Waiting::Tool(call) | Waiting::Child(call), Outcome::Refused(limit)) => {
                let message = format!("the limit on {limit} is reached: answer from what you know");
                self.call_failed(&call, ToolError::new(ToolErrorKind::Denied, message), step);
            }
            (Waiting::Tool(call) | Waiting::Child(call), Outcome::Unknown) => {
                self.call_failed(&call, ToolError::new(ToolErrorKind::Unknown, UNKNOWN), step);
            }
            _ => {
                let what = format!("effect {effect} has an outcome of another kind");
                self.stop(Status::Failed(Failure::Internal(what)), step);
            }
        }
    }

    fn replied(&mut self, waiting: &Waiting, response: Response, step: &mut Step) {
        self.state.usage += response.usage;
        self.state.stats.model_calls = self.state.stats.model_calls.saturating_add(1);
        match waiting {
            Waiting::Plan => self.planned(steps(&response.message.text()), step),
            Waiting::Reflection => {
                let text = response.message.text();
                if !text.trim().is_empty() {
                    self.note(notes::reflection(&text), step);
                }
                self.act(step);
            }
            Waiting::Reply => {
                self.state.finish = Some(response.finish.clone());
                self.reply(response, step);
            }
            _ => {
                let what = "a model replied where a tool was called".to_owned();
                self.stop(Status::Failed(Failure::Internal(what)), step);
            }
        }
    }
}

impl AgentMachine {
    /// Whether a run of this kind is one of an agent's, in a version that can be read.
    pub(crate) fn check_kind(kind: &MachineKind) -> Result<(), String> {
        let own = MachineKind::new(KIND, VERSION);
        if *kind == own {
            return Ok(());
        }
        Err(format!("it is driven by `{kind}`, and this is `{own}`"))
    }
}

impl Machine for AgentMachine {
    fn kind(&self) -> MachineKind {
        MachineKind::new(KIND, VERSION)
    }

    fn save(&self) -> Value {
        serde_json::to_value(&self.state).unwrap_or_default()
    }

    fn apply(&mut self, input: Input, step: &mut Step) {
        if self.state.ending.is_some() {
            return;
        }
        match input {
            Input::Begin { run, wrap } if self.state.run.is_none() => self.begin(run, wrap, step),
            Input::Finished { effect, outcome } => self.finished(effect, outcome, step),
            Input::Say(message) => self.state.said.push(Arc::new(plain(&message))),
            Input::Wrap(limit) => self.state.wrap = self.state.wrap.or(Some(limit)),
            Input::Low(limit) => self.low(limit),
            Input::Stop(limit) => self.stop(Status::Partial(limit), step),
            Input::Cancel { reason } => self.stop(Status::Cancelled { reason }, step),
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.state.ending.as_ref()
    }
}

/// A message of the host's without what only models and tools may say.
fn plain(message: &Message) -> Message {
    let role = if message.role == Role::System { Role::System } else { Role::User };
    let keep = |part: &&Part| !matches!(part, Part::ToolCall(_) | Part::ToolResult(_));
    Message::new(role, message.parts.iter().filter(keep).cloned())
}
