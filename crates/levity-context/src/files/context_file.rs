//! The report on context files, for programs that show it to a user.

use std::fmt;

/// A context file, with how much of it is shown.
///
/// [`ContextFiles::on_read`](crate::ContextFiles::on_read) receives one for each file. `Display`
/// gives the name and, if the file is not complete, the reason: `style.md (cut)`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextFile {
    /// The name of its block.
    pub name: String,
    /// The part of the file that is shown.
    pub excerpt: FileExcerpt,
}

/// The part of a file that is shown.
///
/// A reason names no other file and no path outside of the workspace, so it can be shown to a
/// model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileExcerpt {
    /// The complete content of the file.
    Complete,
    /// The beginning of the file.
    Truncated,
    /// None of the file.
    Omitted {
        /// The reason for the omission.
        reason: String,
    },
}

impl FileExcerpt {
    pub(super) fn no(reason: impl Into<String>) -> Self {
        Self::Omitted {
            reason: reason.into(),
        }
    }
}

impl ContextFile {
    pub(super) fn new(name: String, shown: FileExcerpt) -> Self {
        Self {
            name,
            excerpt: shown,
        }
    }
}

impl fmt::Display for ContextFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.excerpt {
            FileExcerpt::Complete => f.write_str(&self.name),
            FileExcerpt::Truncated => write!(f, "{} (cut)", self.name),
            FileExcerpt::Omitted { reason } => write!(f, "{} (omitted: {reason})", self.name),
        }
    }
}
