use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{Limits, Money};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::condition::Condition;

/// The unique name of a step within its plan.
///
/// An id has 1 to 256 bytes without control characters, and `ROOT` is reserved; the check of the
/// plan enforces this. Cloning is cheap.
///
/// ```
/// use levity_dag::StepId;
///
/// let id = StepId::from("fetch");
/// assert_eq!(id.as_str(), "fetch");
/// assert_eq!(format!("{id} {id:?}"), r#"fetch "fetch""#);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepId(Arc<str>);

impl StepId {
    /// Creates an id from `id`, unchanged.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn to_arc(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl From<&str> for StepId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl From<String> for StepId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl std::borrow::Borrow<str> for StepId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A unit of work in a plan: its runner, the variables it reads and writes, and its failure policy.
///
/// ```
/// use levity_dag::{OnFailure, Step};
///
/// let step = Step::new("sum", "Summarizer")
///     .prompt("Sum up the page in three sentences.")
///     .reads(["page"])
///     .writes(["summary"])
///     .on_failure(OnFailure::Skip);
/// assert_eq!(step.reads[0].as_ref(), "page");
/// ```
///
/// # Order
/// A step starts after the steps that write the variables it needs, and after those in
/// [`after`](Self::after). It needs the variables that it reads, those in its conditions, and its
/// fan-out list. There is no other order: independent steps run in parallel.
///
/// # Limits
/// All texts of a step have at most 1 MiB by default, a timeout is at most 30 days, and [`Retry`]
/// and [`FanOut`] have limits of their own. [`Graph::check`](crate::Graph::check) reports each
/// violation with the step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "StepForm")]
#[non_exhaustive]
pub struct Step {
    /// The id of the step in the plan.
    pub id: StepId,
    /// The agent, function or tool of the team that runs the step. Empty for a code step.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub agent: Arc<str>,
    /// A description for human readers.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub description: Arc<str>,
    /// The instructions for the agent.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub prompt: Arc<str>,
    /// The variables passed to the step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Arc<str>>,
    /// The variables that the step sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<Arc<str>>,
    /// Additional predecessors, besides the steps that write the variables it reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<After>,
    /// The number of predecessors that must succeed: all or any.
    #[serde(skip_serializing_if = "is_default")]
    pub join: Join,
    /// An optional condition, evaluated once when all predecessors are settled. The step runs only
    /// if it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
    /// Boxed, because most steps use none of these options.
    ///
    /// A plan can have 20,000 steps, so the size of a step counts.
    #[serde(flatten)]
    pub(crate) more: Option<Box<StepOptions>>,
    /// The policy that applies when the step fails.
    #[serde(skip_serializing_if = "is_default")]
    pub on_failure: OnFailure,
}

/// The serialized form of a step. Converting it allocates a box only for steps that set an option.
#[derive(Deserialize)]
struct StepForm {
    id: StepId,
    #[serde(default)]
    agent: Arc<str>,
    #[serde(default)]
    description: Arc<str>,
    #[serde(default, alias = "agent_prompt")]
    prompt: Arc<str>,
    #[serde(default)]
    reads: Vec<Arc<str>>,
    #[serde(default)]
    writes: Vec<Arc<str>>,
    #[serde(default)]
    after: Vec<After>,
    #[serde(default)]
    join: Join,
    when: Option<Condition>,
    #[serde(default)]
    on_failure: OnFailure,
    map: Option<FanOut>,
    #[serde(default)]
    code: Vec<String>,
    #[serde(default)]
    inputs: Map<String, Value>,
    #[serde(default)]
    retry: Retry,
    #[serde(default, with = "seconds")]
    timeout: Option<Duration>,
    budget: Option<Budget>,
    instead_of: Option<StepId>,
}

impl From<StepForm> for Step {
    fn from(form: StepForm) -> Self {
        let StepForm {
            id,
            agent,
            description,
            prompt,
            reads,
            writes,
            after,
            join,
            when,
            on_failure,
            ..
        } = form;
        let StepForm {
            map,
            code,
            inputs,
            retry,
            timeout,
            budget,
            instead_of,
            ..
        } = form;
        let more = StepOptions {
            map,
            code,
            inputs,
            retry,
            timeout,
            budget,
            instead_of,
        };
        let more = (more != StepOptions::default()).then(|| Box::new(more));
        Self {
            id,
            agent,
            description,
            prompt,
            reads,
            writes,
            after,
            join,
            when,
            more,
            on_failure,
        }
    }
}

/// The options that few steps use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StepOptions {
    /// Runs the step once for each element of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) map: Option<FanOut>,
    /// Python variants that run in place of an agent. If a variant fails, the next one runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) code: Vec<String>,
    /// Fixed inputs, in addition to the variables that the step reads.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) inputs: Map<String, Value>,
    /// The retry policy of the step.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) retry: Retry,
    /// The timeout in seconds for one round of an attempt: a run of its agent or code, or a call of
    /// its function or tool.
    #[serde(skip_serializing_if = "Option::is_none", with = "seconds")]
    pub(crate) timeout: Option<Duration>,
    /// The budget of one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<Budget>,
    /// The step that this one is a fallback for. It runs when that step has failed, and the
    /// dependents of that step use this step's results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instead_of: Option<StepId>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Step {
    /// Creates a step that `agent` runs: an agent, a function or a tool of the team.
    ///
    /// The name of the agent may omit or add the suffix `Agent`, as
    /// [`PlanConstraints::runner`](crate::PlanConstraints::runner) describes.
    pub fn new(id: impl Into<StepId>, agent: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            agent: agent.into(),
            description: Arc::default(),
            prompt: Arc::default(),
            reads: Vec::new(),
            writes: Vec::new(),
            after: Vec::new(),
            join: Join::default(),
            when: None,
            more: None,
            on_failure: OnFailure::default(),
        }
    }

    /// Creates a step that runs Python. If a variant fails, the next one runs.
    ///
    /// The team needs a program that runs code; see
    /// [`TeamBuilder::code`](crate::TeamBuilder::code). A code step has no agent.
    ///
    /// ```
    /// use levity_dag::{FaultKind, Graph, Plan, PlanConstraints, Step};
    ///
    /// let step = Step::code("sum", ["import numpy", "result = sum(numbers)"]).reads(["numbers"]);
    /// assert_eq!(step.variants().len(), 2);
    ///
    /// let plan = Plan::new().given("numbers", vec![1, 2]).step(step);
    /// let faults = Graph::check(plan, &PlanConstraints::new()).unwrap_err();
    /// assert_eq!(faults.faults[0].kind, FaultKind::Agent);
    /// ```
    pub fn code<C: Into<String>>(
        id: impl Into<StepId>,
        variants: impl IntoIterator<Item = C>,
    ) -> Self {
        let mut step = Self::new(id, "");
        step.more().code = variants.into_iter().map(Into::into).collect();
        step
    }

    /// Only setters call this: a getter must not allocate the box.
    fn more(&mut self) -> &mut StepOptions {
        self.more.get_or_insert_default()
    }

    /// Sets a description for human readers.
    #[must_use]
    pub fn description(mut self, text: impl Into<Arc<str>>) -> Self {
        self.description = text.into();
        self
    }

    /// Sets the instructions for the agent.
    ///
    /// Without a prompt, the agent gets the description as its instructions.
    #[must_use]
    pub fn prompt(mut self, text: impl Into<Arc<str>>) -> Self {
        self.prompt = text.into();
        self
    }

    /// Adds variables that are passed to the step.
    ///
    /// Each variable must be an initial variable, or another step must write it. A step that reads
    /// and writes the same variable updates it.
    #[must_use]
    pub fn reads<N: Into<Arc<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.reads.extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds variables that the step sets.
    ///
    /// An agent must answer with one JSON object that has these keys, or with a plain answer if
    /// there is one variable only. [`Strategy`](crate::Strategy) lists how levity finds the values.
    #[must_use]
    pub fn writes<N: Into<Arc<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.writes.extend(names.into_iter().map(Into::into));
        self
    }

    /// Runs the step after another step.
    ///
    /// ```
    /// use levity_dag::{Plan, Step, StepInput, StepStatus, Team};
    /// use serde_json::{Value, json};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let team = Team::builder()
    ///     .function("noop", |_: StepInput| async { Ok(Value::Null) })
    ///     .build()?;
    /// let plan = Plan::new()
    ///     .step(Step::new("report", "noop").after("clean"))
    ///     .step(Step::new("clean", "noop"));
    /// let graph = team.check(plan)?;
    /// assert_eq!(graph.edges().count(), 1);
    /// let finished = team.run(graph).await?;
    /// assert_eq!(finished.step("report").unwrap().status, StepStatus::Completed);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn after(mut self, step: impl Into<StepId>) -> Self {
        self.after.push(After::new(step));
        self
    }

    /// Runs the step after another step, and only if `when` holds at that point.
    ///
    /// ```
    /// use levity_dag::{Condition, Join, Plan, Step, StepInput, StepStatus, Team};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let team = Team::builder()
    ///     .function("score", |_: StepInput| async { Ok(json!(0.9)) })
    ///     .function("text", |_: StepInput| async { Ok(json!("done")) })
    ///     .build()?;
    /// let plan = Plan::new()
    ///     .step(Step::new("score", "score").writes(["score"]))
    ///     .step(Step::new("publish", "text").after_if("score", Condition::parse("score >= 0.8")?))
    ///     .step(Step::new("revise", "text").after_if("score", Condition::parse("score < 0.8")?))
    ///     // One of the branches is skipped, and one is enough.
    ///     .step(Step::new("tell", "text").after("publish").after("revise").join(Join::Any));
    /// let finished = team.run(plan).await?;
    /// assert_eq!(finished.step("revise").unwrap().status, StepStatus::Skipped);
    /// assert_eq!(finished.step("tell").unwrap().status, StepStatus::Completed);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn after_if(mut self, step: impl Into<StepId>, when: Condition) -> Self {
        self.after.push(After {
            when: Some(when),
            ..After::new(step)
        });
        self
    }

    /// Runs the step only if `when` holds once all predecessors are settled.
    ///
    /// A step whose condition does not hold is skipped. Its dependents are skipped as well, unless
    /// they use [`Join::Any`]. The run still reaches its goal.
    ///
    /// ```
    /// use levity_dag::{Condition, Step};
    ///
    /// let step = Step::new("mail", "Mailer").when(Condition::parse("issues and not muted")?);
    /// assert_eq!(step.when.unwrap().to_string(), "issues and not muted");
    /// # Ok::<(), levity_dag::ConditionError>(())
    /// ```
    #[must_use]
    pub fn when(mut self, when: Condition) -> Self {
        self.when = Some(when);
        self
    }

    /// Sets the number of predecessors that must succeed: all or any.
    #[must_use]
    pub fn join(mut self, join: Join) -> Self {
        self.join = join;
        self
    }

    /// Runs the step once for each element of a list.
    #[must_use]
    pub fn map(mut self, fan_out: FanOut) -> Self {
        self.more().map = Some(fan_out);
        self
    }

    /// Adds a fixed input, in addition to the variables that the step reads.
    ///
    /// A name may not be in `reads` as well. The name `$timeout` is reserved.
    ///
    /// ```
    /// use levity_dag::Step;
    /// use serde_json::json;
    ///
    /// let step = Step::new("search", "Browser").input("query", "tides").input("limit", 3);
    /// assert_eq!(step.inputs().count(), 2);
    /// assert!(step.inputs().any(|input| input == ("limit", &json!(3))));
    /// ```
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.more().inputs.insert(name.into(), value.into());
        self
    }

    /// Sets the retry policy; one attempt by default.
    ///
    /// A denied call and the verdict of a judge are not retried, because another attempt would fail
    /// again. There are no retries once the run is near a limit.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.more().retry = retry;
        self
    }

    /// Sets the timeout for one round of an attempt: a run of its agent or code, or a call of its
    /// function or tool.
    ///
    /// A function or tool that times out fails the attempt. For agents and code, the timeout lowers
    /// the wall time of the child run. The check accepts more than zero and at most 30 days.
    ///
    /// ```
    /// use std::time::Duration;
    /// use levity_dag::Step;
    ///
    /// let step = Step::new("search", "Browser").timeout(Duration::from_secs(20));
    /// assert_eq!(step.time_limit(), Some(Duration::from_secs(20)));
    /// ```
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.more().timeout = Some(time);
        self
    }

    /// Sets the budget of one attempt.
    ///
    /// Later rounds of an attempt get the remainder of its budget. The check of a plan adds up the
    /// budgets of all attempts and list elements, and rejects a plan whose sum exceeds the limits
    /// of the run.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.more().budget = Some(budget);
        self
    }

    /// Sets the policy that applies when the step fails.
    ///
    /// ```
    /// use levity_core::ToolError;
    /// use levity_dag::{OnFailure, Plan, Step, StepInput, Team};
    /// use serde_json::{Value, json};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let team = Team::builder()
    ///     .function("broken", |_: StepInput| async { Err(ToolError::failed("no network")) })
    ///     .function("check", |input: StepInput| async move {
    ///         Ok(json!(input.get("page").is_null()))
    ///     })
    ///     .build()?;
    /// let plan = Plan::new()
    ///     .step(Step::new("fetch", "broken").writes(["page"]).on_failure(OnFailure::Continue))
    ///     .step(Step::new("sum", "check").reads(["page"]).writes(["missing"]));
    /// let finished = team.run(plan).await?;
    /// assert_eq!(finished.variable("missing"), Some(&json!(true)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.on_failure = policy;
        self
    }

    /// Makes this step the fallback for `step`: it runs only if `step` fails.
    ///
    /// The fallback must write every variable that `step` writes, so that the dependents can run.
    ///
    /// ```
    /// use levity_core::ToolError;
    /// use levity_dag::{Plan, Step, StepInput, Team};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let team = Team::builder()
    ///     .function("site", |_: StepInput| async { Err(ToolError::failed("the site is down")) })
    ///     .function("archive", |_: StepInput| async { Ok(json!("an old page")) })
    ///     .build()?;
    /// let plan = Plan::new()
    ///     .step(Step::new("fetch", "site").writes(["page"]))
    ///     .step(Step::new("look up", "archive").writes(["page"]).instead_of("fetch"));
    /// assert_eq!(team.run(plan).await?.variable("page"), Some(&json!("an old page")));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn instead_of(mut self, step: impl Into<StepId>) -> Self {
        self.more().instead_of = Some(step.into());
        self
    }

    /// Returns all variables that must be settled before the step starts: those it reads, those in
    /// its conditions, and its fan-out list.
    pub(crate) fn needs(&self) -> impl Iterator<Item = &Arc<str>> {
        let edges = self.after.iter().filter_map(|after| after.when.as_ref());
        let tested = self.when.iter().chain(edges).flat_map(Condition::variables);
        self.reads
            .iter()
            .chain(tested)
            .chain(self.fan_out().map(|map| &map.over))
    }

    /// Returns the fan-out, if the step has one.
    pub fn fan_out(&self) -> Option<&FanOut> {
        self.more.as_ref()?.map.as_ref()
    }

    /// Returns the Python variants; empty if the step is not a code step.
    pub fn variants(&self) -> &[String] {
        self.more.as_ref().map_or(&[], |more| &more.code)
    }

    /// Returns the retry policy of the step.
    pub fn retry_policy(&self) -> Retry {
        self.more
            .as_ref()
            .map_or_else(Retry::default, |more| more.retry)
    }

    /// Returns the fixed inputs, which are passed in addition to the variables it reads.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, &Value)> {
        let all = self.more.iter().flat_map(|more| &more.inputs);
        all.map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the timeout of a round, if one is set.
    pub fn time_limit(&self) -> Option<Duration> {
        self.more.as_ref()?.timeout
    }

    /// Returns the budget of one attempt, if one is set.
    pub fn attempt_budget(&self) -> Option<Budget> {
        self.more.as_ref()?.budget
    }

    /// Returns the step that this one is a fallback for.
    pub fn fallback_for(&self) -> Option<&StepId> {
        self.more.as_ref()?.instead_of.as_ref()
    }
}

/// A predecessor of a step, with an optional condition.
///
/// An edge with a condition that does not hold counts as a skipped predecessor. In JSON, an edge
/// without a condition is the id alone.
///
/// ```
/// use levity_dag::{After, Step};
/// use serde_json::json;
///
/// let step: Step = serde_json::from_value(json!({
///     "id": "tell", "agent": "Writer",
///     "after": ["draft", {"step": "review", "when": "passed"}],
/// }))?;
/// assert_eq!(step.after[0], After::new("draft"));
/// assert_eq!(step.after[1].when.as_ref().unwrap().to_string(), "passed");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "AfterForm")]
#[non_exhaustive]
pub struct After {
    /// The id of the predecessor.
    pub step: StepId,
    /// The edge counts only if this condition holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
}

impl After {
    /// Creates an edge from `step` without a condition.
    pub fn new(step: impl Into<StepId>) -> Self {
        Self {
            step: step.into(),
            when: None,
        }
    }
}

/// The serialized form of [`After`]: an id alone, or an object.
#[derive(Deserialize)]
#[serde(untagged)]
enum AfterForm {
    Id(StepId),
    Full {
        step: StepId,
        when: Option<Condition>,
    },
}

impl From<AfterForm> for After {
    fn from(form: AfterForm) -> Self {
        match form {
            AfterForm::Id(step) => Self { step, when: None },
            AfterForm::Full { step, when } => Self { step, when },
        }
    }
}

/// The number of predecessors that a step requires.
///
/// A fallback counts as the step that it replaces: either of them satisfies the edge.
///
/// ```
/// use levity_dag::{Join, Plan};
///
/// let plan = Plan::parse(
///     r#"[{"id": "a", "agent": "A"}, {"id": "b", "agent": "B", "join": "any"}]"#,
/// )?;
/// assert_eq!((plan.steps[0].join, plan.steps[1].join), (Join::All, Join::Any));
/// # Ok::<(), levity_dag::Faults>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Join {
    /// Requires all predecessors. The step is skipped if one of them was skipped or its condition
    /// did not hold.
    #[default]
    All,
    /// Requires at least one predecessor, and waits until all are settled. Use it after branches of
    /// which only one is taken.
    Any,
}

/// Runs a step once for each element of a list and collects the results in list order.
///
/// The runs of the elements share the parallel slots of the team. A list may be an initial variable
/// or the output of a step. A list that is too long, or a value that is not a list, fails the step.
///
/// ```
/// use levity_dag::{FanOut, Plan, Step, StepInput, Team};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_dag::Result<()> {
/// let team = Team::builder()
///     .function("square", |input: StepInput| async move {
///         let n: i64 = input.parse("item")?;
///         Ok(json!(n * n))
///     })
///     .build()?;
/// let plan = Plan::new()
///     .given("numbers", vec![1, 2, 3])
///     .step(Step::new("square", "square").map(FanOut::over("numbers")).writes(["squares"]));
/// assert_eq!(team.run(plan).await?.variable("squares"), Some(&json!([1, 4, 9])));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FanOut {
    /// The variable that contains the list.
    pub over: Arc<str>,
    /// The name under which a run of the step receives its element; `item` by default.
    #[serde(rename = "as", default = "item")]
    pub name: Arc<str>,
    /// The maximum number of elements; [`DEFAULT_MAX_ITEMS`](Self::DEFAULT_MAX_ITEMS) by default.
    #[serde(default = "most")]
    #[serde(rename = "most")]
    pub max_items: usize,
    /// The number of elements that must succeed; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<usize>,
    /// Skips elements that have not started once the quorum is reached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop_early: bool,
    /// The reducer for the results; by default a list, with `null` for elements that failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reducer: Reducer,
}

fn item() -> Arc<str> {
    "item".into()
}

fn most() -> usize {
    FanOut::DEFAULT_MAX_ITEMS
}

impl FanOut {
    /// The default maximum: 1,000 elements.
    pub const DEFAULT_MAX_ITEMS: usize = 1_000;
    /// The largest maximum that a plan may set: 100,000 elements.
    pub const LARGEST_MAX_ITEMS: usize = 100_000;

    /// Creates a fan-out over the list in `variable`.
    pub fn over(variable: impl Into<Arc<str>>) -> Self {
        Self {
            over: variable.into(),
            name: item(),
            max_items: Self::DEFAULT_MAX_ITEMS,
            quorum: None,
            stop_early: false,
            reducer: Reducer::default(),
        }
    }

    /// Sets the name under which a run of the step receives its element.
    ///
    /// ```
    /// use levity_dag::{FanOut, Step};
    ///
    /// let pages = FanOut::over("pages").item_name("page").max_items(50);
    /// let step = Step::new("read", "Reader").map(pages);
    /// let fan_out = step.fan_out().unwrap();
    /// assert_eq!((&*fan_out.name, fan_out.max_items), ("page", 50));
    /// ```
    #[must_use]
    pub fn item_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the maximum number of elements.
    ///
    /// The value must be from 1 to [`LARGEST_MAX_ITEMS`](Self::LARGEST_MAX_ITEMS). The budget check
    /// of a plan counts this many elements, unless the list is an initial variable.
    #[must_use]
    pub fn max_items(mut self, most: usize) -> Self {
        self.max_items = most;
        self
    }

    /// Sets the number of elements that must succeed.
    ///
    /// An element that fails is `null` in the list and does not fail the step while the quorum is
    /// still possible. If a step writes a list that is shorter than the quorum, all its elements
    /// must succeed.
    #[must_use]
    pub fn quorum(mut self, quorum: usize) -> Self {
        self.quorum = Some(quorum);
        self
    }

    /// Sets a quorum and skips elements that have not started once it is reached.
    ///
    /// ```
    /// use levity_dag::{FanOut, Reducer};
    ///
    /// let fan_out = FanOut::over("mirrors").first(1).reducer(Reducer::First);
    /// assert_eq!((fan_out.quorum, fan_out.stop_early), (Some(1), true));
    /// ```
    #[must_use]
    pub fn first(mut self, quorum: usize) -> Self {
        self.quorum = Some(quorum);
        self.stop_early = true;
        self
    }

    /// Sets the reducer that combines the results.
    #[must_use]
    pub fn reducer(mut self, reducer: Reducer) -> Self {
        self.reducer = reducer;
        self
    }
}

/// Combines several values of one variable into one, in plan or list order, regardless of which
/// finished first.
///
/// ```
/// use levity_dag::Reducer;
/// use serde_json::json;
///
/// let votes = [json!({"yes": 2}), json!(null), json!({"yes": 3, "no": 1})];
/// assert_eq!(Reducer::Merge.reduce(&votes), json!({"yes": 3, "no": 1}));
/// assert_eq!(Reducer::List.reduce(&votes).as_array().unwrap().len(), 3);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reducer {
    /// Collects the values in a list.
    #[default]
    List,
    /// Concatenates all lists into one. A value that is not a list counts as one element, and
    /// `null` is omitted.
    Concat,
    /// Merges all objects into one. If two have the same key, the later value wins. Values that are
    /// not objects are omitted.
    Merge,
    /// Adds the numbers, exactly while all are integers. Values that are not numbers are omitted.
    Sum,
    /// Joins the texts with an empty line between them. Other values are written as JSON, and
    /// `null` is omitted.
    Join,
    /// Takes the first value that is not `null`.
    First,
    /// Takes the last value that is not `null`; for branches of which only one is taken.
    Last,
}

/// The number of attempts for a step and the pause between them, which doubles each time.
///
/// A pause is at most [`LONGEST_PAUSE`](Self::LONGEST_PAUSE), and does not occupy a parallel slot.
/// The journal records each pause, so a resumed run waits only for the rest of it.
///
/// ```
/// use std::time::Duration;
/// use levity_dag::{Retry, Step};
/// use serde_json::json;
///
/// let retry = Retry::attempts(3).pause(Duration::from_secs(2));
/// let step = Step::new("fetch", "Retriever").retry(retry);
/// assert_eq!(step.retry_policy().attempts, 3);
///
/// let short: Retry = serde_json::from_value(json!(3))?;
/// assert_eq!(short, Retry::attempts(3));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "RetryForm")]
#[non_exhaustive]
pub struct Retry {
    /// The maximum number of attempts; 1 means no retry.
    pub attempts: u32,
    /// The pause before the second attempt, in seconds.
    #[serde(with = "seconds_of")]
    pub pause: Duration,
}

/// The serialized form of [`Retry`]: a number of attempts, or an object.
#[derive(Deserialize)]
#[serde(untagged)]
enum RetryForm {
    Attempts(u32),
    Full {
        attempts: u32,
        #[serde(default, with = "seconds")]
        pause: Option<Duration>,
    },
}

impl From<RetryForm> for Retry {
    fn from(form: RetryForm) -> Self {
        match form {
            RetryForm::Attempts(attempts) => Self::attempts(attempts),
            RetryForm::Full { attempts, pause } => Self {
                pause: pause.unwrap_or(Self::DEFAULT_PAUSE),
                ..Self::attempts(attempts)
            },
        }
    }
}

impl Retry {
    /// The default pause: one second.
    pub const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
    /// The largest number of attempts that a plan may set: 100.
    pub const MAX_ATTEMPTS: u32 = 100;
    /// The longest pause: five minutes.
    pub const LONGEST_PAUSE: Duration = Duration::from_secs(300);

    /// Creates a policy with this number of attempts and the default pause.
    pub const fn attempts(attempts: u32) -> Self {
        Self {
            attempts,
            pause: Self::DEFAULT_PAUSE,
        }
    }

    /// Sets the pause before the second attempt.
    #[must_use]
    pub const fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::attempts(1)
    }
}

/// The budget of a step. A field that is not set does not limit the step.
///
/// ```
/// use levity_core::Money;
/// use levity_dag::{Budget, Step};
///
/// let budget = Budget::new().tokens(20_000).money(Money::from_dollars(0.05));
/// let step = Step::new("sum", "Summarizer").budget(budget);
/// assert_eq!(step.attempt_budget().unwrap().tokens, Some(20_000));
/// assert_eq!(step.attempt_budget().unwrap().model_calls, None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Budget {
    /// The maximum number of tokens, sent and received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The maximum cost, serialized in dollars.
    #[serde(skip_serializing_if = "Option::is_none", with = "dollars")]
    pub money: Option<Money>,
    /// The maximum number of model calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
    /// The maximum number of tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
}

impl Budget {
    /// Creates a budget without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the number of tokens.
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Limits the cost in money.
    #[must_use]
    pub fn money(mut self, money: Money) -> Self {
        self.money = Some(money);
        self
    }

    /// Limits the number of model calls.
    #[must_use]
    pub fn model_calls(mut self, calls: u64) -> Self {
        self.model_calls = Some(calls);
        self
    }

    /// Limits the number of tool calls.
    #[must_use]
    pub fn tool_calls(mut self, calls: u64) -> Self {
        self.tool_calls = Some(calls);
        self
    }

    /// Returns `limits`, lowered to this budget where the budget is smaller.
    ///
    /// ```
    /// use levity_core::Limits;
    /// use levity_dag::Budget;
    ///
    /// let limits = Limits::new().tool_calls(100);
    /// let limits = Budget::new().tool_calls(5).tokens(1_000).within(limits);
    /// assert_eq!((limits.tool_calls, limits.tokens), (Some(5), Some(1_000)));
    /// assert_eq!(Budget::new().tool_calls(500).within(limits).tool_calls, Some(5));
    /// ```
    pub fn within(&self, mut limits: Limits) -> Limits {
        fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        }
        limits.tokens = least(self.tokens, limits.tokens);
        limits.money = least(self.money, limits.money);
        limits.model_calls = least(self.model_calls, limits.model_calls);
        limits.tool_calls = least(self.tool_calls, limits.tool_calls);
        limits
    }
}

/// The policy that applies when all attempts of a step have failed. Each policy affects only the
/// dependents of the step.
///
/// ```
/// use levity_dag::{OnFailure, Plan};
///
/// let plan = Plan::parse(
///     r#"[{"id": "fetch", "agent": "Browser", "on_failure": {"fallback": "look up"}},
///         {"id": "look up", "agent": "Archive", "on_failure": "skip"}]"#,
/// )?;
/// assert_eq!(plan.steps[0].on_failure, OnFailure::Fallback("look up".into()));
/// assert_eq!(plan.steps[1].on_failure, OnFailure::Skip);
/// # Ok::<(), levity_dag::Faults>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnFailure {
    /// Asks the planner for another way. Without another way, the dependents are skipped and the
    /// run does not reach its goal.
    #[default]
    Fail,
    /// Skips the dependents and continues the run as if that had been intended.
    Skip,
    /// Runs another step of the plan instead. That step runs only in this case.
    Fallback(StepId),
    /// Runs the dependents, with `null` for the variables that the step should have written.
    Continue,
}

mod seconds {
    use super::{Deserialize, Duration};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.serialize_some(&time.as_secs_f64()),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(from)?;
        seconds
            .map(|s| Duration::try_from_secs_f64(s).map_err(serde::de::Error::custom))
            .transpose()
    }
}

mod seconds_of {
    use super::Duration;
    use serde::Serializer;

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }
}

mod dollars {
    use super::{Deserialize, Money};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        money: &Option<Money>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match money {
            Some(money) => to.serialize_some(&(money.nanos() as f64 / 1e9)),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Money>, D::Error> {
        Ok(Option::<f64>::deserialize(from)?.map(Money::from_dollars))
    }
}
