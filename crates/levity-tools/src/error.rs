use std::fmt;

use levity_core::SharedError;

/// Why a set of tools, or a dispatcher for them, cannot be made.
///
/// All of it is found before the first call; what goes wrong with a call is a
/// [`ToolResult`](levity_core::ToolResult) for the model, never an error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two tools have one name.
    #[error("two tools are named `{0}`; rename one with `.tool_as(..)`")]
    DuplicateName(String),
    /// Providers would refuse the name.
    #[error("`{0}` is no tool name; use 1 to 64 letters, digits, `_` and `-`")]
    InvalidName(String),
    /// The arguments of a tool are an object, so its input schema has to say so.
    #[error("the input schema of `{0}` is no object schema; give it `\"type\": \"object\"`")]
    NotAnObject(String),
    /// A schema needs another document, and schemas are never fetched.
    #[error(
        "the {side} schema of `{tool}` refers to `{reference}`, which is never fetched; move it to \
            `$defs`"
    )]
    RemoteReference {
        /// The tool.
        tool: String,
        /// Which of its schemas.
        side: SchemaSide,
        /// What it refers to.
        reference: String,
    },
    /// A schema is no JSON Schema.
    #[error("the {side} schema of `{tool}` does not compile")]
    InvalidSchema {
        /// The tool.
        tool: String,
        /// Which of its schemas.
        side: SchemaSide,
        /// What is wrong with it.
        #[source]
        cause: SharedError,
    },
    /// A folder of tools cannot be used.
    #[error("the tools of `{folder}` cannot be had")]
    Folder {
        /// The folder.
        folder: String,
        /// Why not.
        #[source]
        cause: SharedError,
    },
    /// A source has something that it cannot make a tool of.
    #[error("{0}")]
    Source(String),
    /// A dispatcher that may run no call at a time runs none.
    #[error("`max_concurrent` is 0, so that no call could ever start; give it at least 1")]
    NoConcurrency,
}

impl Error {
    /// Whether doing the same again may help: never, the program has to change.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// One of a tool's two schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaSide {
    /// Of the arguments.
    Input,
    /// Of the output's value.
    Output,
}

impl fmt::Display for SchemaSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
        })
    }
}

impl From<Error> for levity_core::Error {
    fn from(error: Error) -> Self {
        Self::config(error)
    }
}
