//! The machine of a router and its workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::MachineOutput;
use levity_graph::Drafts;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Router;
use crate::delegated::{Delegated, list};
use crate::desk::{Came, Desk, Duty};
use crate::machine::{Play, Shown, read_play};
use crate::names::ROUTER;
use crate::notice::{PlannedBy, SwarmNotice};
use crate::plan::{Delegation, Order};
use crate::rules::Start;

/// Runs a swarm with a router: plans, lets the workers work, and combines their results.
#[derive(Serialize, Deserialize)]
pub(crate) struct Routed {
    #[serde(skip, default = "Router::keywords")]
    pub(super) router: Router,
    /// The round, from 1; 0 before the first plan is requested.
    pub(super) round: u32,
    pub(super) drafts: Drafts,
    pub(super) work: Delegated,
    /// The original ids of the delegations that the current plan repeats.
    pub(super) again: BTreeMap<Arc<str>, Arc<str>>,
}

impl Routed {
    pub(crate) fn new(router: &Router, _: &Start) -> Self {
        Self {
            router: router.clone(),
            round: 0,
            drafts: Drafts::default(),
            work: Delegated::new(ROUTER),
            again: BTreeMap::new(),
        }
    }

    /// Adopts a validated plan and starts the delegations that may start.
    pub(super) fn take_on(
        &mut self,
        plan: Vec<Delegation>,
        order: Order,
        by: PlannedBy,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) {
        let round = self.round;
        desk.tell(wants, || SwarmNotice::Planned {
            round,
            by,
            plan: plan.clone(),
        });
        self.work
            .take_on(plan, order, std::mem::take(&mut self.again), desk, wants);
        self.pump(desk, wants);
    }

    /// Starts the delegations that may start. When all are settled, reassigns failed work or
    /// combines the results.
    pub(super) fn pump(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        if self.work.pump(self.router.closes().is_some(), desk, wants) {
            self.settled(desk, wants);
        }
    }

    /// Handles the end of a round.
    fn settled(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        let again =
            self.round <= self.router.reassigns && self.router.plans() && desk.near.is_none();
        if again && self.work.could_be_done(desk) {
            return self.ask_plan(desk, wants);
        }
        self.close(desk, wants);
    }
}

impl Play for Routed {
    fn begin(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        match desk.start.plan.clone() {
            Some(plan) => self.host_plan(plan, desk, wants),
            None => self.ask_plan(desk, wants),
        }
    }

    fn came(&mut self, duty: Duty, came: Came, desk: &mut Desk, wants: &mut MachineOutput) {
        match duty {
            Duty::Lead => self.planned(came, desk, wants),
            Duty::Work(at) => {
                if self.work.worked(at as usize, came, desk, wants).is_some() {
                    self.pump(desk, wants);
                }
            }
            Duty::Close => self.closed(&came, desk, wants),
        }
    }

    fn stirred(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        if desk.near.is_some() && !self.work.is_settled() {
            self.pump(desk, wants);
        }
    }

    fn so_far(&self, desk: &Desk) -> String {
        list(desk)
    }

    fn save(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn restore(&mut self, saved: &Value, desk: &Desk) -> Result<(), String> {
        let saved: Self = read_play(saved)?;
        let work = saved.work.resumed(ROUTER, desk)?;
        *self = Self {
            router: self.router.clone(),
            work,
            ..saved
        };
        Ok(())
    }

    fn shown(&self) -> Shown {
        Shown {
            plan: self.work.plan(),
            ..Shown::default()
        }
    }
}
