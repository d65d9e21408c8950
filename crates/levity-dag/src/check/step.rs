//! Checks the parts of a single step that do not depend on the order of steps.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{MAX_NAME, name_flaw, values};
use crate::constraints::PlanConstraints;
use crate::fault::{Fault, FaultCollector, FaultKind};
use crate::machine::TIMEOUT;
use crate::names::{did_you_mean, short};
use crate::plan::Plan;
use crate::step::{FanOut, OnFailure, Retry, Step, StepId, StepOptions};

/// The longest timeout of an attempt: 30 days.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The maximum number of names listed if none is similar.
const MAX_LISTED: usize = 12;

/// Validates a single step.
pub(super) struct Check<'a> {
    pub(super) step: &'a Arc<Step>,
    pub(super) plan: &'a Plan,
    pub(super) known: &'a PlanConstraints,
    pub(super) index: &'a HashMap<StepId, u32>,
    pub(super) lists: &'a HashMap<&'a str, &'a Value>,
}

impl Check<'_> {
    pub(super) fn all(&self, found: &mut FaultCollector) {
        self.text(found);
        self.performer(found);
        self.references(found);
        self.names(found);
        if let Some(more) = &self.step.more {
            self.more(more, found);
        }
    }

    fn fault(&self, kind: FaultKind, flaw: impl FnOnce() -> String, found: &mut FaultCollector) {
        found.push_with(|| {
            let id = &self.step.id;
            Fault::at(
                kind,
                id,
                format!("step `{}` {}", short(id.as_str()), flaw()),
            )
        });
    }

    fn text(&self, found: &mut FaultCollector) {
        let (step, limit) = (self.step, self.known.max_text);
        let mut bytes =
            step.id.as_str().len() + step.agent.len() + step.prompt.len() + step.description.len();
        bytes += step
            .reads
            .iter()
            .chain(&step.writes)
            .map(|name| name.len())
            .sum::<usize>();
        bytes += step
            .after
            .iter()
            .map(|after| after.step.as_str().len())
            .sum::<usize>();
        if let Some(more) = &step.more {
            bytes += more.code.iter().map(String::len).sum::<usize>();
            for (name, value) in &more.inputs {
                match values::estimated_size(value, limit) {
                    Ok(more) => bytes = bytes.saturating_add(name.len() + more),
                    Err(values::TooDeep) => {
                        let deep = values::MAX_DEPTH;
                        let flaw = || {
                            format!(
                                "has the input `{}`, nested deeper than {deep} levels; flatten it",
                                short(name)
                            )
                        };
                        self.fault(FaultKind::Size, flaw, found);
                    }
                }
            }
        }
        if bytes > limit {
            let flaw = || {
                format!(
                    "has {bytes} bytes of text, more than the limit of {limit}; put it into a file \
                        or a variable"
                )
            };
            self.fault(FaultKind::Size, flaw, found);
        }
    }

    fn performer(&self, found: &mut FaultCollector) {
        let (agent, code) = (&*self.step.agent, !self.step.variants().is_empty());
        match (agent.is_empty(), code) {
            (false, true) => {
                let flaw = || "has both `agent` and `code`; leave one of them out".into();
                self.fault(FaultKind::Agent, flaw, found);
            }
            (true, false) => {
                let flaw = || "has no runner; name an agent, function or tool in `agent`".into();
                self.fault(FaultKind::Agent, flaw, found);
            }
            (true, true) if !self.known.code => {
                let flaw = || "is code, which this team cannot run; use an agent instead".into();
                self.fault(FaultKind::Agent, flaw, found);
            }
            (false, false) if self.known.runner(agent).is_none() => {
                self.fault(FaultKind::Agent, || self.unknown(agent), found);
            }
            _ => {}
        }
    }

    fn unknown(&self, agent: &str) -> String {
        let names = || self.known.runners.keys().map(AsRef::as_ref);
        let mut hint = did_you_mean(agent, names());
        if hint.is_empty() {
            let listed: Vec<_> = names()
                .take(MAX_LISTED)
                .map(|name| format!("`{name}`"))
                .collect();
            let more = if names().count() > MAX_LISTED {
                ", .."
            } else {
                ""
            };
            hint = format!("; available: {}{more}", listed.join(", "));
            if listed.is_empty() {
                hint = "; the team has no agents, functions or tools".into();
            }
        }
        format!("has the unknown agent `{}`{hint}", short(agent))
    }

    fn references(&self, found: &mut FaultCollector) {
        let mut seen: HashMap<&StepId, &crate::step::After> =
            HashMap::with_capacity(self.step.after.len());
        for after in &self.step.after {
            self.reference("follows", "`after`", &after.step, found);
            if seen
                .insert(&after.step, after)
                .is_some_and(|other| other.when != after.when)
            {
                let flaw = || {
                    format!(
                        "follows `{}` twice; combine the two conditions",
                        short(after.step.as_str())
                    )
                };
                self.fault(FaultKind::Reference, flaw, found);
            }
        }
        if let OnFailure::Fallback(id) = &self.step.on_failure {
            self.reference("falls back to", "`on_failure`", id, found);
        }
        if let Some(id) = self.step.fallback_for() {
            self.reference("is a fallback for", "`instead_of`", id, found);
        }
    }

    fn reference(&self, what: &str, field: &str, id: &StepId, found: &mut FaultCollector) {
        if *id == self.step.id {
            let flaw = || format!("{what} itself; remove that from its {field}");
            self.fault(FaultKind::Cycle, flaw, found);
        } else if !self.index.contains_key(id) {
            let flaw = || {
                let ids = self.plan.steps.iter().map(|step| step.id.as_str());
                let near = did_you_mean(id.as_str(), ids.filter(|id| *id != self.step.id.as_str()));
                format!(
                    "{what} `{}`, which does not exist{near}",
                    short(id.as_str())
                )
            };
            self.fault(FaultKind::Reference, flaw, found);
        }
    }

    fn names(&self, found: &mut FaultCollector) {
        for (field, names) in [("reads", &self.step.reads), ("writes", &self.step.writes)] {
            for flaw in names.iter().filter_map(|name| name_flaw(name)) {
                self.fault(
                    FaultKind::Variable,
                    || format!("has a name in `{field}` that {flaw}"),
                    found,
                );
            }
        }
        let inputs = self
            .step
            .more
            .iter()
            .flat_map(|more| more.inputs.keys().map(String::as_str));
        let element = self.step.fan_out().map(|map| &*map.name);
        if self
            .step
            .reads
            .iter()
            .map(AsRef::as_ref)
            .chain(inputs)
            .chain(element)
            .any(|name| name == TIMEOUT)
        {
            let flaw = || format!("has an input `{TIMEOUT}`, which is a reserved name; rename it");
            self.fault(FaultKind::Variable, flaw, found);
        }
    }

    fn more(&self, more: &StepOptions, found: &mut FaultCollector) {
        let mut report = |flaw: String| self.fault(FaultKind::Size, || flaw, found);
        let Retry { attempts, pause } = more.retry;
        if attempts == 0 || attempts > Retry::MAX_ATTEMPTS {
            report(format!(
                "has {attempts} attempts; set 1 to {}",
                Retry::MAX_ATTEMPTS
            ));
        }
        if pause > Retry::LONGEST_PAUSE {
            report(format!(
                "has a `pause` of more than {} seconds; set a shorter one",
                Retry::LONGEST_PAUSE.as_secs()
            ));
        }
        if more
            .timeout
            .is_some_and(|time| time.is_zero() || time > MAX_TIMEOUT)
        {
            report(format!(
                "has a `timeout` of zero or of more than {} seconds; set one in between",
                MAX_TIMEOUT.as_secs()
            ));
        }
        let reads: HashSet<&str> = self.step.reads.iter().map(AsRef::as_ref).collect();
        for name in more
            .inputs
            .keys()
            .filter(|name| reads.contains(name.as_str()))
        {
            report(format!(
                "has `{}` in both `reads` and `inputs`; rename one",
                short(name)
            ));
        }
        if let Some(map) = &more.map {
            self.fan_out(map, found);
        }
    }

    fn fan_out(&self, map: &FanOut, found: &mut FaultCollector) {
        let mut report = |flaw: String| self.fault(FaultKind::Size, || flaw, found);
        if map.max_items == 0 || map.max_items > FanOut::LARGEST_MAX_ITEMS {
            report(format!(
                "has `most` {} in `map`; set 1 to {}",
                map.max_items,
                FanOut::LARGEST_MAX_ITEMS
            ));
        }
        if let Some(quorum) = map
            .quorum
            .filter(|quorum| *quorum == 0 || *quorum > map.max_items)
        {
            report(format!(
                "has a `quorum` of {quorum} with at most {} elements; set `quorum` from 1 to \
                    `most`",
                map.max_items
            ));
        }
        if name_flaw(&map.name).is_some() || name_flaw(&map.over).is_some() {
            report(format!(
                "needs names of 1 to {MAX_NAME} bytes in `over` and `as` of `map`"
            ));
        }
        let inputs = self
            .step
            .more
            .as_ref()
            .is_some_and(|more| more.inputs.contains_key(&*map.name));
        if inputs || self.step.reads.contains(&map.name) {
            report(format!(
                "names its element `{}`, like another input; rename it with `as`",
                short(&map.name)
            ));
        }
        if let Some(given) = self.lists.get(&*map.over) {
            self.given_list(map, given, found);
        }
    }

    /// Checks a list that is an initial variable.
    fn given_list(&self, map: &FanOut, given: &Value, found: &mut FaultCollector) {
        let over = short(&map.over);
        let flaw = match given.as_array().map(Vec::len) {
            None => format!(
                "runs for each element of `{over}`, which is not a list; set a list in \
                `given`"
            ),
            Some(len) if len > map.max_items => {
                format!(
                    "runs for each of {len} elements of `{over}`, more than the limit of {}; raise \
                        `most`",
                    map.max_items
                )
            }
            Some(len) if map.quorum.is_some_and(|quorum| quorum > len) => {
                format!("has a `quorum` larger than the {len} elements of `{over}`; lower `quorum`")
            }
            Some(_) => return,
        };
        self.fault(FaultKind::Variable, || flaw, found);
    }
}
