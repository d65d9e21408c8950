/// Which commands may run, which are asked about, and which may not.
#[derive(Clone, Debug, Default)]
pub struct CommandPolicy {}

/// A command as a model wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A program and its arguments.
    Argv(&'a [String]),
    /// A line for the shell.
    Shell(&'a str),
}

/// What a [`CommandPolicy`] says of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ruling {
    /// It may run.
    Allow,
    /// It may run if a person says so.
    Ask {
        /// Why, for the person.
        reason: String,
    },
    /// It may not run.
    Deny {
        /// Why not, for the model.
        reason: String,
    },
}

impl CommandPolicy {
    /// Decides on a command.
    pub fn judge(&self, line: Line<'_>) -> Ruling {
        let _ = line;
        Ruling::Ask { reason: "nothing is known of it".to_owned() }
    }
}
