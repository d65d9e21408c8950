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
  "description": "Everything an agent goes by: what it is to do, where, what it did, what it knows.",
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
      "description": "What was done, and what came of it.",
      "items": {
        "type": "object",
        "properties": {
          "step": { "type": "integer", "minimum": 1, "description": "Its number, from 1." },
          "action": { "type": "object", "description": "The tool and its arguments." },
          "observation": { "type": "object", "description": "What came of it." }
        },
        "required": ["step", "action", "observation"],
        "additionalProperties": false
      }
    },
    "memory": { "type": "object", "description": "What is remembered from before." }
  },
  "required": ["intent", "workspace", "history", "memory"],
  "additionalProperties": false
}"#;

/// How many problems are told at a time.
const MAX_PROBLEMS: usize = 8;
/// The longest word of a problem, in characters.
const MAX_WORDS: usize = 200;

/// Says whether a value is a context value, by [`CONTEXT_SCHEMA`].
///
/// ```
/// # use levity_context::check_context;
/// # use serde_json::json;
/// let error = check_context(&json!({"intent": 1, "workspace": {"root": "."}, "history": [], "memory": {}}));
/// assert_eq!(
///     error.unwrap_err().to_string(),
///     "the value is no context: at `/intent`: value is not of type \"string\"; \
///      at `/workspace`: \"files\" is a required property"
/// );
/// ```
///
/// # Errors
/// When it is none; each place that does not match is named, and nothing of what is there is told.
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

/// Reads a context value.
///
/// # Errors
/// As [`check_context`](crate::check_context).
pub fn parse(value: &Value) -> Result<Context> {
    check(value)?;
    Context::deserialize(value).map_err(|_| Error::Mismatch(vec!["it cannot be read".to_owned()]))
}

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

fn problems(validator: &Validator, value: &Value) -> Vec<String> {
    let mut errors = validator.iter_errors(value).map(|error| problem(&error));
    let mut problems: Vec<String> = errors.by_ref().take(MAX_PROBLEMS).collect();
    let more = errors.count();
    if more > 0 {
        problems.push(format!("and {more} more"));
    }
    if problems.is_empty() {
        problems.extend(uncountable(value));
    }
    problems
}

fn problem(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    let words = error.masked().to_string();
    let words: String = words.chars().take(MAX_WORDS).collect();
    format!("at `{place}`: {words}")
}

/// A step whose number is whole for a schema, `1.0` or one of 30 digits, and yet none that can be
/// counted with.
fn uncountable(value: &Value) -> Option<String> {
    let steps = value["history"].as_array()?;
    let step = steps
        .iter()
        .position(|step| step["step"].as_u64().is_none())?;
    Some(format!(
        "at `/history/{step}/step`: value is no whole number of 64 bits"
    ))
}
