use std::fmt;
use std::sync::Arc;

/// What a step does just now.
///
/// ```
/// # use levity_observe::Activity;
/// assert_eq!(Activity::Calls("web_search".into()).to_string(), "calls web_search");
/// assert_eq!(Activity::Thinks.to_string(), "thinks");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// Nothing that was told.
    #[default]
    None,
    /// A model was called, or reasons.
    Thinks,
    /// A model writes.
    Writes,
    /// A tool of this name is called.
    Calls(Arc<str>),
    /// A tool says how far it is.
    Reports(Arc<str>),
    /// A person is asked this.
    Asks(Arc<str>),
    /// Time passes, or another attempt follows after a pause.
    Waits,
}

impl Activity {
    /// Whether there is nothing to say.
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
