//! Act: the model is called, and the tools it asks for.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Ask, CallId, ChildRun, Decision, Effect, Ending, EventKind, Exchange, Failure, Finish, Intervention,
    Limit, MachineOutput, Message, ModelCall, ModelError, ModelErrorKind, Offer, Part, Phase, Response, Role,
    Status, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolResult, ToolRun, Wait,
};

use crate::asked;
use crate::executor::CHEAP;
use crate::guards::not_made;
use crate::notes;
use crate::strategy::Low;
use crate::wait;

use super::window::Next;
use super::{AgentMachine, Closing, EMPTY_REPLIES, PAUSES, Waiting};

/// How many results an answer shows that is made of results alone.
const SHOWN_RESULTS: usize = 8;

impl AgentMachine {
    pub(super) fn act(&mut self, step: &mut MachineOutput) {
        self.enter(Phase::Act, step);
        self.state.paused = 0;
        self.state.stats.turns = self.state.stats.turns.saturating_add(1);
        let turn = self.state.stats.turns;
        step.tell(EventKind::TurnStarted { turn, of: self.spec.max_turns.max(turn) });
        for message in std::mem::take(&mut self.state.said) {
            self.add(message);
        }
        let closing = self.closing();
        self.announce(closing, step);
        self.state.offered = self.has_tools() && closing.is_none();
        self.ask(step);
    }

    /// Asks the model, once what it is shown fits.
    pub(super) fn ask(&mut self, step: &mut MachineOutput) {
        if self.make_room(Next::Reply, step) {
            return;
        }
        self.save(step);
        self.note_asked();
        let offer = if self.state.offered { Offer::All } else { Offer::None };
        let mut request = self.request();
        if self.state.offered && self.state.stats.turns == 1 {
            request.tool_choice = self.spec.tool_choice.clone();
        }
        if let Some(output) = &self.output {
            request = request.with_output(output.schema.clone());
        }
        let slot = self.slot("main");
        let call = ModelCall::new(slot, request, offer).with_reads(self.state.reads);
        let call = call.with_found(self.state.found.clone());
        self.want(Waiting::Reply, |_| Effect::Model(call), step);
    }

    /// The model for a purpose; the cheap one for all once it was switched to.
    pub(super) fn slot(&self, purpose: &'static str) -> &'static str {
        if self.state.cheap { CHEAP } else { purpose }
    }

    /// Little is left of what a limit allows.
    pub(super) fn low(&mut self, limit: Limit) {
        match self.spec.when_low {
            Low::Answer => self.state.wrap = self.state.wrap.or(Some(limit)),
            Low::Switch => self.state.cheap = true,
        }
    }

    /// A limit forbids a call. Where a smaller one may do, there can be enough left for an answer: of the cheap
    /// model, without a question on the side, without tools.
    pub(super) fn refused(&mut self, waiting: &Waiting, limit: Limit, step: &mut MachineOutput) {
        let is_last = *waiting == Waiting::Reply && !self.state.offered;
        let switches = self.spec.when_low == Low::Switch && !self.state.cheap;
        match limit {
            Limit::Money if switches => self.state.cheap = true,
            Limit::Tokens | Limit::Money if !is_last => self.state.wrap = self.state.wrap.or(Some(limit)),
            _ => return self.stop(Status::Partial(limit), step),
        }
        self.act(step);
    }

    pub(super) fn closing(&self) -> Option<Closing> {
        let last = self.state.stats.turns >= self.spec.max_turns;
        let limit = self.state.wrap.or(last.then_some(Limit::Turns));
        limit.map(Closing::Limit).or(self.state.enough.then_some(Closing::Enough))
    }

    fn announce(&mut self, closing: Option<Closing>, step: &mut MachineOutput) {
        let Some(closing) = closing.filter(|_| self.has_tools() && !self.state.announced) else { return };
        self.state.announced = true;
        let text = match closing {
            Closing::Limit(limit) => notes::last_turn(limit),
            Closing::Enough => notes::ANSWER_NOW.to_owned(),
        };
        self.note(text, step);
    }

    pub(super) fn reply(&mut self, response: Response, step: &mut MachineOutput) {
        let message = from_model(response.message);
        if !message.thinking().is_empty() {
            self.state.stats.reasoning_steps = self.state.stats.reasoning_steps.saturating_add(1);
        }
        let called = message.calls().next().is_some();
        if response.finish == Finish::Paused && !called {
            return self.paused(message, step);
        }
        if response.finish == Finish::Length && self.ask_for_cut_reply(&message, response.usage.output, step)
        {
            return;
        }
        let shows = self.state.rules > 0 && has_media(&message);
        let silent = message.text().trim().is_empty() && !shows && self.paused_text().trim().is_empty();
        if !silent || (called && self.state.offered) {
            self.state.empty_replies = 0;
        }
        match (called, silent) {
            (true, _) if self.state.offered => self.calls(message, &response.guarded, step),
            (true, _) => self.calls_withheld(message, &response.guarded, step),
            (false, true) if response.finish == Finish::ContentFilter => {
                let error =
                    ModelError::new(ModelErrorKind::ContentFiltered, "the provider withheld the reply");
                self.stop(Status::Failed(Failure::Model(error)), step);
            }
            (false, true) => self.empty_reply(step),
            (false, false) => self.answer(message, step),
        }
    }

    /// The provider interrupted its turn: it is sent what it said so far and nothing behind it, and goes on.
    fn paused(&mut self, message: Arc<Message>, step: &mut MachineOutput) {
        self.add(message);
        self.state.paused = self.state.paused.saturating_add(1);
        if self.state.paused > PAUSES {
            let what = format!("its provider interrupted the turn {} times in a row", self.state.paused);
            return self.stop(Status::Failed(Failure::Behaviour(what)), step);
        }
        self.ask(step);
    }

    /// What was said in the turn before its provider interrupted it.
    pub(super) fn paused_text(&self) -> String {
        let messages = self.state.history.messages();
        let count = usize::try_from(self.state.paused).unwrap_or(usize::MAX);
        let paused = messages.iter().skip(messages.len().saturating_sub(count));
        paused.filter(|message| message.role == Role::Assistant).map(|message| message.text()).collect()
    }

    fn empty_reply(&mut self, step: &mut MachineOutput) {
        self.state.empty_replies = self.state.empty_replies.saturating_add(1);
        if self.state.empty_replies > EMPTY_REPLIES {
            let what = format!("it was empty {} times", self.state.empty_replies);
            return self.stop(Status::Failed(Failure::Behaviour(what)), step);
        }
        self.make_smaller();
        self.note(notes::EMPTY.to_owned(), step);
        self.act(step);
    }

    /// The model calls tools although none are offered: what it says beside the calls must do, or what it ends with.
    fn calls_withheld(&mut self, message: Arc<Message>, guarded: &[Intervention], step: &mut MachineOutput) {
        let mut text = message.text().into_owned();
        let mut signalled = false;
        let withheld = ToolError::new(ToolErrorKind::Denied, "no more tools can be called");
        if let Ok(mut exchange) = self.state.history.open(message) {
            block(&mut exchange, guarded);
            if let Some(answer) = self.take_answer(&mut exchange) {
                text = answer;
            }
            signalled = self.take_last(&mut exchange).is_some();
            self.close(exchange, &withheld);
        }
        let status = match self.closing() {
            Some(Closing::Limit(limit)) if self.has_tools() => Status::BestEffort(limit),
            _ => Status::Complete,
        };
        if !self.state.said.is_empty() && self.closing().is_none() {
            return self.act(step);
        }
        match (text.trim(), status) {
            (_, status) if signalled => self.end(status, text, None, step),
            ("", Status::BestEffort(limit)) if self.state.rules > 0 => self.no_words(limit, step),
            ("", Status::BestEffort(limit)) => self.stop(Status::Partial(limit), step),
            ("", _) => self.empty_reply(step),
            (_, status) => self.check_answer(&text, status, step),
        }
    }

    /// The model calls a tool on its last turn and says nothing: it is asked once more, in plain words, and then what
    /// there is has to do. A run that has neither words nor results has no answer.
    fn no_words(&mut self, limit: Limit, step: &mut MachineOutput) {
        self.state.empty_replies = self.state.empty_replies.saturating_add(1);
        if self.state.empty_replies == 1 {
            self.note(notes::IN_WORDS.to_owned(), step);
            return self.act(step);
        }
        let words = self.last_words();
        let found = if words.is_empty() { self.last_results() } else { words };
        match found.is_empty() {
            true => self.stop(Status::Partial(limit), step),
            false => self.check_answer(&found, Status::BestEffort(limit), step),
        }
    }

    /// What the last tools returned that returned something in this run, in words that say so.
    fn last_results(&self) -> String {
        let own = self.state.history.messages().get(self.task()..).unwrap_or_default();
        let found = |message: &Arc<Message>| {
            let results = message.results().filter(|result| !result.is_error());
            let texts: Vec<String> = results
                .take(SHOWN_RESULTS)
                .map(|result| notes::one_result(&result.name, &result.text()))
                .collect();
            (!texts.is_empty()).then(|| notes::only_results(&texts))
        };
        own.iter().rev().find_map(found).unwrap_or_default()
    }

    fn calls(&mut self, message: Arc<Message>, guarded: &[Intervention], step: &mut MachineOutput) {
        let Ok(mut exchange) = self.state.history.open(message) else {
            let what = "its calls cannot be told apart".to_owned();
            return self.stop(Status::Failed(Failure::Behaviour(what)), step);
        };
        let allowed = if self.spec.single_tool { 1 } else { self.spec.max_calls };
        let blocked = block(&mut exchange, guarded);
        self.state.stats.tool_calls = self.state.stats.tool_calls.saturating_add(blocked);
        self.state.stats.failed_calls = self.state.stats.failed_calls.saturating_add(blocked);
        if let Some(text) = self.take_answer(&mut exchange) {
            return self.finish(exchange, &text, step);
        }
        if let Some(text) = self.take_last(&mut exchange) {
            return self.end_with_signal(exchange, text, step);
        }
        let calls: Vec<ToolCall> = exchange.unanswered().cloned().collect();
        for call in calls.iter().skip(allowed) {
            let message =
                format!("at most {allowed} tools can be called in one turn; this call was left out");
            let error = ToolError::new(ToolErrorKind::Denied, message);
            let _ = exchange.answer(ToolResult::new(call, Err(error)));
            self.state.stats.failed_calls = self.state.stats.failed_calls.saturating_add(1);
        }
        let nothing_left = exchange.is_complete();
        self.state.exchange = Some(exchange);
        // A call may be answered at once, and with the last one the next turn begins.
        self.state.enough |= self.spec.single_tool;
        if nothing_left {
            return self.observe(step);
        }
        if let Some(result) = self.known_result(&calls) {
            return self.answer_again(result, step);
        }
        for call in calls.into_iter().take(allowed) {
            self.state.stats.tool_calls = self.state.stats.tool_calls.saturating_add(1);
            self.call(call, false, step);
        }
    }

    /// The result of the only call, if a model that needs help makes the same one for the third time in a row.
    fn known_result(&self, calls: &[ToolCall]) -> Option<ToolResult> {
        let [call] = calls else { return None };
        if self.state.rules < 2 || !call.is_from_text() {
            return None;
        }
        let own = self.state.history.messages().get(self.task()..).unwrap_or_default();
        let mut earlier = own.iter().rev().filter(|message| message.role == Role::Tool);
        let mut made = own.iter().rev().filter(|message| message.calls().next().is_some());
        let same = |message: &Arc<Message>| {
            let mut calls = message.calls();
            let first = calls.next().is_some_and(|made| made.name == call.name && made.args == call.args);
            first && calls.next().is_none()
        };
        if !(made.next().is_some_and(same) && made.next().is_some_and(same)) {
            return None;
        }
        let result = earlier.next()?.results().next().filter(|result| !result.is_error())?;
        Some(ToolResult::new(call, Ok(ToolOutput::text(notes::same_call(&result.text())))))
    }

    /// Answers a call with what is known, and has the model answer.
    fn answer_again(&mut self, result: ToolResult, step: &mut MachineOutput) {
        self.state.enough = true;
        self.answered(result, step);
    }

    fn finishes(&self, call: &ToolCall) -> bool {
        self.spec.finishes && call.name == asked::FINISH
    }

    /// What the run ends with, if that is all that is called for.
    fn take_answer(&self, exchange: &mut Exchange) -> Option<String> {
        let calls: Vec<ToolCall> = exchange.unanswered().take(2).cloned().collect();
        let [call] = &*calls else { return None };
        let text = asked::answer(&call.args).ok().filter(|_| self.finishes(call))?;
        let _ = exchange.answer(ToolResult::new(call, Ok(ToolOutput::text("the answer was taken"))));
        Some(text)
    }

    /// The model says by a call that it is done.
    fn finish(&mut self, exchange: Exchange, text: &str, step: &mut MachineOutput) {
        self.state.stats.tool_calls = self.state.stats.tool_calls.saturating_add(1);
        self.close(exchange, &ToolError::failed("the call was not answered"));
        if !self.state.said.is_empty() && self.closing().is_none() {
            return self.act(step);
        }
        self.check_answer(text, Status::Complete, step);
    }

    /// The user is asked. What is wrong with the question, the model is told at once.
    fn ask_user(&mut self, call: ToolCall, step: &mut MachineOutput) {
        let (question, Some(run)) = (asked::question(&call.args), self.state.run.clone()) else { return };
        match question {
            Ok(question) => {
                let waiting = Waiting::Answer(call.id.clone());
                let ask = |effect| Effect::Ask(Ask::new(run, effect, call, question).for_answer());
                self.want(waiting, ask, step);
            }
            Err(error) => self.answered(ToolResult::new(&call, Err(error)), step),
        }
    }

    /// What the user said to a question.
    pub(super) fn user_answered(&mut self, id: &CallId, decision: Decision, step: &mut MachineOutput) {
        let Some(call) = self.open_call(id) else { return };
        let outcome = match decision {
            Decision::Answer { text } => Ok(ToolOutput::text(text)),
            Decision::Deny { reason } => Err(format!("the question was not answered: {reason}")),
            _ => Err("the question was not answered".to_owned()),
        };
        let refused = |why| ToolError::new(ToolErrorKind::Denied, format!("{why}; {}", asked::UNANSWERED));
        self.answered(ToolResult::new(&call, outcome.map_err(refused)), step);
    }

    fn call(&mut self, call: ToolCall, approved: bool, step: &mut MachineOutput) {
        let id = call.id.clone();
        if self.spec.asks_user && call.name == asked::ASK {
            return self.ask_user(call, step);
        }
        if self.finishes(&call) {
            let error = asked::answer(&call.args).err();
            let error = error
                .unwrap_or_else(|| ToolError::new(ToolErrorKind::Denied, asked::not_alone(asked::FINISH)));
            return self.answered(ToolResult::new(&call, Err(error)), step);
        }
        if self.is_signal(&call) {
            return self.signal(&call, step);
        }
        if self.reads(&call) {
            return self.read(&call, step);
        }
        if let Some(longest) = self.spec.longest_wait.filter(|_| call.name == wait::NAME) {
            return self.wait(&call, longest, approved, step);
        }
        if self.spec.delegates.contains(&call.name) {
            let child = ChildRun::new(call.name, call.args).for_call(id.clone(), approved);
            return self.want(Waiting::Child(id), |_| Effect::Child(child), step);
        }
        let run = if approved { ToolRun::approved(call) } else { ToolRun::new(call) };
        self.want(Waiting::Tool(id), |_| Effect::Tool(run), step);
    }

    fn wait(&mut self, call: &ToolCall, longest: Duration, approved: bool, step: &mut MachineOutput) {
        match wait::time(&call.args, longest) {
            Ok(time) => {
                let wait = Wait::new(time).for_call(call.id.clone()).with_approved(approved);
                self.want(Waiting::Wait(call.id.clone()), |_| Effect::Wait(wait), step);
            }
            Err(error) => self.answered(ToolResult::new(call, Err(error)), step),
        }
    }

    pub(super) fn woken(&mut self, id: &CallId, step: &mut MachineOutput) {
        if let Some(call) = self.open_call(id) {
            let output = ToolOutput::text("the time has passed");
            self.answered(ToolResult::new(&call, Ok(output)), step);
        }
    }

    pub(super) fn ask_leave(&mut self, call: &CallId, reason: String, step: &mut MachineOutput) {
        let (Some(run), Some(call)) = (self.state.run.clone(), self.open_call(call)) else { return };
        let waiting = Waiting::Decision(call.id.clone());
        self.want(waiting, |effect| Effect::Ask(Ask::new(run, effect, call, reason)), step);
    }

    fn open_call(&self, id: &CallId) -> Option<ToolCall> {
        self.state.exchange.as_ref()?.call(id).cloned()
    }

    pub(super) fn decided(&mut self, id: &CallId, decision: Decision, step: &mut MachineOutput) {
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
            Decision::Allow => self.call(call, true, step),
            Decision::Answer { text } => {
                self.answered(ToolResult::new(&call, Ok(ToolOutput::text(text))), step);
            }
            _ => {
                let error = ToolError::new(ToolErrorKind::Denied, "the decision is of an unknown kind");
                self.answered(ToolResult::new(&call, Err(error)), step);
            }
        }
    }

    pub(super) fn child_ended(&mut self, id: &CallId, ending: Ending, step: &mut MachineOutput) {
        self.state.usage += ending.usage;
        let Some(call) = self.open_call(id) else { return };
        let outcome = match ending.status {
            Status::Complete | Status::BestEffort(_) => {
                Ok(ending.value.map_or_else(|| ToolOutput::text(ending.text), ToolOutput::value))
            }
            Status::Failed(Failure::Program(error)) => Err(error),
            status => {
                let mut message = format!("`{}` {status}", call.name);
                if !ending.text.is_empty() {
                    message.push_str(&format!("; its last words were: {}", ending.text));
                }
                Err(ToolError::failed(message))
            }
        };
        self.answered(ToolResult::new(&call, outcome), step);
    }

    pub(super) fn call_failed(&mut self, id: &CallId, error: ToolError, step: &mut MachineOutput) {
        if let Some(call) = self.open_call(id) {
            self.answered(ToolResult::new(&call, Err(error)), step);
        }
    }
}

/// Answers the calls that a guard has blocked, and says how many these are.
fn block(exchange: &mut Exchange, guarded: &[Intervention]) -> u64 {
    let mut blocked = 0;
    for by in guarded.iter().filter(|by| by.blocked.is_some()) {
        let call = by.call.as_ref().and_then(|id| exchange.call(id).cloned());
        let Some(call) = call else { continue };
        let error = ToolError::new(ToolErrorKind::Denied, not_made(by));
        blocked += u64::from(exchange.answer(ToolResult::new(&call, Err(error))).is_ok());
    }
    blocked
}

/// Whether a message has something to look at or to listen to.
fn has_media(message: &Message) -> bool {
    message.parts.iter().any(|part| matches!(part, Part::Media(_)))
}

/// A reply as a model's message, whatever the model made of it.
fn from_model(message: Arc<Message>) -> Arc<Message> {
    if message.role == Role::Assistant && message.results().next().is_none() {
        return message;
    }
    let keep = |part: &&Part| !matches!(part, Part::ToolResult(_));
    Arc::new(Message::new(Role::Assistant, message.parts.iter().filter(keep).cloned()))
}
