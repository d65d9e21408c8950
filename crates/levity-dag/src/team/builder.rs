use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use levity_core::{Approver, Error, Guard, Limits, Program, Result, Tool, ToolSource, Toolbox};
use levity_loop::{Agent, AgentBuilder};
use levity_runtime::{Observe, Runtime};
use levity_tools::{Dispatcher, Policy, Registry, RegistryBuilder};

use super::{Inner, Team};
use crate::executor::TeamExecutor;
use crate::function::Function;
use crate::known::{PlanConstraints, StepRunner, StepRunnerKind};
use crate::machine::{PLAN, PlannedBy, Rules, Settings};
use crate::planner::TeamPlanner;

/// Puts a [`Team`] together.
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
    /// Has `observe` follow each run from beside it, such as a `levity_observe::SessionFolder`,
    /// which keeps a file of each. For a single run, use
    /// [`Run::observe`](levity_runtime::Run::observe).
    pub fn observe(mut self, observe: impl Observe + 'static) -> Self {
        self.observers.push(Arc::new(observe));
        self
    }

    /// Adds an agent. The names [`Team::PLANNER`], [`Team::DISTILLER`] and [`Team::QA`] have a
    /// meaning. Ready agents come from `levity_agents::Catalogue`.
    pub fn agent(
        self,
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        agent: Agent,
    ) -> Self {
        let name = name.into();
        let mut card = StepRunner::new(StepRunnerKind::Agent, description);
        card.judges = &*name == Team::QA;
        self.performer(name, card, agent)
    }

    /// Adds an agent, with all that plans are to know of it.
    pub fn performer(mut self, name: impl Into<Arc<str>>, card: StepRunner, agent: Agent) -> Self {
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

    /// Adds a function of the program.
    pub fn function(mut self, name: impl Into<Arc<str>>, function: impl Into<Function>) -> Self {
        self.functions.push((name.into(), function.into()));
        self
    }

    /// Adds a tool, for steps and for code.
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools = self.tools.tool(tool);
        self
    }

    /// Adds tools.
    pub fn tools(mut self, tools: impl Toolbox) -> Self {
        self.tools = self.tools.tools(tools);
        self
    }

    /// Adds a changing set of tools.
    pub fn source(mut self, source: impl ToolSource + 'static) -> Self {
        self.tools = self.tools.source(source);
        self
    }

    /// Says which tools steps may call, and which are asked about. Agents have policies of their
    /// own.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Runs code of steps and of agents, such as `levity_python::RunPython`. The tools that code
    /// calls are the team's.
    pub fn code(mut self, program: impl Program + 'static) -> Self {
        self.code = Some(Arc::new(program));
        self
    }

    /// Makes plans in place of an agent.
    pub fn planner(mut self, planner: impl TeamPlanner + 'static) -> Self {
        self.planner = Some(Arc::new(planner));
        self
    }

    /// Answers questions about plans and about tools of steps.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Asks a person about every plan, and every change of one, before it is carried out.
    pub fn approve_plans(mut self) -> Self {
        self.settings.approve = true;
        self
    }

    /// How many steps may run at a time; 16 by default.
    pub fn max_parallel(mut self, steps: usize) -> Self {
        self.settings.parallel = steps;
        self
    }

    /// How many times a plan may be changed when steps fail; 3 by default.
    pub fn max_replans(mut self, times: u32) -> Self {
        self.settings.replans = times;
        self
    }

    /// How often the planner is asked for the same thing, before what it gives can be used; 3 by
    /// default.
    pub fn max_drafts(mut self, times: u32) -> Self {
        self.settings.drafts = times;
        self
    }

    /// How many turns an attempt at a step may take, all rounds together, before it gets no other
    /// round; 15 by default. Within a round an agent has the turns that it was built with.
    pub fn max_turns(mut self, turns: u64) -> Self {
        self.settings.turns = turns;
        self
    }

    /// How many steps a plan may have; [`PlanConstraints::MAX_STEPS`] by default.
    pub fn max_steps(mut self, steps: usize) -> Self {
        self.max_steps = Some(steps);
        self
    }

    /// What a run may use, all its steps together; by default [`Limits::new`] with
    /// [`Team::DEFAULT_TOOL_CALLS`], since functions count as tools.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Has this guard look at what goes in and out of all agents, the planner included, behind the
    /// guards that they have themselves; and at the steps of plans that call a tool or a function:
    /// at what these are given and what they return. Agents that an agent calls have their own.
    ///
    /// What an agent is asked is its input: a task with the goal and what came before in it. The
    /// goal itself stays in the team's journal as it was; `docs/guards.md` says how to have it
    /// looked at before.
    pub fn guard(mut self, guard: impl Guard + 'static) -> Self {
        self.guards.push(Arc::new(guard));
        self
    }

    /// What drives its runs; by default one that keeps no journal.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Builds the team.
    ///
    /// # Errors
    /// When two of its members have one name, or a setting makes no sense.
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
        let agents = join_agents(&mut known, self.agents, &self.guards)?;
        let functions = join_functions(&mut known, self.functions)?;
        join_tools(&mut known, &registry)?;
        let planner = match &self.planner {
            Some(_) => Some(PlannedBy::Program),
            None => agents
                .contains_key(Team::PLANNER)
                .then(|| PlannedBy::Agent(Team::PLANNER.into())),
        };
        let code: Option<Arc<str>> = self
            .code
            .as_ref()
            .map(|code| code.spec().name.as_str().into());
        let is_taken =
            |name: &&Arc<str>| known.performers.contains_key(*name) || agents.contains_key(*name);
        if let Some(name) = code.as_ref().filter(is_taken) {
            return Err(taken(name));
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
                "is 0, so no step could begin; 1 runs one at a time",
            ),
            Settings { drafts: 0, .. } => {
                zero("max_drafts", "is 0, so no plan could be made; 1 asks once")
            }
            Settings { turns: 0, .. } => zero(
                "max_turns",
                "is 0, so no agent could answer; 1 lets it answer at once",
            ),
            _ => Ok(()),
        }
    }
}

/// The agents that have the program which runs code for the team: code that they answer with calls
/// their tools.
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

fn taken(name: &str) -> Error {
    let problem =
        format!("is used twice: `{name}` is an agent, a function or a tool already; rename one");
    Error::Setting {
        setting: "name",
        problem,
    }
}

fn join(known: &mut PlanConstraints, name: Arc<str>, card: StepRunner) -> Result<()> {
    if &*name == PLAN || known.performers.contains_key(&name) {
        return Err(taken(&name));
    }
    known.performers.insert(name, card);
    Ok(())
}

fn join_agents(
    known: &mut PlanConstraints,
    agents: Vec<(Arc<str>, StepRunner, Agent)>,
    guards: &[Arc<dyn Guard>],
) -> Result<BTreeMap<Arc<str>, Agent>> {
    let mut all = BTreeMap::new();
    for (name, card, agent) in agents {
        if &*name != Team::PLANNER {
            join(known, name.clone(), card)?;
        }
        if all.insert(name.clone(), guarded(agent, guards)?).is_some() {
            return Err(taken(&name));
        }
    }
    Ok(all)
}

/// An agent with the guards of the whole behind its own.
fn guarded(agent: Agent, guards: &[Arc<dyn Guard>]) -> Result<Agent> {
    if guards.is_empty() {
        return Ok(agent);
    }
    let with = |builder: AgentBuilder, guard: &Arc<dyn Guard>| builder.guard(guard.clone());
    let builder = guards.iter().fold(agent.to_builder(), with);
    builder.build()
}

fn join_functions(
    known: &mut PlanConstraints,
    functions: Vec<(Arc<str>, Function)>,
) -> Result<BTreeMap<String, Function>> {
    let mut all = BTreeMap::new();
    for (name, function) in functions {
        join(
            known,
            name.clone(),
            StepRunner::new(StepRunnerKind::Function, function.description.clone()),
        )?;
        all.insert(name.to_string(), function);
    }
    Ok(all)
}

fn join_tools(known: &mut PlanConstraints, registry: &Registry) -> Result<()> {
    registry.specs().iter().try_for_each(|spec| {
        let card = StepRunner::new(StepRunnerKind::Tool, spec.description.as_str());
        join(known, spec.name.as_str().into(), card)
    })
}

impl fmt::Debug for TeamBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TeamBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
