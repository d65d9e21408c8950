//! Scopes: whose facts are searched.

use std::fmt;
use std::sync::Arc;

use levity_core::{MemoryError, MemoryErrorKind};
use serde::{Deserialize, Serialize};

/// The maximum length of a scope id, in bytes.
const MAX_ID_BYTES: usize = 256;

/// The owner of a fact: a user, a project or a session. Only a search that names the scope finds
/// its facts.
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
    /// Facts about one user, in every project.
    User(Arc<str>),
    /// Facts about one project, for all its users.
    Project(Arc<str>),
    /// Facts that matter only during one session.
    Session(Arc<str>),
}

impl Scope {
    /// Creates the scope of one user.
    pub fn user(id: impl Into<Arc<str>>) -> Self {
        Self::User(id.into())
    }

    /// Creates the scope of one project.
    pub fn project(id: impl Into<Arc<str>>) -> Self {
        Self::Project(id.into())
    }

    /// Creates the scope of one session.
    pub fn session(id: impl Into<Arc<str>>) -> Self {
        Self::Session(id.into())
    }

    /// Returns `user`, `project` or `session`.
    ///
    /// ```
    /// # use levity_memory::Scope;
    /// assert_eq!(Scope::user("ada").kind(), "user");
    /// assert_eq!(Scope::project("engine").kind(), "project");
    /// ```
    pub fn kind(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Project(_) => "project",
            Self::Session(_) => "session",
        }
    }

    /// Returns the id of the user, project or session.
    ///
    /// ```
    /// # use levity_memory::Scope;
    /// assert_eq!(Scope::session("monday").id(), "monday");
    /// ```
    pub fn id(&self) -> &str {
        match self {
            Self::User(id) | Self::Project(id) | Self::Session(id) => id,
        }
    }

    pub(super) fn check(&self) -> Result<(), MemoryError> {
        let reason = match self.id().len() {
            0 => "is empty".to_owned(),
            1..=MAX_ID_BYTES => return Ok(()),
            _ => format!("has more than {MAX_ID_BYTES} bytes"),
        };
        let message = format!("the id of the `{}` scope {reason}", self.kind());
        Err(MemoryError::new(MemoryErrorKind::Refused, message))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.id())
    }
}
