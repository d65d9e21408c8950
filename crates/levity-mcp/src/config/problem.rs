//! Problems of a configuration, and the texts in them.
//!
//! A problem never quotes a value. Names of servers and settings are quoted, because a person needs
//! them to find the place; `short` makes them safe for one line of a terminal.

use std::fmt;
use std::sync::Arc;

/// An error or a warning in a configuration.
///
/// It has the location and the reason, but never a value, because that may be a secret.
///
/// ```
/// use levity_mcp::Config;
///
/// let config = Config::parse(r#"{"mcpServers": {"files": {"args": ["."]}}}"#, |_| None);
/// let problem = &config.problems()[0];
/// assert_eq!((problem.pointer.as_str(), problem.is_error), ("/mcpServers/files", true));
/// assert!(problem.message.starts_with("it has neither a `command` nor a `url`"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigProblem {
    /// The server that the problem belongs to, if any.
    pub server: Option<Arc<str>>,
    /// The location as a JSON pointer: `/mcpServers/files/args/1`. Empty for the whole document.
    pub pointer: String,
    /// The line and the column, counted from 1, if the document is not valid JSON.
    pub line: Option<(usize, usize)>,
    /// The description of the problem.
    pub message: String,
    /// `true` for an error, which prevents the start of the server; `false` for a warning.
    pub is_error: bool,
}

impl ConfigProblem {
    /// Creates an error of the place `at`, a JSON pointer, without a server and a line.
    pub(super) fn new(at: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            server: None,
            pointer: at.into(),
            line: None,
            message: message.into(),
            is_error: true,
        }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.line {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !self.pointer.is_empty() {
            write!(f, "`{}`: ", self.pointer)?;
        }
        f.write_str(&self.message)
    }
}

/// Shortens a name for a message: one line of at most this many characters.
pub(super) fn short(name: &str) -> String {
    const LONGEST: usize = 64;
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut short: String = name.chars().take(LONGEST).map(clean).collect();
    if short.len() < name.len() && name.chars().count() > LONGEST {
        short.push_str("..");
    }
    short
}

/// Returns the JSON pointer of `key` below `at`.
pub(super) fn below(at: &str, key: &str) -> String {
    format!("{at}/{}", short(key).replace('~', "~0").replace('/', "~1"))
}
