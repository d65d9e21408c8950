//! Reports from the host.

use levity_core::{
    ControlCommand, ControlError, Decision, Effect, EffectId, Entry, Intervention, Limit, Machine,
    Outcome, Resolution, RunRequest, Spending, Timestamp, ToolResult,
};

use super::{Action, MAX_PENDING_MESSAGES, RunDriver};

/// The result of an action.
///
/// ```
/// use levity_core::{Outcome, Resolution};
/// use levity_driver::EffectResult;
///
/// let woken = EffectResult::Finished(Outcome::Woken, None);
/// let lost = EffectResult::Resolved(Resolution::Unknown);
/// assert!(matches!((woken, lost), (EffectResult::Finished(..), EffectResult::Resolved(_))));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EffectResult {
    /// The effect has an outcome; a child includes its spending.
    Finished(Outcome, Option<Spending>),
    /// A decision was made, which guards may have changed.
    Decided(Decision, Vec<Intervention>),
    /// The outcome of an interrupted effect was determined.
    Resolved(Resolution),
}

impl<M: Machine> RunDriver<M> {
    /// Records the results of actions. Effects that finish together are recorded in the order in
    /// which they were requested.
    pub fn finished(&mut self, now: Timestamp, mut results: Vec<(EffectId, EffectResult)>) {
        results.sort_by_key(|(id, _)| *id);
        for (id, result) in &mut results {
            if let EffectResult::Finished(outcome, _) = result
                && self.state.running.contains(*id)
            {
                self.budget.settle(&self.settings.meter, *id, outcome);
            }
        }
        let warnings = self.warnings();
        self.stage(now, warnings);
        for (id, result) in results {
            self.stage_result(now, id, result);
        }
    }

    fn stage_result(&mut self, now: Timestamp, id: EffectId, result: EffectResult) {
        let (outcome, spent, guarded) = match result {
            EffectResult::Finished(outcome, spent) => (outcome, spent, Vec::new()),
            EffectResult::Decided(decision, guarded) => {
                (Outcome::Decision(decision), None, guarded)
            }
            EffectResult::Resolved(resolution) => {
                let resolved = self.resolved(id, resolution);
                return self.stage(now, resolved);
            }
        };
        self.questions.remove(id);
        // The first answer counts; ignore a later one.
        if self.state.running.contains(id) {
            self.stage(now, guarded.into_iter().map(guarded_entry));
            let effect = id;
            self.stage_one(
                now,
                Entry::Finished {
                    effect,
                    outcome,
                    spent,
                },
            );
        }
    }

    /// Returns the warnings that the machine receives before it requests the next call.
    ///
    /// They come before the outcomes of the same moment, so that the machine already knows of the
    /// limit when it decides on the next call.
    fn warnings(&self) -> impl Iterator<Item = Entry> + use<M> {
        let meter = &self.settings.meter;
        let low = if self.state.low { None } else { meter.low() };
        let almost_reached = if self.state.wrapped {
            None
        } else {
            meter.almost_reached()
        };
        low.map(Entry::Low)
            .into_iter()
            .chain(almost_reached.map(Entry::Wrapped))
    }

    /// Records a limit that the run has exceeded, such as its time: the run ends.
    pub fn stop(&mut self, now: Timestamp, limit: Limit) {
        self.stage_one(now, Entry::Stopped(limit));
    }

    /// Records the interventions of guards in a message from a person.
    pub fn guarded(&mut self, now: Timestamp, guarded: Vec<Intervention>) {
        self.stage(now, guarded.into_iter().map(guarded_entry));
    }

    /// Records a command from the host.
    ///
    /// # Errors
    /// Returns an error if the run has too many pending messages.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use levity_core::{
    /// #     ControlCommand, Ending, Input, Limits, Machine, MachineKind, MachineOutput, Timestamp,
    /// # };
    /// # use levity_driver::{DriverSettings, Meter, RunDriver};
    /// # struct Idle;
    /// # impl Machine for Idle {
    /// #     fn kind(&self) -> MachineKind { MachineKind::new("idle", 1) }
    /// #     fn save(&self) -> serde_json::Value { serde_json::Value::Null }
    /// #     fn apply(&mut self, _: Input, _: &mut MachineOutput) {}
    /// #     fn ending(&self) -> Option<&Ending> { None }
    /// # }
    /// # let settings = DriverSettings::new(Arc::new(Meter::new(Limits::new(), None)));
    /// # let mut driver = RunDriver::new("r1".into(), Idle, settings);
    /// # driver.take_over();
    /// # let now = Timestamp::default();
    /// driver.open(now, || (Vec::new(), false)).unwrap();
    /// driver.command(now, ControlCommand::Pause)?;
    /// assert!(driver.is_paused());
    /// # Ok::<(), levity_core::ControlError>(())
    /// ```
    pub fn command(&mut self, now: Timestamp, command: ControlCommand) -> Result<(), ControlError> {
        if matches!(command, ControlCommand::Say { .. })
            && self.state.pending_messages >= MAX_PENDING_MESSAGES
        {
            return Err(ControlError::Full(self.state.run.clone()));
        }
        self.stage_one(now, Entry::Commanded(command));
        Ok(())
    }

    /// Records a decision on a question.
    ///
    /// # Errors
    /// Returns an error if no question waits for the decision.
    pub fn decide(
        &mut self,
        now: Timestamp,
        effect: EffectId,
        decision: Decision,
    ) -> Result<(), ControlError> {
        match self.questions.remove(effect) {
            // The question has an answer, so withdraw it from the approver.
            Some(question) => self
                .actions
                .extend(question.is_asked.then_some(Action::Withdraw(effect))),
            // Questions of an earlier process do not need to be repeated.
            None if self.state.orphaned_question(effect).is_some() => {}
            None => {
                return Err(ControlError::NotAsked {
                    run: self.state.run.clone(),
                    effect,
                });
            }
        }
        self.stage_one(now, Entry::finished(effect, Outcome::Decision(decision)));
        Ok(())
    }

    /// Records the known outcome of an interrupted effect.
    ///
    /// # Errors
    /// Returns an error if the outcome is not being determined.
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
        self.stage_one(now, entry);
        Ok(())
    }

    /// Records requests that others left for the run. A request that no longer applies is skipped,
    /// because its sender could not know.
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

    /// Returns the entry that resolves an effect. The first answer counts.
    fn resolved(&mut self, id: EffectId, resolution: Resolution) -> Option<Entry> {
        let effect = match self.lookups.remove(id) {
            Some(effect) => effect,
            None if self.is_lost(id) => self.state.take_orphan(id)?,
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

fn guarded_entry(intervention: Intervention) -> Entry {
    Entry::Commanded(ControlCommand::Guarded(intervention))
}
