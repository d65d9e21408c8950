use std::fmt;

/// A context file, with how much of it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextFile {
    /// The name of its block.
    pub name: String,
    /// The part of the file that is shown.
    pub shown: FileExcerpt,
}

/// The part of a file that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileExcerpt {
    /// The complete content of the file.
    Whole,
    /// The beginning of the file.
    Cut,
    /// None of the file.
    No {
        /// The reason for the omission.
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
            FileExcerpt::No { reason } => write!(f, "{} (omitted: {reason})", self.name),
        }
    }
}
