use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    Ask, Child, ChildRun, Digest, Effect, EffectCx, Ending, Executor, Heard, Message, ModelCard, Outcome,
    Permit, Prepared, Resolution, RunId, ToolCall, ToolError, Worst,
};
use serde_json::Value;

use crate::executor::AgentExecutor;

/// An agent's executor for the runs of its programs. What they call was asked for by no model, so it is here that the
/// guards see it first.
pub(crate) struct Nested(pub(crate) Arc<AgentExecutor>);

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Executor for Nested {
    fn prepare(&self, effect: &Effect) -> Prepared {
        let prepared = self.0.prepare(effect);
        match (effect, &prepared.permit) {
            // The guards look before a person is asked; then the dispatcher says that one has to be.
            (Effect::Tool(_), Permit::Ask { .. }) => prepared.permit(Permit::Allow),
            _ => prepared,
        }
    }

    fn worst(&self, effect: &Effect) -> Option<Worst> {
        self.0.worst(effect)
    }

    fn card(&self, slot: &str) -> Option<&ModelCard> {
        self.0.card(slot)
    }

    async fn execute(&self, effect: Effect, cx: EffectCx) -> Outcome {
        match effect {
            Effect::Tool(run) => Box::pin(self.0.tool(run, cx, true)).await,
            effect => self.0.execute(effect, cx).await,
        }
    }

    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        self.0.child(child, saved).await
    }

    async fn returned(&self, child: &ChildRun, ending: Ending) -> Ending {
        self.0.returned(child, ending).await
    }

    fn hears(&self) -> bool {
        self.0.hears()
    }

    async fn hear(&self, run: &RunId, message: Arc<Message>) -> Heard {
        self.0.hear(run, message).await
    }

    async fn hear_call(&self, run: &RunId, call: ToolCall) -> Heard<ToolCall> {
        self.0.hear_call(run, call).await
    }

    async fn resolve(&self, effect: &Effect, cx: &EffectCx) -> Resolution {
        self.0.resolve(effect, cx).await
    }

    fn setup(&self) -> Vec<(String, Digest)> {
        self.0.setup()
    }

    async fn settle(&self, ending: &Ending) {
        self.0.settle(ending).await;
    }

    fn answers(&self, ask: &Ask) -> bool {
        self.0.answers(ask)
    }
}
