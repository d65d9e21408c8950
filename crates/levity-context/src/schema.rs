//! The JSON Schema of a context value, and its check.
//!
//! The schema is text in the code, so that it can be printed, published and compared. It is
//! compiled once per process. Problems name the place and the rule but mask the value, because a
//! context may hold private data.

use std::sync::OnceLock;

use jsonschema::{ValidationError, Validator};
use levity_core::Context;
use serde::Deserialize as _;
use serde_json::Value;

use crate::error::{Error, Result};

/// The JSON Schema of a context value, as text.
///
/// ```
/// let schema: serde_json::Value = serde_json::from_str(levity_context::CONTEXT_SCHEMA)?;
/// assert_eq!(schema["required"][0], "intent");
/// # Ok::<(), serde_json::Error>(())
/// ```
pub const CONTEXT_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "Context",
  "description": "The context of an agent: its task, workspace, history and memory.",
  "type": "object",
  "properties": {
    "intent": { "type": "string", "description": "What the user wants." },
    "workspace": {
      "type": "object",
      "description": "Where the agent works.",
      "properties": {
        "root": { "type": "string", "description": "The folder." },
        "files": {
          "type": "array",
          "items": { "type": "string" },
          "description": "The files in it, relative to the folder."
        }
      },
      "required": ["root", "files"],
      "additionalProperties": false
    },
    "history": {
      "type": "array",
      "description": "The actions of the agent, with their observations.",
      "items": {
        "type": "object",
        "properties": {
          "step": { "type": "integer", "minimum": 1, "description": "Its number, from 1." },
          "action": { "type": "object", "description": "The tool and its arguments." },
          "observation": { "type": "object", "description": "The result of the action." }
        },
        "required": ["step", "action", "observation"],
        "additionalProperties": false
      }
    },
    "memory": { "type": "object", "description": "Memory from earlier runs." }
  },
  "required": ["intent", "workspace", "history", "memory"],
  "additionalProperties": false
}"#;

/// The maximum number of reported problems.
const MAX_PROBLEMS: usize = 8;
/// The maximum length of a problem's text, in characters.
const MAX_TEXT: usize = 200;

/// Validates a context value against [`CONTEXT_SCHEMA`].
///
/// ```
/// # use levity_context::check_context;
/// # use serde_json::json;
/// let value = json!({"intent": 1, "workspace": {"root": "."}, "history": [], "memory": {}});
/// let error = check_context(&value);
/// assert_eq!(
///     error.unwrap_err().to_string(),
///     "the value is not a valid context: at `/intent`: value is not of type \"string\"; \
///      at `/workspace`: \"files\" is a required property"
/// );
/// ```
///
/// # Errors
/// Fails if the value does not match. The error names each mismatching place, but no content of the
/// value.
pub fn check(value: &Value) -> Result<()> {
    let problems = match validator() {
        Ok(validator) => problems(validator, value),
        Err(problem) => vec![problem.clone()],
    };
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Error::Mismatch(problems))
    }
}

/// Parses a context value.
///
/// ```
/// use levity_context::parse_context;
/// use serde_json::json;
///
/// let value = json!({
///     "intent": "Tidy up", "workspace": {"root": ".", "files": ["a.txt"]},
///     "history": [], "memory": {},
/// });
/// assert_eq!(parse_context(&value)?.workspace.files, ["a.txt"]);
/// # Ok::<(), levity_context::Error>(())
/// ```
///
/// # Errors
/// Fails under the same conditions as [`check_context`](crate::check_context).
pub fn parse(value: &Value) -> Result<Context> {
    check(value)?;
    Context::deserialize(value).map_err(|_| Error::Mismatch(vec!["it cannot be parsed".to_owned()]))
}

/// Returns the compiled schema, which never loads other documents.
fn validator() -> Result<&'static Validator, &'static String> {
    static COMPILED: OnceLock<Result<Validator, String>> = OnceLock::new();
    let compile = || {
        let schema = serde_json::from_str(CONTEXT_SCHEMA).map_err(|error| error.to_string())?;
        jsonschema::options()
            .offline()
            .build(&schema)
            .map_err(|error| error.to_string())
    };
    COMPILED.get_or_init(compile).as_ref()
}

/// At most [`MAX_PROBLEMS`] problems are listed, then the number of the others.
fn problems(validator: &Validator, value: &Value) -> Vec<String> {
    let mut errors = validator.iter_errors(value).map(|error| problem(&error));
    let mut problems: Vec<String> = errors.by_ref().take(MAX_PROBLEMS).collect();
    let more = errors.count();
    if more > 0 {
        problems.push(format!("and {more} more"));
    }
    if problems.is_empty() {
        problems.extend(invalid_step_number(value));
    }
    problems
}

/// Formats one problem: `` at `/intent`: value is not of type "string" ``.
fn problem(error: &ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    let text = error.masked().to_string();
    let text: String = text.chars().take(MAX_TEXT).collect();
    format!("at `{path}`: {text}")
}

/// Returns an error for a step number that the schema accepts, such as `1.0` or 30 digits, but that
/// does not fit an integer.
fn invalid_step_number(value: &Value) -> Option<String> {
    let steps = value["history"].as_array()?;
    let step = steps
        .iter()
        .position(|step| step["step"].as_u64().is_none())?;
    Some(format!(
        "at `/history/{step}/step`: value is not a 64-bit integer"
    ))
}
