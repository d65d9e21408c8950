use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use levity_core::{ToolCall, ToolError, ToolErrorKind, ToolSpec};
use serde_json::{Map, Value};

use super::{Schema, coerce, plain};
use crate::error::{Error, SchemaSide};
use crate::text::Short;

/// A schema of a tool: compiled at once or, where nothing can be wrong with it, when it is first
/// needed.
///
/// The first schema that a program compiles takes longer than all else it does before its first
/// call of a model, since the schema of schemas is compiled with it.
pub(crate) struct ToolSchema {
    spec: Arc<ToolSpec>,
    side: SchemaSide,
    compiled: OnceLock<Result<Schema, Error>>,
}

impl ToolSchema {
    /// The schema of the tool's arguments.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn input(spec: &Arc<ToolSpec>) -> Result<Self, Error> {
        Self::new(spec, SchemaSide::Input)
    }

    /// The schema of what the tool gives, if it has one.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn output(spec: &Arc<ToolSpec>) -> Result<Option<Self>, Error> {
        spec.output
            .as_ref()
            .map(|_| Self::new(spec, SchemaSide::Output))
            .transpose()
    }

    fn new(spec: &Arc<ToolSpec>, side: SchemaSide) -> Result<Self, Error> {
        let compiled = match plain::is_valid(of(spec, side)) {
            true => OnceLock::new(),
            false => Ok(compile(spec, side)?).into(),
        };
        Ok(Self {
            spec: spec.clone(),
            side,
            compiled,
        })
    }

    /// What is wrong with `value`, a line for each problem; `None` when nothing is.
    pub(crate) fn problems(&self, value: &Value) -> Option<String> {
        match self.compiled.get_or_init(|| compile(&self.spec, self.side)) {
            Ok(schema) => schema.problems(value),
            Err(error) => Some(error.to_string()),
        }
    }

    /// The arguments of a call, if they are as the schema wants them.
    ///
    /// # Errors
    /// When they are not, in words that the model can act on.
    pub(crate) fn arguments<'a>(&self, call: &'a ToolCall) -> Result<Cow<'a, Value>, ToolError> {
        let invalid = |text: String| ToolError::new(ToolErrorKind::InvalidArgs, text);
        if let Some(raw) = &call.raw {
            let error = serde_json::from_str::<Value>(raw).err();
            let error = error.map_or_else(|| "they came as text".into(), |error| error.to_string());
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
        let (name, schema) = (&self.spec.name, Short(&self.spec.input, 1024));
        if coerce::is_schema(&self.spec.input, &args) {
            let example = Short(coerce::example(&self.spec.input), 1024).to_string();
            return Err(invalid(format!(
                "the arguments of `{name}` are its schema; give values in its place, for example \
                    {example}"
            )));
        }
        Err(invalid(format!(
            "the arguments do not match the schema of `{name}`:\n{problems}\nthe schema: {schema}"
        )))
    }

    /// The arguments of a call, also if they match the schema only once values have the wanted
    /// type. The second is what the model should be told of that.
    ///
    /// # Errors
    /// When they do not match.
    pub(crate) fn corrected<'a>(&self, call: &'a ToolCall) -> Result<Corrected<'a>, ToolError> {
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

/// Arguments, and what the model is told if they were corrected.
pub(crate) type Corrected<'a> = (Cow<'a, Value>, Option<String>);

/// Checks the arguments of calls as a [`Dispatcher`](crate::Dispatcher) does, for a tool that is
/// taken in elsewhere. Cloning costs nothing.
///
/// ```
/// # use levity_core::{ToolCall, ToolErrorKind, ToolSpec};
/// # use levity_tools::Arguments;
/// # use serde_json::json;
/// let input = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
/// let arguments = Arguments::new(ToolSpec::new("count", "Counts.").with_input(input))?;
/// assert_eq!(*arguments.of(&ToolCall::new("c1", "count", json!({"n": 1})))?, json!({"n": 1}));
/// let error = arguments.of(&ToolCall::new("c2", "count", json!({"n": "1"}))).unwrap_err();
/// assert_eq!(error.kind(), ToolErrorKind::InvalidArgs);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Arguments(Arc<ToolSchema>);

impl Arguments {
    /// Checks the arguments of this tool.
    ///
    /// # Errors
    /// When its schema cannot be used.
    pub fn new(spec: impl Into<Arc<ToolSpec>>) -> Result<Self, Error> {
        Ok(Self(Arc::new(ToolSchema::input(&spec.into())?)))
    }

    /// The arguments of a call, if they are as the schema wants them.
    ///
    /// # Errors
    /// When they are not, in words that the model can act on.
    pub fn of<'a>(&self, call: &'a ToolCall) -> Result<Cow<'a, Value>, ToolError> {
        self.0.arguments(call)
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Arguments").field(&self.0.spec.name).finish()
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
