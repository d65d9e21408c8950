//! Obtains a plan: requests, reads and validates it, requests it once more, or derives it from the
//! keywords of the goal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levity_core::MachineOutput;
use levity_graph::Drafts;

use super::machine::Routed;
use super::shape::shape;
use crate::desk::{Came, Desk, Duty, Work};
use crate::keywords;
use crate::names::ROUTER;
use crate::notice::{PlannedBy, SwarmNotice};
use crate::plan::{Answered, Delegation, PlanFault, PlanFaults, read};

impl Routed {
    /// Starts a plan of the host, which was validated when the run was created.
    pub(super) fn host_plan(
        &mut self,
        plan: Vec<Delegation>,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) {
        self.round = 1;
        match self.work.check(&plan, plan.len(), desk) {
            Ok(order) => self.take_on(plan, order, PlannedBy::Host, desk, wants),
            Err(faults) => self.fall_back(
                &format!("the plan of the host is invalid: {faults}"),
                desk,
                wants,
            ),
        }
    }

    /// Asks the router for the plan of the next round.
    pub(super) fn ask_plan(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        self.round = self.round.saturating_add(1);
        self.drafts = Drafts::default();
        if !self.router.plans() {
            return self.fall_back("the swarm has no router", desk, wants);
        }
        self.ask(desk, wants);
    }

    fn ask(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        let mut work = Work::new(self.brief(desk)).within(self.router.timeout);
        work.output = Some(Arc::new(shape(&desk.rules.order)));
        let effect = desk.want(&ROUTER.into(), &work, Duty::Lead, wants);
        let (round, attempt) = (self.round, self.drafts.rejected().saturating_add(1));
        desk.tell(wants, || SwarmNotice::Planning {
            round,
            attempt,
            effect,
        });
    }

    /// Handles the router's answer.
    pub(super) fn planned(&mut self, came: Came, desk: &mut Desk, wants: &mut MachineOutput) {
        // An answer in the wrong format may still contain a plan.
        let read = match came.result {
            Err(why) if came.text.is_empty() => {
                let faults = PlanFault::Unreadable { what: why.error }.into();
                return self.rejected(&faults, None, desk, wants);
            }
            _ => read(&came.text, &self.work.ids),
        };
        match read {
            Ok(Answered::Answer(text)) if self.round == 1 => desk.answer(ROUTER, text, wants),
            Ok(Answered::Answer(_)) => self.close(desk, wants),
            Ok(Answered::Plan(plan, _)) if plan.is_empty() && self.round > 1 => {
                self.close(desk, wants);
            }
            Ok(Answered::Plan(plan, mends)) => {
                if !mends.is_empty() {
                    desk.tell(wants, || SwarmNotice::PlanRepaired {
                        mends: format!("{mends:?}"),
                    });
                }
                self.take_plan(plan, &came.text, desk, wants);
            }
            Err(fault) => self.rejected(&fault.into(), Some(&came.text), desk, wants),
        }
    }

    fn take_plan(
        &mut self,
        mut plan: Vec<Delegation>,
        text: &str,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) {
        if self.round > 1 {
            self.rename(&mut plan);
        }
        match self.work.check(&plan, self.router.most, desk) {
            Ok(order) => self.take_on(plan, order, PlannedBy::Router, desk, wants),
            Err(faults) => self.rejected(&faults, Some(text), desk, wants),
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
    fn rejected(
        &mut self,
        faults: &PlanFaults,
        draft: Option<&str>,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) {
        let complaints = || faults.iter().map(PlanFault::to_string).collect();
        let again = match draft {
            Some(draft) => self.drafts.reject(complaints(), draft, self.router.tries),
            None => self.drafts.fail(self.router.tries),
        };
        let attempt = self.drafts.rejected();
        desk.tell(wants, || SwarmNotice::PlanRejected {
            attempt,
            faults: faults.clone(),
        });
        if again && desk.near.is_none() {
            return self.ask(desk, wants);
        }
        self.give_up(&faults.to_string(), desk, wants);
    }

    /// Gives up on a plan from the router. Earlier results remain.
    fn give_up(&mut self, why: &str, desk: &mut Desk, wants: &mut MachineOutput) {
        if self.round == 1 {
            return self.fall_back(why, desk, wants);
        }
        self.close(desk, wants);
    }

    /// Uses the keywords of the goal to select the workers.
    fn fall_back(&mut self, why: &str, desk: &mut Desk, wants: &mut MachineOutput) {
        desk.tell(wants, || SwarmNotice::FellBack {
            why: why.to_owned(),
        });
        let plan = keywords::plan(&desk.start.goal, &desk.rules);
        match self.work.check(&plan, plan.len(), desk) {
            Ok(order) => self.take_on(plan, order, PlannedBy::Keywords, desk, wants),
            Err(_) => self.close(desk, wants),
        }
    }
}
