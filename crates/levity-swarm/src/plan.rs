//! Plans of delegations, from a router, a coordinator or the host, and their validation.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

mod order;
mod read;

pub(crate) use order::Order;
pub(crate) use read::{RouterAnswer, read};

use crate::names::{did_you_mean, short};
use crate::report::WorkerReport;

/// A unit of work for one worker.
///
/// ```
/// use levity_swarm::Delegation;
///
/// let review = Delegation::new("review", "reviewer", "Look over the change.")
///     .after(["change"])
///     .expects("a list of faults, the gravest first");
/// assert_eq!(review.depends_on.len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Delegation {
    /// The id of the delegation.
    pub id: Arc<str>,
    /// The name of the worker.
    pub worker: Arc<str>,
    /// The task for the worker.
    pub task: Arc<str>,
    /// The delegations that must complete first; the worker sees their results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Arc<str>>,
    /// The result that the worker is expected to return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Arc<str>>,
}

impl Delegation {
    /// Creates a delegation of a task to a worker.
    pub fn new(
        id: impl Into<Arc<str>>,
        worker: impl Into<Arc<str>>,
        task: impl Into<Arc<str>>,
    ) -> Self {
        let (id, worker, task) = (id.into(), worker.into(), task.into());
        Self {
            id,
            worker,
            task,
            depends_on: Vec::new(),
            expected: None,
        }
    }

    /// Adds delegations that must complete first.
    ///
    /// Ids of earlier rounds are allowed if that work completed. Their results are part of the
    /// task.
    #[must_use]
    pub fn after<I: Into<Arc<str>>>(mut self, ids: impl IntoIterator<Item = I>) -> Self {
        self.depends_on.extend(ids.into_iter().map(Into::into));
        self
    }

    /// Sets the expected result.
    ///
    /// The text goes into the task of the worker. levity does not check the result against it.
    #[must_use]
    pub fn expects(mut self, what: impl Into<Arc<str>>) -> Self {
        self.expected = Some(what.into());
        self
    }
}

/// A problem found in a plan of delegations.
///
/// A router receives the texts of the faults and may correct its plan once by default.
///
/// ```
/// use levity_swarm::PlanFault;
///
/// let fault = PlanFault::Cycle { ids: vec!["a".into(), "b".into()] };
/// assert_eq!(
///     fault.to_string(),
///     "`a` → `b` depend on each other in a cycle; remove one dependency",
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlanFault {
    /// The plan has no delegations.
    #[error("the plan has no delegations; add at least one")]
    Empty,
    /// The plan has too many delegations.
    #[error(
        "the plan has {count} delegations, more than the limit of {most}; combine some of \
        them"
    )]
    TooMany {
        /// The number of delegations.
        count: usize,
        /// The maximum number of delegations.
        most: usize,
    },
    /// No worker has this name.
    #[error("`{id}` is for `{worker}`, who is not there{near}")]
    UnknownWorker {
        /// The id of the delegation.
        id: Arc<str>,
        /// The name that no worker has.
        worker: String,
        /// A suggestion of similar names.
        near: String,
    },
    /// The router delegates work to itself.
    #[error("`{id}` names the router itself; name a worker")]
    ForItself {
        /// The id of the delegation.
        id: Arc<str>,
    },
    /// The delegation has an empty task.
    #[error("`{id}` has no task; describe the work")]
    NoTask {
        /// The id of the delegation.
        id: Arc<str>,
    },
    /// Two delegations have the same id.
    #[error("two delegations have the id `{id}`; rename one")]
    Twice {
        /// The id that two delegations have.
        id: Arc<str>,
    },
    /// A dependency does not exist.
    #[error("`{id}` depends on `{on}`, which does not exist{near}")]
    UnknownDependency {
        /// The id of the delegation.
        id: Arc<str>,
        /// The id of the dependency that does not exist.
        on: String,
        /// A suggestion of similar ids.
        near: String,
    },
    /// A dependency from an earlier round did not complete.
    #[error(
        "`{id}` depends on `{on}`, which did not complete; delegate it again or remove the \
        dependency"
    )]
    NotDone {
        /// The id of the delegation.
        id: Arc<str>,
        /// The dependency that did not complete.
        on: String,
    },
    /// The dependencies form a cycle.
    #[error("{}", circle(.ids))]
    Cycle {
        /// The delegations of the cycle.
        ids: Vec<Arc<str>>,
    },
    /// The answer is not a plan.
    #[error("{what}")]
    Unreadable {
        /// A description of the problem.
        what: String,
    },
}

fn circle(ids: &[Arc<str>]) -> String {
    match ids {
        [one] => format!("`{one}` depends on itself; remove that dependency"),
        ids => format!(
            "`{}` depend on each other in a cycle; remove one \
            dependency",
            ids.join("` → `")
        ),
    }
}

/// All problems found in a plan, up to the first hundred.
///
/// The message contains the first ten.
///
/// ```
/// use levity_loop::Agent;
/// use levity_swarm::{Delegation, Router, Swarm, SwarmInput};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_swarm::Result<()> {
/// let pilot = Agent::builder(ScriptedModel::new()).build()?;
/// let swarm = Swarm::builder(Router::keywords())
///     .agent("pilot", "Knows the tides.", pilot)
///     .build()?;
/// let plan = [Delegation::new("tide", "pilto", "When is high water?")];
/// let error = swarm.run(SwarmInput::from("Can we sail?").plan(plan)).await.unwrap_err();
/// assert!(error.to_string().contains("did you mean `pilot`?"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanFaults(Vec<PlanFault>);

impl PlanFaults {
    const MAX_FAULTS: usize = 100;
    /// The maximum number of faults in the message.
    const MAX_SHOWN: usize = 10;

    pub(crate) fn push(&mut self, fault: PlanFault) {
        if self.0.len() < Self::MAX_FAULTS {
            self.0.push(fault);
        }
    }

    /// Returns a suggestion of similar names. It searches only for faults that are shown, because a
    /// search among many names is slow.
    fn near<'a>(&self, name: &str, names: impl Iterator<Item = &'a str>) -> String {
        if self.0.len() < Self::MAX_SHOWN {
            did_you_mean(name, names)
        } else {
            String::new()
        }
    }

    /// Returns an iterator over the faults.
    ///
    /// ```
    /// use levity_swarm::{PlanFault, PlanFaults};
    ///
    /// let faults = PlanFaults::from(PlanFault::Empty);
    /// assert_eq!(faults.iter().count(), 1);
    /// assert_eq!(faults.to_string(), "the plan has no delegations; add at least one");
    /// ```
    pub fn iter(&self) -> std::slice::Iter<'_, PlanFault> {
        self.0.iter()
    }

    /// Returns `true` if there are no faults.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<PlanFault> for PlanFaults {
    fn from(fault: PlanFault) -> Self {
        Self(vec![fault])
    }
}

impl<'a> IntoIterator for &'a PlanFaults {
    type Item = &'a PlanFault;
    type IntoIter = std::slice::Iter<'a, PlanFault>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for PlanFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().take(Self::MAX_SHOWN).enumerate() {
            f.write_str(if at == 0 { "" } else { "; " })?;
            fault.fmt(f)?;
        }
        match self.0.len() {
            all if all > Self::MAX_SHOWN => write!(f, "; and {} more", all - Self::MAX_SHOWN),
            _ => Ok(()),
        }
    }
}

/// The workers and delegations that a plan may name.
pub(crate) struct PlanContext<'a> {
    pub(crate) workers: &'a [Arc<str>],
    /// The name of the router itself.
    pub(crate) router: &'a str,
    /// The delegations of earlier rounds, with the indices of their reports.
    pub(crate) done: &'a BTreeMap<Arc<str>, usize>,
    pub(crate) reports: &'a [WorkerReport],
    pub(crate) max_delegations: usize,
}

/// Validates a plan and returns the order of its delegations.
pub(crate) fn check(plan: &[Delegation], known: &PlanContext<'_>) -> Result<Order, PlanFaults> {
    let mut faults = PlanFaults::default();
    if plan.is_empty() {
        return Err(PlanFault::Empty.into());
    }
    if plan.len() > known.max_delegations {
        return Err(PlanFault::TooMany {
            count: plan.len(),
            most: known.max_delegations,
        }
        .into());
    }
    let mut ids: BTreeMap<&str, u32> = BTreeMap::new();
    for (at, one) in (0..).zip(plan) {
        if ids.insert(&one.id, at).is_some() || known.done.contains_key(&one.id) {
            faults.push(PlanFault::Twice {
                id: short_id(&one.id),
            });
        }
        check_worker(one, known, &mut faults);
        if one.task.trim().is_empty() {
            faults.push(PlanFault::NoTask {
                id: short_id(&one.id),
            });
        }
    }
    for one in plan {
        check_dependencies(one, &ids, known, &mut faults);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    Order::of(plan, &ids, known.done).map_err(|ids| PlanFault::Cycle { ids }.into())
}

fn check_worker(one: &Delegation, known: &PlanContext<'_>, faults: &mut PlanFaults) {
    if known.workers.binary_search(&one.worker).is_ok() {
        return;
    }
    let id = short_id(&one.id);
    if *one.worker == *known.router {
        return faults.push(PlanFault::ForItself { id });
    }
    let near = faults.near(&one.worker, known.workers.iter().map(|name| &**name));
    faults.push(PlanFault::UnknownWorker {
        id,
        worker: short(&one.worker).into_owned(),
        near,
    });
}

fn check_dependencies(
    one: &Delegation,
    ids: &BTreeMap<&str, u32>,
    known: &PlanContext<'_>,
    faults: &mut PlanFaults,
) {
    for on in one.depends_on.iter().filter(|on| !ids.contains_key(&***on)) {
        match known.done.get(on) {
            Some(at) if known.reports.get(*at).is_none_or(WorkerReport::is_done) => {}
            Some(_) => {
                faults.push(PlanFault::NotDone {
                    id: short_id(&one.id),
                    on: short(on).into_owned(),
                });
            }
            None => {
                let near = faults.near(on, ids.keys().copied());
                let on = short(on).into_owned();
                faults.push(PlanFault::UnknownDependency {
                    id: short_id(&one.id),
                    on,
                    near,
                });
            }
        }
    }
}

fn short_id(id: &Arc<str>) -> Arc<str> {
    match short(id) {
        std::borrow::Cow::Borrowed(_) => id.clone(),
        std::borrow::Cow::Owned(cut) => cut.into(),
    }
}

impl std::error::Error for PlanFaults {}

impl From<PlanFaults> for levity_core::Error {
    fn from(faults: PlanFaults) -> Self {
        Self::config_of("the plan cannot be carried out", faults)
    }
}

#[cfg(test)]
mod tests;
