//! The machine of a router and its workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{Limit, Step as Wants};
use levity_graph::Drafts;

use super::Router;
use crate::bus::{Draft, Recipient};
use crate::crew::Crew;
use crate::desk::{Came, Desk, Duty};
use crate::machine::{Play, Shown};
use crate::names::ROUTER;
use crate::notice::{Notice, PlannedBy};
use crate::plan::{Delegation, Order};
use crate::rules::Start;

/// Plans, has the workers work, and puts together what they said.
pub(crate) struct Routed {
    pub(super) router: Router,
    /// Which round, from 1; 0 before the first plan is asked for.
    pub(super) round: u32,
    pub(super) drafts: Drafts,
    /// All that was delegated, in the order in which it is reported.
    pub(super) jobs: Vec<Job>,
    /// Who does the delegations of the round.
    pub(super) crew: Crew,
    /// Places by id, of all rounds.
    pub(super) ids: BTreeMap<Arc<str>, usize>,
    /// What the plan that is taken on does again, by id.
    pub(super) again: BTreeMap<Arc<str>, Arc<str>>,
    /// What workers have said to others, by the places of their delegations, of all rounds.
    pub(super) notes: BTreeMap<usize, Vec<Draft>>,
}

/// A delegation; what came of it is in the report of the same place.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) delegation: Delegation,
    /// Those it depends on, of this and of earlier rounds.
    pub(super) needs: Vec<usize>,
}

impl Routed {
    pub(crate) fn new(router: &Router, _: &Start) -> Self {
        Self {
            router: router.clone(),
            round: 0,
            drafts: Drafts::default(),
            jobs: Vec::new(),
            crew: Crew::new(Recipient::One(ROUTER.into())),
            ids: BTreeMap::new(),
            again: BTreeMap::new(),
            notes: BTreeMap::new(),
        }
    }

    /// Takes on a plan that was checked, and begins what may begin.
    pub(super) fn take_on(
        &mut self,
        plan: Vec<Delegation>,
        order: Order,
        by: PlannedBy,
        desk: &mut Desk,
        wants: &mut Wants,
    ) {
        let round = self.round;
        desk.tell(wants, || Notice::Planned { round, by, plan: plan.clone() });
        self.add_jobs(plan, order, desk);
        self.announce(desk, wants);
        self.pump(desk, wants);
    }

    /// Begins what may begin; when all is settled, sees what is to be done about the rest, and puts the results together.
    pub(super) fn pump(&mut self, desk: &mut Desk, wants: &mut Wants) {
        while self.crew.has_room(desk) {
            if self.crew.has_ready() {
                self.keep_a_call(desk);
            }
            self.crew.skip_rest(desk, wants);
            let Some(seat) = self.crew.next(desk) else { break };
            self.begin_job(seat, desk, wants);
        }
        if self.crew.is_over() && !self.jobs.is_empty() {
            self.settled(desk, wants);
        }
    }

    /// Whoever puts the results together needs a call of a model, and who is at work needs one or more.
    fn keep_a_call(&self, desk: &mut Desk) {
        let Some(most) = desk.start.limits.model_calls.filter(|_| self.router.closes().is_some()) else {
            return;
        };
        let taken = desk.stats.model_calls.saturating_add(self.crew.running() as u64);
        if taken.saturating_add(1) >= most {
            desk.near = desk.near.or(Some(Limit::ModelCalls));
        }
    }

    /// Nothing of the round is left to do.
    fn settled(&mut self, desk: &mut Desk, wants: &mut Wants) {
        let again = self.round <= self.router.reassigns && self.router.plans() && desk.near.is_none();
        if again && self.could_be_done(desk) {
            return self.ask_plan(desk, wants);
        }
        self.close(desk, wants);
    }
}

impl Play for Routed {
    fn begin(&mut self, desk: &mut Desk, wants: &mut Wants) {
        match desk.start.plan.clone() {
            Some(plan) => self.host_plan(plan, desk, wants),
            None => self.ask_plan(desk, wants),
        }
    }

    fn came(&mut self, duty: Duty, came: Came, desk: &mut Desk, wants: &mut Wants) {
        match duty {
            Duty::Lead => self.planned(came, desk, wants),
            Duty::Work(at) => self.worked(at as usize, came, desk, wants),
            Duty::Close => self.closed(&came, desk, wants),
        }
    }

    fn stirred(&mut self, desk: &mut Desk, wants: &mut Wants) {
        if desk.near.is_some() && !self.crew.is_settled() {
            self.pump(desk, wants);
        }
    }

    fn so_far(&self, desk: &Desk) -> String {
        self.list(desk)
    }

    fn shown(&self) -> Shown {
        let plan = self.jobs.iter().map(|job| job.delegation.clone()).collect();
        Shown { plan, ..Shown::default() }
    }
}
