//! Handles commands from the holder of a handle to a run.

use levity_core::{ArgumentProblem, ControlError, Decision, EffectId, Executor, Machine, ToolCall};
use serde_json::Value;

use super::Driver;
use crate::control::{Order, OrderKind};

impl<M: Machine + 'static> Driver<M> {
    pub(super) fn take_order(&mut self, order: Order) {
        let now = self.now();
        let taken = match order.what {
            OrderKind::Command(command) => self.core.command(now, command),
            OrderKind::Decide(effect, decision) => match self.problems_of(effect, &decision) {
                problems if problems.is_empty() => self.core.decide(now, effect, decision),
                problems => Err(ControlError::InvalidArguments {
                    run: self.core.run().clone(),
                    effect,
                    problems,
                }),
            },
            OrderKind::Resolve(effect, resolution) => self.core.resolve(now, effect, resolution),
            OrderKind::Asks(answer) => {
                let _ = answer.send(self.core.questions().cloned().collect());
                Ok(())
            }
        };
        match taken {
            Ok(()) => self.acks.push(order.done),
            Err(error) => drop(order.done.send(Err(error))),
        }
    }

    /// Returns the problems of the arguments that a person wrote for the call of a question.
    pub(super) fn problems_of(
        &self,
        effect: EffectId,
        decision: &Decision,
    ) -> Vec<ArgumentProblem> {
        match (decision, self.core.asked(effect)) {
            (Decision::Edit { args }, Some(call)) => edit_problems(&*self.env.executor, call, args),
            _ => Vec::new(),
        }
    }
}

/// Returns the problems of other arguments for a call.
pub(crate) fn edit_problems(
    executor: &dyn Executor,
    mut call: ToolCall,
    args: &Value,
) -> Vec<ArgumentProblem> {
    (call.args, call.raw, call.opaque) = (args.clone(), None, None);
    executor.check_arguments(&call)
}
