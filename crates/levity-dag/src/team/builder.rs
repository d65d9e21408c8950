use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use levity_core::{Approver, Error, Guard, Limits, Program, Result, Tool, ToolSource, Toolbox};
use levity_loop::{Agent, AgentBuilder};
use levity_runtime::{Observe, Runtime};
use levity_tools::{Dispatcher, Policy, Registry, RegistryBuilder};

use super::{Inner, Team};
use crate::constraints::{PlanConstraints, StepRunner, StepRunnerKind};
use crate::executor::TeamExecutor;
use crate::function::Function;
use crate::machine::{PLAN, PlannerKind, Rules, Settings};
use crate::planner::TeamPlanner;

/// A builder for a [`Team`].
///
/// A team needs at least one agent, function, tool or code program to run a step. It runs given
/// plans without a planner; to run a goal, it needs a [`planner`](Self::planner) or an agent with
/// the name [`Team::PLANNER`].
///
/// | setting | default |
/// |---|---|
/// | [`max_parallel`](Self::max_parallel) | 16 steps |
/// | [`max_replans`](Self::max_replans) | 3 changes |
/// | [`max_drafts`](Self::max_drafts) | 3 answers of the planner |
/// | [`max_turns`](Self::max_turns) | 15 turns for an attempt |
/// | [`max_steps`](Self::max_steps) | 20,000 steps |
/// | [`limits`](Self::limits) | [`Limits::new`] with 100,000 tool calls |
///
/// ```
/// use levity_dag::{Error, StepInput, Team};
/// use serde_json::Value;
///
/// let noop = |_: StepInput| async { Ok(Value::Null) };
/// let team = Team::builder().function("noop", noop).max_parallel(4).max_replans(0).build()?;
/// assert!(team.constraints().runners.contains_key("noop"));
///
/// let error = Team::builder().function("noop", noop).function("noop", noop).build().unwrap_err();
/// assert!(matches!(error, Error::Setting { setting: "name", .. }));
/// # Ok::<(), Error>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
#[derive(Default)]
pub struct TeamBuilder {
    agents: Vec<(Arc<str>, StepRunner, Agent)>,
    functions: Vec<(Arc<str>, Function)>,
    tools: RegistryBuilder,
    policy: Policy,
    code: Option<Arc<dyn Program>>,
    planner: Option<Arc<dyn TeamPlanner>>,
    approver: Option<Arc<dyn Approver>>,
    guards: Vec<Arc<dyn Guard>>,
    settings: Settings,
    limits: Option<Limits>,
    max_steps: Option<usize>,
    runtime: Option<Runtime>,
    observers: Vec<Arc<dyn Observe>>,
}

impl TeamBuilder {
    /// Adds an observer to every run, such as a `levity_observe::SessionFolder`, which writes a
    /// file for each. For a single run, use [`Run::observe`](levity_runtime::Run::observe).
    pub fn observe(mut self, observe: impl Observe + 'static) -> Self {
        self.observers.push(Arc::new(observe));
        self
    }

    /// Adds an agent. The names [`Team::PLANNER`], [`Team::DISTILLER`] and [`Team::QA`] have a
    /// special meaning. `levity_agents::Catalogue` provides ready-made agents.
    ///
    /// An agent with the name [`Team::QA`] is a judge: an answer with `"verdict": "revise"` sends
    /// work back. The agent that makes plans does not run steps.
    ///
    /// ```
    /// use levity_dag::{Plan, Step, Team};
    /// use levity_loop::Agent;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let model = ScriptedModel::new().reply(r#"{"summary": "The tide comes in."}"#);
    /// let team = Team::builder()
    ///     .agent("Summarizer", "sums up texts", Agent::builder(model).build()?)
    ///     .build()?;
    /// let plan = Plan::new()
    ///     .step(Step::new("sum", "Summarizer").prompt("Sum it up.").writes(["summary"]));
    /// assert_eq!(team.run(plan).await?.text(), "The tide comes in.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn agent(
        self,
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        agent: Agent,
    ) -> Self {
        let name = name.into();
        let mut card = StepRunner::new(StepRunnerKind::Agent, description);
        card.judges = &*name == Team::QA;
        self.runner(name, card, agent)
    }

    /// Adds an agent with its full description for plans.
    ///
    /// The kind of the card does not matter: it is always [`StepRunnerKind::Agent`].
    pub fn runner(mut self, name: impl Into<Arc<str>>, card: StepRunner, agent: Agent) -> Self {
        self.agents.push((
            name.into(),
            StepRunner {
                kind: StepRunnerKind::Agent,
                ..card
            },
            agent,
        ));
        self
    }

    /// Adds a function of your program.
    pub fn function(mut self, name: impl Into<Arc<str>>, function: impl Into<Function>) -> Self {
        self.functions.push((name.into(), function.into()));
        self
    }

    /// Adds a tool for steps and for code.
    ///
    /// A step passes its inputs as the arguments of the tool. The [`policy`](Self::policy) decides
    /// on the call, and an [`approver`](Self::approver) answers when the policy asks.
    ///
    /// ```
    /// use levity_core::{Hints, ToolOutput};
    /// use levity_dag::{Plan, Step, Team};
    /// use levity_test::RecordingTool;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let search = RecordingTool::new("search", |_| Ok(ToolOutput::text("two results")))
    ///     .with_hints(Hints::new().read_only());
    /// let team = Team::builder().tool(search).build()?;
    /// let plan = Plan::new()
    ///     .step(Step::new("look", "search").input("query", "tides").writes(["found"]));
    /// assert_eq!(team.run(plan).await?.text(), "two results");
    /// # Ok(())
    /// # }
    /// ```
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools = self.tools.tool(tool);
        self
    }

    /// Adds several tools at once.
    pub fn tools(mut self, tools: impl Toolbox) -> Self {
        self.tools = self.tools.tools(tools);
        self
    }

    /// Adds a dynamic set of tools.
    pub fn source(mut self, source: impl ToolSource + 'static) -> Self {
        self.tools = self.tools.source(source);
        self
    }

    /// Sets the policy for tools: which ones steps may call and which ones need approval. Agents
    /// have their own policies.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the program that runs the code of steps and agents, such as `levity_python::RunPython`.
    /// Code of a step calls the tools of the team. Code in the answer of an agent calls the tools
    /// of that agent, if they include the program.
    pub fn code(mut self, program: impl Program + 'static) -> Self {
        self.code = Some(Arc::new(program));
        self
    }

    /// Sets a planner that makes plans in place of an agent.
    ///
    /// It has priority over an agent with the name [`Team::PLANNER`].
    pub fn planner(mut self, planner: impl TeamPlanner + 'static) -> Self {
        self.planner = Some(Arc::new(planner));
        self
    }

    /// Sets the approver for plans and for the tools of steps.
    ///
    /// Without an approver, the question waits in the run until a handle of the run answers it.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Requires human approval of every plan, and of every change to one, before it is carried out.
    ///
    /// The question is an [`Ask`](levity_core::Ask) for the tool
    /// [`APPROVE_PLAN_TOOL`](crate::APPROVE_PLAN_TOOL). Its arguments are the plan, or the change.
    /// A person may edit them; after ten invalid edits, the plan counts as refused. A text as the
    /// answer goes to the planner as a complaint.
    ///
    /// ```
    /// use levity_core::{Ask, Decision};
    /// use levity_dag::{APPROVE_PLAN_TOOL, Error, Plan, Step, StepInput, Team};
    /// use serde_json::Value;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let team = Team::builder()
    ///     .function("noop", |_: StepInput| async { Ok(Value::Null) })
    ///     .approve_plans()
    ///     .approver(|ask: &Ask| {
    ///         assert_eq!(ask.call.name, APPROVE_PLAN_TOOL);
    ///         Decision::deny("not today")
    ///     })
    ///     .build()?;
    /// let refused = team.run(Plan::new().step(Step::new("a", "noop"))).await;
    /// let Err(Error::Cancelled { reason, .. }) = refused else { unreachable!() };
    /// assert_eq!(reason, "the plan was refused: not today");
    /// # Ok(())
    /// # }
    /// ```
    pub fn approve_plans(mut self) -> Self {
        self.settings.approve = true;
        self
    }

    /// Sets the maximum number of steps that run in parallel; 16 by default.
    ///
    /// Each element of a fan-out counts as a step. A pause before a retry does not count.
    pub fn max_parallel(mut self, steps: usize) -> Self {
        self.settings.parallel = steps;
        self
    }

    /// Sets the maximum number of plan changes after failed steps; 3 by default.
    ///
    /// A judge that sends work back counts as well, with or without a planner. A planner that gives
    /// up ends all further replans of the run.
    pub fn max_replans(mut self, times: u32) -> Self {
        self.settings.replans = times;
        self
    }

    /// Sets how many times the planner may try until its answer is valid; 3 by default.
    ///
    /// The value applies to each request separately. A plan that arrives in several replies counts
    /// as one draft.
    pub fn max_drafts(mut self, times: u32) -> Self {
        self.settings.drafts = times;
        self
    }

    /// Sets the maximum number of turns for an attempt at a step, over all rounds; 15 by default.
    /// After that, the attempt gets no further round. Within a round, an agent has the turns that
    /// it was built with.
    pub fn max_turns(mut self, turns: u64) -> Self {
        self.settings.turns = turns;
        self
    }

    /// Sets the maximum number of steps in a plan; [`PlanConstraints::MAX_STEPS`] by default.
    pub fn max_steps(mut self, steps: usize) -> Self {
        self.max_steps = Some(steps);
        self
    }

    /// Sets the limits of a run, over all its steps. The default is [`Limits::new`] with
    /// [`Team::DEFAULT_TOOL_CALLS`], because functions count as tools.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Adds a guard that inspects the input and output of all agents, including the planner, after
    /// their own guards. It also inspects the arguments and results of steps that call a tool or a
    /// function. Agents that an agent calls have their own guards.
    ///
    /// The input of an agent is its task, which includes the goal and earlier results. The goal
    /// itself remains unchanged in the team's journal; `docs/guards.md` describes how to guard it
    /// first.
    pub fn guard(mut self, guard: impl Guard + 'static) -> Self {
        self.guards.push(Arc::new(guard));
        self
    }

    /// Sets the runtime that drives its runs; by default one without a journal.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Builds the team from its settings.
    ///
    /// ```
    /// use levity_dag::Team;
    ///
    /// let error = Team::builder().max_parallel(0).build().unwrap_err();
    /// assert!(error.to_string().contains("set 1 to run one step at a time"));
    /// ```
    ///
    /// # Errors
    /// Returns an error if two members have the same name, or if a setting is invalid.
    pub fn build(self) -> Result<Team> {
        self.check_settings()?;
        let runtime = self.runtime.unwrap_or_default();
        let registry = self.tools.build()?;
        let mut known = PlanConstraints::new();
        let limits = self
            .limits
            .unwrap_or(Limits::new().tool_calls(Team::DEFAULT_TOOL_CALLS));
        known.limits = limits;
        known.max_steps = self.max_steps.unwrap_or(known.max_steps);
        known.code = self.code.is_some();
        let agents = add_agents(&mut known, self.agents, &self.guards)?;
        let functions = add_functions(&mut known, self.functions)?;
        add_tools(&mut known, &registry)?;
        let planner = match &self.planner {
            Some(_) => Some(PlannerKind::Program),
            None => agents
                .contains_key(Team::PLANNER)
                .then(|| PlannerKind::Agent(Team::PLANNER.into())),
        };
        let code: Option<Arc<str>> = self
            .code
            .as_ref()
            .map(|code| code.spec().name.as_str().into());
        let is_in_use =
            |name: &&Arc<str>| known.runners.contains_key(*name) || agents.contains_key(*name);
        if let Some(name) = code.as_ref().filter(is_in_use) {
            return Err(duplicate_name(name));
        }
        let profiler = agents
            .contains_key(Team::DISTILLER)
            .then(|| Team::DISTILLER.into());
        let world = runtime.world().clone();
        let tools = Dispatcher::builder(registry)
            .world(world.clone())
            .policy(self.policy)
            .correct_arguments()
            .build()?;
        let executor = Arc::new_cyclic(|me| TeamExecutor {
            coders: coders(&agents, self.code.as_deref()),
            agents,
            functions,
            tools,
            code: self.code,
            planner: self.planner,
            approver: self.approver,
            guards: self.guards.into_iter().collect(),
            world,
            me: me.clone(),
        });
        let rules = Arc::new(Rules {
            known,
            planner,
            profiler,
            code,
        });
        let (settings, observers) = (self.settings, self.observers);
        Ok(Team {
            inner: Arc::new(Inner {
                rules,
                executor,
                runtime,
                settings,
                limits,
                observers,
            }),
        })
    }

    fn check_settings(&self) -> Result<()> {
        let zero = |setting, problem: &str| Err(Error::setting(setting, problem));
        match self.settings {
            Settings { parallel: 0, .. } => zero(
                "max_parallel",
                "is 0, so no step could start; set 1 to run one step at a time",
            ),
            Settings { drafts: 0, .. } => zero(
                "max_drafts",
                "is 0, so no plan could be made; set 1 to ask once",
            ),
            Settings { turns: 0, .. } => zero(
                "max_turns",
                "is 0, so no agent could answer; set 1 for a single turn",
            ),
            _ => Ok(()),
        }
    }
}

/// Returns the agents that have the program which runs code for the team. Code in their answers
/// calls their own tools.
fn coders(agents: &BTreeMap<Arc<str>, Agent>, code: Option<&dyn Program>) -> BTreeSet<Arc<str>> {
    let Some(code) = code else {
        return BTreeSet::new();
    };
    let runs_code = |agent: &Agent| {
        agent
            .dispatcher()
            .specs()
            .iter()
            .any(|spec| spec.name == code.spec().name)
    };
    agents
        .iter()
        .filter(|(_, agent)| runs_code(agent))
        .map(|(name, _)| name.clone())
        .collect()
}

fn duplicate_name(name: &str) -> Error {
    let problem = format!(
        "is used twice: `{name}` is already an agent, a function or a tool; rename one of \
            them"
    );
    Error::Setting {
        setting: "name",
        problem,
    }
}

fn add_runner(known: &mut PlanConstraints, name: Arc<str>, card: StepRunner) -> Result<()> {
    if &*name == PLAN || known.runners.contains_key(&name) {
        return Err(duplicate_name(&name));
    }
    known.runners.insert(name, card);
    Ok(())
}

fn add_agents(
    known: &mut PlanConstraints,
    agents: Vec<(Arc<str>, StepRunner, Agent)>,
    guards: &[Arc<dyn Guard>],
) -> Result<BTreeMap<Arc<str>, Agent>> {
    let mut all = BTreeMap::new();
    for (name, card, agent) in agents {
        if &*name != Team::PLANNER {
            add_runner(known, name.clone(), card)?;
        }
        if all.insert(name.clone(), guarded(agent, guards)?).is_some() {
            return Err(duplicate_name(&name));
        }
    }
    Ok(all)
}

/// Returns the agent with the guards of the team added after its own.
fn guarded(agent: Agent, guards: &[Arc<dyn Guard>]) -> Result<Agent> {
    if guards.is_empty() {
        return Ok(agent);
    }
    let with = |builder: AgentBuilder, guard: &Arc<dyn Guard>| builder.guard(guard.clone());
    let builder = guards.iter().fold(agent.to_builder(), with);
    builder.build()
}

fn add_functions(
    known: &mut PlanConstraints,
    functions: Vec<(Arc<str>, Function)>,
) -> Result<BTreeMap<String, Function>> {
    let mut all = BTreeMap::new();
    for (name, function) in functions {
        add_runner(
            known,
            name.clone(),
            StepRunner::new(StepRunnerKind::Function, function.description.clone()),
        )?;
        all.insert(name.to_string(), function);
    }
    Ok(all)
}

fn add_tools(known: &mut PlanConstraints, registry: &Registry) -> Result<()> {
    registry.specs().iter().try_for_each(|spec| {
        let card = StepRunner::new(StepRunnerKind::Tool, spec.description.as_str());
        add_runner(known, spec.name.as_str().into(), card)
    })
}

impl fmt::Debug for TeamBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TeamBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
