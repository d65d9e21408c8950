use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

mod order;
mod read;

pub(crate) use order::Order;
pub(crate) use read::{Answered, read};

use crate::names::{did_you_mean, short};
use crate::report::WorkerReport;

/// A piece of work that is given to a worker.
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
    /// What others call it.
    pub id: Arc<str>,
    /// Who is to do it.
    pub worker: Arc<str>,
    /// What is to be done.
    pub task: Arc<str>,
    /// What must be done before; the worker is shown what came of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Arc<str>>,
    /// What is wanted in the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Arc<str>>,
}

impl Delegation {
    /// Gives a task to a worker.
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

    /// Says what must be done before.
    #[must_use]
    pub fn after<I: Into<Arc<str>>>(mut self, ids: impl IntoIterator<Item = I>) -> Self {
        self.depends_on.extend(ids.into_iter().map(Into::into));
        self
    }

    /// Says what is wanted in the end.
    #[must_use]
    pub fn expects(mut self, what: impl Into<Arc<str>>) -> Self {
        self.expected = Some(what.into());
        self
    }
}

/// What is wrong with a plan of delegations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlanFault {
    /// Nothing is to be done.
    #[error("it delegates nothing")]
    Empty,
    /// There are more delegations than may be.
    #[error("it has {count} delegations, and at most {most} may be; put several into one")]
    TooMany {
        /// How many there are.
        count: usize,
        /// How many may be.
        most: usize,
    },
    /// Nobody of this name is there.
    #[error("`{id}` is for `{worker}`, who is not there{near}")]
    UnknownWorker {
        /// The delegation.
        id: Arc<str>,
        /// Who was named.
        worker: String,
        /// Who may have been meant, in words.
        near: String,
    },
    /// The router gives work to itself.
    #[error("`{id}` is for the router itself; give it to a worker")]
    ForItself {
        /// The delegation.
        id: Arc<str>,
    },
    /// There is nothing to do in it.
    #[error("`{id}` has no task")]
    NoTask {
        /// The delegation.
        id: Arc<str>,
    },
    /// Two have one id.
    #[error("two delegations are called `{id}`")]
    Twice {
        /// The id.
        id: Arc<str>,
    },
    /// What it depends on is not there.
    #[error("`{id}` depends on `{on}`, which is not there{near}")]
    UnknownDependency {
        /// The delegation.
        id: Arc<str>,
        /// What was named.
        on: String,
        /// What may have been meant, in words.
        near: String,
    },
    /// What it depends on was delegated in an earlier round, and not done.
    #[error("`{id}` depends on `{on}`, which is not done; have it done again, or do without it")]
    NotDone {
        /// The delegation.
        id: Arc<str>,
        /// What was named.
        on: String,
    },
    /// What it depends on leads back to it.
    #[error("{}", circle(.ids))]
    Cycle {
        /// The delegations of the circle.
        ids: Vec<Arc<str>>,
    },
    /// It is no plan at all.
    #[error("{what}")]
    Unreadable {
        /// What is wrong with it.
        what: String,
    },
}

fn circle(ids: &[Arc<str>]) -> String {
    match ids {
        [one] => format!("`{one}` depends on itself"),
        ids => format!("`{}` depend on each other in a circle", ids.join("` → `")),
    }
}

/// All that is wrong with a plan; the first hundred of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanFaults(Vec<PlanFault>);

impl PlanFaults {
    const MOST: usize = 100;
    /// How many are shown in words.
    const SHOWN: usize = 10;

    pub(crate) fn push(&mut self, fault: PlanFault) {
        if self.0.len() < Self::MOST {
            self.0.push(fault);
        }
    }

    /// Which of these names was meant, in words. It is looked for as long as it is shown: among
    /// many names that takes long.
    fn near<'a>(&self, name: &str, names: impl Iterator<Item = &'a str>) -> String {
        if self.0.len() < Self::SHOWN {
            did_you_mean(name, names)
        } else {
            String::new()
        }
    }

    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, PlanFault> {
        self.0.iter()
    }

    /// Whether nothing is wrong.
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
        for (at, fault) in self.0.iter().take(Self::SHOWN).enumerate() {
            f.write_str(if at == 0 { "" } else { "; " })?;
            fault.fmt(f)?;
        }
        match self.0.len() {
            all if all > Self::SHOWN => write!(f, "; and {} more", all - Self::SHOWN),
            _ => Ok(()),
        }
    }
}

/// Whom and what a plan may name.
pub(crate) struct Known<'a> {
    pub(crate) workers: &'a [Arc<str>],
    /// The names under which the router may mean itself.
    pub(crate) router: &'a str,
    /// What was delegated in earlier rounds, and what came of it.
    pub(crate) done: &'a BTreeMap<Arc<str>, usize>,
    pub(crate) reports: &'a [WorkerReport],
    pub(crate) most: usize,
}

/// Checks a plan, and finds the order of its delegations.
pub(crate) fn check(plan: &[Delegation], known: &Known<'_>) -> Result<Order, PlanFaults> {
    let mut faults = PlanFaults::default();
    if plan.is_empty() {
        return Err(PlanFault::Empty.into());
    }
    if plan.len() > known.most {
        return Err(PlanFault::TooMany {
            count: plan.len(),
            most: known.most,
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

fn check_worker(one: &Delegation, known: &Known<'_>, faults: &mut PlanFaults) {
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
    known: &Known<'_>,
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
