//! The schemas of a tool, compiled lazily where that is safe.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use levity_core::{ArgumentProblem, ToolCall, ToolError, ToolErrorKind, ToolSpec};
use serde_json::{Map, Value};

use super::{Schema, coerce, simple};
use crate::error::{Error, SchemaSide};
use crate::text::Truncated;

/// A schema of a tool: compiled at once or, if it is certainly valid, when it is first needed.
///
/// The first compilation in a program takes longer than everything else before its first model
/// call, since it also compiles the meta-schema.
pub(crate) struct ToolSchema {
    spec: Arc<ToolSpec>,
    side: SchemaSide,
    compiled: OnceLock<Result<Schema, Error>>,
}

impl ToolSchema {
    /// Returns the schema of the tool's arguments.
    ///
    /// # Errors
    /// Returns an error if the schema cannot be used.
    pub(crate) fn input(spec: &Arc<ToolSpec>) -> Result<Self, Error> {
        Self::new(spec, SchemaSide::Input)
    }

    /// Returns the schema of the tool's output, if it has one.
    ///
    /// # Errors
    /// Returns an error if the schema cannot be used.
    pub(crate) fn output(spec: &Arc<ToolSpec>) -> Result<Option<Self>, Error> {
        spec.output
            .as_ref()
            .map(|_| Self::new(spec, SchemaSide::Output))
            .transpose()
    }

    fn new(spec: &Arc<ToolSpec>, side: SchemaSide) -> Result<Self, Error> {
        let compiled = match simple::is_valid(of(spec, side)) {
            true => OnceLock::new(),
            false => Ok(compile(spec, side)?).into(),
        };
        Ok(Self {
            spec: spec.clone(),
            side,
            compiled,
        })
    }

    /// Returns the problems of `value`, a line for each; `None` if there are none.
    pub(crate) fn problems(&self, value: &Value) -> Option<String> {
        match self.compiled.get_or_init(|| compile(&self.spec, self.side)) {
            Ok(schema) => schema.problems(value),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Returns the problems of `value` with their places.
    pub(crate) fn list_problems(&self, value: &Value) -> Vec<ArgumentProblem> {
        match self.compiled.get_or_init(|| compile(&self.spec, self.side)) {
            Ok(schema) => schema.list_problems(value),
            Err(error) => vec![ArgumentProblem::new("", error.to_string())],
        }
    }

    /// Returns the arguments of a call, if they match the schema.
    ///
    /// # Errors
    /// Returns an error in words that the model can act on if they do not match.
    pub(crate) fn arguments<'a>(&self, call: &'a ToolCall) -> Result<Cow<'a, Value>, ToolError> {
        let invalid = |text: String| ToolError::new(ToolErrorKind::InvalidArgs, text);
        if let Some(raw) = &call.raw {
            let error = serde_json::from_str::<Value>(raw).err();
            let error = error.map_or_else(
                || "they were sent as text".into(),
                |error| error.to_string(),
            );
            return Err(invalid(format!(
                "the arguments are not valid JSON: {error}"
            )));
        }
        // Some models send `null` for no arguments.
        let args = match &call.args {
            Value::Null => Cow::Owned(Value::Object(Map::new())),
            args => Cow::Borrowed(args),
        };
        let Some(problems) = self.problems(&args) else {
            return Ok(args);
        };
        let (name, schema) = (&self.spec.name, Truncated(&self.spec.input, 1024));
        if coerce::is_schema(&self.spec.input, &args) {
            let example = Truncated(coerce::example(&self.spec.input), 1024).to_string();
            return Err(invalid(format!(
                "the arguments of `{name}` are its schema; give values in its place, for example \
                    {example}"
            )));
        }
        Err(invalid(format!(
            "the arguments do not match the schema of `{name}`:\n{problems}\nthe schema: {schema}"
        )))
    }

    /// Returns the arguments of a call, after correcting types if necessary, and a note about that
    /// for the model.
    ///
    /// # Errors
    /// Returns an error if they do not match.
    pub(crate) fn corrected<'a>(
        &self,
        call: &'a ToolCall,
    ) -> Result<CorrectedArguments<'a>, ToolError> {
        let error = match self.arguments(call) {
            Ok(args) => return Ok((args, None)),
            Err(error) => error,
        };
        match coerce::coerce(&self.spec.input, &call.args) {
            Some(coerced) if call.raw.is_none() && self.problems(&coerced.args).is_none() => {
                let note = coerced.note();
                Ok((Cow::Owned(coerced.args), Some(note)))
            }
            _ => Err(error),
        }
    }
}

/// Arguments, and a note for the model if they were corrected.
pub(crate) type CorrectedArguments<'a> = (Cow<'a, Value>, Option<String>);

/// Validates the arguments of calls as a [`Dispatcher`](crate::Dispatcher) does, for a tool that is
/// handled elsewhere. Cloning costs nothing.
///
/// ```
/// # use levity_core::{ToolCall, ToolErrorKind, ToolSpec};
/// # use levity_tools::ArgumentValidator;
/// # use serde_json::json;
/// let input = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
/// let arguments = ArgumentValidator::new(ToolSpec::new("count", "Counts.").with_input(input))?;
/// assert_eq!(*arguments.of(&ToolCall::new("c1", "count", json!({"n": 1})))?, json!({"n": 1}));
/// let error = arguments.of(&ToolCall::new("c2", "count", json!({"n": "1"}))).unwrap_err();
/// assert_eq!(error.kind(), ToolErrorKind::InvalidArgs);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ArgumentValidator(Arc<ToolSchema>);

impl ArgumentValidator {
    /// Creates a validator of the arguments of this tool.
    ///
    /// # Errors
    /// Returns an error if its schema cannot be used.
    pub fn new(spec: impl Into<Arc<ToolSpec>>) -> Result<Self, Error> {
        Ok(Self(Arc::new(ToolSchema::input(&spec.into())?)))
    }

    /// Returns the arguments of a call, if they match the schema.
    ///
    /// # Errors
    /// Returns an error in words that the model can act on if they do not match.
    pub fn of<'a>(&self, call: &'a ToolCall) -> Result<Cow<'a, Value>, ToolError> {
        self.0.arguments(call)
    }
}

impl fmt::Debug for ArgumentValidator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ArgumentValidator")
            .field(&self.0.spec.name)
            .finish()
    }
}

fn compile(spec: &ToolSpec, side: SchemaSide) -> Result<Schema, Error> {
    Schema::compile(&spec.name, side, of(spec, side))
}

fn of(spec: &ToolSpec, side: SchemaSide) -> &Value {
    match side {
        SchemaSide::Input => &spec.input,
        SchemaSide::Output => spec.output.as_ref().unwrap_or(&Value::Null),
    }
}
