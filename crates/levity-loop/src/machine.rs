//! The loop of an agent as a machine: a state, and a function from inputs to effects.
//!
//! Each file below handles one phase or one concern. They share [`State`], which holds everything
//! that changes, and [`AgentSpec`], which never changes during a run. All decisions follow from the
//! two, so a resumed run continues as the first process would have.
//!
//! Changes of the rules need care: a journal of an older version must still fold. `RULES` names the
//! rules that a run began with, and old rules stay in the code.

use std::fmt;
use std::sync::Arc;

use levity_core::{
    Context, EffectId, Ending, EventKind, Exchange, Failure, History, Input, Intervention, Machine,
    MachineKind, MachineOutput, Message, ModelError, Outcome, OutputSchema, Part, Phase as Told,
    Response, Role, Stage, Status, ToolError, ToolErrorKind,
};
use serde_json::Value;

mod act;
mod budget;
mod conversation;
mod cut_reply;
mod end;
mod known_tools;
mod observe;
mod phase;
mod plan;
mod read_result;
mod save;
mod signal;
mod state;
mod window;

use crate::gather::GatheredContext;
use crate::output::OutputCheck;
use crate::spec::AgentSpec;
use crate::strategy::steps;

use budget::Budget;
use conversation::Conversation;
use known_tools::KnownTools;
use phase::{Phase, Purpose, Question};
use state::{Corrections, State, Tally, Task};

pub(crate) use save::ConversationState;

/// The number of reminders after empty replies before the run fails.
const MAX_EMPTY_REPLIES: u32 = 2;

/// The version of the rules that a new run follows. A run keeps the rules that it began with, so
/// that its journal stays valid.
///
/// - 0: the rules of versions that did not record one.
/// - 1: a reply of media alone is an answer, and a tool call on the last turn leads to an answer.
/// - 2: the third identical call in a row is answered from its earlier result, for models that
///   write calls as text.
/// - 3: a call that the limit on a reply cut is requested once more with a higher limit. After an
///   empty reply, or one that had no room, the request becomes smaller if the size of the model's
///   window is unknown.
const RULES: u32 = 3;

/// The maximum number of times in a row that a provider may interrupt a turn before the run fails.
const MAX_PAUSES: u32 = 16;

/// The name of the machine in a journal, and the version of the state it writes there.
const KIND: &str = "agent";
const VERSION: u32 = 1;

const UNKNOWN: &str = "the program ended while this call ran; whether it took effect is not known, \
    so look before \
                       you call it again";

/// The agent's loop: goal, plan, act, observe and reflect, repeated until there is an answer.
///
/// It decides and performs no I/O; see [`Machine`]. [`Agent::machine`](crate::Agent::machine)
/// creates one.
///
/// ```
/// use levity_core::{Machine, Phase};
/// use levity_loop::Agent;
/// use levity_test::ScriptedModel;
///
/// let agent = Agent::builder(ScriptedModel::new()).build()?;
/// let machine = agent.machine("Say hello");
/// assert_eq!((machine.phase(), machine.history().len()), (Phase::Goal, 0));
/// let same = agent.restore(&machine.save())?;
/// assert_eq!(same.save(), machine.save());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AgentMachine {
    spec: Arc<AgentSpec>,
    output: Option<OutputCheck>,
    state: State,
}

/// Shows the phase of the loop and none of the conversation's content.
impl fmt::Debug for AgentMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentMachine")
            .field("phase", &self.phase())
            .field("turns", &self.state.tally.stats.turns)
            .field("messages", &self.history().len())
            .finish_non_exhaustive()
    }
}

/// The state of a machine at its end, in parts.
pub(crate) struct Parts {
    /// The whole conversation, including the messages of earlier runs.
    pub(crate) history: History,
    /// The messages of this run, without notes for the model.
    pub(crate) own: Vec<Arc<Message>>,
    pub(crate) goal: Arc<Message>,
    pub(crate) spec: Arc<AgentSpec>,
}

impl AgentMachine {
    pub(crate) fn new(spec: Arc<AgentSpec>, start: Start) -> Self {
        let Start {
            goal,
            guarded,
            past,
            system,
            beside,
            output,
        } = start;
        let conversation = Conversation::new(&spec, system.as_deref(), past);
        let task = Task {
            goal: Arc::new(goal),
            system,
            output: output.as_ref().map(|output| output.schema.clone()),
            typed: output.as_ref().is_some_and(OutputCheck::is_typed),
            guarded,
            beside,
            plan: Vec::new(),
            max_piece: Some(spec.max_piece),
            tells_said: false,
            rules: RULES,
        };
        let state = State {
            task,
            run: None,
            phase: Phase::Goal,
            conversation,
            tools: KnownTools::default(),
            budget: Budget::default(),
            corrections: Corrections::default(),
            tally: Tally::default(),
            next: EffectId::new(0),
        };
        let mut machine = Self::with_state(spec, output, state);
        if machine.history().retained_bytes() > 0 {
            machine.state.tools.offer_reader(&machine.spec);
        }
        machine
    }

    fn with_state(spec: Arc<AgentSpec>, output: Option<OutputCheck>, state: State) -> Self {
        let mut machine = Self {
            spec,
            output,
            state,
        };
        let State {
            conversation,
            tools,
            phase,
            ..
        } = &mut machine.state;
        conversation.show_summary(machine.spec.reader);
        if tools.found.is_empty() {
            tools.record_named(conversation.history.messages(), &machine.spec);
        }
        // It is in no journal, because it follows from the rest.
        if let Phase::Ended(ending) = phase {
            ending.conversation_end = conversation.talk_end().map(Box::new);
        }
        machine
    }

    fn read_state(state: &Value) -> Result<State, String> {
        // The error of the parser would quote the conversation.
        let state = State::read(state)
            .map_err(|_| "this version of the agent cannot read its state".to_owned())?;
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
        let (then, now) = (
            state.task.output.as_ref(),
            output.as_ref().map(|output| &output.schema),
        );
        let name = |schema: Option<&Arc<OutputSchema>>| {
            schema
                .map_or("plain text", |schema| &*schema.name)
                .to_owned()
        };
        if (state.task.typed || now.is_some()) && then != now {
            let (then, now) = (name(then), name(now));
            return Err(format!(
                "its answer has the type `{then}`, not `{now}`; resume it with `.typed()`"
            ));
        }
        let output = output.or_else(|| state.task.output.clone().map(OutputCheck::new));
        Ok(Self::with_state(spec, output, state))
    }

    /// Builds the machine of a run that is only inspected: its answer is not parsed as a type.
    pub(crate) fn restore_untyped(spec: Arc<AgentSpec>, state: &Value) -> Result<Self, String> {
        let state = Self::read_state(state)?;
        let output = state.task.output.clone().map(OutputCheck::new);
        Ok(Self::with_state(spec, output, state))
    }

    /// Includes the messages of the run in its ending.
    pub(crate) fn include_messages(mut self) -> Self {
        self.state.task.tells_said = true;
        self
    }

    /// Returns the goal of the run.
    pub(crate) fn goal(&self) -> &Message {
        &self.state.task.goal
    }

    /// Turns the machine into a fork of its run, with newly gathered context.
    pub(crate) fn forked(mut self, gathered: GatheredContext) -> Self {
        (self.state.task.system, self.state.task.beside) = (gathered.system, gathered.beside);
        self.state.conversation.talk = self.state.conversation.talk.map(ConversationState::forked);
        self
    }

    /// Returns the conversation up to now. It does not contain calls in progress.
    pub fn history(&self) -> &History {
        &self.state.conversation.history
    }

    /// Returns the current phase of the loop.
    pub fn phase(&self) -> Told {
        self.state.phase.event_phase()
    }

    /// Returns goal, workspace, steps and results as one value. A machine lists no files: the
    /// workspace is the one that was given to the builder.
    pub fn context(&self) -> Context {
        Context::new(self.state.task.goal.text())
            .with_workspace(self.spec.workspace.clone())
            .with_history(self.history())
            .with_memory(self.remembered())
    }

    /// Returns the memory beyond the history.
    pub(crate) fn remembered(&self) -> Value {
        self.state.conversation.remembered()
    }

    /// Returns the conversation, the goal and the settings of the agent. Calls that were in
    /// progress when the run stopped are in the conversation, marked as calls with unknown outcome.
    pub(crate) fn into_parts(mut self) -> Parts {
        let mut conversation = self.state.conversation;
        if let Some(exchange) = self.state.phase.take_exchange() {
            conversation
                .history
                .close(exchange, &ToolError::new(ToolErrorKind::Unknown, UNKNOWN));
        }
        let own = conversation.own_without_notes();
        Parts {
            history: conversation.history,
            own,
            goal: self.state.task.goal,
            spec: self.spec,
        }
    }

    fn next_effect(&mut self) -> EffectId {
        let id = self.state.next;
        self.state.next = id.next();
        id
    }

    fn note(&mut self, text: String, step: &mut MachineOutput) {
        self.add_note(Message::system(text.clone()));
        step.emit(EventKind::Note { text });
    }

    fn add_note(&mut self, message: Message) {
        self.state.conversation.add_note(message, self.spec.reader);
    }

    fn add(&mut self, message: impl Into<Arc<Message>>) {
        self.state.conversation.add(message, self.spec.reader);
    }

    /// Adds an exchange; calls without an answer are answered with `unanswered`.
    fn close(&mut self, exchange: Exchange, unanswered: &ToolError) {
        let new = self
            .state
            .conversation
            .close(exchange, unanswered, self.spec.reader);
        self.state.tools.record_named(new, &self.spec);
    }

    /// An outcome that nothing waits for is ignored, as the contract of a machine demands.
    fn finished(&mut self, effect: EffectId, outcome: Outcome, step: &mut MachineOutput) {
        if self.state.conversation.saving() == Some(effect) {
            return self.saved(outcome, step);
        }
        if let Phase::Calling(calls) = &mut self.state.phase {
            let Some(waiting) = calls.waiting.remove(&effect) else {
                return;
            };
            return self.handle_call_outcome(effect, waiting, outcome, step);
        }
        match (self.state.phase.take_purpose(effect), outcome) {
            (None, _) => {}
            (Some(Purpose::Summary { folding, next }), outcome) => {
                self.summarised(*folding, outcome, next, step);
            }
            (Some(purpose), Outcome::Model(Ok(response))) => self.replied(purpose, response, step),
            (Some(purpose), Outcome::Model(Err(error))) => {
                self.handle_model_error(&purpose, error, step);
            }
            (Some(purpose), Outcome::Refused(limit)) => self.refused(&purpose, limit, step),
            _ => self.unexpected_outcome(effect, step),
        }
    }

    fn unexpected_outcome(&mut self, effect: EffectId, step: &mut MachineOutput) {
        let what = format!("effect {effect} has an outcome of another kind");
        self.stop(Status::Failed(Failure::Internal(what)), step);
    }

    /// Handles a model call without a reply: retries with a shorter request if that may help, else
    /// fails the run.
    fn handle_model_error(
        &mut self,
        purpose: &Purpose,
        error: ModelError,
        step: &mut MachineOutput,
    ) {
        self.state.tally.count_model_call(None);
        match purpose {
            _ if !self.state.conversation.shrink_window(&error) => {
                self.stop(Status::Failed(Failure::Model(error)), step);
            }
            Purpose::Reply(turn) => self.ask(Question::Reply(*turn), step),
            // A side question is skipped.
            _ => self.act(step),
        }
    }

    fn replied(&mut self, purpose: Purpose, response: Response, step: &mut MachineOutput) {
        self.state.tally.count_model_call(Some(response.usage));
        if let Some(by) = blocked_answer(&response) {
            return self.stop(Status::Failed(Failure::Blocked(by.clone())), step);
        }
        match purpose {
            Purpose::Plan => self.planned(steps(&response.message.text()), step),
            Purpose::Reflection => self.reflected(&response.message.text(), step),
            Purpose::Reply(turn) => self.reply(turn, response, step),
            Purpose::Summary { folding, next } => {
                self.summarised(*folding, Outcome::Model(Ok(response)), next, step);
            }
        }
    }
}

/// Returns the intervention that blocked a reply.
fn blocked_answer(response: &Response) -> Option<&Intervention> {
    response
        .guarded
        .iter()
        .find(|by| by.stage == Stage::Answer && by.blocked.is_some())
}

/// The parts that a run begins with.
pub(crate) struct Start {
    pub(crate) goal: Message,
    /// The interventions of guards on the goal.
    pub(crate) guarded: Vec<Intervention>,
    pub(crate) past: Past,
    pub(crate) system: Option<Arc<str>>,
    /// The context beside the goal, for this run only.
    pub(crate) beside: Option<Arc<str>>,
    pub(crate) output: Option<OutputCheck>,
}

/// The conversation before a run.
#[derive(Default)]
pub(crate) struct Past {
    pub(crate) history: History,
    /// The summary of everything before the history.
    pub(crate) summary: Option<Arc<str>>,
    pub(crate) talk: Option<ConversationState>,
}

impl AgentMachine {
    /// Checks that a machine of this kind is an agent, in a version that can be read.
    pub(crate) fn check_kind(kind: &MachineKind) -> Result<(), String> {
        let own = MachineKind::new(KIND, VERSION);
        if *kind == own {
            return Ok(());
        }
        Err(format!(
            "it is driven by `{kind}`, but this machine is `{own}`"
        ))
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
        match (&self.state.phase, input) {
            (Phase::Ended(_), _) => {}
            (Phase::Goal, Input::Begin { run, wrap }) => self.begin(run, wrap, step),
            (_, Input::Finished { effect, outcome }) => self.finished(effect, outcome, step),
            // No more questions are asked, and every message is retained.
            (Phase::Leaving(_), Input::Say(message)) => self.add(plain(&message)),
            (_, Input::Say(message)) => {
                self.state.conversation.said.push(Arc::new(plain(&message)));
            }
            (_, Input::FinishSoon(limit)) => self.state.budget.wrap(limit),
            (_, Input::Low(limit)) => self.low(limit),
            (_, Input::Stop(limit)) => self.stop_now(Status::Partial(limit), step),
            (_, Input::Cancel { reason }) => self.stop_now(Status::Cancelled { reason }, step),
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        if let Phase::Ended(ending) = &self.state.phase {
            Some(ending)
        } else {
            None
        }
    }

    fn partial_ending(&self, status: Status) -> Ending {
        self.state
            .tally
            .ending(status, self.state.conversation.last_text())
    }
}

/// Returns a host's message without the parts that only models and tools may send.
///
/// A host could otherwise forge calls and results, which would break the history.
fn plain(message: &Message) -> Message {
    let role = if message.role == Role::System {
        Role::System
    } else {
        Role::User
    };
    let keep = |part: &&Part| !matches!(part, Part::ToolCall(_) | Part::ToolResult(_));
    Message::new(role, message.parts.iter().filter(keep).cloned())
}

#[cfg(test)]
mod tests;
