//! Performs the effects that the machine requests: calls of functions, tools and planners,
//! questions to an approver, and child runs of agents and code.
//!
//! Panics of user code end here: a panic in a function, a planner or an approver becomes the
//! failure of one call. Timeouts use the world's clock, so tests with a manual clock control them.
//! The guards of the team inspect calls that the plan makes directly; agents carry the same guards
//! themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, Either, FutureExt, select};
use levity_core::{
    Approver, ArgumentProblem, Ask, Child, ChildRun, Decision, Digest, Effect, EffectClass,
    EffectCx, Eventual, Executor, GuardCx, Inspection, Limits, Outcome, Permit, PrepareCx,
    Prepared, Program, Stage, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolResult, ToolRun,
    World,
};
use levity_loop::__private::Guards;
use levity_loop::{Agent, ChildTask};
use levity_tools::{CallCx, Dispatched, Dispatcher};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::function::{Function, StepInput};
use crate::machine::{AUTHOR, PLAN, TIMEOUT};
use crate::planner::{PlannerInput, TeamPlanner};
use crate::step::Budget;

/// Performs the effects of a plan: its agents, functions, tools and code.
pub(crate) struct TeamExecutor {
    pub(crate) agents: BTreeMap<Arc<str>, Agent>,
    pub(crate) functions: BTreeMap<String, Function>,
    pub(crate) tools: Dispatcher,
    pub(crate) code: Option<Arc<dyn Program>>,
    /// The agents that have the code runner among their tools, so that their code can call the
    /// other tools.
    pub(crate) coders: BTreeSet<Arc<str>>,
    pub(crate) planner: Option<Arc<dyn TeamPlanner>>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    /// The guards of the team, for calls that the plan makes directly and for messages to it.
    pub(crate) guards: Guards,
    pub(crate) world: Arc<dyn World>,
    /// A reference to itself, which code uses to call tools.
    pub(crate) me: Weak<Self>,
}

impl TeamExecutor {
    fn tool(&self, mut run: ToolRun, cx: EffectCx) -> BoxFuture<'_, Outcome> {
        let time = take_timeout(&mut run.call.args);
        let planning = run.call.name == PLAN && self.planner.is_some();
        let watched = self.guards.watch(Stage::Call) || self.guards.watch(Stage::Result);
        match watched && !planning {
            true => Box::pin(self.guarded(run, time, cx)),
            false => self.perform(run, time, cx),
        }
    }

    /// Makes the call of a step if the guards allow it. An agent applies its own guards.
    async fn guarded(&self, mut run: ToolRun, time: Option<Duration>, cx: EffectCx) -> Outcome {
        let (id, mut before) = (cx.run.clone(), Vec::new());
        if self.guards.watch(Stage::Call) {
            let guard_cx = GuardCx::new().with_run(id.clone());
            match self
                .guards
                .call(run.call.clone(), &guard_cx, &*self.world)
                .await
            {
                Ok(inspected) => (run.call, before) = inspected,
                Err(by) => return Outcome::Tool(Guards::refused(run.call, by)),
            }
        }
        match self.perform(run, time, cx).await {
            Outcome::Tool(mut result) => {
                result.guarded = before;
                Outcome::Tool(match self.guards.watch(Stage::Result) {
                    true => self.guards.result(result, &id, &*self.world).await,
                    false => result,
                })
            }
            outcome => outcome,
        }
    }

    fn perform(
        &self,
        run: ToolRun,
        time: Option<Duration>,
        cx: EffectCx,
    ) -> BoxFuture<'_, Outcome> {
        if let Some(function) = self.functions.get(&run.call.name) {
            return self.function(function, run.call, time, cx);
        }
        if run.call.name == PLAN && self.planner.is_some() {
            return Box::pin(async move { self.plan(&run.call).await });
        }
        Box::pin(self.dispatch(run, time, cx))
    }

    /// Calls a function and awaits its result. The future is small, because there is one for each
    /// step.
    fn function(
        &self,
        function: &Function,
        mut call: ToolCall,
        time: Option<Duration>,
        cx: EffectCx,
    ) -> BoxFuture<'_, Outcome> {
        let values = match call.args.take() {
            Value::Object(values) => values,
            _ => Map::new(),
        };
        let input = StepInput::new(values, cx);
        // The call that creates the future is already user code and can panic.
        let work = match catch_unwind(AssertUnwindSafe(|| function.call(input))) {
            Ok(work) => AssertUnwindSafe(work).catch_unwind(),
            Err(_) => return Box::pin(ready(answer(call, Err(panicked())))),
        };
        let Some(time) = time else {
            return Box::pin(async move {
                answer(call, work.await.unwrap_or_else(|_| Err(panicked())))
            });
        };
        Box::pin(async move {
            let done = match select(pin!(work), pin!(self.world.sleep(time))).await {
                Either::Left((done, _)) => done.unwrap_or_else(|_| Err(panicked())),
                Either::Right(_) => Err(timed_out(time)),
            };
            answer(call, done)
        })
    }

    async fn plan(&self, call: &ToolCall) -> Outcome {
        let made = match (&self.planner, PlannerInput::deserialize(&call.args)) {
            (Some(planner), Ok(brief)) => {
                let plan = AssertUnwindSafe(async { planner.plan(&brief).await })
                    .catch_unwind()
                    .await;
                plan.unwrap_or_else(|_| {
                    Err(ToolError::failed(
                        "the planner panicked; fix the bug in its code",
                    ))
                })
            }
            _ => Err(ToolError::failed("cannot read the brief of the planner")),
        };
        Outcome::Tool(ToolResult::new(call, made.map(ToolOutput::value)))
    }

    async fn dispatch(&self, run: ToolRun, time: Option<Duration>, cx: EffectCx) -> Outcome {
        let key = cx.key();
        let call_cx = CallCx::new(cx.run, key)
            .with_again(cx.again)
            .with_values(cx.values);
        let work = self.tools.dispatch(&run.call, run.approved, call_cx);
        let done = match time {
            None => work.await,
            Some(time) => match select(pin!(work), pin!(self.world.sleep(time))).await {
                Either::Left((done, _)) => done,
                Either::Right(_) => {
                    return Outcome::Tool(ToolResult::new(&run.call, Err(timed_out(time))));
                }
            },
        };
        match done {
            Dispatched::Done(result) => Outcome::Tool(result),
            Dispatched::NeedsApproval { reason } => Outcome::NeedsApproval { reason },
            Dispatched::Unknown { .. } => Outcome::Unknown,
        }
    }

    async fn ask(&self, ask: &Ask) -> Outcome {
        Outcome::Decision(match &self.approver {
            None => Decision::deny("no approver is set; set one with `approver(..)`"),
            Some(approver) => {
                let decided = AssertUnwindSafe(async { approver.decide(ask).await })
                    .catch_unwind()
                    .await;
                decided.unwrap_or_else(|_| Decision::deny("the approver panicked"))
            }
        })
    }

    fn prepare_tool(&self, run: &ToolRun) -> Eventual<Prepared> {
        if let Some(function) = self.functions.get(&run.call.name) {
            return Prepared::new(function.class).into();
        }
        if run.call.name == PLAN && self.planner.is_some() {
            return Prepared::new(EffectClass::ReadOnly).into();
        }
        // The plan orders the steps, so no call needs to run alone.
        let class = self.tools.class(&run.call.name);
        self.permit(&run.call)
            .map(move |permit| Prepared::new(class).permit(permit))
    }

    /// Returns the policy's decision on a call, based on the arguments that the tool receives.
    fn permit(&self, call: &ToolCall) -> Eventual<Permit> {
        if call.args.get(TIMEOUT).is_none() {
            return self.tools.permit(call);
        }
        let mut call = call.clone();
        take_timeout(&mut call.args);
        self.tools.permit(&call)
    }

    /// Returns the agent that wrote the code of a run, if code can call its tools.
    fn author(&self, child: &ChildRun) -> Option<&Agent> {
        let name = child.input.get(AUTHOR)?.as_str()?;
        self.agents.get(self.coders.get(name)?)
    }

    async fn agent(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        let Some(agent) = self.agents.get(&child.agent) else {
            let message = format!("the team has no agent `{}`", child.agent);
            return Err(ToolError::new(ToolErrorKind::NotFound, message));
        };
        let task = child
            .input
            .get("task")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let label = child.label.as_ref().unwrap_or(&child.agent);
        let task = ChildTask::new(task)
            .label(label.clone())
            .media(child.media.iter().cloned());
        agent.child(task, saved).await
    }
}

/// Returns `limits`, lowered to the budget and the timeout of the step.
///
/// Neither can raise a limit: the smaller value counts, field by field.
fn within(input: &Value, mut limits: Limits) -> Limits {
    if let Some(budget) = input
        .get("budget")
        .and_then(|budget| Budget::deserialize(budget).ok())
    {
        limits = budget.within(limits);
    }
    if let Some(time) = input.get("timeout").and_then(Value::as_f64) {
        let time = Duration::try_from_secs_f64(time).unwrap_or(Duration::MAX);
        limits.wall_time = Some(limits.wall_time.map_or(time, |own| own.min(time)));
    }
    limits
}

/// The timeout travels in the arguments under a reserved name, because the journal stores the
/// arguments and a resumed call must have the same timeout.
fn take_timeout(args: &mut Value) -> Option<Duration> {
    let seconds = args.as_object_mut()?.remove(TIMEOUT)?.as_f64()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn answer(call: ToolCall, done: Result<Value, ToolError>) -> Outcome {
    Outcome::Tool(ToolResult::answering(call, done.map(ToolOutput::value)))
}

fn panicked() -> ToolError {
    ToolError::failed("the function panicked; fix the bug in its code")
}

fn timed_out(time: Duration) -> ToolError {
    ToolError::new(ToolErrorKind::Timeout, format!("timed out after {time:?}"))
}

#[async_trait]
impl Executor for TeamExecutor {
    fn prepare(&self, effect: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
        let answered = matches!(effect, Effect::Ask(_)) && self.approver.is_some();
        match effect {
            Effect::Tool(run) => self.prepare_tool(run),
            _ => Prepared::new(EffectClass::ReadOnly)
                .answered(answered)
                .into(),
        }
    }

    // Written without `async_trait`, so that a step has one future in one box.
    fn execute<'life0, 'async_trait>(
        &'life0 self,
        effect: Effect,
        cx: EffectCx,
    ) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        match effect {
            Effect::Tool(run) => self.tool(run, cx),
            Effect::Ask(ask) => Box::pin(async move { self.ask(&ask).await }),
            _ => Box::pin(ready(Outcome::Unknown)),
        }
    }

    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        let mut made = match &self.code {
            Some(code) if code.spec().name == *child.agent => {
                let args = child.input.get("args").unwrap_or(&Value::Null);
                match self.author(child) {
                    Some(agent) => {
                        let run = ChildRun::new(child.agent.clone(), args.clone());
                        // Guards inspect the calls of the code, not the result of a code step.
                        let mut made = agent.executor().child(&run, saved).await?;
                        made.screener = None;
                        made
                    }
                    None => {
                        let caller = self
                            .me
                            .upgrade()
                            .ok_or_else(|| ToolError::failed("the team was dropped"))?;
                        code.child(args, saved, caller).await?
                    }
                }
            }
            _ => self.agent(child, saved).await?,
        };
        made.limits = within(&child.input, made.limits);
        Ok(made)
    }

    fn check_arguments(&self, call: &ToolCall) -> Vec<ArgumentProblem> {
        if call.args.get(TIMEOUT).is_none() {
            return self.tools.check_arguments(call);
        }
        let mut call = call.clone();
        take_timeout(&mut call.args);
        self.tools.check_arguments(&call)
    }

    fn inspect(&self) -> Inspection {
        let mut setup: Vec<(String, Digest)> = Vec::new();
        for (name, agent) in &self.agents {
            let parts = agent.executor().inspect().setup.into_iter();
            setup.extend(parts.map(|(part, digest)| (format!("agent `{name}`: {part}"), digest)));
        }
        setup.extend(
            self.functions
                .keys()
                .map(|name| (format!("function `{name}`"), Digest::EMPTY)),
        );
        let tools = self.tools.registry().specs();
        setup.extend(
            tools
                .iter()
                .map(|spec| (format!("tool `{}`", spec.name), Digest::of(spec))),
        );
        let screener = self
            .guards
            .screener(&[Stage::Input, Stage::Call], &self.world);
        Inspection::new().with_setup(setup).with_screener(screener)
    }
}

impl fmt::Debug for TeamExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TeamExecutor")
            .field("agents", &self.agents.keys())
            .finish_non_exhaustive()
    }
}
