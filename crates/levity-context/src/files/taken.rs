use std::fmt;

/// A file that was found, and what is shown of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Taken {
    /// What its block is called.
    pub name: String,
    /// What is shown of it.
    pub shown: Shown,
}

/// What is shown of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shown {
    /// All of it.
    Whole,
    /// Its beginning.
    Cut,
    /// Nothing.
    No {
        /// Why.
        reason: String,
    },
}

impl Shown {
    pub(super) fn no(reason: impl Into<String>) -> Self {
        Self::No { reason: reason.into() }
    }
}

impl Taken {
    pub(super) fn new(name: String, shown: Shown) -> Self {
        Self { name, shown }
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shown {
            Shown::Whole => f.write_str(&self.name),
            Shown::Cut => write!(f, "{} (cut)", self.name),
            Shown::No { reason } => write!(f, "{} (left out: {reason})", self.name),
        }
    }
}
