//! Python as a tool for programs that have no runs.
//!
//! It takes the same arguments and returns the same value as `RunPython`, so a model sees no
//! difference. Everything happens within one call: nothing survives the end of the process.

use async_trait::async_trait;
use levity_core::{Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use serde_json::{Map, Value, json};

use crate::engine::{End, FILE};
use crate::fault::{ProgramFault, ProgramFaultKind};
use crate::output::shorten;
use crate::program::{RunPython, variants};
use crate::python::Python;

/// Python as a plain tool, whose code calls no tools. Use it without an agent.
///
/// With an agent, use [`RunPython`], which does the same and more.
///
/// ```
/// use levity_core::{Tool, ToolCx};
/// use levity_python::{Python, PythonTool};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ToolError> {
/// let tool = PythonTool::new(Python::new());
/// let args = json!({"variants": ["1 / 0", "6 * 7"]});
/// let value = tool.call(args, &ToolCx::detached()).await?.value.unwrap();
/// assert_eq!((&value["result"], &value["variant"]), (&json!(42), &json!(2)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PythonTool {
    spec: ToolSpec,
    python: Python,
}

impl PythonTool {
    /// Creates the tool `run_python` with this interpreter.
    pub fn new(python: Python) -> Self {
        let spec = levity_core::Program::spec(&RunPython::new()).clone();
        Self { spec, python }
    }
}

#[async_trait]
impl Tool for PythonTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        let codes = variants(&args)
            .map_err(|problem| ToolError::new(ToolErrorKind::InvalidArgs, problem))?;
        let inputs: Map<_, _> = args
            .get("inputs")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let (many, mut failed, mut time) = (codes.len() > 1, Vec::<ProgramFault>::new(), 0.0);
        for (at, code) in codes.into_iter().enumerate() {
            let segment = self
                .python
                .segment(self.python.job(FILE, code, inputs.clone(), Vec::new()))
                .await;
            let segment = segment
                .map_err(|error| ToolError::failed("cannot run the code").with_source(error))?;
            time += segment.time.as_secs_f64();
            let result = match segment.end {
                End::Done { result, .. } => result,
                End::Failed(fault) => {
                    failed.push(fault);
                    continue;
                }
                End::Paused { .. } => Value::Null,
            };
            let mut value = json!({
                "result": result,
                "output": segment.printed.text(),
                "seconds": time,
                "calls": 0,
            });
            if many {
                value["variant"] = json!(at + 1);
                value["failed"] = failed
                    .iter()
                    .map(|fault| shorten(&fault.traceback, 1_000))
                    .collect();
            }
            return Ok(ToolOutput::value(value));
        }
        let timeout = failed
            .last()
            .is_some_and(|fault| fault.kind == ProgramFaultKind::Time);
        let kind = if timeout {
            ToolErrorKind::Timeout
        } else {
            ToolErrorKind::Failed
        };
        let reasons: Vec<&str> = failed.iter().map(|fault| &*fault.traceback).collect();
        Err(ToolError::new(kind, reasons.join("\n\n")))
    }
}
