//! Estimates of the tokens and the cost of a plan, before a step runs.
//!
//! The number of turns of an agent and the length of its texts are unknown until it runs. An
//! estimate therefore computes two courses of each step: a short one and a long one, by the
//! constants in [`SHORT`] and [`LONG`]. Everything else comes from the plan, the agents and the
//! cards of their models. `docs/plan-command.md` describes the constants for users.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{
    Effect, Input, MachineOutput, ModelCard, Money, Request, RunId, ToolError, Usage,
    estimate_tokens,
};
use levity_loop::Agent;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::plan::Plan;
use crate::step::{Step, StepId};
use crate::task::Task;

/// The assumptions of one course of a step.
struct Course {
    /// The turns of an agent with tools, as a fraction of its maximum: 1 in this many.
    fraction_of_turns: u64,
    /// The turns of an agent without tools.
    turns_without_tools: u64,
    /// The tokens that the model writes in each turn.
    output: u64,
    /// The tokens of the tool results of each turn but the last.
    results: u64,
    /// The tokens of each variable that another step writes.
    variable: u64,
    /// The elements of a list that another step writes.
    items: usize,
}

/// A course with few turns and short texts.
const SHORT: Course = Course {
    fraction_of_turns: u64::MAX,
    turns_without_tools: 1,
    output: 150,
    results: 200,
    variable: 100,
    items: 1,
};

/// A course with many turns and long texts.
const LONG: Course = Course {
    fraction_of_turns: 2,
    turns_without_tools: 2,
    output: 1_500,
    results: 2_000,
    variable: 1_500,
    items: 10,
};

/// The fewest turns of an agent with tools: one that calls a tool, and one that answers.
const TURNS_WITH_TOOLS: u64 = 2;

/// A range of an estimated amount. The true amount can be outside of it.
///
/// ```
/// use levity_dag::EstimateRange;
///
/// let range = EstimateRange::new(1_000, 9_000);
/// assert_eq!((range.low, range.high), (1_000, 9_000));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EstimateRange<T> {
    /// The amount if the work takes a short course.
    pub low: T,
    /// The amount if the work takes a long course. This is not an upper bound.
    pub high: T,
}

impl<T> EstimateRange<T> {
    /// Creates a range from its two ends.
    pub fn new(low: T, high: T) -> Self {
        Self { low, high }
    }
}

/// The estimated tokens and cost of one step of a plan.
///
/// ```
/// use levity_dag::{Plan, Step, StepInput, Team};
/// use serde_json::Value;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_dag::Result<()> {
/// let noop = |_: StepInput| async { Ok(Value::Null) };
/// let team = Team::builder().function("noop", noop).build()?;
/// let estimate = team.estimate(Plan::new().step(Step::new("a", "noop")), "").await?;
/// assert_eq!(estimate.steps[0].model, None); // a function calls no model
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepEstimate {
    /// The id of the step.
    pub step: StepId,
    /// The agent, function or tool that runs the step; empty for a step of code.
    pub agent: Arc<str>,
    /// The model of the agent as `provider:id`, or `None` if the step calls no model itself.
    pub model: Option<String>,
    /// The number of model calls.
    pub calls: EstimateRange<u64>,
    /// The number of tokens sent.
    pub input: EstimateRange<u64>,
    /// The number of tokens received.
    pub output: EstimateRange<u64>,
    /// The cost, or `None` if the price of the model is unknown. A step without a model costs
    /// nothing.
    pub cost: Option<EstimateRange<Money>>,
}

/// The estimated tokens and cost of a plan, step by step.
///
/// [`Team::estimate`](crate::Team::estimate) makes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PlanEstimate {
    /// The steps, in the order of the plan.
    pub steps: Vec<StepEstimate>,
}

impl PlanEstimate {
    /// Returns the number of tokens of all steps, sent and received.
    pub fn tokens(&self) -> EstimateRange<u64> {
        let sum = |of: fn(&EstimateRange<u64>) -> u64| {
            let both = self.steps.iter().flat_map(|step| [step.input, step.output]);
            both.fold(0, |sum: u64, range| sum.saturating_add(of(&range)))
        };
        EstimateRange::new(sum(|range| range.low), sum(|range| range.high))
    }

    /// Returns the cost of the steps with a known price.
    ///
    /// If [`unpriced_models`](Self::unpriced_models) is not empty, the plan costs more.
    pub fn known_cost(&self) -> EstimateRange<Money> {
        let mut sum = EstimateRange::default();
        for cost in self.steps.iter().filter_map(|step| step.cost) {
            sum.low = Money::saturating_add(sum.low, cost.low);
            sum.high = Money::saturating_add(sum.high, cost.high);
        }
        sum
    }

    /// Returns the models of the plan whose price is unknown, without duplicates.
    pub fn unpriced_models(&self) -> Vec<&str> {
        let steps = self.steps.iter().filter(|step| step.cost.is_none());
        let mut models: Vec<&str> = steps.filter_map(|step| step.model.as_deref()).collect();
        models.sort_unstable();
        models.dedup();
        models
    }
}

/// The facts about an agent that all its steps share.
struct Profile<'a> {
    card: &'a ModelCard,
    /// The tokens of the first request without the task: instructions, context and tools.
    fixed: u64,
    max_turns: u64,
    has_tools: bool,
}

impl<'a> Profile<'a> {
    /// Lets the agent make its first request, which is not sent.
    ///
    /// # Errors
    /// Fails if a context source of the agent fails.
    async fn of(agent: &'a Agent) -> Result<Self, ToolError> {
        let mut child = agent.child("", None).await?;
        let mut out = MachineOutput::new();
        let run = RunId::new("estimate");
        child
            .machine
            .apply(Input::Begin { run, wrap: None }, &mut out);
        let request = out.effects.iter().find_map(|(_, effect)| match effect {
            Effect::Model(call) => Some(request_tokens(&call.request)),
            _ => None,
        });
        let tools = agent.dispatcher().offer(&[]);
        let spec_tokens =
            |spec| serde_json::to_string(spec).map_or(0, |text| estimate_tokens(&text));
        let tool_tokens: u64 = tools.iter().map(|spec| spec_tokens(&**spec)).sum();
        Ok(Self {
            card: agent.card(),
            fixed: request.unwrap_or_default().saturating_add(tool_tokens),
            max_turns: agent.max_turns(),
            has_tools: !tools.is_empty(),
        })
    }

    fn turns(&self, course: &Course) -> u64 {
        let turns = match self.has_tools {
            true => (self.max_turns / course.fraction_of_turns).max(TURNS_WITH_TOOLS),
            false => course.turns_without_tools,
        };
        turns.min(self.max_turns).max(1)
    }

    /// Returns the calls and the tokens of one run of a step. Each turn sends everything again
    /// that the turns before it sent and received.
    fn run(&self, task: u64, course: &Course) -> (u64, u64, u64) {
        let turns = self.turns(course);
        let output = self
            .card
            .max_output
            .map_or(course.output, |max| max.min(course.output));
        let grown = output.saturating_add(if self.has_tools { course.results } else { 0 });
        let window = self.card.window.unwrap_or(u64::MAX);
        let first = self.fixed.saturating_add(task);
        let input = (0..turns)
            .map(|turn| first.saturating_add(grown.saturating_mul(turn)).min(window))
            .fold(0, u64::saturating_add);
        (turns, input, output.saturating_mul(turns))
    }

    fn cost(&self, input: u64, output: u64) -> Option<Money> {
        self.card
            .price
            .map(|price| price.cost(&Usage::new(input, output)))
    }
}

fn request_tokens(request: &Request) -> u64 {
    let system = request.system.as_deref().map_or(0, estimate_tokens);
    system.saturating_add(request.history.tokens())
}

/// Estimates each step of a valid plan; `agent_of` finds the agent that a step names.
///
/// Agents are asked for their first request once each, because a plan can have many steps.
pub(crate) async fn estimate<'a>(
    plan: &Plan,
    goal: &str,
    agent_of: impl Fn(&str) -> Option<&'a Agent>,
) -> Result<PlanEstimate, ToolError> {
    let mut profiles: BTreeMap<Arc<str>, Profile<'a>> = BTreeMap::new();
    let mut steps = Vec::with_capacity(plan.steps.len());
    for step in &plan.steps {
        if let Some(agent) = agent_of(&step.agent)
            && !profiles.contains_key(&step.agent)
        {
            profiles.insert(step.agent.clone(), Profile::of(agent).await?);
        }
        steps.push(match profiles.get(&step.agent) {
            Some(profile) => of_agent(step, plan, goal, profile),
            None => without_model(step),
        });
    }
    Ok(PlanEstimate { steps })
}

/// A function, a tool or code calls no model that levity knows of.
fn without_model(step: &Step) -> StepEstimate {
    StepEstimate {
        step: step.id.clone(),
        agent: step.agent.clone(),
        model: None,
        calls: EstimateRange::default(),
        input: EstimateRange::default(),
        output: EstimateRange::default(),
        cost: Some(EstimateRange::default()),
    }
}

fn of_agent(step: &Step, plan: &Plan, goal: &str, profile: &Profile<'_>) -> StepEstimate {
    let [low, high] = [&SHORT, &LONG].map(|course| {
        let runs = runs(step, plan, course);
        let (calls, input, output) = profile.run(task_tokens(step, plan, goal, course), course);
        [calls, input, output].map(|amount| amount.saturating_mul(runs))
    });
    let range = |at: usize| EstimateRange::new(low[at], high[at]);
    let cost = |of: [u64; 3]| profile.cost(of[1], of[2]);
    StepEstimate {
        step: step.id.clone(),
        agent: step.agent.clone(),
        model: Some(format!("{}:{}", profile.card.provider, profile.card.id)),
        calls: range(0),
        input: range(1),
        output: range(2),
        cost: cost(low)
            .zip(cost(high))
            .map(|(low, high)| EstimateRange::new(low, high)),
    }
}

/// Returns the number of runs of a step: one for each element of its list and each attempt, or
/// none if it may be skipped.
fn runs(step: &Step, plan: &Plan, course: &Course) -> u64 {
    let is_short = course.items == SHORT.items;
    if is_short && may_be_skipped(step, plan) {
        return 0;
    }
    let items = step.fan_out().map_or(1, |map| {
        let list = plan.given.get(&map.over).and_then(Value::as_array);
        list.map_or(course.items, Vec::len).min(map.max_items) as u64
    });
    let attempts = if is_short {
        1
    } else {
        step.retry_policy().attempts.max(1)
    };
    items.saturating_mul(attempts.into())
}

/// Returns `true` if the step runs only under a condition, or only after another one failed.
fn may_be_skipped(step: &Step, plan: &Plan) -> bool {
    use crate::step::OnFailure::Fallback;
    let is_fallback =
        |other: &Arc<Step>| matches!(&other.on_failure, Fallback(id) if *id == step.id);
    step.when.is_some()
        || step.after.iter().any(|after| after.when.is_some())
        || plan.steps.iter().any(is_fallback)
}

/// Returns the tokens of the task text, with the values of the variables that the step reads.
fn task_tokens(step: &Step, plan: &Plan, goal: &str, course: &Course) -> u64 {
    let task = Task {
        goal,
        step,
        // An estimate knows the text of a goal only.
        media: 0,
        inputs: &Map::new(),
        messages: &[],
        before: None,
        failed: None,
        judged: Vec::new(),
    };
    let value_tokens = |name: &Arc<str>| match plan.given.get(name) {
        Some(value) => estimate_tokens(&value.to_string()),
        None => course.variable,
    };
    let inputs = step
        .inputs()
        .map(|(_, value)| estimate_tokens(&value.to_string()));
    let values = step.reads.iter().map(value_tokens).chain(inputs);
    values.fold(estimate_tokens(&task.text()), u64::saturating_add)
}

#[cfg(test)]
mod tests;
