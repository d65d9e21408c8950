//! Reports of the host.

use levity_core::{
    ControlCommand, ControlError, Decision, Effect, EffectId, Entry, Intervention, Limit, Machine,
    Outcome, Resolution, RunRequest, Spending, Timestamp, ToolResult,
};

use super::{Action, MAX_SAID, RunDriver};

/// The result of an action.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EffectResult {
    /// The effect has an outcome; a child says what it has used.
    Finished(Outcome, Option<Spending>),
    /// Somebody has decided, and guards may have changed the decision.
    Decided(Decision, Vec<Intervention>),
    /// Somebody knows what came of the effect in an earlier process.
    Resolved(Resolution),
}

impl<M: Machine> RunDriver<M> {
    /// Takes in what came of actions. Effects that finish together are recorded in the order in
    /// which they were asked for.
    pub fn finished(&mut self, now: Timestamp, mut results: Vec<(EffectId, EffectResult)>) {
        results.sort_by_key(|(id, _)| *id);
        let mut entries = Vec::with_capacity(results.len() + 1);
        for (id, result) in results {
            let (mut outcome, spent, guarded) = match result {
                EffectResult::Finished(outcome, spent) => (outcome, spent, Vec::new()),
                EffectResult::Decided(decision, guarded) => {
                    (Outcome::Decision(decision), None, guarded)
                }
                EffectResult::Resolved(resolution) => {
                    entries.extend(self.resolved(id, resolution));
                    continue;
                }
            };
            self.questions.remove(id);
            // An answer that comes after somebody else's is no answer.
            if !self.state.running.contains(id) {
                continue;
            }
            self.budget.settle(&self.settings.meter, id, &mut outcome);
            entries.extend(guarded.into_iter().map(stepped_in));
            entries.push(Entry::Finished {
                effect: id,
                outcome,
                spent,
            });
        }
        entries.splice(0..0, self.warnings());
        self.stage(now, entries);
    }

    /// The warnings that the machine gets before it asks for the next call.
    fn warnings(&self) -> impl Iterator<Item = Entry> + use<M> {
        let meter = &self.settings.meter;
        let low = if self.state.low { None } else { meter.low() };
        let near = if self.state.wrapped {
            None
        } else {
            meter.near()
        };
        low.map(Entry::Low)
            .into_iter()
            .chain(near.map(Entry::Wrapped))
    }

    /// Takes in a limit that the run has passed, such as its time: the run ends.
    pub fn stop(&mut self, now: Timestamp, limit: Limit) {
        self.stage(now, vec![Entry::Stopped(limit)]);
    }

    /// Takes in what guards did to something that people said to the run.
    pub fn guarded(&mut self, now: Timestamp, guarded: Vec<Intervention>) {
        self.stage(now, guarded.into_iter().map(stepped_in).collect());
    }

    /// Takes in a command.
    ///
    /// # Errors
    /// When the run has a lot to take in already.
    pub fn command(&mut self, now: Timestamp, command: ControlCommand) -> Result<(), ControlError> {
        if matches!(command, ControlCommand::Say { .. }) && self.state.said >= MAX_SAID {
            return Err(ControlError::Full(self.state.run.clone()));
        }
        self.stage(now, vec![Entry::Commanded(command)]);
        Ok(())
    }

    /// Takes in a decision on a question.
    ///
    /// # Errors
    /// When nobody waits for the decision.
    pub fn decide(
        &mut self,
        now: Timestamp,
        effect: EffectId,
        decision: Decision,
    ) -> Result<(), ControlError> {
        match self.questions.remove(effect) {
            // Somebody has answered, so the approver need not.
            Some(question) => self
                .actions
                .extend(question.is_asked.then_some(Action::Withdraw(effect))),
            // Questions that an earlier process has asked need not be asked again.
            None if self.state.left_question(effect).is_some() => {}
            None => {
                return Err(ControlError::NotAsked {
                    run: self.state.run.clone(),
                    effect,
                });
            }
        }
        self.stage(
            now,
            vec![Entry::finished(effect, Outcome::Decision(decision))],
        );
        Ok(())
    }

    /// Takes in what somebody knows of an effect that an earlier process has lost.
    ///
    /// # Errors
    /// When nobody looks for it.
    pub fn resolve(
        &mut self,
        now: Timestamp,
        effect: EffectId,
        resolution: Resolution,
    ) -> Result<(), ControlError> {
        let not_lost = ControlError::NotAsked {
            run: self.state.run.clone(),
            effect,
        };
        let entry = self.resolved(effect, resolution).ok_or(not_lost)?;
        self.actions.push(Action::Withdraw(effect));
        self.stage(now, vec![entry]);
        Ok(())
    }

    /// Takes in messages that others have left for the run. A message that makes no sense any more
    /// is skipped: whoever left it could not know.
    pub fn post(&mut self, now: Timestamp, posts: Vec<RunRequest>) {
        for post in posts {
            let _ = match post {
                RunRequest::Command(command) => self.command(now, command),
                RunRequest::Decide { effect, decision } => self.decide(now, effect, decision),
                RunRequest::Resolve { effect, resolution } => self.resolve(now, effect, resolution),
                _ => Ok(()),
            };
        }
    }

    /// The entry by which an effect is known again. The first answer counts.
    fn resolved(&mut self, id: EffectId, resolution: Resolution) -> Option<Entry> {
        let effect = match self.lookups.remove(id) {
            Some(effect) => effect,
            None if self.is_lost(id) => self.state.take_left(id)?,
            None => return None,
        };
        Some(match (resolution, effect) {
            (Resolution::Done(output), Effect::Tool(run)) => {
                Entry::finished(id, Outcome::Tool(ToolResult::new(&run.call, Ok(output))))
            }
            (Resolution::NotDone, effect) => {
                self.state.put_back(id, effect);
                Entry::Cleared { effect: id }
            }
            _ => Entry::finished(id, Outcome::Unknown),
        })
    }
}

fn stepped_in(intervention: Intervention) -> Entry {
    Entry::Commanded(ControlCommand::Guarded(intervention))
}
