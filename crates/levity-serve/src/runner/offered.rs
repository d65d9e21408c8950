//! Records the model that a client chose among the setup of its run.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use levity_core::{
    ArgumentProblem, Child, ChildRun, ConversationId, Digest, Effect, EffectCx, Error, Eventual,
    Executor, History, Inspection, Limits, MachineKind, Message, Outcome, PrepareCx, Prepared,
    Resolution, StoppedRun, ToolCall, ToolError,
};
use levity_runtime::{LeaseFuture, MachineStart, Observe, Runnable, Runtime};
use serde_json::Value;

/// The beginning of the entry in the setup; the name and a backtick follow.
const ENTRY: &str = "chosen model `";

/// Returns the model in the setup of a run, if its client chose one.
pub(super) fn model_of(setup: &[(String, Digest)]) -> Option<Arc<str>> {
    let name = |entry: &str| Some(entry.strip_prefix(ENTRY)?.strip_suffix('`')?.into());
    setup.iter().find_map(|(entry, _)| name(entry))
}

/// Something runnable, whose new runs record the name of their model.
#[derive(Clone)]
pub(super) struct Offered<W> {
    inner: W,
    model: Arc<str>,
}

impl<W> Offered<W> {
    pub(super) fn new(inner: W, model: Arc<str>) -> Self {
        Self { inner, model }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<W: Runnable> Runnable for Offered<W> {
    type Input = W::Input;
    type Machine = W::Machine;
    type Output = W::Output;

    fn runtime(&self) -> &Runtime {
        self.inner.runtime()
    }

    fn executor(&self) -> Arc<dyn Executor> {
        Arc::new(OfferedExecutor {
            inner: self.inner.executor(),
            model: self.model.clone(),
        })
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn begin(
        &self,
        input: Self::Input,
        limits: &Limits,
    ) -> Result<MachineStart<Self::Machine>, Error> {
        self.inner.begin(input, limits)
    }

    fn restore(&self, kind: &MachineKind, state: &Value) -> Result<Self::Machine, String> {
        self.inner.restore(kind, state)
    }

    fn inspect(&self, kind: &MachineKind, state: &Value) -> Result<Self::Machine, String> {
        self.inner.inspect(kind, state)
    }

    fn conclude(&self, reached: StoppedRun<Self::Machine>) -> Result<Self::Output, Error> {
        self.inner.conclude(reached)
    }

    fn name(&self) -> Option<Arc<str>> {
        self.inner.name()
    }

    fn verifies_replay(&self) -> bool {
        self.inner.verifies_replay()
    }

    fn adapt(&self, machine: Self::Machine) -> BoxFuture<'static, Result<Self::Machine, String>> {
        self.inner.adapt(machine)
    }

    fn lease(&self, machine: &Self::Machine) -> Option<LeaseFuture> {
        self.inner.lease(machine)
    }

    fn observers(&self) -> &[Arc<dyn Observe>] {
        self.inner.observers()
    }

    fn keeps_conversations(&self) -> bool {
        self.inner.keeps_conversations()
    }

    fn messages(output: &Self::Output) -> Option<&[Arc<Message>]> {
        W::messages(output)
    }

    fn conversation(input: &mut Self::Input) -> Option<&mut Option<ConversationId>> {
        W::conversation(input)
    }

    fn history(input: &mut Self::Input) -> Option<&mut History> {
        W::history(input)
    }
}

/// The executor of such a run.
struct OfferedExecutor {
    inner: Arc<dyn Executor>,
    model: Arc<str>,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Executor for OfferedExecutor {
    fn prepare(&self, effect: &Effect, cx: &PrepareCx) -> Eventual<Prepared> {
        self.inner.prepare(effect, cx)
    }

    // Written out, so that an effect needs only one boxed future.
    fn execute<'life0, 'async_trait>(
        &'life0 self,
        effect: Effect,
        cx: EffectCx,
    ) -> BoxFuture<'async_trait, Outcome>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        self.inner.execute(effect, cx)
    }

    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        self.inner.child(child, saved).await
    }

    async fn resolve(&self, effect: &Effect, cx: &EffectCx) -> Resolution {
        self.inner.resolve(effect, cx).await
    }

    fn check_arguments(&self, call: &ToolCall) -> Vec<ArgumentProblem> {
        self.inner.check_arguments(call)
    }

    fn inspect(&self) -> Inspection {
        let mut inspection = self.inner.inspect();
        let entry = format!("{ENTRY}{}`", self.model);
        inspection.setup.push((entry, Digest::EMPTY));
        inspection
    }
}
