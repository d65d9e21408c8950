//! The errors of registries and dispatchers.

use std::fmt;

use levity_core::SharedError;

/// The error for an invalid set of tools, or an invalid dispatcher.
///
/// All errors occur before the first call. A problem with a call is a
/// [`ToolResult`](levity_core::ToolResult) for the model, never an error.
///
/// ```
/// # use levity_tools::{Dispatcher, Error, Registry};
/// let registry = Registry::builder().build()?;
/// let error = Dispatcher::builder(registry).max_concurrent(0).build().unwrap_err();
/// assert_eq!(error, Error::NoConcurrency);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two tools have one name.
    #[error("two tools are named `{0}`; rename one with `.tool_as(..)`")]
    DuplicateName(String),
    /// A tool has a name that providers reject.
    #[error("`{0}` is not a valid tool name; use 1 to 64 letters, digits, `_` and `-`")]
    InvalidName(String),
    /// The input schema of a tool is not an object schema, which arguments require.
    #[error("the input schema of `{0}` is not an object schema; give it `\"type\": \"object\"`")]
    NotAnObject(String),
    /// A schema needs another document, and schemas are never fetched.
    #[error(
        "the {side} schema of `{tool}` refers to `{reference}`, which is never fetched; move it to \
            `$defs`"
    )]
    RemoteReference {
        /// The name of the tool.
        tool: String,
        /// The side of the schema.
        side: SchemaSide,
        /// The reference in the schema.
        reference: String,
    },
    /// A schema is not a valid JSON Schema.
    #[error("the {side} schema of `{tool}` does not compile")]
    InvalidSchema {
        /// The name of the tool.
        tool: String,
        /// The side of the schema.
        side: SchemaSide,
        /// The error of the compiler.
        #[source]
        cause: SharedError,
    },
    /// A folder of tools cannot be used.
    #[error("the tools of `{folder}` cannot be loaded")]
    Folder {
        /// The path of the folder.
        folder: String,
        /// The error behind it.
        #[source]
        cause: SharedError,
    },
    /// A source has an item that it cannot turn into a tool.
    #[error("{0}")]
    Source(String),
    /// The limit on concurrent calls is 0, so no call could run.
    #[error("`max_concurrent` is 0, so no call could ever start; set it to at least 1")]
    NoConcurrency,
}

impl Error {
    /// Returns `true` if a retry may help: never, the program has to change.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// One of a tool's two schemas.
///
/// ```
/// # use levity_tools::SchemaSide;
/// assert_eq!(SchemaSide::Input.to_string(), "input");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaSide {
    /// The schema of the arguments.
    Input,
    /// The schema of the output's value.
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
