//! The executor of a program's run.
//!
//! It sits between the run and the executor of its caller. Segments of code go to the interpreter;
//! tool calls, questions and children go to the caller, so that its policy, guards and limits apply
//! to them as to calls of the model.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    ArgumentProblem, Child, ChildRun, Content, Digest, Effect, EffectClass, EffectCx, Eventual,
    Executor, Inspection, Outcome, PrepareCx, Prepared, Resolution, ToolCall, ToolError,
    ToolOutput, ToolResult,
};
use serde::Deserialize;
use serde_json::Value;

use crate::engine::Job;
use crate::python::Python;

/// Performs the effects of a program: segments of code in the interpreter, and all others through
/// its caller.
pub(crate) struct PythonExecutor {
    /// The name of the tool, under which segments are requested.
    pub(crate) name: String,
    pub(crate) python: Python,
    pub(crate) caller: Arc<dyn Executor>,
}

impl PythonExecutor {
    fn is_segment(&self, effect: &Effect) -> bool {
        matches!(effect, Effect::Tool(run) if run.call.name == self.name)
    }

    /// Runs the job in the arguments of a call, and returns its result as a value for the machine.
    async fn segment(&self, call: &ToolCall) -> Result<ToolOutput, ToolError> {
        let job = Job::deserialize(&call.args).map_err(|_| {
            ToolError::failed("cannot read a segment of code; another version wrote it")
        })?;
        let segment = self.python.segment(job).await;
        let segment =
            segment.map_err(|error| ToolError::failed("cannot run the code").with_source(error))?;
        // Observers see this summary instead of the state.
        let summary = Content::Text(segment.end.summary());
        let value = serde_json::to_value(segment)
            .map_err(|_| ToolError::failed("cannot serialize the result of the code"))?;
        let mut output = ToolOutput::value(value);
        output.content.push(summary);
        Ok(output)
    }
}

#[async_trait]
impl Executor for PythonExecutor {
    fn prepare(&self, effect: &Effect, cx: &PrepareCx) -> Eventual<Prepared> {
        // Code has no side effects, so an interrupted segment runs again from its start.
        if self.is_segment(effect) {
            Prepared::new(EffectClass::ReadOnly).into()
        } else {
            self.caller.prepare(effect, cx)
        }
    }

    async fn execute(&self, effect: Effect, cx: EffectCx) -> Outcome {
        match effect {
            Effect::Tool(run) if run.call.name == self.name => {
                let outcome = self.segment(&run.call).await;
                Outcome::Tool(ToolResult::new(&run.call, outcome))
            }
            effect => self.caller.execute(effect, cx).await,
        }
    }

    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        self.caller.child(child, saved).await
    }

    async fn resolve(&self, effect: &Effect, cx: &EffectCx) -> Resolution {
        self.caller.resolve(effect, cx).await
    }

    fn check_arguments(&self, call: &ToolCall) -> Vec<ArgumentProblem> {
        self.caller.check_arguments(call)
    }

    fn inspect(&self) -> Inspection {
        let interpreter = format!("interpreter of `{}`", self.name);
        let setup = vec![(interpreter, Digest::of(&monty_types::MONTY_VERSION))];
        // The guards of the caller's run also screen messages to this run.
        self.caller.inspect().with_setup(setup)
    }
}
