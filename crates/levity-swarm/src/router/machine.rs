//! The machine of a router and its workers.
//!
//! A round is: request a plan, carry it out, look at the failures. At most `reassigns` further
//! rounds repeat failed work; then the results are combined.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::MachineOutput;
use levity_graph::Drafts;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Router;
use crate::delegated_work::{DelegatedWork, list};
use crate::machine::{PatternMachine, PatternOutput, read_pattern_state};
use crate::names::ROUTER;
use crate::notice::{PlannedBy, SwarmNotice};
use crate::plan::{Delegation, Order};
use crate::rules::Start;
use crate::shared_state::{FinishedWork, SharedState, WorkKind};

/// Runs a swarm with a router: plans, lets the workers work, and combines their results.
#[derive(Serialize, Deserialize)]
pub(crate) struct RouterMachine {
    #[serde(skip, default = "Router::keywords")]
    pub(super) router: Router,
    /// The round, from 1; 0 before the first plan is requested.
    pub(super) round: u32,
    pub(super) drafts: Drafts,
    pub(super) work: DelegatedWork,
    /// The original ids of the delegations that the current plan repeats.
    pub(super) again: BTreeMap<Arc<str>, Arc<str>>,
}

impl RouterMachine {
    pub(crate) fn new(router: &Router, _: &Start) -> Self {
        Self {
            router: router.clone(),
            round: 0,
            drafts: Drafts::default(),
            work: DelegatedWork::new(ROUTER),
            again: BTreeMap::new(),
        }
    }

    /// Adopts a validated plan and starts the delegations that may start.
    pub(super) fn adopt_plan(
        &mut self,
        plan: Vec<Delegation>,
        order: Order,
        by: PlannedBy,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let round = self.round;
        shared.notify(out, || SwarmNotice::Planned {
            round,
            by,
            plan: plan.clone(),
        });
        self.work
            .adopt_plan(plan, order, std::mem::take(&mut self.again), shared, out);
        self.pump(shared, out);
    }

    /// Starts the delegations that may start. When all are settled, reassigns failed work or
    /// combines the results.
    pub(super) fn pump(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        if self
            .work
            .pump(self.router.synthesizer_name().is_some(), shared, out)
        {
            self.handle_round_end(shared, out);
        }
    }

    /// Handles the end of a round.
    fn handle_round_end(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        let again = self.round <= self.router.reassigns
            && self.router.can_plan()
            && shared.near_limit.is_none();
        if again && self.work.has_reassignable_failure(shared) {
            return self.ask_plan(shared, out);
        }
        self.close(shared, out);
    }
}

impl PatternMachine for RouterMachine {
    fn begin(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        match shared.start.plan.clone() {
            Some(plan) => self.host_plan(plan, shared, out),
            None => self.ask_plan(shared, out),
        }
    }

    fn work_finished(
        &mut self,
        kind: WorkKind,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        match kind {
            WorkKind::Lead => self.handle_plan(finished, shared, out),
            WorkKind::Work(at) => {
                if self
                    .work
                    .handle_worker_end(at as usize, finished, shared, out)
                    .is_some()
                {
                    self.pump(shared, out);
                }
            }
            WorkKind::Close => self.handle_synthesis(&finished, shared, out),
        }
    }

    fn state_changed(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        if shared.near_limit.is_some() && !self.work.is_settled() {
            self.pump(shared, out);
        }
    }

    fn partial_answer(&self, shared: &SharedState) -> String {
        list(shared)
    }

    fn save(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn restore(&mut self, saved: &Value, shared: &SharedState) -> Result<(), String> {
        let saved: Self = read_pattern_state(saved)?;
        let work = saved.work.resumed(ROUTER, shared)?;
        *self = Self {
            router: self.router.clone(),
            work,
            ..saved
        };
        Ok(())
    }

    fn output(&self) -> PatternOutput {
        PatternOutput {
            plan: self.work.plan(),
            ..PatternOutput::default()
        }
    }
}
