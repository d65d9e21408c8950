use std::fmt;

use crate::step::StepId;

/// One thing that is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// What kind of thing.
    pub kind: FaultKind,
    /// The step it is about, if it is about one.
    pub step: Option<StepId>,
    /// In words, with the way out.
    pub message: String,
}

/// What kind of thing is wrong with a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The text is no plan.
    Malformed,
    /// There are no steps, or too many; or too much text in one.
    Size,
    /// An id is empty, or two steps have the same.
    Id,
    /// Nobody of that name can do a step.
    Agent,
    /// A step refers to one that is not there.
    Reference,
    /// Steps lead back to themselves.
    Cycle,
    /// A variable is read that nobody has written by then.
    Read,
    /// Two steps write a variable, and nothing says which is later.
    Write,
    /// What is said about a variable makes no sense.
    Variable,
    /// At worst, it uses more than there is.
    Budget,
    /// A change touches what cannot be changed.
    Settled,
}

/// All that was found wrong with a plan; at least one thing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct Faults {
    /// The first of them, at most [`MOST`](Self::MOST).
    pub faults: Vec<Fault>,
    /// How many more there are.
    pub more: usize,
}

impl Faults {
    /// 50 of them are told.
    pub const MOST: usize = 50;
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.faults.iter().enumerate() {
            let between = if at == 0 { "" } else { "; " };
            write!(f, "{between}{}", fault.message)?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self {
            faults: vec![fault],
            more: 0,
        }
    }
}

impl Fault {
    /// Something that is wrong with the plan as a whole.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            step: None,
            message: message.into(),
        }
    }

    /// Something that is wrong with a step.
    pub fn at(kind: FaultKind, step: &StepId, message: impl Into<String>) -> Self {
        Self {
            kind,
            step: Some(step.clone()),
            message: message.into(),
        }
    }
}

/// Gathers what is wrong; beyond [`Faults::MOST`] it only counts.
#[derive(Debug, Default)]
pub(crate) struct Found {
    faults: Vec<Fault>,
    more: usize,
}

impl Found {
    pub(crate) fn push(&mut self, fault: Fault) {
        self.push_with(|| fault);
    }

    /// The fault is made only if it is told: finding a near name has its price.
    pub(crate) fn push_with(&mut self, fault: impl FnOnce() -> Fault) {
        if self.faults.len() < Faults::MOST {
            self.faults.push(fault());
        } else {
            self.more += 1;
        }
    }

    /// Nothing was found, or else all that was.
    pub(crate) fn none(&mut self) -> Result<(), Faults> {
        if self.faults.is_empty() {
            return Ok(());
        }
        Err(Faults {
            faults: std::mem::take(&mut self.faults),
            more: std::mem::take(&mut self.more),
        })
    }
}

impl From<Faults> for levity_core::Error {
    fn from(faults: Faults) -> Self {
        Self::config_of("the plan cannot be carried out", faults)
    }
}
