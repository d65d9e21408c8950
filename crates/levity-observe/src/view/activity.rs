//! The current activity of a step, in words for a person.

use std::fmt;
use std::sync::Arc;

/// The current activity of a step.
///
/// ```
/// # use levity_observe::Activity;
/// assert_eq!(Activity::Calls("web_search".into()).to_string(), "calls web_search");
/// assert_eq!(Activity::Thinks.to_string(), "thinks");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// No activity is known for the step.
    #[default]
    None,
    /// A model is called, or reasons.
    Thinks,
    /// A model writes text.
    Writes,
    /// The tool with this name is called.
    Calls(Arc<str>),
    /// A tool reports its progress.
    Reports(Arc<str>),
    /// A person is asked this question.
    Asks(Arc<str>),
    /// The step waits for a time, or for the next attempt.
    Waits,
}

impl Activity {
    /// Returns `true` if there is no known activity.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Thinks => f.write_str("thinks"),
            Self::Writes => f.write_str("writes"),
            Self::Calls(tool) => write!(f, "calls {tool}"),
            Self::Reports(text) => f.write_str(text),
            Self::Asks(what) => write!(f, "asks: {what}"),
            Self::Waits => f.write_str("waits"),
        }
    }
}
