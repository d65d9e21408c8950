use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    Child, ChildRun, Content, Digest, Effect, EffectClass, EffectCx, Eventual, Executor,
    Inspection, Outcome, PrepareCx, Prepared, Resolution, ToolCall, ToolError, ToolOutput,
    ToolResult,
};
use serde::Deserialize;
use serde_json::Value;

use crate::engine::Job;
use crate::python::Python;

/// Performs the effects of a program: stretches of code by the interpreter, all else as its caller
/// does.
pub(crate) struct PythonExecutor {
    /// The name of the tool, which stretches are asked for by.
    pub(crate) name: String,
    pub(crate) python: Python,
    pub(crate) caller: Arc<dyn Executor>,
}

impl PythonExecutor {
    fn is_stretch(&self, effect: &Effect) -> bool {
        matches!(effect, Effect::Tool(run) if run.call.name == self.name)
    }

    async fn stretch(&self, call: &ToolCall) -> Result<ToolOutput, ToolError> {
        let job = Job::deserialize(&call.args).map_err(|_| {
            ToolError::failed("a stretch of code cannot be read; it was written by another version")
        })?;
        let stretch = self.python.stretch(job).await;
        let stretch = stretch
            .map_err(|error| ToolError::failed("the code was not run").with_source(error))?;
        // Those who watch are shown this, and not the state.
        let summary = Content::Text(stretch.end.summary());
        let value = serde_json::to_value(stretch)
            .map_err(|_| ToolError::failed("what came of the code cannot be written down"))?;
        let mut output = ToolOutput::value(value);
        output.content.push(summary);
        Ok(output)
    }
}

#[async_trait]
impl Executor for PythonExecutor {
    fn prepare(&self, effect: &Effect, cx: &PrepareCx) -> Eventual<Prepared> {
        // Code touches nothing, so what was cut off is run again from where it had begun.
        if self.is_stretch(effect) {
            Prepared::new(EffectClass::ReadOnly).into()
        } else {
            self.caller.prepare(effect, cx)
        }
    }

    async fn execute(&self, effect: Effect, cx: EffectCx) -> Outcome {
        match effect {
            Effect::Tool(run) if run.call.name == self.name => {
                let outcome = self.stretch(&run.call).await;
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

    fn inspect(&self) -> Inspection {
        let interpreter = format!("interpreter of `{}`", self.name);
        let setup = vec![(interpreter, Digest::of(&monty_types::MONTY_VERSION))];
        // Whoever screens what people say to the caller's run screens what they say to this one.
        self.caller.inspect().with_setup(setup)
    }
}
