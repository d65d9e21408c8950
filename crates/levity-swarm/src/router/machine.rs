//! The machine of a router and its workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levity_core::{Limit, Limits, Step as Wants};

use super::Router;
use super::jobs::Job;
use crate::desk::{Came, Desk, Duty};
use crate::effort;
use crate::machine::{Play, Shown};
use crate::notice::{Notice, PlannedBy};
use crate::plan::{Delegation, Order};
use crate::rules::Start;

/// Plans, has the workers work, and puts together what they said.
pub(crate) struct Routed {
    pub(super) router: Router,
    /// Which round, from 1; 0 before the first plan is asked for.
    pub(super) round: u32,
    pub(super) planning: Planning,
    /// All that was delegated, in the order in which it is reported. Those of the round begin at `base`.
    pub(super) jobs: Vec<Job>,
    pub(super) base: usize,
    /// Places by id, of all rounds.
    pub(super) ids: BTreeMap<Arc<str>, usize>,
    /// What the plan that is taken on does again, by id.
    pub(super) again: BTreeMap<Arc<str>, Arc<str>>,
    /// Those that may begin, the first in the plan first.
    pub(super) ready: BTreeSet<usize>,
    pub(super) running: usize,
    /// How many of the round are not settled.
    pub(super) open: usize,
    /// What is on the bus goes up to this job.
    pub(super) head: usize,
    /// What each of the round may use at most.
    pub(super) share: Limits,
    /// Those who have left messages, of all rounds.
    pub(super) noted: BTreeSet<usize>,
}

/// How far the plan of a round is.
#[derive(Debug, Default)]
pub(super) struct Planning {
    pub(super) attempt: u32,
    pub(super) complaints: Vec<String>,
    pub(super) previous: String,
}

impl Routed {
    pub(crate) fn new(router: &Router, _: &Start) -> Self {
        Self {
            router: router.clone(),
            round: 0,
            planning: Planning::default(),
            jobs: Vec::new(),
            base: 0,
            ids: BTreeMap::new(),
            again: BTreeMap::new(),
            ready: BTreeSet::new(),
            running: 0,
            open: 0,
            head: 0,
            share: Limits::new(),
            noted: BTreeSet::new(),
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
        (self.base, self.open) = (self.jobs.len(), plan.len());
        self.share = effort::share(desk, plan.len());
        self.add_jobs(plan, order, desk);
        self.announce(desk, wants);
        self.pump(desk, wants);
    }

    /// Begins what may begin; when all is settled, sees what is to be done about the rest, and puts the results together.
    pub(super) fn pump(&mut self, desk: &mut Desk, wants: &mut Wants) {
        while self.running < desk.rules.parallel {
            if !self.ready.is_empty() {
                self.keep_a_call(desk);
            }
            if desk.near.is_some() {
                self.skip_rest(desk, wants);
            }
            let Some(at) = self.ready.pop_first() else { break };
            self.begin_job(at, desk, wants);
        }
        if self.open == 0 && !self.jobs.is_empty() && self.running == 0 {
            self.settled(desk, wants);
        }
    }

    /// Whoever puts the results together needs a call of a model, and who is at work needs one or more.
    fn keep_a_call(&self, desk: &mut Desk) {
        let Some(most) = desk.start.limits.model_calls.filter(|_| self.router.closes().is_some()) else {
            return;
        };
        let taken = desk.stats.model_calls.saturating_add(self.running as u64);
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
        if desk.near.is_some() && self.open > 0 {
            self.pump(desk, wants);
        }
    }

    fn so_far(&self, desk: &Desk) -> String {
        self.list(desk)
    }

    fn shown(&self) -> Shown {
        let plan = self.jobs.iter().map(|job| (*job.delegation).clone()).collect();
        Shown { plan, ..Shown::default() }
    }
}
