use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use levity_core::{
    CallId, Context, Digest, Effect, EffectId, Ending, EventKind, Exchange, Failure, Finish, History, Input,
    Intervention, Limit, Machine, MachineKind, MachineOutput, MemoryError, MemoryErrorKind, Message,
    ModelError, Outcome, OutputSchema, Part, Phase, Response, Role, RunId, Stage, Stats, Status, ToolError,
    ToolErrorKind, Usage, estimate_tokens,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod act;
mod cut;
mod end;
mod found;
mod observe;
mod plan;
mod read;
mod save;
mod signal;
mod window;

use crate::gather::Gathered;
use crate::notes;
use crate::output::OutputCheck;
use crate::reads::MOST_KEPT;
use crate::spec::AgentSpec;
use crate::strategy::steps;

pub(crate) use save::Talk;
use signal::Noted;
use window::Shown;

/// How often an empty reply is answered with a reminder before the run fails.
const EMPTY_REPLIES: u32 = 2;

/// The rules that a new run follows. A run goes on by those that it began with, so that its journal stays true.
///
/// - 0: those of versions that did not say.
/// - 1: a reply of media alone is an answer, and a tool that is called on the last turn ends in an answer.
/// - 2: the third call in a row that is the same is answered from its result, for models that write calls as text.
/// - 3: a call that the limit on a reply cut is asked for once more with a higher limit. After an empty reply, or one that
///   had no room, the request becomes smaller if nobody knows the size of the model's window.
const RULES: u32 = 3;

/// How often in a row a provider may interrupt a turn before the run fails.
const PAUSES: u32 = 16;

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
    #[serde(default)]
    /// In boxes, since a run that needs neither should not have room for them.
    shown: Box<Shown>,
    /// The guards that stepped in on the goal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    guarded: Vec<Intervention>,
    /// What stands beside the goal for this run only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beside: Option<Arc<str>>,
    /// The messages of the history that are this run's alone: what the model is told on the side.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    notes: BTreeSet<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    talk: Option<Box<Talk>>,
    /// How it ends, once all is saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leaving: Option<Box<Ending>>,
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
    /// The tools that the conversation has found or called, in that order.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    found: Arc<[Arc<str>]>,
    /// How many bytes of them are read at a time; what the agent has now, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_piece: Option<usize>,
    wrong_answers: u32,
    empty_replies: u32,
    /// The limit on the tokens of a reply, once it was raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_reply: Option<u64>,
    /// How many of the last messages are the beginning of a turn that the provider interrupted.
    #[serde(default, skip_serializing_if = "is_zero")]
    paused: u32,
    next: EffectId,
    usage: Usage,
    stats: Stats,
    finish: Option<Finish>,
    /// What the model told whoever runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noted: Option<Box<Noted>>,
    /// Whether the ending has what was said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    tells_said: bool,
    /// The [`RULES`] that the run began with.
    #[serde(default, skip_serializing_if = "is_zero")]
    rules: u32,
    ending: Option<Ending>,
}

impl State {
    /// What cannot be in a state that a machine saved, if there is something.
    fn contradiction(&self) -> Option<&'static str> {
        let len = self.history.len();
        let saved = self.talk.as_ref().is_some_and(|talk| talk.is_beyond(len));
        match () {
            () if self.waiting.keys().any(|id| *id >= self.next) => {
                Some("an effect is under way that was not asked for")
            }
            () if self.notes.last().is_some_and(|at| *at >= len) || self.shown.is_beyond(len) => {
                Some("it points to messages that are not there")
            }
            () if saved => Some("more of the conversation is saved than there is"),
            () if self.run.is_none() && !self.waiting.is_empty() => {
                Some("effects are under way before the run began")
            }
            () => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What an effect under way is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Waiting {
    Plan,
    Reply,
    Reflection,
    Summary,
    Save,
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

/// The state of a machine at its end.
pub(crate) struct Parts {
    /// The whole conversation.
    pub(crate) history: History,
    /// The messages of this run, without what the model was told on the side.
    pub(crate) own: Vec<Arc<Message>>,
    pub(crate) goal: Arc<Message>,
    pub(crate) spec: Arc<AgentSpec>,
}

impl AgentMachine {
    pub(crate) fn new(spec: Arc<AgentSpec>, start: Start) -> Self {
        let Start { goal, guarded, mut past, system, beside, output } = start;
        past.history.keep_wholes(MOST_KEPT);
        let tokens = system.as_ref().map_or(0, |system| estimate_tokens(system));
        let window = if past.talk.is_some() { spec.talk_window.clone() } else { spec.window.clone() };
        let state = State {
            goal: Arc::new(goal),
            system,
            output: output.as_ref().map(|output| output.schema.clone()),
            typed: output.as_ref().is_some_and(OutputCheck::is_typed),
            reads: false,
            history: past.history,
            shown: Box::new(Shown::new(
                window,
                !spec.summaries,
                past.summary,
                tokens.saturating_add(spec.tool_tokens),
            )),
            guarded,
            beside,
            notes: BTreeSet::new(),
            talk: past.talk.map(Box::new),
            leaving: None,
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
            found: Arc::default(),
            max_piece: Some(spec.max_piece),
            wrong_answers: 0,
            empty_replies: 0,
            max_reply: None,
            paused: 0,
            next: EffectId::new(0),
            usage: Usage::default(),
            stats: Stats::default(),
            finish: None,
            noted: None,
            tells_said: false,
            rules: RULES,
            ending: None,
        };
        let mut machine = Self::with_state(spec, output, state);
        if machine.state.history.kept() > 0 {
            machine.may_read();
        }
        machine.task_begins();
        machine
    }

    fn with_state(spec: Arc<AgentSpec>, output: Option<OutputCheck>, state: State) -> Self {
        let mut machine = Self { spec, output, state };
        machine.show_summary();
        if machine.state.found.is_empty() {
            machine.look(0);
        }
        // It is in no journal, and follows from all else.
        let talk = machine.state.ending.as_ref().and_then(|_| machine.talk_end()).map(Box::new);
        if let Some(ending) = &mut machine.state.ending {
            ending.talk = talk;
        }
        machine
    }

    fn read_state(state: &Value) -> Result<State, String> {
        // What the reader says would quote the conversation.
        let state = State::deserialize(state)
            .map_err(|_| "its state is not one that this version of the agent can read".to_owned())?;
        match state.contradiction() {
            Some(what) => Err(format!("its state contradicts itself: {what}")),
            None => Ok(state),
        }
    }

    pub(crate) fn restore(
        spec: Arc<AgentSpec>,
        state: &Value,
        output: Option<OutputCheck>,
    ) -> Result<Self, String> {
        let state = Self::read_state(state)?;
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
        Ok(Self::with_state(spec, output, state))
    }

    /// Builds the machine of a run that is only looked at: its answer is not read as a type.
    pub(crate) fn restore_untyped(spec: Arc<AgentSpec>, state: &Value) -> Result<Self, String> {
        let state = Self::read_state(state)?;
        let output = state.output.clone().map(OutputCheck::new);
        Ok(Self::with_state(spec, output, state))
    }

    /// The same, with an ending that has what was said.
    pub(crate) fn with_said(mut self) -> Self {
        self.state.tells_said = true;
        self
    }

    /// What it was told to do.
    pub(crate) fn goal(&self) -> &Message {
        &self.state.goal
    }

    /// Goes another way than the run that it began as, with other context.
    pub(crate) fn forked(mut self, gathered: Gathered) -> Self {
        (self.state.system, self.state.beside) = (gathered.system, gathered.beside);
        self.state.talk = self.state.talk.map(Talk::forked);
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

    /// What it was told to do, where, what it did and what came of it. A machine lists no files: the workspace is the one that
    /// was given to the builder.
    pub fn context(&self) -> Context {
        Context::new(self.state.goal.text())
            .with_workspace(self.spec.workspace.clone())
            .with_history(&self.state.history)
            .with_memory(self.remembered())
    }

    /// The conversation, the goal and what the agent is made of. Calls that were under way when the run was left are
    /// in the conversation, as calls of which nobody knows what came.
    pub(crate) fn into_parts(mut self) -> Parts {
        if let Some(exchange) = self.state.exchange.take() {
            self.state.history.close(exchange, &ToolError::new(ToolErrorKind::Unknown, UNKNOWN));
        }
        let own = self.said_between(self.task(), self.state.history.len(), |_| true);
        Parts { history: self.state.history, own, goal: self.state.goal, spec: self.spec }
    }

    fn enter(&mut self, phase: Phase, step: &mut MachineOutput) {
        self.state.phase = phase;
        step.tell(EventKind::Phase(phase));
    }

    fn want(&mut self, waiting: Waiting, effect: impl FnOnce(EffectId) -> Effect, step: &mut MachineOutput) {
        let id = self.state.next;
        self.state.next = id.next();
        self.state.waiting.insert(id, waiting);
        step.want(id, effect(id));
    }

    fn note(&mut self, text: String, step: &mut MachineOutput) {
        self.add_note(Message::system(text.clone()));
        step.tell(EventKind::Note { text });
    }

    /// Adds a message that is for this run only.
    fn add_note(&mut self, message: Message) {
        self.state.notes.insert(self.state.history.len());
        self.add(message);
    }

    /// Adds a message that has been rid of calls and results, so it always has its place.
    fn add(&mut self, message: impl Into<Arc<Message>>) {
        let from = self.state.history.len();
        let added = self.state.history.say(message);
        debug_assert!(added.is_ok(), "a message with calls or results must go through an exchange");
        self.show_more(from);
    }

    /// Adds an exchange; calls without an answer are answered with `unanswered`.
    fn close(&mut self, exchange: Exchange, unanswered: &ToolError) {
        let from = self.state.history.len();
        self.state.history.close(exchange, unanswered);
        self.look(from);
        self.show_more(from);
    }

    fn finished(&mut self, effect: EffectId, outcome: Outcome, step: &mut MachineOutput) {
        let Some(waiting) = self.state.waiting.remove(&effect) else { return };
        match (waiting, outcome) {
            (Waiting::Save, Outcome::Saved(done)) => self.saved(done, step),
            (Waiting::Save, _) => {
                let lost = MemoryError::new(MemoryErrorKind::Io, "nobody knows whether it was saved");
                self.saved(Err(lost), step);
            }
            (Waiting::Summary, outcome) => self.summary_came(outcome, step),
            (
                waiting @ (Waiting::Plan | Waiting::Reply | Waiting::Reflection),
                Outcome::Model(Err(error)),
            ) => {
                self.state.stats.model_calls = self.state.stats.model_calls.saturating_add(1);
                self.no_reply(&waiting, error, step);
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
                self.ask_leave(&call, reason, step);
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

    /// A model gave no reply: a shorter request may help, or the run fails.
    fn no_reply(&mut self, waiting: &Waiting, error: ModelError, step: &mut MachineOutput) {
        match waiting {
            _ if !self.less_room(&error) => self.stop(Status::Failed(Failure::Model(error)), step),
            Waiting::Reply => self.ask(step),
            // What was asked on the side is left.
            _ => self.act(step),
        }
    }

    fn summary_came(&mut self, outcome: Outcome, step: &mut MachineOutput) {
        let made = match outcome {
            Outcome::Model(reply) => {
                self.state.stats.model_calls = self.state.stats.model_calls.saturating_add(1);
                if let Ok(response) = &reply {
                    self.state.usage += response.usage;
                }
                reply.map_err(|error| format!("the model gave no reply: {error}")).and_then(|response| {
                    match blocked_answer(&response) {
                        Some(by) => Err(by.to_string()),
                        None => Ok(response),
                    }
                })
            }
            Outcome::Refused(limit) => Err(format!("the limit on {limit} forbids it")),
            _ => Err("nobody knows what came of it".to_owned()),
        };
        self.summarised(made, step);
    }

    fn replied(&mut self, waiting: &Waiting, response: Response, step: &mut MachineOutput) {
        self.state.usage += response.usage;
        self.state.stats.model_calls = self.state.stats.model_calls.saturating_add(1);
        if let Some(by) = blocked_answer(&response) {
            return self.stop(Status::Failed(Failure::Blocked(by.clone())), step);
        }
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
                self.learn(&response);
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

/// Who blocked what a model said.
fn blocked_answer(response: &Response) -> Option<&Intervention> {
    response.guarded.iter().find(|by| by.stage == Stage::Answer && by.blocked.is_some())
}

/// What a run begins with.
pub(crate) struct Start {
    pub(crate) goal: Message,
    /// The guards that stepped in on the goal.
    pub(crate) guarded: Vec<Intervention>,
    pub(crate) past: Past,
    pub(crate) system: Option<Arc<str>>,
    /// What stands beside the goal, for this run only.
    pub(crate) beside: Option<Arc<str>>,
    pub(crate) output: Option<OutputCheck>,
}

/// What was before a run.
#[derive(Default)]
pub(crate) struct Past {
    pub(crate) history: History,
    /// What stands for all before the history.
    pub(crate) summary: Option<Arc<str>>,
    pub(crate) talk: Option<Talk>,
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

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        if self.state.ending.is_some() {
            return;
        }
        match input {
            Input::Begin { run, wrap } if self.state.run.is_none() => self.begin(run, wrap, step),
            Input::Finished { effect, outcome } => self.finished(effect, outcome, step),
            // Nothing more is asked, and all that was said is kept.
            Input::Say(message) if self.state.leaving.is_some() => self.add(plain(&message)),
            Input::Say(message) => self.state.said.push(Arc::new(plain(&message))),
            Input::Wrap(limit) => self.state.wrap = self.state.wrap.or(Some(limit)),
            Input::Low(limit) => self.low(limit),
            Input::Stop(limit) => self.stop_now(Status::Partial(limit), step),
            Input::Cancel { reason } => self.stop_now(Status::Cancelled { reason }, step),
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.state.ending.as_ref()
    }

    fn so_far(&self, status: Status) -> Ending {
        let mut ending = Ending::new(status);
        ending.text = self.last_words();
        (ending.usage, ending.stats) = (self.state.usage, self.state.stats);
        ending.signals = self.signals().to_vec();
        ending
    }
}

/// A message of the host's without what only models and tools may say.
fn plain(message: &Message) -> Message {
    let role = if message.role == Role::System { Role::System } else { Role::User };
    let keep = |part: &&Part| !matches!(part, Part::ToolCall(_) | Part::ToolResult(_));
    Message::new(role, message.parts.iter().filter(keep).cloned())
}

#[cfg(test)]
mod tests;
