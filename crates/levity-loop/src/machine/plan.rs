//! Goal and plan, and side questions to a model.

use std::sync::Arc;

use levity_core::{
    Effect, EventKind, Failure, Limit, MachineOutput, Message, ModelCall, Offer, Phase as Told,
    Request, RunId, Status,
};

use crate::notes;
use crate::strategy::{Goal, Planning};

use super::budget::Closing;
use super::phase::{Phase, Purpose, Question};
use super::{AgentMachine, plain};

impl AgentMachine {
    pub(super) fn begin(&mut self, run: RunId, wrap: Option<Limit>, step: &mut MachineOutput) {
        self.state.run = Some(run);
        self.state.phase = Phase::Deciding;
        self.state.budget.closing = wrap.map(Closing::Limit);
        step.emit(EventKind::Phase(Told::Goal));
        let goal = self.state.task.goal.clone();
        step.emit(EventKind::Goal {
            text: goal.text().into_owned(),
        });
        for intervention in self.state.task.guarded.clone() {
            step.emit(EventKind::Guarded {
                effect: None,
                intervention,
            });
        }
        if let Some(by) = self
            .state
            .task
            .guarded
            .last()
            .filter(|by| by.blocked.is_some())
        {
            return self.stop(Status::Failed(Failure::Blocked(by.clone())), step);
        }
        self.state.conversation.task_begins();
        if let Some(beside) = self.state.task.beside.clone() {
            self.add_note(Message::user(&*beside));
            self.state.conversation.pin_last();
        }
        self.add(plain(&goal));
        self.state.conversation.pin_last();
        step.emit(EventKind::Phase(Told::Plan));
        match self.spec.planner.plan(&Goal { message: &goal }) {
            Planning::None => self.act(step),
            Planning::Steps(steps) => self.planned(steps, step),
            // The last remaining call belongs to the answer.
            Planning::Ask(_) if self.state.budget.is_low() => self.act(step),
            Planning::Ask(prompt) => self.ask(Question::Plan(prompt), step),
        }
    }

    pub(super) fn planned(&mut self, steps: Vec<String>, step: &mut MachineOutput) {
        if !steps.is_empty() {
            step.emit(EventKind::Plan {
                steps: steps.clone(),
            });
            self.add_note(Message::system(notes::plan(&steps)));
            self.state.task.plan = steps;
        }
        self.act(step);
    }

    /// Asks a model, once its request fits the window.
    pub(super) fn ask(&mut self, question: Question, step: &mut MachineOutput) {
        match self.make_room(question, step) {
            Some(Question::Reply(turn)) => self.ask_for_reply(turn, step),
            Some(Question::Plan(prompt)) => self.consult(Purpose::Plan, "planner", prompt, step),
            Some(Question::Reflection(prompt)) => {
                self.consult(Purpose::Reflection, "reflector", prompt, step);
            }
            None => {}
        }
    }

    /// Asks a model on the side: the question does not enter the history.
    fn consult(
        &mut self,
        purpose: Purpose,
        slot: &'static str,
        prompt: String,
        step: &mut MachineOutput,
    ) {
        let request = self.request().with_message(Message::system(prompt));
        let call = ModelCall::new(self.slot(slot), request, Offer::None);
        self.perform_model_call(purpose, self.with_tools(call), step);
    }

    pub(super) fn perform_model_call(
        &mut self,
        purpose: Purpose,
        call: ModelCall,
        step: &mut MachineOutput,
    ) {
        let effect = self.next_effect();
        self.state.phase = Phase::Asking { effect, purpose };
        step.request(effect, Effect::Model(call));
    }

    pub(super) fn with_tools(&self, call: ModelCall) -> ModelCall {
        call.with_reads(self.state.tools.reads)
            .with_found(self.state.tools.found.clone())
    }

    pub(super) fn request(&self) -> Request {
        let request = Request::new().with_history(self.state.conversation.sent().clone());
        let mut request = request.with_options(self.spec.options.clone());
        if self.state.corrections.max_reply.is_some() {
            Arc::make_mut(&mut request.options).max_tokens = self.max_reply();
        }
        match &self.state.task.system {
            Some(system) => request.with_system(system.clone()),
            None => request,
        }
    }
}
