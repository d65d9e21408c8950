//! Handles commands from the holder of a handle to a run.

use levity_core::Machine;

use super::Driver;
use crate::control::{Order, OrderKind};

impl<M: Machine + 'static> Driver<M> {
    pub(super) fn take_order(&mut self, order: Order) {
        let now = self.now();
        let taken = match order.what {
            OrderKind::Command(command) => self.core.command(now, command),
            OrderKind::Decide(effect, decision) => self.core.decide(now, effect, decision),
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
}
