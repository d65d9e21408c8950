//! The program that an agent offers to its model as the tool `run_python`.
//!
//! The description is written for the model: it lists the supported Python, the signatures of the
//! tools and the names of the variables. It is computed once, on first use, because a builder may
//! still add tools until then.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use levity_core::{Child, Executor, Hints, Program, Tool, ToolError, ToolSpec};
use levity_tools::Registry;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::executor::PythonExecutor;
use crate::function::Function;
use crate::limits::ProgramLimits;
use crate::machine::{PythonMachine, Setup};
use crate::python::Python;
use crate::signature::signature;

/// A program that lets a model write Python code with tool calls.
///
/// Each call is a separate run with its own journal. The tool calls of the code are validated,
/// checked by the policy, counted and journaled like those of the model. If the process ends while
/// code waits for a tool, the next process resumes it there.
///
/// ```
/// use levity_core::{Program, ToolSpec};
/// use levity_python::RunPython;
/// use serde_json::json;
///
/// let weather = ToolSpec::new("weather", "Tells the weather in a city.").with_input(json!({
///     "type": "object",
///     "properties": {"city": {"type": "string"}},
///     "required": ["city"],
/// }));
/// let program = RunPython::new().specs([weather]).variables(json!({"cities": ["Oslo", "Rome"]}));
/// let signature = "weather(city: str) -> str  # Tells the weather in a city.";
/// assert!(program.spec().description.contains(signature));
/// // An agent takes it by `Agent::builder(model).tool(weather).program(program)`.
/// ```
#[must_use = "a program does nothing until an agent has it"]
pub struct RunPython {
    name: String,
    python: Python,
    specs: Vec<ToolSpec>,
    variables: Map<String, Value>,
    spec: OnceLock<ToolSpec>,
}

/// The maximum number of alternatives in a call.
const MAX_VARIANTS: usize = 10;

impl RunPython {
    /// The default name of the tool.
    pub const NAME: &'static str = "run_python";

    /// Creates a program whose code calls no tools.
    pub fn new() -> Self {
        Self {
            name: Self::NAME.to_owned(),
            python: Python::new(),
            specs: Vec::new(),
            variables: Map::new(),
            spec: OnceLock::new(),
        }
    }

    /// Sets another name for the tool.
    ///
    /// Code cannot call a tool of this name, because segments of code are requested under it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the interpreter, with its limits.
    pub fn python(mut self, python: Python) -> Self {
        self.python = python;
        self
    }

    /// Sets the limits of the code; the defaults of [`ProgramLimits`] otherwise.
    pub fn limits(mut self, limits: ProgramLimits) -> Self {
        self.python = self.python.with_limits(limits);
        self
    }

    /// Allows code to call a tool, which the agent must have too.
    ///
    /// ```
    /// use levity_core::{Program, ToolOutput};
    /// use levity_python::RunPython;
    /// use levity_test::RecordingTool;
    ///
    /// let search = RecordingTool::new("search-web", |_| Ok(ToolOutput::text("nothing")));
    /// let program = RunPython::new().tool(&search);
    /// assert!(program.spec().description.contains("search_web() -> str"));
    /// ```
    pub fn tool(self, tool: &impl Tool) -> Self {
        let spec = tool.spec().clone();
        self.specs([spec])
    }

    /// Allows code to call the tools of these specs, which the agent must have too.
    pub fn specs(mut self, specs: impl IntoIterator<Item = ToolSpec>) -> Self {
        self.specs.extend(specs);
        self
    }

    /// Allows code to call these tools of a registry, which the agent must have too.
    ///
    /// ```
    /// use levity_core::{Program, ToolOutput};
    /// use levity_python::RunPython;
    /// use levity_test::RecordingTool;
    /// use levity_tools::Registry;
    ///
    /// let now = RecordingTool::new("now", |_| Ok(ToolOutput::text("noon")));
    /// let registry = Registry::builder().tool(now).build()?;
    /// let program = RunPython::new().tools(&registry, ["now"])?;
    /// assert!(program.spec().description.contains("now() -> str"));
    /// assert!(RunPython::new().tools(&registry, ["later"]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the registry has no such tool.
    pub fn tools<N: AsRef<str>>(
        self,
        registry: &Registry,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self> {
        let find = |name: N| {
            let name = name.as_ref();
            registry
                .get(name)
                .map(|tool| tool.spec().clone())
                .ok_or_else(|| {
                    let near = registry.suggest(name).join("`, `");
                    Error::Setting(format!(
                        "no tool `{name}` to call from code; available: `{near}`"
                    ))
                })
        };
        let specs = names.into_iter().map(find).collect::<Result<Vec<_>>>()?;
        Ok(self.specs(specs))
    }

    /// Sets variables for all code, as an object; the variables of a call are added.
    ///
    /// A value that is not an object is ignored. The model sees the names of the variables, not
    /// their values.
    ///
    /// ```
    /// use levity_core::Program;
    /// use levity_python::RunPython;
    /// use serde_json::json;
    ///
    /// let program = RunPython::new().variables(json!({"orders": [1, 2], "region": "EU"}));
    /// assert!(program.spec().description.contains("Available variables: orders, region."));
    /// ```
    pub fn variables(mut self, variables: Value) -> Self {
        if let Value::Object(variables) = variables {
            self.variables.extend(variables);
        }
        self
    }

    /// Returns the functions that code can call, by name; of two with the same name, the first.
    fn functions(&self) -> BTreeMap<String, (Function, &ToolSpec)> {
        let mut functions = BTreeMap::new();
        for spec in self.specs.iter().filter(|spec| spec.name != self.name) {
            let function = Function::of(spec);
            functions
                .entry(function.name.clone())
                .or_insert((function, spec));
        }
        functions
    }

    /// Collects everything that a call needs into the state of its machine, so that a resumed run
    /// does not depend on the current configuration. Invalid arguments become a problem that ends
    /// the run at once.
    fn setup(&self, args: &Value) -> Setup {
        let mut inputs = self.variables.clone();
        inputs.extend(
            args.get("inputs")
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default(),
        );
        let (variants, problem) = match variants(args) {
            Ok(variants) => (variants, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        Setup {
            name: self.name.clone(),
            variants,
            inputs,
            functions: self
                .functions()
                .into_values()
                .map(|(function, _)| function)
                .collect(),
            limits: *self.python.limits(),
            problem,
        }
    }

    /// Builds the spec for the model. Code without tools is read-only; code with tools is not,
    /// because its tools may change something.
    fn describe(&self) -> ToolSpec {
        let mut text = String::from(DESCRIPTION);
        let functions = self.functions();
        if !functions.is_empty() {
            text.push_str(FUNCTIONS);
            for (function, spec) in functions.values() {
                text.push_str("\n- ");
                text.push_str(&signature(spec, function));
            }
        }
        if !self.variables.is_empty() {
            let names: Vec<&str> = self.variables.keys().map(String::as_str).collect();
            text.push_str(&format!("\nAvailable variables: {}.", names.join(", ")));
        }
        let hints = if functions.is_empty() {
            Hints::new().read_only()
        } else {
            Hints::new().parallel()
        };
        ToolSpec::new(self.name.clone(), text)
            .with_input(input())
            .with_output(output())
            .with_hints(hints)
    }
}

const DESCRIPTION: &str = "Runs Python and returns the value of the last expression, what was \
    printed, and the time it took. \
    End the code with an expression for the result: a dict, a list, a text or a number. \
    It is a part of Python 3: functions, lambdas, comprehensions, f-strings, exceptions, plain \
    classes, dataclasses, async; \
    and the modules asyncio, base64, collections, dataclasses, datetime, functools, itertools, \
    json, math, re, typing \
    and unicodedata. There is no `yield`, `match`, `del`, inheritance, own exception class or `%` \
    formatting, and no other \
    module, file, network, clock or randomness.";

const FUNCTIONS: &str = "\nThese functions can be called in it. They return at once what the tool \
    returned, and raise \
    RuntimeError when it failed. For several at a time, write async code: once there is an `await` \
    in the code, all of \
    them must be awaited, as in `a, b = await asyncio.gather(f(1), f(2))`.";

/// Returns the schema of the arguments: `code` or `variants`, and `inputs`.
fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "The code."},
            "variants": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": MAX_VARIANTS,
                "description": "In place of `code`: alternatives, tried one after the other until \
                    one succeeds.",
            },
            "inputs": {"type": "object", "description": "Values that the code finds as variables, \
                by name."},
        },
        "additionalProperties": false,
    })
}

/// Returns the schema of the result, which `machine::end` and `PythonTool` fill in.
fn output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "result": {"description": "The value of the last expression."},
            "output": {"type": "string", "description": "What was printed."},
            "seconds": {"type": "number", "description": "How long the code ran, not counting \
                tools."},
            "calls": {"type": "integer", "description": "How many calls of tools it made."},
            "variant": {"type": "integer", "description": "Which alternative succeeded, from 1."},
            "failed": {"type": "array", "items": {"type": "string"}, "description": "Why those \
                before it failed."},
        },
        "required": ["result", "output", "seconds", "calls"],
    })
}

/// Returns the code of a call and its alternatives.
pub(crate) fn variants(args: &Value) -> Result<Vec<String>, String> {
    let texts = |value: &Value| match value {
        Value::String(code) => Some(vec![code.clone()]),
        Value::Array(list) => list
            .iter()
            .map(|code| code.as_str().map(str::to_owned))
            .collect(),
        _ => None,
    };
    match (args.get("code"), args.get("variants")) {
        (Some(_), Some(_)) => Err("give `code` or `variants`, not both".to_owned()),
        (None, None) => Err("there is no code to run: give `code`".to_owned()),
        (Some(code), None) | (None, Some(code)) => match texts(code) {
            Some(variants) if (1..=MAX_VARIANTS).contains(&variants.len()) => Ok(variants),
            _ => Err(format!(
                "`variants` must be a list of 1 to {MAX_VARIANTS} programs, and `code` a single one"
            )),
        },
    }
}

#[async_trait]
impl Program for RunPython {
    fn spec(&self) -> &ToolSpec {
        self.spec.get_or_init(|| self.describe())
    }

    async fn child(
        &self,
        args: &Value,
        saved: Option<&Value>,
        caller: Arc<dyn Executor>,
    ) -> Result<Child, ToolError> {
        let machine = match saved {
            None => PythonMachine::new(self.setup(args)),
            Some(saved) => PythonMachine::restore(saved).map_err(ToolError::failed)?,
        };
        let executor = PythonExecutor {
            name: machine.name().to_owned(),
            python: self.python.clone(),
            caller,
        };
        let mut limits = levity_core::Limits::new();
        // The caller's limits apply, and the code has its own limit of tool calls.
        limits.tool_calls = None;
        Ok(Child::new(machine, Arc::new(executor), limits))
    }
}

impl Default for RunPython {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RunPython {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<&str> = self.specs.iter().map(|spec| &*spec.name).collect();
        f.debug_struct("RunPython")
            .field("name", &self.name)
            .field("tools", &tools)
            .finish_non_exhaustive()
    }
}
