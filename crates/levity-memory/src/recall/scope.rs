use std::fmt;
use std::sync::Arc;

use levity_core::{MemoryError, MemoryErrorKind};
use serde::{Deserialize, Serialize};

/// The longest id of a scope, in bytes.
const LONGEST: usize = 256;

/// Whom a fact belongs to. What is kept in one scope is found by those who name that scope, and by
/// nobody else.
///
/// ```
/// # use levity_memory::Scope;
/// let scope = Scope::user("u-17");
/// assert_eq!(scope.to_string(), "user:u-17");
/// assert_ne!(scope, Scope::project("u-17"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// What is true of one user, wherever they work.
    User(Arc<str>),
    /// What is true of one project, whoever works on it.
    Project(Arc<str>),
    /// What matters only as long as one session lasts.
    Session(Arc<str>),
}

impl Scope {
    /// What is true of one user.
    pub fn user(id: impl Into<Arc<str>>) -> Self {
        Self::User(id.into())
    }

    /// What is true of one project.
    pub fn project(id: impl Into<Arc<str>>) -> Self {
        Self::Project(id.into())
    }

    /// What matters only as long as one session lasts.
    pub fn session(id: impl Into<Arc<str>>) -> Self {
        Self::Session(id.into())
    }

    /// `user`, `project` or `session`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Project(_) => "project",
            Self::Session(_) => "session",
        }
    }

    /// Which user, project or session.
    pub fn id(&self) -> &str {
        match self {
            Self::User(id) | Self::Project(id) | Self::Session(id) => id,
        }
    }

    pub(super) fn check(&self) -> Result<(), MemoryError> {
        let what = match self.id().len() {
            0 => "is empty".to_owned(),
            1..=LONGEST => return Ok(()),
            _ => format!("has more than {LONGEST} bytes"),
        };
        let message = format!("the id of a scope `{}` {what}", self.kind());
        Err(MemoryError::new(MemoryErrorKind::Refused, message))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.id())
    }
}
