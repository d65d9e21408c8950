//! Goal and plan.

use std::sync::Arc;

use levity_core::{
    Effect, EventKind, Failure, Limit, MachineOutput, Message, ModelCall, Offer, Phase, Request, RunId,
    Status,
};

use crate::notes;
use crate::strategy::{Goal, Planning};

use super::window::Next;
use super::{AgentMachine, Waiting, plain};

impl AgentMachine {
    pub(super) fn begin(&mut self, run: RunId, wrap: Option<Limit>, step: &mut MachineOutput) {
        self.state.run = Some(run);
        self.state.wrap = wrap;
        self.enter(Phase::Goal, step);
        let goal = self.state.goal.clone();
        step.tell(EventKind::Goal { text: goal.text().into_owned() });
        for intervention in self.state.guarded.clone() {
            step.tell(EventKind::Guarded { effect: None, intervention });
        }
        if let Some(by) = self.state.guarded.last().filter(|by| by.blocked.is_some()) {
            return self.stop(Status::Failed(Failure::Blocked(by.clone())), step);
        }
        self.task_begins();
        if let Some(beside) = self.state.beside.clone() {
            self.add_note(Message::user(&*beside));
            self.pin_last();
        }
        self.add(plain(&goal));
        self.pin_last();
        self.enter(Phase::Plan, step);
        match self.spec.planner.plan(&Goal { message: &goal }) {
            Planning::None => self.act(step),
            Planning::Steps(steps) => self.planned(steps, step),
            // A call that is the last one left belongs to the answer.
            Planning::Ask(_) if self.state.wrap.is_some() => self.act(step),
            Planning::Ask(prompt) => self.consult(Waiting::Plan, "planner", prompt, step),
        }
    }

    pub(super) fn planned(&mut self, steps: Vec<String>, step: &mut MachineOutput) {
        if !steps.is_empty() {
            step.tell(EventKind::Plan { steps: steps.clone() });
            self.add_note(Message::system(notes::plan(&steps)));
            self.state.plan = steps;
        }
        self.act(step);
    }

    /// Asks a model on the side: the question does not enter the history.
    pub(super) fn consult(
        &mut self,
        waiting: Waiting,
        slot: &'static str,
        prompt: String,
        step: &mut MachineOutput,
    ) {
        let next = if waiting == Waiting::Plan { Next::Plan } else { Next::Reflection };
        if self.make_room(next(prompt.clone()), step) {
            return;
        }
        let (slot, mut request) = (self.slot(slot), self.request());
        request = request.with_message(Message::system(prompt));
        let call = ModelCall::new(slot, request, Offer::None).with_reads(self.state.reads);
        let call = call.with_found(self.state.found.clone());
        self.want(waiting, |_| Effect::Model(call), step);
    }

    pub(super) fn request(&self) -> Request {
        let request = Request::new().with_history(self.sent().clone());
        let mut request = request.with_options(self.spec.options.clone());
        if self.state.max_reply.is_some() {
            Arc::make_mut(&mut request.options).max_tokens = self.max_reply();
        }
        match &self.state.system {
            Some(system) => request.with_system(system.clone()),
            None => request,
        }
    }
}
