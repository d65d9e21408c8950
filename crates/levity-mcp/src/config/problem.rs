use std::fmt;
use std::sync::Arc;

/// Something in a config that is wrong, or that has no effect.
///
/// It says where and what, and never what a value is: that may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigProblem {
    /// The server it belongs to, where it belongs to one.
    pub server: Option<Arc<str>>,
    /// Where in the JSON it is, as a JSON pointer: `/mcpServers/files/args/1`. Empty for the whole.
    pub at: String,
    /// The line and the column, counted from 1, where it is no JSON.
    pub line: Option<(usize, usize)>,
    /// What is wrong.
    pub message: String,
    /// Whether it keeps the server from being started. What is only to be told does not.
    pub stops: bool,
}

impl ConfigProblem {
    pub(super) fn new(at: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            server: None,
            at: at.into(),
            line: None,
            message: message.into(),
            stops: true,
        }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.line {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !self.at.is_empty() {
            write!(f, "`{}`: ", self.at)?;
        }
        f.write_str(&self.message)
    }
}

/// A name as it stands in a message: not longer than this, and on one line.
pub(super) fn short(name: &str) -> String {
    const LONGEST: usize = 64;
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut short: String = name.chars().take(LONGEST).map(clean).collect();
    if short.len() < name.len() && name.chars().count() > LONGEST {
        short.push_str("..");
    }
    short
}

/// The place of `key` below `at`.
pub(super) fn below(at: &str, key: &str) -> String {
    format!("{at}/{}", short(key).replace('~', "~0").replace('/', "~1"))
}
