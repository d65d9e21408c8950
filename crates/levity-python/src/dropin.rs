//! Functions in a Python file as tools.
//!
//! A file is parsed twice: by the parser of `ruff` for signatures and docstrings, and by the
//! interpreter, which runs it once to find errors early. A tool call then runs the whole file
//! followed by one generated line, such as `repeat(text=_levity_args["text"])`. Arguments are
//! passed as a variable and never as source, so their content cannot become code.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{Content, Hints, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use ruff_python_ast::{Expr, ModModule, ParameterWithDefault, Stmt, StmtFunctionDef};
use ruff_text_size::{Ranged, TextSize};
use serde_json::{Map, Value, json};

use crate::engine::End;
use crate::error::{Error, Result};
use crate::fault::ProgramFaultKind;
use crate::isolation::STACK;
use crate::python::Python;

mod docs;
mod hints;

/// The time limit for loading a file, because an agent waits while a folder is read.
const LOAD_TIME: Duration = Duration::from_secs(1);

/// The tools of a Python file, with warnings about them.
///
/// ```
/// use levity_python::{Python, tools_from_source};
///
/// let source = "def double(n):\n    return n * 2\n";
/// let file = tools_from_source("math.py", source, &Python::new())?;
/// assert_eq!(file.tools.len(), 1);
/// assert!(file.warnings[0].starts_with("math.py:1: `double`: it has no docstring"));
/// # Ok::<(), levity_python::Error>(())
/// ```
#[non_exhaustive]
pub struct PythonFileTools {
    /// The tools, in the order of the file.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The parts that were omitted or not understood, each with its line.
    pub warnings: Vec<String>,
}

impl fmt::Debug for PythonFileTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.tools.iter().map(|tool| &*tool.spec().name).collect();
        f.debug_struct("PythonFileTools")
            .field("tools", &names)
            .field("warnings", &self.warnings)
            .finish()
    }
}

/// Makes a tool from each public function of a Python file: a top-level function whose name does
/// not begin with `_`.
///
/// Type hints become the schema, and the docstring becomes the description. Each call runs the file
/// again and then the function, in `python` and within its limits. Nothing is preserved between
/// calls.
///
/// ```
/// use levity_core::ToolCx;
/// use levity_python::{Python, tools_from_source};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let source = r#"
/// def repeat(text: str, times: int = 2) -> str:
///     """Repeats a text.
///
///     Args:
///         text: What to repeat.
///     """
///     return _joined([text] * times)
///
/// def _joined(parts):
///     return " ".join(parts)
/// "#;
/// let tools = tools_from_source("texts.py", source, &Python::new())?.tools;
/// let repeat = &tools[0];
/// assert_eq!(repeat.spec().name, "repeat");
/// assert_eq!(
///     repeat.spec().input["properties"]["text"],
///     json!({"type": "string", "description": "What to repeat."}),
/// );
/// assert_eq!(repeat.call(json!({"text": "ha"}), &ToolCx::detached()).await?.as_text(), "ha ha");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails if the file is not Python that the interpreter supports, or if running it fails. The error
/// names the line.
pub fn tools_from_source(file: &str, source: &str, python: &Python) -> Result<PythonFileTools> {
    // The parser recurses as deeply as the source, so it gets the stack size of the interpreter.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("python file".to_owned())
            .stack_size(STACK);
        let read = thread.spawn_scoped(scope, || read(file, source, python));
        let broken = |what: &str| Error::Worker(what.to_owned());
        let read = read.map_err(|_| broken("cannot start a thread to read the file"))?;
        read.join().map_err(|_| broken("the parser panicked"))?
    })
}

/// Returns the tools of a file, on a thread with enough stack for the parser.
fn read(file: &str, source: &str, python: &Python) -> Result<PythonFileTools> {
    let wrong = |line, problem: String| Error::File {
        file: file.to_owned(),
        line,
        problem,
    };
    let max = python.limits().source;
    if source.len() > max {
        return Err(wrong(
            1,
            format!("it has {} bytes, and the limit is {max}", source.len()),
        ));
    }
    let lines = Lines::new(source);
    let module = ruff_python_parser::parse_module(source)
        .map_err(|error| wrong(lines.of(error.location.start()), error.error.to_string()))?
        .into_syntax();
    let code: Arc<str> = without_main(source, &module).into();
    check(file, &code, python).map_err(|(line, problem)| wrong(line, problem))?;
    let mut warnings = Vec::new();
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    for function in public(&module) {
        let line = lines.of(function.name.start());
        let mut notes = Vec::new();
        let tool = FunctionTool::new(file, &code, function, python, &mut notes);
        warnings.extend(
            notes
                .into_iter()
                .map(|note| format!("{file}:{line}: `{}`: {note}", function.name)),
        );
        tools.push(Arc::new(tool));
    }
    Ok(PythonFileTools { tools, warnings })
}

/// Returns the functions that become tools; of two with the same name, the last, as in Python.
fn public(module: &ModModule) -> Vec<&StmtFunctionDef> {
    let functions = module.body.iter().filter_map(Stmt::as_function_def_stmt);
    let mut names = HashSet::new();
    let mut last: Vec<_> = functions
        .rev()
        .filter(|function| !function.name.starts_with('_') && names.insert(&*function.name))
        .collect();
    last.reverse();
    last
}

/// Runs the file once to check that it works.
fn check(file: &str, code: &Arc<str>, python: &Python) -> Result<(), (u32, String)> {
    let limits = python.limits();
    let quick = python
        .clone()
        .with_limits(limits.time(limits.time.min(LOAD_TIME)));
    let job = quick.job(file, code.to_string(), Map::new(), Vec::new());
    match quick.segment_blocking(job) {
        Err(error) => Err((1, error.to_string())),
        Ok(segment) => match segment.end {
            End::Failed(fault) => Err((fault.line.unwrap_or(1), fault.message)),
            _ => Ok(()),
        },
    }
}

/// Blanks out the code that runs only as a script; all other lines keep their positions.
fn without_main(source: &str, module: &ModModule) -> String {
    let mut code = source.to_owned();
    let is_main = |statement: &&Stmt| {
        let test = statement
            .as_if_stmt()
            .and_then(|statement| statement.test.as_compare_expr());
        let name = test.and_then(|test| test.left.as_name_expr());
        name.is_some_and(|name| name.id.as_str() == "__name__")
    };
    for statement in module.body.iter().filter(is_main) {
        let range = usize::from(statement.start())..usize::from(statement.end());
        let blank: String = source[range.clone()]
            .chars()
            .filter(|letter| *letter == '\n')
            .collect();
        // Blanks preserve the positions of the following text.
        let blank = format!("{blank}{}", " ".repeat(range.len() - blank.len()));
        code.replace_range(range, &blank);
    }
    code
}

/// Maps positions to line numbers. It contains the positions of all line ends.
struct Lines(Vec<usize>);

impl Lines {
    fn new(source: &str) -> Self {
        Self(source.match_indices('\n').map(|(at, _)| at).collect())
    }

    fn of(&self, position: TextSize) -> u32 {
        let before = self.0.partition_point(|end| *end < usize::from(position));
        u32::try_from(before + 1).unwrap_or(u32::MAX)
    }
}

/// A function of a file as a tool.
struct FunctionTool {
    spec: ToolSpec,
    file: String,
    code: Arc<str>,
    /// The parameters that are positional only.
    positional: Vec<String>,
    is_async: bool,
    python: Python,
}

/// The variable that contains the arguments.
const ARGS: &str = "_levity_args";
/// The time that the whole call may take beyond the program's limit.
const EXTRA: Duration = Duration::from_secs(10);

impl FunctionTool {
    fn new(
        file: &str,
        code: &Arc<str>,
        function: &StmtFunctionDef,
        python: &Python,
        notes: &mut Vec<String>,
    ) -> Self {
        let docs = docs::Docs::of(docstring(function));
        if docs.description.is_empty() {
            notes.push("it has no docstring, so the model only sees its name".to_owned());
        }
        let input = input(function, &docs, notes);
        let description = match docs.description.as_str() {
            "" => format!("Runs the function `{}`.", function.name),
            text => text.to_owned(),
        };
        let hints = Hints::new()
            .read_only()
            .timeout(python.limits().time.saturating_add(EXTRA));
        let mut spec = ToolSpec::new(function.name.as_str(), description)
            .with_input(input)
            .with_hints(hints);
        spec.output = function.returns.as_deref().and_then(hints::exact);
        let names = |params: &[ParameterWithDefault]| {
            params
                .iter()
                .map(|param| param.parameter.name.to_string())
                .collect()
        };
        Self {
            spec,
            file: file.to_owned(),
            code: code.clone(),
            positional: names(&function.parameters.posonlyargs),
            is_async: function.is_async,
            python: python.clone(),
        }
    }

    /// Returns a positional-only argument after a missing one, which Python cannot pass.
    fn arg_after_gap(&self, args: &Map<String, Value>) -> Option<&str> {
        let behind = self
            .positional
            .iter()
            .skip_while(|name| args.contains_key(name.as_str()));
        behind
            .map(String::as_str)
            .find(|name| args.contains_key(*name))
    }

    /// Returns the line that calls the function with the given arguments.
    fn call_line(&self, args: &Map<String, Value>) -> String {
        let value = |name: &str| format!("{ARGS}[{}]", Value::from(name));
        let given = |name: &&String| args.contains_key(name.as_str());
        let mut parts: Vec<String> = self
            .positional
            .iter()
            .take_while(given)
            .map(|name| value(name))
            .collect();
        let named = args.keys().filter(|name| !self.positional.contains(name));
        parts.extend(named.map(|name| format!("{name}={}", value(name))));
        let awaited = if self.is_async { "await " } else { "" };
        format!("{awaited}{}({})", self.spec.name, parts.join(", "))
    }
}

fn docstring(function: &StmtFunctionDef) -> String {
    let first = function.body.first().and_then(Stmt::as_expr_stmt);
    let text = first.and_then(|statement| statement.value.as_string_literal_expr());
    text.map_or_else(String::new, |text| text.value.to_str().to_owned())
}

/// Returns the schema of a function's parameters. Defaults that are not literals are left out;
/// Python applies them.
fn input(function: &StmtFunctionDef, docs: &docs::Docs, notes: &mut Vec<String>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for param in function.parameters.iter_non_variadic_params() {
        let name = param.parameter.name.as_str();
        let mut schema = match param.parameter.annotation.as_deref() {
            Some(hint) => hints::schema(hint, notes),
            None => {
                notes.push(format!(
                    "the parameter `{name}` has no type hint, so any value is accepted"
                ));
                json!({})
            }
        };
        if let Some(text) = docs.params.get(name) {
            schema["description"] = json!(text);
        }
        match param.default.as_deref() {
            None => required.push(json!(name)),
            Some(default) => {
                if let Some(default) = hints::literal(default) {
                    schema["default"] = default;
                }
            }
        }
        properties.insert(name.to_owned(), schema);
    }
    if function.parameters.vararg.is_some() || function.parameters.kwarg.is_some() {
        notes.push("`*args` and `**kwargs` are omitted".to_owned());
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

#[async_trait]
impl Tool for FunctionTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let Value::Object(args) = args else {
            return Err(ToolError::new(
                ToolErrorKind::InvalidArgs,
                "the arguments are not an object",
            ));
        };
        if let Some(name) = self.arg_after_gap(&args) {
            let message = format!("`{name}` requires all parameters before it");
            return Err(ToolError::new(ToolErrorKind::InvalidArgs, message));
        }
        let code = format!("{}\n{}\n", self.code, self.call_line(&args));
        let inputs = Map::from_iter([(ARGS.to_owned(), Value::Object(args))]);
        let mut job = self.python.job(&self.file, code, inputs, Vec::new());
        // The size of the file was checked when it was loaded.
        job.limits.source = usize::MAX;
        let segment = self.python.segment(job).await;
        let segment = segment
            .map_err(|error| ToolError::failed("cannot run the function").with_source(error))?;
        let printed = segment.printed.text();
        if !printed.is_empty() {
            cx.progress.report(&printed);
        }
        match segment.end {
            // The beginning of a list, as text, is not a list.
            End::Done { cut: true, .. } if self.spec.output.is_some() => {
                let max = self.python.limits().result;
                Err(ToolError::failed(format!(
                    "the function returned more than {max} bytes of JSON; request less"
                )))
            }
            End::Done { result, .. } => Ok(output(result)),
            End::Failed(fault) if fault.kind == ProgramFaultKind::Time => {
                Err(ToolError::new(ToolErrorKind::Timeout, fault.traceback))
            }
            End::Failed(fault) => Err(ToolError::failed(fault.traceback)),
            End::Paused { .. } => Err(ToolError::failed(
                "the function awaits something that is not available",
            )),
        }
    }
}

/// Returns a string as text and other values as JSON.
fn output(result: Value) -> ToolOutput {
    let text = result.as_str().map(|text| Content::Text(text.to_owned()));
    let mut output = ToolOutput::value(result);
    output.content.extend(text);
    output
}

/// Returns the last name of an expression, such as `Any` in `typing.Any`.
pub(crate) fn name_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Name(name) => Some(name.id.as_str()),
        Expr::Attribute(attribute) => Some(attribute.attr.as_str()),
        _ => None,
    }
}
