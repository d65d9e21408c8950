//! JSON schemas: compiled once, without network, with errors that a model can act on.
//!
//! Schemas and values come from strangers. So the nesting, the backtracking of patterns and the
//! length of messages are limited.

use std::fmt::Write as _;

use jsonschema::error::ValidationErrorKind as Kind;
use jsonschema::{PatternOptions, ReferencingError, ValidationError, Validator};
use levity_core::{ArgumentProblem, SharedError};
use serde_json::Value;

use crate::error::{Error, SchemaSide};
use crate::text::Truncated;

pub use tool_schema::ArgumentValidator;
pub(crate) use tool_schema::{CorrectedArguments, ToolSchema};

mod coerce;
mod simple;
mod tool_schema;

/// The maximum nesting of arguments, outputs and schemas. A JSON parser stops at 128 levels, and a
/// journal adds a few levels around them.
pub(crate) const MAX_DEPTH: usize = 100;

/// The maximum number of problems in one message.
const MAX_PROBLEMS: usize = 8;

/// The number of nodes beyond which only the first problem is searched: each takes memory, and a
/// long array may have one per item.
const MAX_SEARCHED: usize = 10_000;

/// A JSON Schema, compiled once.
///
/// ```
/// # use levity_tools::Schema;
/// # use serde_json::json;
/// let schema = Schema::new(&json!({"type": "object", "properties": {"n": {"type": "integer"}}}))?;
/// assert_eq!(schema.problems(&json!({"n": 1})), None);
/// let problems = schema.problems(&json!({"n": "1"}));
/// assert_eq!(problems.as_deref(), Some("- at `/n`: \"1\" is not of type \"integer\""));
/// # Ok::<(), levity_tools::SchemaError>(())
/// ```
pub struct Schema(Validator);

/// The reason for which a schema cannot be used.
///
/// ```
/// # use levity_tools::{Schema, SchemaError};
/// # use serde_json::json;
/// let remote = Schema::new(&json!({"$ref": "https://example.com/schema.json"}));
/// assert!(matches!(remote, Err(SchemaError::Remote(_))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The schema is not a valid JSON Schema, or is unreasonably nested.
    #[error("the schema is not valid: {0}")]
    Invalid(String),
    /// The schema refers to another document.
    #[error(
        "the schema refers to `{0}`, which is never fetched; include its definition in the schema"
    )]
    Remote(String),
}

impl Schema {
    /// Compiles a schema without fetching anything.
    ///
    /// # Errors
    /// Returns an error if the schema is invalid, nested too deeply, or refers to another document.
    ///
    /// ```
    /// # use levity_tools::Schema;
    /// # use serde_json::json;
    /// assert!(Schema::new(&json!({"type": "object"})).is_ok());
    /// assert!(Schema::new(&json!({"type": "thing"})).is_err());
    /// ```
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        if nodes(schema, MAX_DEPTH).is_none() {
            let flaw = format!("it is nested deeper than {MAX_DEPTH} levels");
            return Err(SchemaError::Invalid(flaw));
        }
        // Patterns come from strangers, such as a server; few of them need the default of a million
        // steps.
        let patterns = PatternOptions::fancy_regex().backtrack_limit(100_000);
        let options = jsonschema::options()
            .offline()
            .with_pattern_options(patterns);
        options
            .build(schema)
            .map(Self)
            .map_err(|error| match error.kind() {
                Kind::Referencing(ReferencingError::Unretrievable { uri, .. }) => {
                    SchemaError::Remote(Truncated(uri, 128).to_string())
                }
                _ => SchemaError::Invalid(problem(&error).to_string()),
            })
    }

    /// Compiles the schema of a tool.
    pub(crate) fn compile(tool: &str, side: SchemaSide, schema: &Value) -> Result<Self, Error> {
        Self::new(schema).map_err(|error| match error {
            SchemaError::Remote(reference) => Error::RemoteReference {
                tool: tool.into(),
                side,
                reference,
            },
            SchemaError::Invalid(flaw) => Error::InvalidSchema {
                tool: tool.into(),
                side,
                cause: SharedError::new(flaw),
            },
        })
    }

    /// Returns the problems of `value`, a line for each; `None` if there are none.
    ///
    /// ```
    /// # use levity_tools::Schema;
    /// # use serde_json::json;
    /// let schema = Schema::new(&json!({"type": "object", "required": ["city"]}))?;
    /// assert_eq!(schema.problems(&json!({"city": "Brest"})), None);
    /// assert!(schema.problems(&json!({})).unwrap().contains("city"));
    /// # Ok::<(), levity_tools::SchemaError>(())
    /// ```
    pub fn problems(&self, value: &Value) -> Option<String> {
        let problems = self.list_problems(value);
        let lines: Vec<String> = problems.iter().map(|one| format!("- {one}")).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Returns the first problems of `value` with their places, and then how many more there are.
    ///
    /// ```
    /// # use levity_tools::Schema;
    /// # use serde_json::json;
    /// let schema = Schema::new(&json!({"properties": {"city": {"type": "string"}}}))?;
    /// assert!(schema.list_problems(&json!({"city": "Brest"})).is_empty());
    /// assert_eq!(schema.list_problems(&json!({"city": 5}))[0].path, "/city");
    /// # Ok::<(), levity_tools::SchemaError>(())
    /// ```
    pub fn list_problems(&self, value: &Value) -> Vec<ArgumentProblem> {
        let Some(nodes) = nodes(value, MAX_DEPTH) else {
            let message = format!("it is nested deeper than {MAX_DEPTH} levels");
            return vec![ArgumentProblem::new("", message)];
        };
        if self.0.is_valid(value) {
            return Vec::new();
        }
        if nodes > MAX_SEARCHED {
            let first = self.0.validate(value).err();
            return first.iter().map(problem).collect();
        }
        let mut errors = self.0.iter_errors(value);
        let mut problems: Vec<_> = errors
            .by_ref()
            .take(MAX_PROBLEMS)
            .map(|error| problem(&error))
            .collect();
        let more = errors.count();
        if more > 0 {
            problems.push(ArgumentProblem::new("", format!("and {more} more")));
        }
        problems
    }
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Schema")
    }
}

/// Returns the number of nodes of `value`, unless it is nested deeper than `depth` levels.
pub(crate) fn nodes(value: &Value, depth: usize) -> Option<usize> {
    let sum = |sum: usize, value| Some(sum + nodes(value, depth.checked_sub(1)?)?);
    match value {
        Value::Array(items) => items.iter().try_fold(1, sum),
        Value::Object(map) => map.values().try_fold(1, sum),
        _ => Some(1),
    }
}

/// Describes a problem and its place. No part of it is long, whatever the value.
fn problem(error: &ValidationError<'_>) -> ArgumentProblem {
    let path = Truncated(error.instance_path(), 128).to_string();
    let mut text = String::new();
    let _ = match error.kind() {
        Kind::Required { property } => {
            write!(text, "the property {} is missing", Truncated(property, 64))
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            write!(text, "there is no property {}", names(unexpected))
        }
        Kind::FalseSchema => write!(text, "nothing is allowed here"),
        _ => {
            let shown = Truncated(&**error.instance(), 64).to_string();
            write!(text, "{}", Truncated(error.masked_with(shown), 256))
        }
    };
    ArgumentProblem::new(path, text)
}

fn names(names: &[String]) -> String {
    let quoted = names
        .iter()
        .take(MAX_PROBLEMS)
        .map(|name| format!("\"{}\"", Truncated(name, 64)));
    let mut text = quoted.collect::<Vec<_>>().join(", ");
    if names.len() > MAX_PROBLEMS {
        text.push_str(", …");
    }
    text
}

impl From<SchemaError> for levity_core::Error {
    fn from(error: SchemaError) -> Self {
        Self::config(error)
    }
}

#[cfg(test)]
mod tests;
