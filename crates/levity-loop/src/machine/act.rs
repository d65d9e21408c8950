//! Act: calls the model, and the tools that it requests.
//!
//! A reply leads to one of five reactions: continue an interrupted turn, repeat a reply that was
//! cut, call tools, ask again after an empty reply, or check the answer. Every call gets exactly
//! one result, also if it is denied, left out, interrupted or unknown.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Ask, CallId, ChildRun, Decision, Effect, EffectId, Ending, EventKind, Exchange, Failure,
    Finish, Intervention, Limit, MachineOutput, Message, ModelCall, ModelError, ModelErrorKind,
    Offer, Outcome, Part, Phase as Told, Response, Role, Status, ToolCall, ToolError,
    ToolErrorKind, ToolOutput, ToolResult, ToolRun, Wait,
};

use crate::control_tools;
use crate::guards::blocked_call_text;
use crate::notes;
use crate::wait;

use super::budget::Closing;
use super::phase::{Calls, Phase, Purpose, Question, Turn, Waiting};
use super::{AgentMachine, MAX_EMPTY_REPLIES, MAX_PAUSES, UNKNOWN};

impl AgentMachine {
    pub(super) fn act(&mut self, step: &mut MachineOutput) {
        step.emit(EventKind::Phase(Told::Act));
        self.count_turn(step);
        self.state
            .conversation
            .add_pending_messages(self.spec.reader);
        let closing = self.closing();
        self.announce(closing, step);
        let offered = self.has_tools() && closing.is_none();
        self.ask(Question::Reply(Turn { offered, paused: 0 }), step);
    }

    pub(super) fn ask_for_reply(&mut self, turn: Turn, step: &mut MachineOutput) {
        self.save(step);
        self.state.conversation.note_asked();
        let offer = if turn.offered {
            Offer::All
        } else {
            Offer::None
        };
        let mut request = self.request();
        if turn.offered && self.state.tally.stats.turns == 1 {
            request.tool_choice = self.spec.tool_choice.clone();
        }
        if let Some(output) = &self.output {
            request = request.with_output(output.schema.clone());
        }
        let call = ModelCall::new(self.slot("main"), request, offer);
        self.perform_model_call(Purpose::Reply(turn), self.with_tools(call), step);
    }

    /// Returns `true` if there is a message that the model has not received, and it may still act
    /// on it.
    pub(super) fn has_pending_messages(&self) -> bool {
        !self.state.conversation.said.is_empty() && self.closing().is_none()
    }

    pub(super) fn reply(&mut self, turn: Turn, response: Response, step: &mut MachineOutput) {
        self.state.conversation.learn(&response);
        self.state.tally.finish = Some(response.finish.clone());
        let message = from_model(response.message);
        let steps = &mut self.state.tally.stats.reasoning_steps;
        *steps = steps.saturating_add(u64::from(!message.thinking().is_empty()));
        let called = message.calls().next().is_some();
        if response.finish == Finish::Paused && !called {
            return self.paused(turn, message, step);
        }
        if response.finish == Finish::Length
            && self.ask_for_cut_reply(turn, &message, response.usage.output, step)
        {
            return;
        }
        let said_before = self.state.conversation.text_of_last(turn.paused);
        let shows = self.state.task.rules > 0 && has_media(&message);
        let silent = message.text().trim().is_empty() && !shows && said_before.trim().is_empty();
        if !silent || (called && turn.offered) {
            self.state.corrections.empty_replies = 0;
        }
        match (called, silent) {
            (true, _) if turn.offered => self.calls(message, &response.guarded, step),
            (true, _) => self.calls_withheld(message, &response.guarded, step),
            (false, true) if response.finish == Finish::ContentFilter => {
                let error = ModelError::new(
                    ModelErrorKind::ContentFiltered,
                    "the provider withheld the reply",
                );
                self.stop(Status::Failed(Failure::Model(error)), step);
            }
            (false, true) => self.empty_reply(step),
            (false, false) => self.answer(turn, message, step),
        }
    }

    /// Handles an interrupted turn: the provider gets its partial output with nothing behind it,
    /// and continues.
    fn paused(&mut self, mut turn: Turn, message: Arc<Message>, step: &mut MachineOutput) {
        self.add(message);
        turn.paused = turn.paused.saturating_add(1);
        if turn.paused > MAX_PAUSES {
            let what = format!(
                "its provider interrupted the turn {} times in a row",
                turn.paused
            );
            return self.stop(Status::Failed(Failure::Behaviour(what)), step);
        }
        self.ask(Question::Reply(turn), step);
    }

    fn empty_reply(&mut self, step: &mut MachineOutput) {
        self.state.corrections.empty_replies =
            self.state.corrections.empty_replies.saturating_add(1);
        if self.state.corrections.empty_replies > MAX_EMPTY_REPLIES {
            let what = format!(
                "it was empty {} times in a row",
                self.state.corrections.empty_replies
            );
            return self.stop(Status::Failed(Failure::Behaviour(what)), step);
        }
        self.make_smaller();
        self.note(notes::EMPTY.to_owned(), step);
        self.act(step);
    }

    /// Handles calls although no tools are offered: the text beside the calls is the answer, or the
    /// last result.
    fn calls_withheld(
        &mut self,
        message: Arc<Message>,
        guarded: &[Intervention],
        step: &mut MachineOutput,
    ) {
        let mut text = message.text().into_owned();
        let mut signalled = false;
        let withheld = ToolError::new(ToolErrorKind::Denied, "no more tools can be called");
        if let Ok(mut exchange) = self.state.conversation.history.open(message) {
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
        if self.has_pending_messages() {
            return self.act(step);
        }
        match (text.trim(), status) {
            (_, status) if signalled => self.end(status, text, None, step),
            ("", Status::BestEffort(limit)) if self.state.task.rules > 0 => {
                self.ask_for_words(limit, step);
            }
            ("", Status::BestEffort(limit)) => self.stop(Status::Partial(limit), step),
            ("", _) => self.empty_reply(step),
            (_, status) => self.check_answer(&text, status, step),
        }
    }

    /// Handles a tool call without text on the last turn: the model is asked once more for words.
    ///
    /// After that, the run ends with the available text or results. A run that has neither has no
    /// answer.
    fn ask_for_words(&mut self, limit: Limit, step: &mut MachineOutput) {
        self.state.corrections.empty_replies =
            self.state.corrections.empty_replies.saturating_add(1);
        if self.state.corrections.empty_replies == 1 {
            self.note(notes::IN_WORDS.to_owned(), step);
            return self.act(step);
        }
        let words = self.state.conversation.last_text();
        let found = if words.is_empty() {
            self.state.conversation.last_results()
        } else {
            words
        };
        match found.is_empty() {
            true => self.stop(Status::Partial(limit), step),
            false => self.check_answer(&found, Status::BestEffort(limit), step),
        }
    }

    /// Calls beyond the limit are answered with an error at once and not made.
    fn calls(&mut self, message: Arc<Message>, guarded: &[Intervention], step: &mut MachineOutput) {
        let Ok(mut exchange) = self.state.conversation.history.open(message) else {
            let what = "its calls have the same id".to_owned();
            return self.stop(Status::Failed(Failure::Behaviour(what)), step);
        };
        let allowed = if self.spec.single_tool {
            1
        } else {
            self.spec.max_calls
        };
        let blocked = block(&mut exchange, guarded);
        self.state.tally.count_calls(blocked, blocked);
        if let Some(text) = self.take_answer(&mut exchange) {
            return self.finish(exchange, &text, step);
        }
        if let Some(text) = self.take_last(&mut exchange) {
            return self.end_with_signal(exchange, text, step);
        }
        let calls: Vec<ToolCall> = exchange.unanswered().cloned().collect();
        for call in calls.iter().skip(allowed) {
            let message = format!(
                "at most {allowed} tools can be called in one turn; this call was left out"
            );
            let error = ToolError::new(ToolErrorKind::Denied, message);
            let _ = exchange.answer(ToolResult::new(call, Err(error)));
            self.state.tally.count_calls(0, 1);
        }
        let nothing_left = exchange.is_complete();
        self.state.phase = Phase::Calling(Calls::new(exchange));
        // A call may be answered at once, and with the last one the next turn begins.
        if self.spec.single_tool {
            self.state.budget.enough();
        }
        if nothing_left {
            return self.observe(step);
        }
        if let Some(result) = self.known_result(&calls) {
            return self.answer_again(result, step);
        }
        for call in calls.into_iter().take(allowed) {
            self.state.tally.count_calls(1, 0);
            self.call(call, false, step);
        }
    }

    /// Returns the result of the only call, if a model that needs help makes the same call for the
    /// third time in a row.
    ///
    /// Small models repeat a call again and again; the known result and a note break that circle.
    fn known_result(&self, calls: &[ToolCall]) -> Option<ToolResult> {
        let [call] = calls else { return None };
        if self.state.task.rules < 2 || !call.is_from_text() {
            return None;
        }
        let own = self.state.conversation.own();
        let mut earlier = own
            .iter()
            .rev()
            .filter(|message| message.role == Role::Tool);
        let mut made = own
            .iter()
            .rev()
            .filter(|message| message.calls().next().is_some());
        let same = |message: &Arc<Message>| {
            let mut calls = message.calls();
            let first = calls
                .next()
                .is_some_and(|made| made.name == call.name && made.args == call.args);
            first && calls.next().is_none()
        };
        if !(made.next().is_some_and(same) && made.next().is_some_and(same)) {
            return None;
        }
        let result = earlier
            .next()?
            .results()
            .next()
            .filter(|result| !result.is_error())?;
        Some(ToolResult::new(
            call,
            Ok(ToolOutput::text(notes::same_call(&result.text()))),
        ))
    }

    /// Answers a call with its known result, and makes the model answer.
    fn answer_again(&mut self, result: ToolResult, step: &mut MachineOutput) {
        self.state.budget.enough();
        self.answered(result, step);
    }

    fn finishes(&self, call: &ToolCall) -> bool {
        self.spec.finishes && call.name == control_tools::FINISH
    }

    /// Returns the answer of a `finish` call, if it is the only call.
    fn take_answer(&self, exchange: &mut Exchange) -> Option<String> {
        let calls: Vec<ToolCall> = exchange.unanswered().take(2).cloned().collect();
        let [call] = &*calls else { return None };
        let text = control_tools::answer(&call.args)
            .ok()
            .filter(|_| self.finishes(call))?;
        let _ = exchange.answer(ToolResult::new(
            call,
            Ok(ToolOutput::text("the answer was taken")),
        ));
        Some(text)
    }

    /// Handles the call by which the model ends the run.
    fn finish(&mut self, exchange: Exchange, text: &str, step: &mut MachineOutput) {
        self.state.tally.count_calls(1, 0);
        self.close(exchange, &ToolError::failed("the call was not answered"));
        if self.has_pending_messages() {
            return self.act(step);
        }
        self.check_answer(text, Status::Complete, step);
    }

    /// Asks the user. The model gets errors in the question at once.
    fn ask_user(&mut self, call: ToolCall, step: &mut MachineOutput) {
        let (question, Some(run)) = (control_tools::question(&call.args), self.state.run.clone())
        else {
            return;
        };
        match question {
            Ok(question) => {
                let waiting = Waiting::Answer(call.id.clone());
                let ask = |effect| Effect::Ask(Ask::new(run, effect, call, question).for_answer());
                self.perform_for_call(waiting, ask, step);
            }
            Err(error) => self.answered(ToolResult::new(&call, Err(error)), step),
        }
    }

    /// Handles the user's answer to a question.
    fn user_answered(&mut self, id: &CallId, decision: Decision, step: &mut MachineOutput) {
        let Some(call) = self.open_call(id) else {
            return;
        };
        let outcome = match decision {
            Decision::Answer { text } => Ok(ToolOutput::text(text)),
            Decision::Deny { reason } => Err(format!("the question was not answered: {reason}")),
            _ => Err("the question was not answered".to_owned()),
        };
        let refused = |reason| {
            ToolError::new(
                ToolErrorKind::Denied,
                format!("{reason}; {}", control_tools::UNANSWERED),
            )
        };
        self.answered(ToolResult::new(&call, outcome.map_err(refused)), step);
    }

    fn call(&mut self, call: ToolCall, approved: bool, step: &mut MachineOutput) {
        let id = call.id.clone();
        if self.spec.asks_user && call.name == control_tools::ASK {
            return self.ask_user(call, step);
        }
        if self.finishes(&call) {
            let error = control_tools::answer(&call.args).err();
            let error = error.unwrap_or_else(|| {
                ToolError::new(
                    ToolErrorKind::Denied,
                    control_tools::not_alone_text(control_tools::FINISH),
                )
            });
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
            return self.perform_for_call(Waiting::Child(id), |_| Effect::Child(child), step);
        }
        let run = if approved {
            ToolRun::approved(call)
        } else {
            ToolRun::new(call)
        };
        self.perform_for_call(Waiting::Tool(id), |_| Effect::Tool(run), step);
    }

    /// Handles the outcome of a call.
    pub(super) fn handle_call_outcome(
        &mut self,
        effect: EffectId,
        waiting: Waiting,
        outcome: Outcome,
        step: &mut MachineOutput,
    ) {
        use Waiting::{Answer, Child, Decision, Tool, Wait};
        let (call, kind, message) = match (waiting, outcome) {
            (Tool(_), Outcome::Tool(result)) => return self.answered(result, step),
            (Decision(call), Outcome::Decision(decision)) => {
                return self.decided(&call, decision, step);
            }
            (Answer(call), Outcome::Decision(decision)) => {
                return self.user_answered(&call, decision, step);
            }
            (Wait(call), Outcome::Woken) => return self.woken(&call, step),
            (Child(call), Outcome::Child(ending)) => return self.child_ended(&call, *ending, step),
            (Tool(call) | Child(call) | Wait(call), Outcome::NeedsApproval { reason }) => {
                return self.ask_approval(&call, reason, step);
            }
            (Tool(call) | Child(call) | Wait(call), Outcome::Denied { reason }) => (
                call,
                ToolErrorKind::Denied,
                format!("this call is not allowed: {reason}"),
            ),
            (Tool(call) | Child(call), Outcome::Refused(limit)) => {
                let message = format!("the limit on {limit} is reached: answer from what you know");
                (call, ToolErrorKind::Denied, message)
            }
            (Tool(call) | Child(call), Outcome::Unknown) => {
                (call, ToolErrorKind::Unknown, UNKNOWN.to_owned())
            }
            _ => return self.unexpected_outcome(effect, step),
        };
        if let Some(call) = self.open_call(&call) {
            self.answered(
                ToolResult::new(&call, Err(ToolError::new(kind, message))),
                step,
            );
        }
    }

    fn perform_for_call(
        &mut self,
        waiting: Waiting,
        effect: impl FnOnce(EffectId) -> Effect,
        step: &mut MachineOutput,
    ) {
        let id = self.next_effect();
        if let Phase::Calling(calls) = &mut self.state.phase {
            calls.waiting.insert(id, waiting);
            step.request(id, effect(id));
        }
    }

    fn wait(
        &mut self,
        call: &ToolCall,
        longest: Duration,
        approved: bool,
        step: &mut MachineOutput,
    ) {
        match wait::time(&call.args, longest) {
            Ok(time) => {
                let wait = Wait::new(time)
                    .for_call(call.id.clone())
                    .with_approved(approved);
                self.perform_for_call(Waiting::Wait(call.id.clone()), |_| Effect::Wait(wait), step);
            }
            Err(error) => self.answered(ToolResult::new(call, Err(error)), step),
        }
    }

    fn woken(&mut self, id: &CallId, step: &mut MachineOutput) {
        if let Some(call) = self.open_call(id) {
            let output = ToolOutput::text("the time has passed");
            self.answered(ToolResult::new(&call, Ok(output)), step);
        }
    }

    fn ask_approval(&mut self, call: &CallId, reason: String, step: &mut MachineOutput) {
        let (Some(run), Some(call)) = (self.state.run.clone(), self.open_call(call)) else {
            return;
        };
        let waiting = Waiting::Decision(call.id.clone());
        self.perform_for_call(
            waiting,
            |effect| Effect::Ask(Ask::new(run, effect, call, reason)),
            step,
        );
    }

    fn open_call(&self, id: &CallId) -> Option<ToolCall> {
        self.state.phase.exchange()?.call(id).cloned()
    }

    fn decided(&mut self, id: &CallId, decision: Decision, step: &mut MachineOutput) {
        let Some(mut call) = self.open_call(id) else {
            return;
        };
        match decision {
            Decision::Deny { reason } => {
                let error = ToolError::new(
                    ToolErrorKind::Denied,
                    format!("the call was denied: {reason}"),
                );
                self.answered(ToolResult::new(&call, Err(error)), step);
            }
            Decision::Edit { args } => {
                if let Phase::Calling(calls) = &mut self.state.phase {
                    calls.edited.insert(id.clone(), args.clone());
                }
                call.args = args;
                call.raw = None;
                self.call(call, true, step);
            }
            Decision::Allow => self.call(call, true, step),
            Decision::Answer { text } => {
                self.answered(ToolResult::new(&call, Ok(ToolOutput::text(text))), step);
            }
            _ => {
                let error =
                    ToolError::new(ToolErrorKind::Denied, "the decision is of an unknown kind");
                self.answered(ToolResult::new(&call, Err(error)), step);
            }
        }
    }

    fn child_ended(&mut self, id: &CallId, ending: Ending, step: &mut MachineOutput) {
        self.state.tally.usage += ending.usage;
        let Some(call) = self.open_call(id) else {
            return;
        };
        let outcome = match ending.status {
            Status::Complete | Status::BestEffort(_) => Ok(ending
                .value
                .map_or_else(|| ToolOutput::text(ending.text), ToolOutput::value)),
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
}

/// Answers the calls that a guard has blocked, and returns their number.
fn block(exchange: &mut Exchange, guarded: &[Intervention]) -> u64 {
    let mut blocked = 0;
    for by in guarded.iter().filter(|by| by.blocked.is_some()) {
        let call = by.call.as_ref().and_then(|id| exchange.call(id).cloned());
        let Some(call) = call else { continue };
        let error = ToolError::new(ToolErrorKind::Denied, blocked_call_text(by));
        blocked += u64::from(exchange.answer(ToolResult::new(&call, Err(error))).is_ok());
    }
    blocked
}

/// Returns `true` if a message contains media.
fn has_media(message: &Message) -> bool {
    message
        .parts
        .iter()
        .any(|part| matches!(part, Part::Media(_)))
}

/// Returns a reply as a message of the model, whatever its role is.
fn from_model(message: Arc<Message>) -> Arc<Message> {
    if message.role == Role::Assistant && message.results().next().is_none() {
        return message;
    }
    let keep = |part: &&Part| !matches!(part, Part::ToolResult(_));
    Arc::new(Message::new(
        Role::Assistant,
        message.parts.iter().filter(keep).cloned(),
    ))
}
