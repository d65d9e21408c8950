use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{Limits, Money};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::condition::Condition;

/// Names a step within its plan.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepId(Arc<str>);

impl StepId {
    /// Takes the id as it is.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// The id as text.
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

/// One piece of work in a plan: who does it, what it reads and writes, and what follows when it
/// fails.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "StepForm")]
#[non_exhaustive]
pub struct Step {
    /// Its name in the plan.
    pub id: StepId,
    /// Who does it: an agent, a function or a tool of the team. Empty when it is code.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub agent: Arc<str>,
    /// What it is about, for people.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub description: Arc<str>,
    /// What the agent is told to do.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub prompt: Arc<str>,
    /// The variables that it is given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Arc<str>>,
    /// The variables that it sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<Arc<str>>,
    /// Steps that come before it, beside those that write what it reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<After>,
    /// How many of the steps before it are needed.
    #[serde(skip_serializing_if = "is_default")]
    pub join: Join,
    /// Whether it is run at all, asked once everything before it is settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
    /// In a box, since most steps have nothing of it.
    #[serde(flatten)]
    pub(crate) more: Option<Box<StepOptions>>,
    /// What follows when it fails.
    #[serde(skip_serializing_if = "is_default")]
    pub on_failure: OnFailure,
}

/// A step as it is written down: with no more fields than were said, so that most have no box.
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

/// What not every step has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StepOptions {
    /// Runs it once for each element of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) map: Option<FanOut>,
    /// Python to run in place of an agent; the next is tried when one fails.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) code: Vec<String>,
    /// Fixed inputs, beside what it reads.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) inputs: Map<String, Value>,
    /// How often it is tried.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) retry: Retry,
    /// How long a round of an attempt may take: a run of its agent or its code, or a call of its
    /// function or tool. in seconds.
    #[serde(skip_serializing_if = "Option::is_none", with = "seconds")]
    pub(crate) timeout: Option<Duration>,
    /// What one attempt may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<Budget>,
    /// The step that it stands in for: it runs when that one has failed, and those who wait for
    /// that one take this one's results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instead_of: Option<StepId>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Step {
    /// A step that `agent` does: an agent, a function or a tool of the team.
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

    /// A step that runs Python; the next variant is tried when one fails.
    pub fn code<C: Into<String>>(
        id: impl Into<StepId>,
        variants: impl IntoIterator<Item = C>,
    ) -> Self {
        let mut step = Self::new(id, "");
        step.more().code = variants.into_iter().map(Into::into).collect();
        step
    }

    fn more(&mut self) -> &mut StepOptions {
        self.more.get_or_insert_default()
    }

    /// What it is about, for people.
    #[must_use]
    pub fn description(mut self, text: impl Into<Arc<str>>) -> Self {
        self.description = text.into();
        self
    }

    /// What the agent is told to do.
    #[must_use]
    pub fn prompt(mut self, text: impl Into<Arc<str>>) -> Self {
        self.prompt = text.into();
        self
    }

    /// The variables that it is given.
    #[must_use]
    pub fn reads<N: Into<Arc<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.reads.extend(names.into_iter().map(Into::into));
        self
    }

    /// The variables that it sets.
    #[must_use]
    pub fn writes<N: Into<Arc<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.writes.extend(names.into_iter().map(Into::into));
        self
    }

    /// Comes after another step.
    #[must_use]
    pub fn after(mut self, step: impl Into<StepId>) -> Self {
        self.after.push(After::new(step));
        self
    }

    /// Comes after another step, and only if `when` holds then.
    #[must_use]
    pub fn after_if(mut self, step: impl Into<StepId>, when: Condition) -> Self {
        self.after.push(After {
            when: Some(when),
            ..After::new(step)
        });
        self
    }

    /// Is run only if this holds once everything before it is settled.
    #[must_use]
    pub fn when(mut self, when: Condition) -> Self {
        self.when = Some(when);
        self
    }

    /// How many of the steps before it are needed.
    #[must_use]
    pub fn join(mut self, join: Join) -> Self {
        self.join = join;
        self
    }

    /// Runs it once for each element of a list.
    #[must_use]
    pub fn map(mut self, fan_out: FanOut) -> Self {
        self.more().map = Some(fan_out);
        self
    }

    /// A fixed input, beside what it reads.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.more().inputs.insert(name.into(), value.into());
        self
    }

    /// How often it is tried; once by default.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.more().retry = retry;
        self
    }

    /// How long a round of an attempt may take: a run of its agent or its code, or a call of its
    /// function or tool.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.more().timeout = Some(time);
        self
    }

    /// What one attempt may use.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.more().budget = Some(budget);
        self
    }

    /// What follows when it fails.
    #[must_use]
    pub fn on_failure(mut self, what: OnFailure) -> Self {
        self.on_failure = what;
        self
    }

    /// Stands in for a step that has failed.
    #[must_use]
    pub fn instead_of(mut self, step: impl Into<StepId>) -> Self {
        self.more().instead_of = Some(step.into());
        self
    }

    /// All variables that must be there before it begins: those it reads, those of its conditions,
    /// and the list.
    pub(crate) fn needs(&self) -> impl Iterator<Item = &Arc<str>> {
        let edges = self.after.iter().filter_map(|after| after.when.as_ref());
        let asked = self.when.iter().chain(edges).flat_map(Condition::variables);
        self.reads
            .iter()
            .chain(asked)
            .chain(self.fan_out().map(|map| &map.over))
    }

    /// The fan-out, if there is one.
    pub fn fan_out(&self) -> Option<&FanOut> {
        self.more.as_ref()?.map.as_ref()
    }

    /// The Python variants; empty when it is an agent's step.
    pub fn variants(&self) -> &[String] {
        self.more.as_ref().map_or(&[], |more| &more.code)
    }

    /// How often it is tried.
    pub fn tries(&self) -> Retry {
        self.more
            .as_ref()
            .map_or_else(Retry::default, |more| more.retry)
    }

    /// The fixed inputs, beside what it reads.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, &Value)> {
        let all = self.more.iter().flat_map(|more| &more.inputs);
        all.map(|(name, value)| (name.as_str(), value))
    }

    /// The timeout of a round, if there is one.
    pub fn time_limit(&self) -> Option<Duration> {
        self.more.as_ref()?.timeout
    }

    /// The budget of one attempt, if there is one.
    pub fn attempt_budget(&self) -> Option<Budget> {
        self.more.as_ref()?.budget
    }

    /// The step that it stands in for.
    pub fn stands_in_for(&self) -> Option<&StepId> {
        self.more.as_ref()?.instead_of.as_ref()
    }
}

/// A step that comes before another, perhaps on a condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "AfterForm")]
#[non_exhaustive]
pub struct After {
    /// The step.
    pub step: StepId,
    /// The edge is taken only if this holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
}

impl After {
    /// After a step, whatever it gives.
    pub fn new(step: impl Into<StepId>) -> Self {
        Self {
            step: step.into(),
            when: None,
        }
    }
}

/// An id alone, or an object.
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

/// How many of the steps before a step are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Join {
    /// All: it is skipped when one of them was skipped or its condition did not hold.
    #[default]
    All,
    /// At least one; it waits until all are settled. For steps behind branches of which one is
    /// taken.
    Any,
}

/// Runs a step once for each element of a list, and gathers the results in the order of the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FanOut {
    /// The variable that holds the list.
    pub over: Arc<str>,
    /// The name by which a run of the step sees its element; `item` by default.
    #[serde(rename = "as", default = "item")]
    pub name: Arc<str>,
    /// How many elements there may be; [`DEFAULT_MOST`](Self::DEFAULT_MOST) by default.
    #[serde(default = "most")]
    pub most: usize,
    /// How many must succeed; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<usize>,
    /// Whether those that have not begun are left out once the quorum is reached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop_early: bool,
    /// How the results become one value; a list by default, with `null` for those that failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reducer: Reducer,
}

fn item() -> Arc<str> {
    "item".into()
}

fn most() -> usize {
    FanOut::DEFAULT_MOST
}

impl FanOut {
    /// 1,000 elements.
    pub const DEFAULT_MOST: usize = 1_000;
    /// 100,000 elements; a plan that allows more is refused.
    pub const MAX_MOST: usize = 100_000;

    /// Over the list in this variable.
    pub fn over(variable: impl Into<Arc<str>>) -> Self {
        Self {
            over: variable.into(),
            name: item(),
            most: Self::DEFAULT_MOST,
            quorum: None,
            stop_early: false,
            reducer: Reducer::default(),
        }
    }

    /// The name by which a run of the step sees its element.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// How many elements there may be.
    #[must_use]
    pub fn most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// How many must succeed.
    #[must_use]
    pub fn quorum(mut self, quorum: usize) -> Self {
        self.quorum = Some(quorum);
        self
    }

    /// Once so many have succeeded, leaves out those that have not begun.
    #[must_use]
    pub fn first(mut self, quorum: usize) -> Self {
        self.quorum = Some(quorum);
        self.stop_early = true;
        self
    }

    /// How the results become one value.
    #[must_use]
    pub fn reduced_by(mut self, reducer: Reducer) -> Self {
        self.reducer = reducer;
        self
    }
}

/// How several values of one variable become one, in the order of the plan or of the list, whatever
/// was finished first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reducer {
    /// A list of the values.
    #[default]
    List,
    /// The elements of all lists in one list; what is no list is one element, and `null` is left
    /// out.
    Concat,
    /// One object with the keys of all; of two values for one key, the later. What is no object is
    /// left out.
    Merge,
    /// The sum of the numbers, exact while all are whole. What is no number is left out.
    Sum,
    /// The texts, with an empty line between them; other values as JSON, and `null` is left out.
    Join,
    /// The first that is not `null`.
    First,
    /// The last that is not `null`; for branches of which one is taken.
    Last,
}

/// How often a step is tried, and how long it waits in between: the pause doubles each time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "RetryForm")]
#[non_exhaustive]
pub struct Retry {
    /// How often, at most; one attempt is no retry.
    pub attempts: u32,
    /// The pause before the second attempt, in seconds.
    #[serde(with = "seconds_of")]
    pub pause: Duration,
}

/// A number of attempts alone, or an object.
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
    /// One second.
    pub const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
    /// 100 attempts; a plan that asks for more is refused.
    pub const MAX_ATTEMPTS: u32 = 100;
    /// The longest pause: five minutes.
    pub const LONGEST_PAUSE: Duration = Duration::from_secs(300);

    /// So many attempts.
    pub const fn attempts(attempts: u32) -> Self {
        Self {
            attempts,
            pause: Self::DEFAULT_PAUSE,
        }
    }

    /// The pause before the second attempt.
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

/// What a step may use. What is not said is not limited by the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Budget {
    /// Tokens sent and received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money, in dollars where it is written down.
    #[serde(skip_serializing_if = "Option::is_none", with = "dollars")]
    pub money: Option<Money>,
    /// Calls of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
    /// Calls of tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
}

impl Budget {
    /// No limit yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the tokens.
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Limits the money.
    #[must_use]
    pub fn money(mut self, money: Money) -> Self {
        self.money = Some(money);
        self
    }

    /// Limits the calls of a model.
    #[must_use]
    pub fn model_calls(mut self, calls: u64) -> Self {
        self.model_calls = Some(calls);
        self
    }

    /// Limits the calls of tools.
    #[must_use]
    pub fn tool_calls(mut self, calls: u64) -> Self {
        self.tool_calls = Some(calls);
        self
    }

    /// These limits, and no more of anything than this budget allows.
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

/// What follows when a step has failed for good. Whatever it is, only what depends on the step is
/// touched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnFailure {
    /// The planner is asked for another way; without one, what depends on the step is skipped, and
    /// the run has not reached its goal.
    #[default]
    Fail,
    /// What depends on the step is skipped, and the run goes on as if that had been meant.
    Skip,
    /// Another step of the plan does it instead, one that runs only then.
    Fallback(StepId),
    /// What depends on the step runs, with `null` for what it should have written.
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
