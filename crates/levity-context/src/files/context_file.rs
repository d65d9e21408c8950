use std::fmt;

/// A file that was found, and what is shown of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextFile {
    /// What its block is called.
    pub name: String,
    /// What is shown of it.
    pub shown: FileExcerpt,
}

/// What is shown of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileExcerpt {
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

impl FileExcerpt {
    pub(super) fn no(reason: impl Into<String>) -> Self {
        Self::No {
            reason: reason.into(),
        }
    }
}

impl ContextFile {
    pub(super) fn new(name: String, shown: FileExcerpt) -> Self {
        Self { name, shown }
    }
}

impl fmt::Display for ContextFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shown {
            FileExcerpt::Whole => f.write_str(&self.name),
            FileExcerpt::Cut => write!(f, "{} (cut)", self.name),
            FileExcerpt::No { reason } => write!(f, "{} (left out: {reason})", self.name),
        }
    }
}
