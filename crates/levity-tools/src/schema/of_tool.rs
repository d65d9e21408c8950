use std::sync::{Arc, OnceLock};

use levity_core::ToolSpec;
use serde_json::Value;

use super::{Schema, plain};
use crate::error::{Error, Side};

/// A schema of a tool: compiled at once or, where nothing can be wrong with it, when it is first needed.
///
/// The first schema that a program compiles takes longer than all else it does before its first call of a model,
/// since the schema of schemas is compiled with it.
pub(crate) struct ToolSchema {
    spec: Arc<ToolSpec>,
    side: Side,
    compiled: OnceLock<Result<Schema, Error>>,
}

impl ToolSchema {
    /// The schema of the tool's arguments.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn input(spec: &Arc<ToolSpec>) -> Result<Self, Error> {
        Self::new(spec, Side::Input)
    }

    /// The schema of what the tool gives, if it has one.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn output(spec: &Arc<ToolSpec>) -> Result<Option<Self>, Error> {
        spec.output.as_ref().map(|_| Self::new(spec, Side::Output)).transpose()
    }

    fn new(spec: &Arc<ToolSpec>, side: Side) -> Result<Self, Error> {
        let compiled = match plain::is_valid(of(spec, side)) {
            true => OnceLock::new(),
            false => Ok(compile(spec, side)?).into(),
        };
        Ok(Self { spec: spec.clone(), side, compiled })
    }

    /// What is wrong with `value`, a line for each problem; `None` when nothing is.
    pub(crate) fn problems(&self, value: &Value) -> Option<String> {
        match self.compiled.get_or_init(|| compile(&self.spec, self.side)) {
            Ok(schema) => schema.problems(value),
            Err(error) => Some(error.to_string()),
        }
    }
}

fn compile(spec: &ToolSpec, side: Side) -> Result<Schema, Error> {
    Schema::compile(&spec.name, side, of(spec, side))
}

fn of(spec: &ToolSpec, side: Side) -> &Value {
    match side {
        Side::Input => &spec.input,
        Side::Output => spec.output.as_ref().unwrap_or(&Value::Null),
    }
}
