//! Obtains a plan: requests, reads and validates it, requests it once more, or derives it from the
//! keywords of the goal.
//!
//! Each failure has a next step that is certain to work: an unreadable or invalid plan is requested
//! once more with its faults, and then the keywords of the goal decide. A run with a router never
//! ends because of a bad plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levity_core::MachineOutput;
use levity_graph::Drafts;

use super::machine::RouterMachine;
use super::schema::plan_schema;
use crate::keywords;
use crate::names::ROUTER;
use crate::notice::{PlannedBy, SwarmNotice};
use crate::plan::{Delegation, PlanFault, PlanFaults, RouterAnswer, read};
use crate::shared_state::{FinishedWork, SharedState, Work, WorkKind};

impl RouterMachine {
    /// Starts a plan of the host, which was validated when the run was created.
    pub(super) fn host_plan(
        &mut self,
        plan: Vec<Delegation>,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        self.round = 1;
        match self.work.check(&plan, plan.len(), shared) {
            Ok(order) => self.adopt_plan(plan, order, PlannedBy::Host, shared, out),
            Err(faults) => self.fall_back(
                &format!("the plan of the host is invalid: {faults}"),
                shared,
                out,
            ),
        }
    }

    /// Asks the router for the plan of the next round.
    pub(super) fn ask_plan(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        self.round = self.round.saturating_add(1);
        self.drafts = Drafts::default();
        if !self.router.can_plan() {
            return self.fall_back("the swarm has no router", shared, out);
        }
        self.ask(shared, out);
    }

    fn ask(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        let mut work = Work::new(self.plan_task(shared)).within(self.router.timeout);
        work.output = Some(Arc::new(plan_schema(&shared.rules.order)));
        let effect = shared.request(&ROUTER.into(), &work, WorkKind::Lead, out);
        let (round, attempt) = (self.round, self.drafts.rejected().saturating_add(1));
        shared.notify(out, || SwarmNotice::Planning {
            round,
            attempt,
            effect,
        });
    }

    /// Handles the router's answer.
    pub(super) fn handle_plan(
        &mut self,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        // An answer in the wrong format may still contain a plan.
        let read = match finished.result {
            Err(failure) if finished.text.is_empty() => {
                let faults = PlanFault::Unreadable {
                    what: failure.error,
                }
                .into();
                return self.reject_plan(&faults, None, shared, out);
            }
            _ => read(&finished.text, &self.work.ids),
        };
        match read {
            Ok(RouterAnswer::Answer(text)) if self.round == 1 => shared.answer(ROUTER, text, out),
            Ok(RouterAnswer::Answer(_)) => self.close(shared, out),
            Ok(RouterAnswer::Plan(plan, _)) if plan.is_empty() && self.round > 1 => {
                self.close(shared, out);
            }
            Ok(RouterAnswer::Plan(plan, mends)) => {
                if !mends.is_empty() {
                    shared.notify(out, || SwarmNotice::PlanRepaired {
                        mends: format!("{mends:?}"),
                    });
                }
                self.take_plan(plan, &finished.text, shared, out);
            }
            Err(fault) => self.reject_plan(&fault.into(), Some(&finished.text), shared, out),
        }
    }

    fn take_plan(
        &mut self,
        mut plan: Vec<Delegation>,
        text: &str,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        if self.round > 1 {
            self.rename(&mut plan);
        }
        match self.work.check(&plan, self.router.max_delegations, shared) {
            Ok(order) => self.adopt_plan(plan, order, PlannedBy::Router, shared, out),
            Err(faults) => self.reject_plan(&faults, Some(text), shared, out),
        }
    }

    /// Renames the repeated delegations of a later plan, which have the same ids as before, by the
    /// round.
    fn rename(&mut self, plan: &mut [Delegation]) {
        let own: BTreeSet<Arc<str>> = plan.iter().map(|one| one.id.clone()).collect();
        let again = own.iter().filter(|id| self.work.ids.contains_key(*id));
        let renamed: BTreeMap<Arc<str>, Arc<str>> = again
            .map(|id| (id.clone(), self.free_id(id, &own)))
            .collect();
        for id in plan
            .iter_mut()
            .flat_map(|one| one.depends_on.iter_mut().chain([&mut one.id]))
        {
            if let Some(new) = renamed.get(id) {
                *id = new.clone();
            }
        }
        self.again = renamed
            .into_iter()
            .map(|(earlier, new)| (new, earlier))
            .collect();
    }

    /// Returns an id with the number of the round, or with the next free number.
    fn free_id(&self, id: &str, own: &BTreeSet<Arc<str>>) -> Arc<str> {
        let mut number = self.round;
        loop {
            let new: Arc<str> = format!("{id}.{number}").into();
            if !self.work.ids.contains_key(&new) && !own.contains(&new) {
                return new;
            }
            number = number.saturating_add(1);
        }
    }

    /// Rejects an invalid plan: asks the router once more, with the faults of the draft.
    fn reject_plan(
        &mut self,
        faults: &PlanFaults,
        draft: Option<&str>,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let complaints = || faults.iter().map(PlanFault::to_string).collect();
        let again = match draft {
            Some(draft) => self.drafts.reject(complaints(), draft, self.router.tries),
            None => self.drafts.fail(self.router.tries),
        };
        let attempt = self.drafts.rejected();
        shared.notify(out, || SwarmNotice::PlanRejected {
            attempt,
            faults: faults.clone(),
        });
        if again && shared.near_limit.is_none() {
            return self.ask(shared, out);
        }
        self.give_up(&faults.to_string(), shared, out);
    }

    /// Gives up on a plan from the router. Earlier results remain.
    fn give_up(&mut self, why: &str, shared: &mut SharedState, out: &mut MachineOutput) {
        if self.round == 1 {
            return self.fall_back(why, shared, out);
        }
        self.close(shared, out);
    }

    /// Uses the keywords of the goal to select the workers.
    fn fall_back(&mut self, why: &str, shared: &mut SharedState, out: &mut MachineOutput) {
        shared.notify(out, || SwarmNotice::FellBack {
            reason: why.to_owned(),
        });
        let plan = keywords::plan(&shared.start.goal, &shared.rules);
        match self.work.check(&plan, plan.len(), shared) {
            Ok(order) => self.adopt_plan(plan, order, PlannedBy::Keywords, shared, out),
            Err(_) => self.close(shared, out),
        }
    }
}
