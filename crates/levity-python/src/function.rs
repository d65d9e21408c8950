//! Tools under the names and with the parameters that Python code uses.
//!
//! The order of the parameters comes from the schema, with required ones first. So
//! `weather("Oslo")` and `weather(city="Oslo")` are the same call.

use levity_core::ToolSpec;
use monty_types::MontyObject;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::values::{MAX_DEPTH, argument};

/// A tool as a Python function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Function {
    /// The name in the code.
    pub(crate) name: String,
    /// The name of the tool.
    pub(crate) tool: String,
    /// The parameters, in positional order.
    pub(crate) params: Vec<String>,
    /// Set if the tool returns a value; a result that is too long to be shown is then JSON.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) json: bool,
}

impl Function {
    /// Returns the function for a tool; characters that are invalid in Python names become `_`.
    ///
    /// Example: the tool `read-file` becomes `read_file`.
    pub(crate) fn of(spec: &ToolSpec) -> Self {
        let name = spec
            .name
            .replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
        let params = spec.input.get("properties").and_then(Value::as_object);
        let required = spec.input.get("required").and_then(Value::as_array);
        let is_required =
            |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
        let mut params: Vec<String> = params.into_iter().flat_map(Map::keys).cloned().collect();
        // As in Python, required parameters come first.
        params.sort_by_key(|name| !is_required(name));
        Self {
            name,
            tool: spec.name.clone(),
            params,
            json: spec.output.is_some(),
        }
    }

    /// Binds the arguments by name.
    ///
    /// Missing and unknown arguments are not checked here: the dispatcher validates all of them
    /// against the schema.
    ///
    /// # Errors
    /// Returns the message of a Python `TypeError`.
    pub(crate) fn bind(
        &self,
        args: &[MontyObject],
        kwargs: &[(MontyObject, MontyObject)],
    ) -> Result<Map<String, Value>, String> {
        let name = &self.name;
        if args.len() > self.params.len() {
            let (max, given) = (self.params.len(), args.len());
            return Err(format!(
                "{name}() takes {max} positional arguments but {given} were given"
            ));
        }
        let convert = |param: &str, value: &MontyObject| {
            argument(value, MAX_DEPTH)
                .map_err(|what| format!("{name}() argument '{param}' is {what}, which is not JSON"))
        };
        let mut bound = Map::new();
        for (param, value) in self.params.iter().zip(args) {
            bound.insert(param.clone(), convert(param, value)?);
        }
        for (param, value) in kwargs {
            let param = param.to_string();
            let value = convert(&param, value)?;
            if bound.insert(param.clone(), value).is_some() {
                return Err(format!(
                    "{name}() got multiple values for argument '{param}'"
                ));
            }
        }
        Ok(bound)
    }
}
