use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{
    Ask, CallId, ChildRun, Content, Context, Decision, Digest, Effect, EffectId, Ending, EventKind, Exchange,
    Failure, Finish, History, Input, Limit, Machine, MachineKind, Message, ModelCall, ModelError,
    ModelErrorKind, Offer, Outcome, OutputSchema, Part, Phase, Request, Response, Role, RunId, Stats, Status,
    Step, ToolCall, ToolError, ToolErrorKind, ToolResult, ToolRun, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::notes;
use crate::output::OutputCheck;
use crate::spec::AgentSpec;
use crate::strategy::{Goal, Planning, Reflection, Turn, steps};

/// How often an empty reply is answered with a reminder before the run fails.
const EMPTY_REPLIES: u32 = 2;

/// The agent's loop: goal, plan, act, observe, reflect, and again, until there is an answer.
///
/// It decides and does nothing; see [`Machine`]. [`Agent::machine`](crate::Agent::machine) makes one.
#[derive(Debug)]
pub struct AgentMachine {
    spec: Arc<AgentSpec>,
    output: Option<OutputCheck>,
    state: State,
}

/// All that changes while the loop runs.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    goal: Arc<Message>,
    system: Option<Arc<str>>,
    output: Option<Arc<OutputSchema>>,
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
    enough: bool,
    announced: bool,
    offered: bool,
    wrong_answers: u32,
    empty_replies: u32,
    next: EffectId,
    usage: Usage,
    stats: Stats,
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
    Child(CallId),
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
        history: History,
        system: Option<Arc<str>>,
        output: Option<OutputCheck>,
    ) -> Self {
        let state = State {
            goal: Arc::new(goal),
            system,
            output: output.as_ref().map(|output| output.schema.clone()),
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
            enough: false,
            announced: false,
            offered: false,
            wrong_answers: 0,
            empty_replies: 0,
            next: EffectId::new(0),
            usage: Usage::default(),
            stats: Stats::default(),
            ending: None,
        };
        Self { spec, output, state }
    }

    pub(crate) fn restore(spec: Arc<AgentSpec>, state: &Value) -> Result<Self, String> {
        let state = State::deserialize(state).map_err(|error| error.to_string())?;
        let output = state.output.clone().map(OutputCheck::new);
        Ok(Self { spec, output, state })
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

    pub(crate) fn into_history(self) -> History {
        self.state.history
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

    // Goal and plan

    fn begin(&mut self, run: RunId, wrap: Option<Limit>, step: &mut Step) {
        self.state.run = Some(run);
        self.state.wrap = wrap;
        self.enter(Phase::Goal, step);
        let goal = self.state.goal.clone();
        step.tell(EventKind::Goal { text: goal.text().into_owned() });
        self.add(plain(&goal));
        self.enter(Phase::Plan, step);
        match self.spec.planner.plan(&Goal { message: &goal }) {
            Planning::None => self.act(step),
            Planning::Steps(steps) => self.planned(steps, step),
            Planning::Ask(prompt) => self.consult(Waiting::Plan, "planner", prompt, step),
        }
    }

    fn planned(&mut self, steps: Vec<String>, step: &mut Step) {
        if !steps.is_empty() {
            step.tell(EventKind::Plan { steps: steps.clone() });
            self.add(Message::system(notes::plan(&steps)));
            self.state.plan = steps;
        }
        self.act(step);
    }

    /// Asks a model on the side: the question does not enter the history.
    fn consult(&mut self, waiting: Waiting, slot: &'static str, prompt: String, step: &mut Step) {
        let mut request = self.request();
        request = request.with_message(Message::system(prompt));
        self.want(waiting, |_| Effect::Model(ModelCall::new(slot, request, Offer::None)), step);
    }

    fn request(&self) -> Request {
        let request = Request::new().with_history(self.state.history.clone());
        let request = request.with_options(self.spec.options.clone());
        match &self.state.system {
            Some(system) => request.with_system(system.clone()),
            None => request,
        }
    }

    // Act

    fn act(&mut self, step: &mut Step) {
        self.enter(Phase::Act, step);
        self.state.stats.turns += 1;
        let turn = self.state.stats.turns;
        step.tell(EventKind::TurnStarted { turn, of: self.spec.max_turns.max(turn) });
        for message in std::mem::take(&mut self.state.said) {
            self.add(message);
        }
        let closing = self.closing();
        self.announce(closing, step);
        self.state.offered = self.spec.has_tools && closing.is_none();
        let offer = if self.state.offered { Offer::All } else { Offer::None };
        let mut request = self.request();
        if let Some(output) = &self.output {
            request = request.with_output(output.schema.clone());
        }
        self.want(Waiting::Reply, |_| Effect::Model(ModelCall::new("main", request, offer)), step);
    }

    fn closing(&self) -> Option<Closing> {
        let last = self.state.stats.turns >= self.spec.max_turns;
        let limit = self.state.wrap.or(last.then_some(Limit::Turns));
        limit.map(Closing::Limit).or(self.state.enough.then_some(Closing::Enough))
    }

    fn announce(&mut self, closing: Option<Closing>, step: &mut Step) {
        let Some(closing) = closing.filter(|_| self.spec.has_tools && !self.state.announced) else { return };
        self.state.announced = true;
        let text = match closing {
            Closing::Limit(limit) => notes::last_turn(limit),
            Closing::Enough => notes::ANSWER_NOW.to_owned(),
        };
        self.note(text, step);
    }

    fn reply(&mut self, response: Response, step: &mut Step) {
        let message = from_model(response.message);
        if !message.thinking().is_empty() {
            self.state.stats.reasoning_steps += 1;
        }
        let called = message.calls().next().is_some();
        let silent = message.text().trim().is_empty();
        match (called, silent) {
            (true, _) if self.state.offered => self.calls(message, step),
            (true, _) => self.calls_withheld(message, step),
            (false, true) if response.finish == Finish::ContentFilter => {
                let error =
                    ModelError::new(ModelErrorKind::ContentFiltered, "the provider withheld the reply");
                self.stop(Status::Failed(Failure::Model(error)), step);
            }
            (false, true) => self.empty_reply(step),
            (false, false) => self.answer(message, step),
        }
    }

    fn empty_reply(&mut self, step: &mut Step) {
        self.state.empty_replies += 1;
        if self.state.empty_replies > EMPTY_REPLIES {
            let what = format!("it was empty {} times", self.state.empty_replies);
            return self.stop(Status::Failed(Failure::Behaviour(what)), step);
        }
        self.note(notes::EMPTY.to_owned(), step);
        self.act(step);
    }

    /// The model calls tools although none are offered: what it says beside the calls must do.
    fn calls_withheld(&mut self, message: Arc<Message>, step: &mut Step) {
        let text = message.text().into_owned();
        let withheld = ToolError::new(ToolErrorKind::Denied, "no more tools can be called");
        if let Ok(exchange) = self.state.history.open(message) {
            self.state.history.close(exchange, &withheld);
        }
        let limit = match self.closing() {
            Some(Closing::Limit(limit)) => limit,
            _ => Limit::ToolCalls,
        };
        match text.trim() {
            "" => self.stop(Status::Partial(limit), step),
            _ => self.check_answer(&text, Status::BestEffort(limit), step),
        }
    }

    fn calls(&mut self, message: Arc<Message>, step: &mut Step) {
        let Ok(mut exchange) = self.state.history.open(message) else {
            let what = "its calls cannot be told apart".to_owned();
            return self.stop(Status::Failed(Failure::Behaviour(what)), step);
        };
        let allowed = if self.spec.single_tool { 1 } else { self.spec.max_calls };
        let calls: Vec<ToolCall> = exchange.unanswered().cloned().collect();
        for call in calls.iter().skip(allowed) {
            let message =
                format!("at most {allowed} tools can be called in one turn; this call was left out");
            let error = ToolError::new(ToolErrorKind::Denied, message);
            let _ = exchange.answer(ToolResult::new(call, Err(error)));
            self.state.stats.failed_calls += 1;
        }
        self.state.exchange = Some(exchange);
        for call in calls.into_iter().take(allowed) {
            self.state.stats.tool_calls += 1;
            self.call(call, false, step);
        }
        self.state.enough |= self.spec.single_tool;
    }

    fn call(&mut self, call: ToolCall, approved: bool, step: &mut Step) {
        let id = call.id.clone();
        if self.spec.delegates.contains(&call.name) {
            let child = ChildRun::new(call.name, call.args);
            return self.want(Waiting::Child(id), |_| Effect::Child(child), step);
        }
        let run = if approved { ToolRun::approved(call) } else { ToolRun::new(call) };
        self.want(Waiting::Tool(id), |_| Effect::Tool(run), step);
    }

    fn ask(&mut self, call: &CallId, reason: String, step: &mut Step) {
        let (Some(run), Some(call)) = (self.state.run.clone(), self.open_call(call)) else { return };
        let waiting = Waiting::Decision(call.id.clone());
        self.want(waiting, |effect| Effect::Ask(Ask::new(run, effect, call, reason)), step);
    }

    fn open_call(&self, id: &CallId) -> Option<ToolCall> {
        self.state.exchange.as_ref()?.call(id).cloned()
    }

    fn decided(&mut self, id: &CallId, decision: Decision, step: &mut Step) {
        let Some(mut call) = self.open_call(id) else { return };
        match decision {
            Decision::Deny { reason } => {
                let error = ToolError::new(ToolErrorKind::Denied, format!("the call was denied: {reason}"));
                self.answered(ToolResult::new(&call, Err(error)), step);
            }
            Decision::Edit { args } => {
                self.state.edited.insert(id.clone(), args.clone());
                call.args = args;
                call.raw = None;
                self.call(call, true, step);
            }
            _ => self.call(call, true, step),
        }
    }

    fn child_ended(&mut self, id: &CallId, ending: Ending, step: &mut Step) {
        self.state.usage += ending.usage;
        let Some(call) = self.open_call(id) else { return };
        let outcome = if ending.status.is_answer() {
            Ok(ending
                .value
                .map_or_else(|| levity_core::ToolOutput::text(ending.text), levity_core::ToolOutput::value))
        } else {
            let mut message = format!("`{}` {}", call.name, ending.status);
            if !ending.text.is_empty() {
                message.push_str(&format!("; its last words were: {}", ending.text));
            }
            Err(ToolError::failed(message))
        };
        self.answered(ToolResult::new(&call, outcome), step);
    }

    fn call_failed(&mut self, id: &CallId, error: ToolError, step: &mut Step) {
        if let Some(call) = self.open_call(id) {
            self.answered(ToolResult::new(&call, Err(error)), step);
        }
    }

    // Observe and reflect

    fn answered(&mut self, mut result: ToolResult, step: &mut Step) {
        if let Some(args) = self.state.edited.remove(&result.call) {
            tell_edited(&mut result, &args);
        }
        if result.is_error() {
            self.state.stats.failed_calls += 1;
        }
        let Some(exchange) = &mut self.state.exchange else { return };
        // A second answer to a call is of no use.
        let _ = exchange.answer(result);
        if exchange.is_complete() {
            self.observe(step);
        }
    }

    fn observe(&mut self, step: &mut Step) {
        let Some(exchange) = self.state.exchange.take() else { return };
        self.enter(Phase::Observe, step);
        let reply = exchange.reply().clone();
        let results: Vec<ToolResult> = exchange.results().cloned().collect();
        self.state.history.close(exchange, &ToolError::failed("the call was not answered"));
        self.enter(Phase::Reflect, step);
        let calls: Vec<(&ToolCall, &ToolResult)> = reply.calls().zip(&results).collect();
        for (call, result) in &calls {
            if let Some(times) = self.repeated_failure(call, result) {
                self.note(notes::repeated(&call.name, times), step);
            }
        }
        if results.iter().all(ToolResult::is_error) {
            self.note(notes::ALL_FAILED.to_owned(), step);
        }
        let goal = self.state.goal.clone();
        let turn =
            Turn { number: self.state.stats.turns, goal: &goal, plan: &self.state.plan, calls: &calls };
        match self.spec.reflector.reflect(&turn) {
            Reflection::GoOn => self.act(step),
            Reflection::Note(text) => {
                self.note(text, step);
                self.act(step);
            }
            Reflection::Finish => {
                self.state.enough = true;
                self.act(step);
            }
            Reflection::Ask(prompt) => self.consult(Waiting::Reflection, "reflector", prompt, step),
        }
    }

    /// How often this call has failed like this in a row, once it is more than once.
    fn repeated_failure(&mut self, call: &ToolCall, result: &ToolResult) -> Option<u32> {
        let key = Digest::of(&call.name).with_json(&call.args).with_json(&call.raw).to_string();
        if !result.is_error() {
            self.state.failures.remove(&key);
            return None;
        }
        let how = Digest::of(&result.text());
        let failed = self.state.failures.entry(key).or_insert(Failed { how, times: 0 });
        let times = if failed.how == how { failed.times + 1 } else { 1 };
        *failed = Failed { how, times };
        (times > 1).then_some(times)
    }

    // End

    fn answer(&mut self, message: Arc<Message>, step: &mut Step) {
        let text = message.text().into_owned();
        self.add(message);
        if !self.state.said.is_empty() && self.closing().is_none() {
            return self.act(step);
        }
        let status = match self.closing() {
            Some(Closing::Limit(limit)) if self.spec.has_tools && !self.state.offered => {
                Status::BestEffort(limit)
            }
            _ => Status::Complete,
        };
        self.check_answer(&text, status, step);
    }

    fn check_answer(&mut self, text: &str, status: Status, step: &mut Step) {
        let Some(output) = &self.output else {
            return self.end(status, text.to_owned(), None, step);
        };
        match output.check(text) {
            Ok(value) => self.end(status, text.to_owned(), Some(value), step),
            Err(complaint) if self.state.wrong_answers < self.spec.output_retries => {
                self.state.wrong_answers += 1;
                self.note(notes::wrong_shape(&complaint), step);
                self.act(step);
            }
            Err(complaint) => self.stop(Status::Failed(Failure::Output(complaint)), step),
        }
    }

    /// Ends without an answer: open calls are closed, and the last words stand in.
    fn stop(&mut self, status: Status, step: &mut Step) {
        if let Some(exchange) = self.state.exchange.take() {
            let message = "the run ended before the call was answered; it may have taken effect in part";
            let error = ToolError::new(ToolErrorKind::Cancelled, message);
            self.state.history.close(exchange, &error);
        }
        for message in std::mem::take(&mut self.state.said) {
            self.add(message);
        }
        let text = self.state.history.last_text().unwrap_or_default();
        self.end(status, text, None, step);
    }

    fn end(&mut self, status: Status, text: String, value: Option<Value>, step: &mut Step) {
        self.enter(Phase::End, step);
        self.state.waiting.clear();
        let mut ending = Ending::new(status);
        (ending.text, ending.value) = (text, value);
        (ending.usage, ending.stats) = (self.state.usage, self.state.stats);
        self.state.ending = Some(ending);
    }

    fn finished(&mut self, effect: EffectId, outcome: Outcome, step: &mut Step) {
        let Some(waiting) = self.state.waiting.remove(&effect) else { return };
        match (waiting, outcome) {
            (Waiting::Plan | Waiting::Reply | Waiting::Reflection, Outcome::Model(Err(error))) => {
                self.state.stats.model_calls += 1;
                self.stop(Status::Failed(Failure::Model(error)), step);
            }
            (Waiting::Plan | Waiting::Reply | Waiting::Reflection, Outcome::Refused(limit)) => {
                self.stop(Status::Partial(limit), step);
            }
            (waiting, Outcome::Model(Ok(response))) => self.replied(waiting, response, step),
            (Waiting::Tool(_), Outcome::Tool(result)) => self.answered(result, step),
            (Waiting::Tool(call), Outcome::NeedsApproval { reason }) => self.ask(&call, reason, step),
            (Waiting::Decision(call), Outcome::Decision(decision)) => self.decided(&call, decision, step),
            (Waiting::Child(call), Outcome::Child(ending)) => self.child_ended(&call, *ending, step),
            (Waiting::Tool(call) | Waiting::Child(call), Outcome::Refused(limit)) => {
                let message = format!("the limit on {limit} is reached: answer from what you know");
                self.call_failed(&call, ToolError::new(ToolErrorKind::Denied, message), step);
            }
            (Waiting::Tool(call) | Waiting::Child(call), Outcome::Unknown) => {
                let message = "the program ended while this call ran; whether it took effect is not known, so look \
                               before you call it again";
                self.call_failed(&call, ToolError::new(ToolErrorKind::Unknown, message), step);
            }
            _ => {
                let what = format!("effect {effect} has an outcome of another kind");
                self.stop(Status::Failed(Failure::Internal(what)), step);
            }
        }
    }

    fn replied(&mut self, waiting: Waiting, response: Response, step: &mut Step) {
        self.state.usage += response.usage;
        self.state.stats.model_calls += 1;
        match waiting {
            Waiting::Plan => self.planned(steps(&response.message.text()), step),
            Waiting::Reflection => {
                let text = response.message.text();
                if !text.trim().is_empty() {
                    self.note(notes::reflection(&text), step);
                }
                self.act(step);
            }
            Waiting::Reply => self.reply(response, step),
            _ => {
                let what = "a model replied where a tool was called".to_owned();
                self.stop(Status::Failed(Failure::Internal(what)), step);
            }
        }
    }
}

impl Machine for AgentMachine {
    fn kind(&self) -> MachineKind {
        MachineKind::new("agent", 1)
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

/// A reply as a model's message, whatever the model made of it.
fn from_model(message: Arc<Message>) -> Arc<Message> {
    if message.role == Role::Assistant && message.results().next().is_none() {
        return message;
    }
    let keep = |part: &&Part| !matches!(part, Part::ToolResult(_));
    Arc::new(Message::new(Role::Assistant, message.parts.iter().filter(keep).cloned()))
}

/// Tells the model that its call was made with other arguments.
fn tell_edited(result: &mut ToolResult, args: &Value) {
    if result.content.is_empty() {
        result.content.extend(result.value.as_ref().map(|value| Content::Text(value.to_string())));
    }
    let note = format!("(A person changed the arguments of this call to {args}.)\n");
    result.content.insert(0, Content::Text(note));
}
