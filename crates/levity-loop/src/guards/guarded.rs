//! An executor wrapped in guards.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    ArgumentProblem, Child, ChildRun, Digest, Effect, EffectCx, Ending, Eventual, Executor, Guard,
    GuardCx, Inspection, LiveEvents, Message, ModelCall, Outcome, Permit, PrepareCx, Prepared,
    Resolution, RunId, ScreenVerdict, Screener, Stage, ToolCall, ToolError, ToolRun, World,
};
use levity_runtime::SystemWorld;
use serde_json::Value;

use super::screen::Screen;
use super::{GuardFailurePolicy, Guards, name};

/// An executor wrapped in guards, which check the input and output of its runs.
///
/// An agent's guards wrap its executor in this way (`AgentBuilder::guard`). Use this type for your
/// own executor, with any machine. The guards check replies of models, calls and results of tools
/// and child runs, and messages that people send to the run. The goal is part of the machine's
/// first state, so the code that creates the machine has it [screened](Inspection::screener).
///
/// ```
/// # use async_trait::async_trait;
/// # use levity_core::{
/// #     Child, ChildRun, Effect, EffectCx, EffectId, Eventual, Executor, LiveEvents, Outcome,
/// #     PrepareCx, Prepared, RunId,
/// #     Secrets, ToolCall, ToolError, ToolOutput, ToolResult, ToolRun,
/// # };
/// use levity_loop::{Guarded, SecretGuard};
/// # use serde_json::{Value, json};
///
/// /// Answers every call of a tool.
/// struct Answers;
/// # #[async_trait]
/// # impl Executor for Answers {
/// #     fn prepare(&self, _: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
/// #         Prepared::default().into()
/// #     }
/// #     async fn execute(&self, effect: Effect, _: EffectCx) -> Outcome {
/// #         let Effect::Tool(run) = effect else { return Outcome::Unknown };
/// #         let output = ToolOutput::text("The word is correct horse.");
/// #         Outcome::Tool(ToolResult::new(&run.call, Ok(output)))
/// #     }
/// #     async fn child(&self, _: &ChildRun, _: Option<&Value>) -> Result<Child, ToolError> {
/// #         Err(ToolError::failed("there are none"))
/// #     }
/// # }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let guard = SecretGuard::new().secrets(Secrets::new().known("correct horse"));
/// let executor = Guarded::new(Answers).guard(guard);
/// # let effect = Effect::Tool(ToolRun::new(ToolCall::new("c1", "ask", json!({}))));
/// # let cx = EffectCx::new(RunId::new("r"), EffectId::new(0), LiveEvents::default());
/// let Outcome::Tool(result) = executor.execute(effect, cx).await else { panic!("it is a tool") };
/// assert_eq!(result.text(), "The word is [secret: known].");
/// # }
/// ```
pub struct Guarded {
    inner: Arc<dyn Executor>,
    screen: Arc<Screen>,
    calls: Calls,
}

/// The time at which the guards check a call.
#[derive(Clone, Copy, PartialEq)]
enum Calls {
    /// With the reply that contains it, and again after an approval, which may have changed it.
    InReplies,
    /// Just before it is made.
    WhenMade,
    /// Just before it is made, and before an approval that the inner executor requires.
    BeforeAsking,
}

impl Guarded {
    /// Wraps an executor, without any guard yet.
    pub fn new(executor: impl Executor + 'static) -> Self {
        let (guards, world) = (Guards::default(), Arc::new(SystemWorld));
        let screen = Arc::new(Screen {
            guards,
            world,
            finishes: false,
        });
        Self {
            inner: Arc::new(executor),
            screen,
            calls: Calls::WhenMade,
        }
    }

    /// Adds a guard. Each guard sees the output of the one before.
    #[must_use]
    pub fn guard(mut self, guard: impl Guard + 'static) -> Self {
        self.guards().all.push(Arc::new(guard));
        self
    }

    /// Sets the timeout of a guard; one minute by default.
    #[must_use]
    pub fn guard_timeout(mut self, time: Duration) -> Self {
        self.guards().timeout = time;
        self
    }

    /// Sets what happens to an item when a guard fails to check it. It is blocked by default.
    #[must_use]
    pub fn on_guard_failure(mut self, then: GuardFailurePolicy) -> Self {
        self.guards().when_failing = then;
        self
    }

    /// Sets the clock for the timeouts of guards; the system clock by default.
    #[must_use]
    pub fn world(mut self, world: Arc<dyn World>) -> Self {
        Arc::make_mut(&mut self.screen).world = world;
        self
    }

    fn guards(&mut self) -> &mut Guards {
        &mut Arc::make_mut(&mut self.screen).guards
    }

    /// Wraps the executor of an agent, whose calls are part of the replies of its models.
    pub(crate) fn agent(inner: Arc<dyn Executor>, screen: Arc<Screen>) -> Self {
        Self {
            inner,
            screen,
            calls: Calls::InReplies,
        }
    }

    /// Wraps the executor of an agent for the runs of its programs, whose calls no model requested.
    pub(crate) fn program(inner: Arc<dyn Executor>, screen: Arc<Screen>) -> Self {
        Self {
            inner,
            screen,
            calls: Calls::BeforeAsking,
        }
    }

    /// Returns `true` if the guards check a call, or the input of a child, when it is made.
    fn checks_call(&self, approved: bool) -> bool {
        (self.calls != Calls::InReplies || approved) && self.screen.watches(Stage::Call)
    }

    async fn model(&self, call: ModelCall, cx: EffectCx) -> Outcome {
        let (slot, mut quiet) = (call.slot.clone(), cx.clone());
        quiet.live = LiveEvents::default();
        Outcome::Model(match self.inner.execute(Effect::Model(call), quiet).await {
            Outcome::Model(Ok(response)) => {
                let with_calls = self.calls != Calls::WhenMade;
                Ok(self
                    .screen
                    .check_reply(response, with_calls, &slot, &cx)
                    .await)
            }
            Outcome::Model(Err(error)) => Err(self.screen.check_error(error, &slot, &cx).await),
            outcome => return outcome,
        })
    }

    async fn tool(&self, mut run: ToolRun, mut cx: EffectCx) -> Outcome {
        let (id, mut guarded) = (cx.run.clone(), Vec::new());
        if self.checks_call(run.approved) {
            let guard_cx = GuardCx::new().with_run(id.clone());
            match self.screen.check_call(run.call.clone(), &guard_cx).await {
                Ok(checked) => (run.call, guarded) = checked,
                Err(by) => return Outcome::Tool(Guards::refused(run.call, by)),
            }
        }
        let results = self.screen.watches(Stage::Result);
        if results && cx.live.is_watched() {
            // Progress texts are of the same kind as the result, which is still to be checked.
            cx.live = LiveEvents::default();
        }
        match self.inner.execute(Effect::Tool(run), cx).await {
            Outcome::Tool(mut result) => {
                guarded.append(&mut result.guarded);
                result.guarded = guarded;
                Outcome::Tool(match results {
                    true => self.screen.check_result(result, &id).await,
                    false => result,
                })
            }
            outcome => outcome,
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Executor for Guarded {
    fn prepare(&self, effect: &Effect, cx: &PrepareCx) -> Eventual<Prepared> {
        let prepared = self.inner.prepare(effect, cx);
        match effect {
            Effect::Tool(_) if self.calls == Calls::BeforeAsking => prepared.map(|mut prepared| {
                if matches!(prepared.permit, Permit::Ask { .. }) {
                    prepared.permit = Permit::Allow;
                }
                prepared
            }),
            _ => prepared,
        }
    }

    async fn execute(&self, effect: Effect, cx: EffectCx) -> Outcome {
        match effect {
            // These futures are boxed so that the other effects need no room for them.
            Effect::Model(call) if self.screen.holds_replies() => {
                Box::pin(self.model(call, cx)).await
            }
            Effect::Tool(run) => Box::pin(self.tool(run, cx)).await,
            effect => self.inner.execute(effect, cx).await,
        }
    }

    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        let mut made = if saved.is_none() && self.checks_call(child.approved) {
            let (child, guarded) = Box::pin(self.screen.check_child(child)).await?;
            let mut made = self.inner.child(&child, saved).await?;
            made.guarded.splice(0..0, guarded);
            made
        } else {
            self.inner.child(child, saved).await?
        };
        if self.screen.watches(Stage::Result) {
            made.screener = Some(around(&self.screen, made.screener));
        }
        Ok(made)
    }

    async fn resolve(&self, effect: &Effect, cx: &EffectCx) -> Resolution {
        self.inner.resolve(effect, cx).await
    }

    fn check_arguments(&self, call: &ToolCall) -> Vec<ArgumentProblem> {
        self.inner.check_arguments(call)
    }

    fn inspect(&self) -> Inspection {
        let mut inspection = self.inner.inspect();
        if self.screen.watches_input() {
            inspection.screener = Some(around(&self.screen, inspection.screener));
        }
        // The guards of an agent are already among its settings.
        if self.calls == Calls::WhenMade {
            let names: Vec<String> = self
                .screen
                .guards
                .all
                .iter()
                .map(|guard| name(&**guard))
                .collect();
            inspection
                .setup
                .push(("the guards".to_owned(), Digest::of(&names)));
        }
        inspection
    }
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded")
            .field("guards", &self.screen.guards)
            .finish_non_exhaustive()
    }
}

/// Wraps the guards around an inner screener, if there is one.
fn around(outer: &Arc<Screen>, inner: Option<Arc<dyn Screener>>) -> Arc<dyn Screener> {
    match inner {
        Some(inner) => Arc::new(ScreenerPair {
            outer: outer.clone(),
            inner,
        }),
        None => outer.clone(),
    }
}

/// Two screeners, one around the other. Input passes the outer one first, output passes it last.
struct ScreenerPair {
    outer: Arc<Screen>,
    inner: Arc<dyn Screener>,
}

#[async_trait]
impl Screener for ScreenerPair {
    async fn message(&self, run: &RunId, message: Arc<Message>) -> ScreenVerdict<Arc<Message>> {
        match self.outer.message(run, message).await {
            ScreenVerdict::Passed(message, by) => then(by, self.inner.message(run, message).await),
            blocked => blocked,
        }
    }

    async fn call(&self, run: &RunId, call: ToolCall) -> ScreenVerdict<ToolCall> {
        match self.outer.call(run, call).await {
            ScreenVerdict::Passed(call, by) => then(by, self.inner.call(run, call).await),
            blocked => blocked,
        }
    }

    async fn ending(&self, child: &ChildRun, ending: Ending) -> Ending {
        self.outer
            .ending(child, self.inner.ending(child, ending).await)
            .await
    }
}

/// Prepends the earlier interventions to the result of the second screener.
fn then<T>(
    mut before: Vec<levity_core::Intervention>,
    screened: ScreenVerdict<T>,
) -> ScreenVerdict<T> {
    match screened {
        ScreenVerdict::Passed(taken, by) => {
            before.extend(by);
            ScreenVerdict::Passed(taken, before)
        }
        blocked => blocked,
    }
}
