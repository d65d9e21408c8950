//! Planning and reflecting: small strategies that the loop calls between its phases.
//!
//! They are pure functions. A strategy that needs a model returns a prompt, and the loop makes the
//! call as an effect of the run, with its budget, its journal and its guards.

use levity_core::{Message, ToolCall, ToolResult};

/// Decides how a goal is planned.
///
/// # Contract
/// - The same goal gives the same answer: no clock, no randomness, no I/O. A plan that needs a
///   model requests it with [`Planning::Ask`].
///
/// ```
/// use levity_loop::{Goal, Planner, Planning};
///
/// struct AlwaysLookFirst;
///
/// impl Planner for AlwaysLookFirst {
///     fn plan(&self, _: &Goal<'_>) -> Planning {
///         Planning::Steps(vec!["look around".into(), "do it".into()])
///     }
/// }
/// ```
pub trait Planner: Send + Sync {
    /// Returns how this goal is planned.
    fn plan(&self, goal: &Goal<'_>) -> Planning;
}

/// The goal that a [`Planner`] plans for.
///
/// The type grows over time; match on its fields and not on its shape.
#[derive(Debug)]
#[non_exhaustive]
pub struct Goal<'a> {
    /// The message that states the goal.
    pub message: &'a Message,
}

/// The way in which a goal is planned.
///
/// ```
/// use levity_loop::{Goal, Planner, Planning};
///
/// /// Plans long goals only.
/// struct LongGoals;
///
/// impl Planner for LongGoals {
///     fn plan(&self, goal: &Goal<'_>) -> Planning {
///         match goal.message.size() {
///             0..200 => Planning::None,
///             _ => Planning::Ask("Write at most 5 steps, one on a line.".into()),
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Planning {
    /// The goal is not planned.
    None,
    /// The goal is planned by these steps.
    Steps(Vec<String>),
    /// A model plans, asked with this text; each line of its reply is a step.
    Ask(String),
}

/// A planner that makes no plan. The default, which costs nothing.
///
/// ```
/// # use levity_loop::{Agent, NoPlan};
/// # use levity_test::ScriptedModel;
/// assert!(Agent::builder(ScriptedModel::new()).planner(NoPlan).build().is_ok());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPlan;

impl Planner for NoPlan {
    fn plan(&self, _: &Goal<'_>) -> Planning {
        Planning::None
    }
}

/// A planner by rules: the first rule whose word occurs in the goal gives the steps.
///
/// ```
/// # use levity_core::Message;
/// # use levity_loop::{Goal, RulePlanner, Planner, Planning};
/// let rules = RulePlanner::new().when("deploy", ["run the tests", "deploy", "look at the logs"]);
/// # let agent = levity_loop::Agent::builder(levity_test::ScriptedModel::new()).planner(rules);
/// ```
#[derive(Clone, Debug, Default)]
pub struct RulePlanner(Vec<(String, Vec<String>)>);

impl RulePlanner {
    /// Creates a planner without rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule; the case of letters does not matter.
    #[must_use]
    pub fn when(mut self, word: &str, steps: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.push((
            word.to_lowercase(),
            steps.into_iter().map(Into::into).collect(),
        ));
        self
    }
}

impl Planner for RulePlanner {
    fn plan(&self, goal: &Goal<'_>) -> Planning {
        let text = goal.message.text().to_lowercase();
        let rule = self.0.iter().find(|(word, _)| text.contains(word));
        rule.map_or(Planning::None, |(_, steps)| Planning::Steps(steps.clone()))
    }
}

/// A planner that asks a model: one more call, by the model of the slot `planner` if there is one.
///
/// ```
/// use levity_loop::{Agent, ModelPlanner};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_loop::Result<()> {
/// let model = ScriptedModel::new().reply("1. look\n2. answer").reply("Paris.");
/// let agent = Agent::builder(model).planner(ModelPlanner::new()).build()?;
/// let answer = agent.run("What is the capital of France?").await?;
/// assert_eq!((answer.text(), answer.stats().model_calls), ("Paris.", 2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ModelPlanner {
    prompt: String,
}

impl Default for ModelPlanner {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelPlanner {
    /// Creates a planner that asks for a short list of steps.
    pub fn new() -> Self {
        let prompt = "Before you begin, write a plan: at most 7 short steps, one on a line, and \
            nothing else.";
        Self {
            prompt: prompt.into(),
        }
    }

    /// Sets another prompt for the plan.
    #[must_use]
    pub fn prompt(mut self, prompt: impl Into<String>) -> Self {
        self.prompt = prompt.into();
        self
    }
}

impl Planner for ModelPlanner {
    fn plan(&self, _: &Goal<'_>) -> Planning {
        Planning::Ask(self.prompt.clone())
    }
}

/// Returns the steps that a model wrote: its lines, without bullets and numbers; at most 32.
pub(crate) fn steps(text: &str) -> Vec<String> {
    let strip = |line: &str| {
        let line = line
            .trim()
            .trim_start_matches(['-', '*', '•', '#'])
            .trim_start();
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let numbered = rest.len() < line.len() && rest.starts_with(['.', ')', ':']);
        if numbered {
            rest[1..].trim().to_owned()
        } else {
            line.to_owned()
        }
    };
    text.lines()
        .map(strip)
        .filter(|step| !step.is_empty())
        .take(32)
        .collect()
}

/// The reaction of an agent once only the set share of its money or tokens remains; see
/// [`Limits::low`](levity_core::Limits::low).
///
/// ```
/// use levity_core::{Limits, Money};
/// use levity_loop::{Agent, LowBudgetAction};
/// use levity_test::ScriptedModel;
///
/// let agent = Agent::builder(ScriptedModel::new())
///     .limits(Limits::new().money(Money::from_dollars(1.0)).low(25))
///     .model_for("cheap", ScriptedModel::new())
///     .on_low_budget(LowBudgetAction::Switch)
///     .build();
/// assert!(agent.is_ok());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LowBudgetAction {
    /// The agent answers from what it knows: no more tools, and the answer is marked best effort.
    #[default]
    Answer,
    /// The agent continues with the model of the slot `cheap`, for every purpose.
    Switch,
}

/// Reviews the results of a turn.
///
/// The loop notices without any reflector that all calls failed, and that a call fails repeatedly.
///
/// # Contract
/// - The same turn gives the same answer: no clock, no randomness, no I/O. A reflection that needs
///   a model requests it with [`Reflection::Ask`].
///
/// ```
/// use levity_loop::{Reflection, Reflector, TurnSummary};
///
/// /// Ends the work once two turns had no failure.
/// struct Impatient;
///
/// impl Reflector for Impatient {
///     fn reflect(&self, turn: &TurnSummary<'_>) -> Reflection {
///         let failed = turn.calls.iter().any(|(_, result)| result.is_error());
///         if turn.number >= 2 && !failed { Reflection::Finish } else { Reflection::Continue }
///     }
/// }
/// ```
pub trait Reflector: Send + Sync {
    /// Returns the conclusion from this turn.
    fn reflect(&self, turn: &TurnSummary<'_>) -> Reflection;
}

/// A turn as a [`Reflector`] sees it.
///
/// Calls that were denied or failed are included, each with its error as the result.
#[derive(Debug)]
#[non_exhaustive]
pub struct TurnSummary<'a> {
    /// The number of the turn, from 1.
    pub number: u64,
    /// The goal of the run.
    pub goal: &'a Message,
    /// The plan; empty when there is none.
    pub plan: &'a [String],
    /// The calls of the turn, with their results.
    pub calls: &'a [(&'a ToolCall, &'a ToolResult)],
}

/// The conclusion from a turn.
///
/// ```
/// # use levity_loop::Reflection;
/// let note = Reflection::Note("The index may be stale.".into());
/// assert_ne!(note, Reflection::Continue);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reflection {
    /// The run continues unchanged.
    Continue,
    /// The run continues, and the model gets this note.
    Note(String),
    /// A model is asked with this text, and its answer becomes a note.
    Ask(String),
    /// The model answers now, with no more tools.
    Finish,
}

/// A reflector that does nothing. The default, which costs nothing.
///
/// ```
/// # use levity_loop::{Agent, NoReflection};
/// # use levity_test::ScriptedModel;
/// assert!(Agent::builder(ScriptedModel::new()).reflector(NoReflection).build().is_ok());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NoReflection;

impl Reflector for NoReflection {
    fn reflect(&self, _: &TurnSummary<'_>) -> Reflection {
        Reflection::Continue
    }
}

/// A reflector that follows rules.
///
/// ```
/// # use levity_loop::RuleReflector;
/// let rules = RuleReflector::new()
///     .when_fails("search", "The index may be stale: call `reindex` first.")
///     .finish_after("submit");
/// # let agent = levity_loop::Agent::builder(levity_test::ScriptedModel::new()).reflector(rules);
/// ```
#[derive(Clone, Debug, Default)]
pub struct RuleReflector(Vec<ReflectRule>);

#[derive(Clone, Debug)]
enum ReflectRule {
    Fails { tool: String, note: String },
    FinishAfter { tool: String },
}

impl RuleReflector {
    /// Creates a reflector without rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `note` for the model when `tool` failed.
    #[must_use]
    pub fn when_fails(mut self, tool: impl Into<String>, note: impl Into<String>) -> Self {
        self.0.push(ReflectRule::Fails {
            tool: tool.into(),
            note: note.into(),
        });
        self
    }

    /// Makes the model answer once `tool` has succeeded.
    #[must_use]
    pub fn finish_after(mut self, tool: impl Into<String>) -> Self {
        self.0.push(ReflectRule::FinishAfter { tool: tool.into() });
        self
    }
}

impl Reflector for RuleReflector {
    fn reflect(&self, turn: &TurnSummary<'_>) -> Reflection {
        let called = |tool: &str, failed: bool| {
            turn.calls
                .iter()
                .any(|(call, result)| call.name == tool && result.is_error() == failed)
        };
        let hit = self.0.iter().find(|rule| match rule {
            ReflectRule::Fails { tool, .. } => called(tool, true),
            ReflectRule::FinishAfter { tool } => called(tool, false),
        });
        match hit {
            Some(ReflectRule::Fails { note, .. }) => Reflection::Note(note.clone()),
            Some(ReflectRule::FinishAfter { .. }) => Reflection::Finish,
            None => Reflection::Continue,
        }
    }
}

/// A reflector that asks a model: one more call a turn, by the model of the slot `reflector` if
/// there is one.
///
/// ```
/// # use levity_loop::{Agent, ModelReflector};
/// # use levity_test::ScriptedModel;
/// let reflector = ModelReflector::new().prompt("In one sentence: what is missing?");
/// assert!(Agent::builder(ScriptedModel::new()).reflector(reflector).build().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct ModelReflector {
    prompt: String,
}

impl Default for ModelReflector {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelReflector {
    /// Creates a reflector that asks for two sentences.
    pub fn new() -> Self {
        let prompt = "Look at the last results against the goal. Say in at most two sentences what \
            is \
                      reached, what is missing, and what to do next.";
        Self {
            prompt: prompt.into(),
        }
    }

    /// Sets another prompt for the reflection.
    #[must_use]
    pub fn prompt(mut self, prompt: impl Into<String>) -> Self {
        self.prompt = prompt.into();
        self
    }
}

impl Reflector for ModelReflector {
    fn reflect(&self, _: &TurnSummary<'_>) -> Reflection {
        Reflection::Ask(self.prompt.clone())
    }
}
