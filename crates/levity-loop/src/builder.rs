use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Approver, ContextSource, Digest, Guard, Hints, Limits, MemoryStore, Model, Options, Permit, Program,
    Resolver, Tool, ToolChoice, ToolCx, ToolError, ToolOutput, ToolSource, ToolSpec, Toolbox, WorkspaceView,
    estimate_tokens,
};
use levity_memory::{Conversations, Window};
use levity_runtime::{MemoryJournal, Runtime};
use levity_tools::{Arguments, Dispatcher, Policy, Registry, RegistryBuilder};
use serde_json::{Value, json};

use crate::agent::{Agent, Inner};
use crate::asked;
use crate::error::{Error, Result};
use crate::executor::{AgentExecutor, CHEAP, Offered, SLOTS, SUMMARISER, ToolsDigest, ToolsWorst};
use crate::guards::{self, Guards, WhenGuardFails};
use crate::reads;
use crate::spec::{AgentSpec, SignalTool};
use crate::strategy::{Low, Planner, Reflector};
use crate::wait;

/// Puts an [`Agent`] together. Everything but the model has a default.
///
/// What is built of a clone shares models, tools, memory and approver with what is built of the original; each agent
/// counts its own [concurrent calls](Self::max_concurrent_tools).
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct AgentBuilder {
    model: Arc<dyn Model>,
    slots: BTreeMap<String, Arc<dyn Model>>,
    spec: AgentSpec,
    tools: RegistryBuilder,
    tool_count: usize,
    delegates: BTreeMap<String, Agent>,
    programs: BTreeMap<String, Arc<dyn Program>>,
    /// The tools that are signals, and whether a run ends with them.
    signals: Vec<(Arc<ToolSpec>, bool)>,
    policy: Policy,
    approver: Option<Arc<dyn Approver>>,
    resolver: Option<Arc<dyn Resolver>>,
    guards: Guards,
    limits: Limits,
    runtime: Runtime,
    context: Vec<Arc<dyn ContextSource>>,
    context_budget: usize,
    tool_timeout: Option<Duration>,
    model_timeout: Duration,
    max_output: Option<usize>,
    max_concurrent: Option<usize>,
    search_above: Option<usize>,
    audit: bool,
    name: Option<Arc<str>>,
    memory: Option<Keeps>,
    window: Option<Window>,
}

/// Where conversations are kept.
#[derive(Clone)]
enum Keeps {
    Store(Arc<dyn MemoryStore>),
    Conversations(Conversations),
}

impl AgentBuilder {
    /// How long a model may take for a reply: 10 minutes.
    pub const DEFAULT_MODEL_TIMEOUT: Duration = Duration::from_secs(600);
    /// How long a guard may look at one thing: 60 seconds.
    pub const DEFAULT_GUARD_TIMEOUT: Duration = Guards::DEFAULT_TIMEOUT;
    /// How many tokens of context the sources may give: 8,000.
    pub const DEFAULT_CONTEXT_BUDGET: usize = 8_000;
    /// With more tools than this, those of sources are searched: 40.
    pub const DEFAULT_SEARCH_ABOVE: usize = 40;

    pub(crate) fn new(model: Arc<dyn Model>) -> Self {
        Self {
            model,
            slots: BTreeMap::new(),
            spec: AgentSpec::default(),
            tools: Registry::builder(),
            tool_count: 0,
            delegates: BTreeMap::new(),
            programs: BTreeMap::new(),
            signals: Vec::new(),
            policy: Policy::new(),
            approver: None,
            resolver: None,
            guards: Guards::default(),
            limits: Limits::new(),
            runtime: Runtime::new(),
            context: Vec::new(),
            context_budget: Self::DEFAULT_CONTEXT_BUDGET,
            tool_timeout: None,
            model_timeout: Self::DEFAULT_MODEL_TIMEOUT,
            max_output: None,
            max_concurrent: None,
            search_above: Some(Self::DEFAULT_SEARCH_ABOVE),
            audit: cfg!(feature = "audit"),
            name: None,
            memory: None,
            window: None,
        }
    }

    /// Another model in place of the one that it was begun with.
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let agent = Agent::builder(ScriptedModel::new()).instructions("Be brief.").build()?;
    /// let other = agent.to_builder().model(ScriptedModel::new().reply("Yes.")).build()?;
    /// assert_eq!(other.run("Is it so?").await?.text(), "Yes.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn model(mut self, model: impl Model + 'static) -> Self {
        self.model = Arc::new(model);
        self
    }

    /// What the model is told before everything else; nothing by default.
    pub fn instructions(mut self, text: impl Into<Arc<str>>) -> Self {
        self.spec.instructions = Some(text.into());
        self
    }

    /// What the agent is called in traces; none by default. An agent that another hands work to goes by the name that it has
    /// there.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds a tool.
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tool_count += 1;
        self.tools = self.tools.tool(tool);
        self
    }

    /// Adds a tool under another name.
    pub fn tool_as(mut self, name: impl Into<String>, tool: impl Tool + 'static) -> Self {
        self.tool_count += 1;
        self.tools = self.tools.tool_as(name, tool);
        self
    }

    /// Adds the tools of a box: an `impl` block under `#[tool]`, or a list.
    pub fn tools(mut self, tools: impl Toolbox) -> Self {
        let tools = tools.into_tools();
        self.tool_count += tools.len();
        self.tools = self.tools.tools(tools);
        self
    }

    /// Adds every `#[tool]` function that is linked into the program and whose name does not begin with
    /// `_`.
    pub fn linked_tools(mut self) -> Self {
        self.tool_count += 1;
        self.tools = self.tools.linked();
        self
    }

    /// Adds a set of tools that may change while the agent runs.
    pub fn source(mut self, source: impl ToolSource + 'static) -> Self {
        self.tool_count += 1;
        self.tools = self.tools.source(Arc::new(source));
        self
    }

    /// With more tools than this, the model is not told of all of them in every request: it is told of those that were added one by
    /// one, and finds those of [sources](Self::source) by a tool `find_tools`. What it has found or called is offered from
    /// then on. [`DEFAULT_SEARCH_ABOVE`](Self::DEFAULT_SEARCH_ABOVE) by default.
    pub fn tool_search(mut self, above: usize) -> Self {
        self.search_above = Some(above);
        self
    }

    /// Tells the model of all tools in every request, however many there are.
    pub fn without_tool_search(mut self) -> Self {
        self.search_above = None;
        self
    }

    /// Lets this agent hand work to another one, which it calls like a tool. The other one's runs are
    /// children of this one's: in the same event stream, within the same limits, ended with it. It asks its
    /// own approver, or whoever holds the handle of the run.
    pub fn agent(mut self, name: impl Into<String>, description: impl Into<String>, agent: Agent) -> Self {
        let name = name.into();
        let spec = ToolSpec::new(name.clone(), description)
            .with_hints(Hints::new().parallel())
            .with_input(json!({
                "type": "object",
                "properties": {"task": {
                    "type": "string",
                    "description": "What to do, with everything needed to do it: the agent knows nothing else.",
                }},
                "required": ["task"],
                "additionalProperties": false,
            }));
        self = self.tool(Loops::new(spec));
        self.spec.delegates.insert(name.clone());
        self.delegates.insert(name, agent);
        self
    }

    /// Adds a tool whose calls are runs of their own, such as code that calls other tools. What it calls goes through
    /// this agent's policy, limits and journal.
    pub fn program(mut self, program: impl Program + 'static) -> Self {
        let program: Arc<dyn Program> = Arc::new(program);
        let name = program.spec().name.clone();
        self = self.tool(Loops::program(program.clone()));
        self.spec.delegates.insert(name.clone());
        self.programs.insert(name, program);
        self
    }

    /// Which calls are allowed, asked about or denied; by default, what may destroy something is asked
    /// about.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Who is asked about calls that policy does not allow by itself; by default, whoever holds the
    /// handle of a started run.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Who finds out what came of calls that were under way when a process ended; nobody by default, and the
    /// model is told that it is not known.
    pub fn resolver(mut self, resolver: impl Resolver + 'static) -> Self {
        self.resolver = Some(Arc::new(resolver));
        self
    }

    /// Has this guard look at what goes in and out: what people say, calls, results, replies. Of several, each sees what
    /// the one before made of it. None by default, and an agent without any pays nothing for it.
    ///
    /// While a guard watches replies, they are told in one piece once it has let them pass.
    ///
    /// ```
    /// use levity_loop::{Agent, SecretGuard};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let model = ScriptedModel::new().reply("It is sk-0123456789abcdef.");
    /// let agent = Agent::builder(model).guard(SecretGuard::new()).build()?;
    /// assert_eq!(agent.run("What is the key?").await?.text(), "It is [secret: api key].");
    /// # Ok(())
    /// # }
    /// ```
    pub fn guard(mut self, guard: impl Guard + 'static) -> Self {
        self.guards.all.push(Arc::new(guard));
        self
    }

    /// How long a guard may look at one thing; [`DEFAULT_GUARD_TIMEOUT`](Self::DEFAULT_GUARD_TIMEOUT) by default.
    pub fn guard_timeout(mut self, time: Duration) -> Self {
        self.guards.timeout = time;
        self
    }

    /// What becomes of a thing when a guard fails; [`WhenGuardFails::Block`] by default.
    pub fn when_guard_fails(mut self, then: WhenGuardFails) -> Self {
        self.guards.when_failing = then;
        self
    }

    /// Lets the model wait, by a tool `wait`, for at most `longest` at a time. A run that waits can be left
    /// in its journal; see [`Run::park`](crate::Run::park).
    pub fn waits(mut self, longest: Duration) -> Self {
        self.spec.longest_wait = Some(longest);
        self.tool(Loops::new(wait::spec(longest)))
    }

    /// Lets the model ask the user, by a tool `ask_user`: the run waits for an answer. The approver is asked, or
    /// whoever holds the handle of a started run, and answers with [`Decision::Answer`](levity_core::Decision::Answer);
    /// [`Ask::wanted`](levity_core::Ask::wanted) tells such a question from one for leave.
    ///
    /// ```
    /// use levity_core::{Approver, Ask, Decision, Wanted};
    /// use levity_loop::Agent;
    /// use levity_test::ScriptedModel;
    /// use serde_json::json;
    ///
    /// struct User;
    ///
    /// #[async_trait::async_trait]
    /// impl Approver for User {
    ///     async fn decide(&self, ask: &Ask) -> Decision {
    ///         match ask.wanted {
    ///             Wanted::Answer => Decision::answer("blue"),
    ///             _ => Decision::Allow,
    ///         }
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let model = ScriptedModel::new().call("ask_user", json!({"question": "Which colour?"})).reply("Blue it is.");
    /// let agent = Agent::builder(model).ask_user().approver(User).build()?;
    /// assert_eq!(agent.run("Paint the shed").await?.text(), "Blue it is.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn ask_user(mut self) -> Self {
        self.spec.asks_user = true;
        self.tool(Loops::new(asked::ask_spec()))
    }

    /// Lets the model end the run by a tool `finish`, for models that otherwise talk when they should work. A reply
    /// without calls still is an answer.
    pub fn finish_tool(mut self) -> Self {
        self.spec.finishes = true;
        self.tool(Loops::new(asked::finish_spec()))
    }

    /// Lets the model tell something to whoever runs it, by a tool of this spec: what it is called with is noted in
    /// [`Ending::signals`](levity_core::Ending::signals), the model is told so, and the run goes on. Nothing is
    /// performed, so no policy and no approver is asked.
    ///
    /// The arguments are checked against the schema, as for any tool. A run takes in 256 signals and 256 KiB of their
    /// arguments; beyond that the model is told that no more are taken.
    ///
    /// ```
    /// use levity_core::ToolSpec;
    /// use levity_loop::Agent;
    /// use levity_test::ScriptedModel;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let rate = ToolSpec::new("rate", "Says how sure you are.").with_input(json!({
    ///     "type": "object",
    ///     "properties": {"sure": {"type": "number"}},
    ///     "required": ["sure"],
    /// }));
    /// let model = ScriptedModel::new().call("rate", json!({"sure": 0.9})).reply("Paris.");
    /// let answer = Agent::builder(model).signal(rate).build()?.run("The capital of France?").await?;
    /// assert_eq!(answer.text(), "Paris.");
    /// assert_eq!(answer.signals()[0].args["sure"], 0.9);
    /// # Ok(())
    /// # }
    /// ```
    pub fn signal(self, spec: ToolSpec) -> Self {
        self.add_signal(spec, false)
    }

    /// As [`signal`](Self::signal), and the run ends with it: its answer is the text that stood beside the call, which
    /// may be empty, and is not held against a schema. It must be called alone; otherwise the model is told so.
    ///
    /// ```
    /// # use levity_core::ToolSpec;
    /// # use levity_loop::Agent;
    /// # use levity_test::ScriptedModel;
    /// # use serde_json::json;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let pass = ToolSpec::new("pass_on", "Hands the work to a colleague.");
    /// let model = ScriptedModel::new().call("pass_on", json!({}));
    /// let answer = Agent::builder(model).last_signal(pass).build()?.run("Cancel my order").await?;
    /// assert_eq!(&*answer.signals()[0].name, "pass_on");
    /// # Ok(())
    /// # }
    /// ```
    pub fn last_signal(self, spec: ToolSpec) -> Self {
        self.add_signal(spec, true)
    }

    fn add_signal(mut self, spec: ToolSpec, is_last: bool) -> Self {
        self.signals.push((Arc::new(spec.clone()), is_last));
        self.tool(Loops::new(spec))
    }

    /// How many turns a run may take; 10 by default. The last one is announced, has no tools and gives
    /// a best-effort answer.
    pub fn max_turns(mut self, turns: u64) -> Self {
        self.spec.max_turns = turns;
        self
    }

    /// How many tools the model may call in one turn; 64 by default.
    pub fn max_calls_per_turn(mut self, calls: usize) -> Self {
        self.spec.max_calls = calls;
        self
    }

    /// One call of one tool, and then the answer.
    pub fn single_tool(mut self) -> Self {
        self.spec.single_tool = true;
        self
    }

    /// What a run and its children may use together.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How the goal is planned; not at all by default.
    pub fn planner(mut self, planner: impl Planner + 'static) -> Self {
        self.spec.planner = Arc::new(planner);
        self
    }

    /// How each turn is looked back at; not at all by default.
    pub fn reflector(mut self, reflector: impl Reflector + 'static) -> Self {
        self.spec.reflector = Arc::new(reflector);
        self
    }

    /// Another model for a purpose: `planner`, `reflector`, `summariser`, or `cheap` for [`Low::Switch`].
    pub fn model_for(mut self, slot: impl Into<String>, model: impl Model + 'static) -> Self {
        self.slots.insert(slot.into(), Arc::new(model));
        self
    }

    /// What to do once only [`Limits::low`] percent of the money or the tokens are left;
    /// [`Low::Answer`] by default.
    pub fn when_low(mut self, low: Low) -> Self {
        self.spec.when_low = low;
        self
    }

    /// Temperature and the like, for every call of a model.
    pub fn options(mut self, options: Options) -> Self {
        self.spec.options = Arc::new(options);
        self
    }

    /// Which tool the first turn of a run may or must call; the model decides by default, and on later turns always
    /// does.
    ///
    /// ```
    /// # use levity_core::ToolChoice;
    /// # use levity_loop::Agent;
    /// # use levity_test::ScriptedModel;
    /// let agent = Agent::builder(ScriptedModel::new()).tool_choice(ToolChoice::Required).build();
    /// # assert!(agent.is_ok());
    /// ```
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.spec.tool_choice = choice;
        self
    }

    /// How often a typed answer of the wrong shape is asked for again; twice by default.
    pub fn output_retries(mut self, retries: u32) -> Self {
        self.spec.output_retries = retries;
        self
    }

    /// Adds what a source has to say before the instructions.
    pub fn context(mut self, source: impl ContextSource + 'static) -> Self {
        self.context.push(Arc::new(source));
        self
    }

    /// How many tokens of context the sources may give together;
    /// [`DEFAULT_CONTEXT_BUDGET`](Self::DEFAULT_CONTEXT_BUDGET) by default.
    pub fn context_budget(mut self, tokens: usize) -> Self {
        self.context_budget = tokens;
        self
    }

    /// Where conversations are kept; see [`Run::conversation`](crate::Run::conversation). Nowhere by default.
    pub fn memory(mut self, store: impl MemoryStore + 'static) -> Self {
        self.memory = Some(Keeps::Store(Arc::new(store)));
        self
    }

    /// Where conversations are kept, with settings of their own: when they expire, how long they may become.
    pub fn conversations(mut self, conversations: Conversations) -> Self {
        self.memory = Some(Keeps::Conversations(conversations));
        self
    }

    /// How much of a conversation the model is shown. By default it is what its context window has room for, and of
    /// earlier runs of a conversation the last 10 messages; what has left is summed up.
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_memory::Window;
    /// # use levity_test::ScriptedModel;
    /// let agent = Agent::builder(ScriptedModel::new()).window(Window::new().tokens(8_000).messages(20)).build();
    /// # assert!(agent.is_ok());
    /// ```
    pub fn window(mut self, window: Window) -> Self {
        self.window = Some(window);
        self
    }

    /// Asks no model for summaries: of what has left the window, a list of who said what is shown.
    pub fn without_summaries(mut self) -> Self {
        self.spec.summaries = false;
        self
    }

    /// Where the agent works, for its [`Context`](levity_core::Context).
    pub fn workspace(mut self, workspace: WorkspaceView) -> Self {
        self.spec.workspace = workspace;
        self
    }

    /// How long a tool may take that does not say so itself; 60 seconds by default.
    pub fn tool_timeout(mut self, time: Duration) -> Self {
        self.tool_timeout = Some(time);
        self
    }

    /// How many tool calls all runs of the agent may have under way at once; 1,024 by default. The others
    /// wait for their turn.
    pub fn max_concurrent_tools(mut self, calls: usize) -> Self {
        self.max_concurrent = Some(calls);
        self
    }

    /// How long a model may take for a reply;
    /// [`DEFAULT_MODEL_TIMEOUT`](Self::DEFAULT_MODEL_TIMEOUT) by default.
    pub fn model_timeout(mut self, time: Duration) -> Self {
        self.model_timeout = time;
        self
    }

    /// How many bytes of a tool's output the model is shown; 32 KiB by default. The whole is kept with the
    /// conversation, and the model can read it in pieces: 8 MiB of each output, 64 MiB in all, the newest.
    pub fn max_tool_output(mut self, bytes: usize) -> Self {
        self.max_output = Some(bytes);
        self
    }

    /// Folds each run again when it has ended, and fails it when it does not come out the same. That tells a
    /// planner or a reflector that is not deterministic, before a crash does; it is for tests. A run without a
    /// journal is kept in memory for it.
    pub fn audited(mut self) -> Self {
        self.audit = true;
        self
    }

    /// What drives the runs: its journal, its clock.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// Puts the agent together.
    ///
    /// # Errors
    /// When tools clash or their schemas make no sense, or a setting contradicts itself.
    pub fn build(mut self) -> Result<Agent> {
        self.check()?;
        self.spec.has_tools = self.tool_count > 0;
        if self.audit && !self.runtime.journal().keeps() {
            self.runtime = self.runtime.with_journal(MemoryJournal::new());
        }
        let world = self.runtime.world().clone();
        let conversations = self.memory.take().map(|memory| match memory {
            Keeps::Store(store) => Conversations::shared(store, world.clone()),
            Keeps::Conversations(conversations) => conversations,
        });
        self.memory = conversations.clone().map(Keeps::Conversations);
        let made_of = Arc::new(self.clone());
        self.set_window();
        let mut tools = Dispatcher::builder(self.tools.build()?, world.clone()).policy(self.policy);
        if let Some(time) = self.tool_timeout {
            tools = tools.timeout(time);
        }
        if let Some(bytes) = self.max_output {
            tools = tools.max_output(bytes);
        }
        if let Some(calls) = self.max_concurrent {
            tools = tools.max_concurrent(calls);
        }
        if let Some(above) = self.search_above {
            tools = tools.tool_search(above);
        }
        let tools = tools.build()?;
        self.spec.signals = signals(self.signals)?;
        self.spec.finder = tools.finder();
        self.spec.tool_tokens =
            tools.offer(&[]).iter().map(|spec| estimate_tokens(&json!(spec).to_string())).sum();
        self.spec.reader = tools.reader();
        self.spec.max_piece = tools.max_output() - reads::MARKER;
        let mut settings = self.spec.settings();
        if !self.guards.all.is_empty() {
            let names: Vec<String> = self.guards.all.iter().map(|guard| guards::name(&**guard)).collect();
            settings.push(("the guards".to_owned(), Digest::of(&names)));
        }
        let executor = Arc::new_cyclic(|me| AgentExecutor {
            me: me.clone(),
            model: self.model,
            slots: self.slots,
            tools,
            programs: self.programs,
            delegates: self.delegates,
            approver: self.approver,
            resolver: self.resolver,
            finishes: self.spec.finishes,
            guards: self.guards,
            settings,
            conversations,
            world,
            model_timeout: self.model_timeout,
            offered: Offered::default(),
            digest: ToolsDigest::default(),
            tools_worst: ToolsWorst::default(),
        });
        Ok(Agent::new(Inner {
            spec: Arc::new(self.spec),
            executor,
            runtime: self.runtime,
            limits: self.limits,
            context: self.context,
            context_budget: self.context_budget,
            audit: self.audit,
            name: self.name.clone(),
            made_of,
        }))
    }

    /// What the models have room for, beside their replies.
    fn set_window(&mut self) {
        let others = self.slots.iter().filter(|(slot, _)| *slot != SUMMARISER).map(|(_, model)| model);
        let models = std::iter::once(&self.model).chain(others);
        let most = models.filter_map(|model| room(&**model, self.spec.options.max_tokens)).min();
        let fit = |window: Window| match (window.max_tokens(), most) {
            (None, Some(most)) => window.tokens(most),
            _ => window,
        };
        self.spec.window = fit(self.window.clone().unwrap_or_else(|| Window::new().all_messages()));
        self.spec.talk_window = fit(self.window.clone().unwrap_or_default());
        let summariser = self.slots.get(SUMMARISER).unwrap_or(&self.model);
        if let Some(room) = room(&**summariser, None) {
            self.spec.summary_room = room / 2;
        }
    }

    fn check(&self) -> Result<()> {
        let wrong = |setting, problem: &str| Err(Error::Setting { setting, problem: problem.to_owned() });
        if self.spec.max_turns == 0 {
            return wrong("max_turns", "is 0, and an agent needs a turn to answer; set 1 or more");
        }
        if self.spec.max_calls == 0 {
            return wrong("max_calls_per_turn", "is 0; leave out the tools instead");
        }
        if self.spec.single_tool && self.tool_count == 0 {
            return wrong("single_tool", "is set and there is no tool; add one with `.tool(..)`");
        }
        if let Some(slot) = self.slots.keys().find(|slot| !SLOTS[1..].contains(&slot.as_str())) {
            let problem =
                format!("has no slot `{slot}`; there are `planner`, `reflector`, `summariser` and `cheap`");
            return wrong("model_for", &problem);
        }
        let cheap = self.slots.contains_key(CHEAP);
        if cheap && self.spec.when_low != Low::Switch {
            return wrong(
                "model_for",
                "has a `cheap` model that nothing calls; add `.when_low(Low::Switch)`",
            );
        }
        if !cheap && self.spec.when_low == Low::Switch {
            let problem = "is to switch, and there is nothing to switch to; add `.model_for(\"cheap\", ..)`";
            return wrong("when_low", problem);
        }
        Ok(())
    }
}

impl std::fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentBuilder").field("model", &self.model.card().id).finish_non_exhaustive()
    }
}

/// The tools that are signals, with what checks their arguments.
fn signals(specs: Vec<(Arc<ToolSpec>, bool)>) -> Result<BTreeMap<String, SignalTool>> {
    let tool = |(spec, is_last): (Arc<ToolSpec>, bool)| {
        let name = spec.name.clone();
        Ok((name, SignalTool { arguments: Arguments::new(spec)?, is_last }))
    };
    specs.into_iter().map(tool).collect()
}

/// What a model has room for in a request, with something to spare: counts are estimates until the provider has
/// counted.
fn room(model: &dyn Model, max_tokens: Option<u64>) -> Option<u64> {
    let card = model.card();
    let window = card.window?;
    let reply = max_tokens.or(card.max_output).unwrap_or(8_192).min(window / 4);
    Some((window - reply) / 20 * 19)
}

/// Shows among the tools what the loop does itself, before any dispatcher sees the call.
struct Loops {
    spec: ToolSpec,
    program: Option<Arc<dyn Program>>,
}

impl Loops {
    fn new(spec: ToolSpec) -> Self {
        Self { spec, program: None }
    }

    fn program(program: Arc<dyn Program>) -> Self {
        Self { spec: program.spec().clone(), program: Some(program) }
    }
}

#[async_trait]
impl Tool for Loops {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn permit(&self, args: &Value) -> Permit {
        self.program.as_ref().map_or(Permit::Allow, |program| program.permit(args))
    }

    async fn call(&self, _: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        Err(ToolError::failed("this is done by the loop, not called as a tool"))
    }
}
