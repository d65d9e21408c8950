//! The settings of an agent, and their defaults.
//!
//! Setters cannot fail. [`AgentBuilder::build`] checks all settings together and names the one to
//! change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Approver, ContextSource, Limits, MemoryStore, Model, Options, Program, Resolver, ToolSpec,
    WorkspaceSource, WorkspaceView,
};
use levity_memory::{Conversations, Window};
use levity_runtime::Runtime;
use levity_tools::{Policy, Registry, RegistryBuilder};

use crate::agent::Agent;
use crate::guards::Guards;
use crate::spec::AgentSpec;
use crate::strategy::{LowBudgetAction, Planner, Reflector};

mod build;
mod safety;
mod tools;

/// Builds an [`Agent`]. Every setting except the model has a default.
///
/// Agents built from a clone share models, tools, memory and approver with agents built from the
/// original. Each agent counts its own [concurrent calls](Self::max_concurrent_tools).
///
/// ```
/// use std::time::Duration;
///
/// use levity_core::{Limits, Money};
/// use levity_loop::Agent;
/// use levity_test::ScriptedModel;
///
/// let agent = Agent::builder(ScriptedModel::new())
///     .name("researcher")
///     .instructions("Answer in one sentence.")
///     .max_turns(8)
///     .limits(Limits::new().money(Money::from_dollars(0.5)))
///     .model_timeout(Duration::from_secs(60))
///     .build()?;
/// assert_eq!(agent.name(), Some("researcher"));
/// # Ok::<(), levity_core::Error>(())
/// ```
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
    /// The tools that are signals, each with `true` if it ends the run.
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
    memory: Option<ConversationStorage>,
    window: Option<Window>,
}

/// The place where conversations are stored.
///
/// A bare store gets the default settings and the clock of the agent's runtime when the agent is
/// built.
#[derive(Clone)]
enum ConversationStorage {
    Store(Arc<dyn MemoryStore>),
    Conversations(Conversations),
}

impl AgentBuilder {
    /// The default timeout of a model call: 10 minutes.
    pub const DEFAULT_MODEL_TIMEOUT: Duration = Duration::from_secs(600);
    /// The default timeout of a guard for one check: 60 seconds.
    pub const DEFAULT_GUARD_TIMEOUT: Duration = Guards::DEFAULT_TIMEOUT;
    /// The default limit on the tokens of all context sources: 8,000.
    pub const DEFAULT_CONTEXT_BUDGET: usize = 8_000;
    /// The default number of tools above which tools of sources are searched: 40.
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

    /// Replaces the model that the builder was created with.
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

    /// Sets the system instructions of the model; none by default.
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_test::ScriptedModel;
    /// let agent = Agent::builder(ScriptedModel::new())
    ///     .instructions("You are a librarian. Answer in one sentence.")
    ///     .build()?;
    /// # Ok::<(), levity_core::Error>(())
    /// ```
    pub fn instructions(mut self, text: impl Into<Arc<str>>) -> Self {
        self.spec.instructions = Some(text.into());
        self
    }

    /// Sets the name of the agent in traces; none by default. As a delegate of another agent, it
    /// goes by the name that it has there.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the maximum number of turns of a run; 10 by default.
    ///
    /// The last turn is announced to the model, has no tools and gives a best-effort answer.
    ///
    /// ```
    /// use levity_core::ToolOutput;
    /// use levity_loop::Agent;
    /// use levity_test::{RecordingTool, ScriptedModel};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let look = RecordingTool::new("look", |_| Ok(ToolOutput::text("a shed")));
    /// let model = ScriptedModel::new().call("look", json!({})).reply("I saw a shed.");
    /// let agent = Agent::builder(model).tool(look).max_turns(2).build()?;
    /// let answer = agent.run("Look around for as long as you can.").await?;
    /// assert_eq!(answer.text(), "I saw a shed.");
    /// assert!(answer.is_best_effort()); // it had to answer in its last turn
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_turns(mut self, turns: u64) -> Self {
        self.spec.max_turns = turns;
        self
    }

    /// Sets the limits that a run and its children share.
    ///
    /// ```
    /// use levity_core::{Limits, Money};
    /// use levity_loop::Agent;
    /// use levity_test::ScriptedModel;
    ///
    /// let limits = Limits::new().money(Money::from_dollars(0.25)).tool_calls(20);
    /// let agent = Agent::builder(ScriptedModel::new()).limits(limits).build()?;
    /// # Ok::<(), levity_core::Error>(())
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the planner of goals; no planning by default.
    pub fn planner(mut self, planner: impl Planner + 'static) -> Self {
        self.spec.planner = Arc::new(planner);
        self
    }

    /// Sets the reflector that reviews each turn; no reflection by default.
    pub fn reflector(mut self, reflector: impl Reflector + 'static) -> Self {
        self.spec.reflector = Arc::new(reflector);
        self
    }

    /// Sets another model for a purpose: `planner`, `reflector`, `summariser`, or `cheap` for
    /// [`LowBudgetAction::Switch`].
    pub fn model_for(mut self, slot: impl Into<String>, model: impl Model + 'static) -> Self {
        self.slots.insert(slot.into(), Arc::new(model));
        self
    }

    /// Sets the reaction once only [`Limits::low`] percent of the money or the tokens remain;
    /// [`LowBudgetAction::Answer`] by default.
    pub fn on_low_budget(mut self, low: LowBudgetAction) -> Self {
        self.spec.when_low = low;
        self
    }

    /// Sets options such as the temperature for every model call.
    pub fn options(mut self, options: Options) -> Self {
        self.spec.options = Arc::new(options);
        self
    }

    /// Sets how many times a typed answer of the wrong shape is retried; twice by default.
    pub fn output_retries(mut self, retries: u32) -> Self {
        self.spec.output_retries = retries;
        self
    }

    /// Adds a context source, whose blocks precede the instructions.
    pub fn context(mut self, source: impl ContextSource + 'static) -> Self {
        self.context.push(Arc::new(source));
        self
    }

    /// Gives the agent long-term memory of these scopes.
    ///
    /// The agent gets tools to remember, recall and forget facts, and known facts are shown beside
    /// each goal.
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_memory::{Recall, Scope};
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_core::Result<()> {
    /// let recall = Recall::in_memory()?;
    /// let user = Scope::user("u-17");
    /// recall.remember(&user, "Prefers tea to coffee.", "chat of Monday").await?;
    ///
    /// let model = ScriptedModel::new().reply("Tea.");
    /// let agent = Agent::builder(model.clone()).recall(&recall, [user]).build()?;
    /// agent.run("What should I bring to drink, tea or coffee?").await?;
    /// let sent = model.requests();
    /// assert!(sent[0].history.messages()[0].text().contains("Prefers tea to coffee."));
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "sqlite")]
    pub fn recall(
        self,
        recall: &levity_memory::Recall,
        scopes: impl IntoIterator<Item = levity_memory::Scope>,
    ) -> Self {
        let scopes: Vec<_> = scopes.into_iter().collect();
        self.tools(recall.tools(scopes.clone()))
            .context(recall.context(scopes))
    }

    /// Sets the limit on the tokens of all context sources together;
    /// [`DEFAULT_CONTEXT_BUDGET`](Self::DEFAULT_CONTEXT_BUDGET) by default.
    pub fn context_budget(mut self, tokens: usize) -> Self {
        self.context_budget = tokens;
        self
    }

    /// Sets the store for conversations; see
    /// [`Run::conversation`](levity_runtime::Run::conversation). They are not stored by default.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_memory::InMemory;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let model = ScriptedModel::new().reply("Hello Ada.").reply("Ada.");
    /// let agent = Agent::builder(model).memory(InMemory::new()).build()?;
    /// agent.run("I am Ada.").conversation("c1").await?;
    /// let answer = agent.run("Who am I?").conversation("c1").await?;
    /// assert_eq!(answer.history().len(), 4); // it remembers the first question
    /// # Ok(())
    /// # }
    /// ```
    pub fn memory(mut self, store: impl MemoryStore + 'static) -> Self {
        self.memory = Some(ConversationStorage::Store(Arc::new(store)));
        self
    }

    /// Sets the store for conversations together with its settings: their expiry and their maximum
    /// length.
    pub fn conversations(mut self, conversations: Conversations) -> Self {
        self.memory = Some(ConversationStorage::Conversations(conversations));
        self
    }

    /// Sets how much of a conversation the model is shown.
    ///
    /// By default it is as much as the context window holds, and the last 10 messages of earlier
    /// runs of a conversation. Messages that leave the window are summarised.
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_memory::Window;
    /// # use levity_test::ScriptedModel;
    /// let window = Window::new().tokens(8_000).messages(20);
    /// let agent = Agent::builder(ScriptedModel::new()).window(window).build();
    /// # assert!(agent.is_ok());
    /// ```
    pub fn window(mut self, window: Window) -> Self {
        self.window = Some(window);
        self
    }

    /// Disables summaries by a model: messages that leave the window are replaced by a list of
    /// short lines, one for each message.
    pub fn without_summaries(mut self) -> Self {
        self.spec.summaries = false;
        self
    }

    /// Sets the workspace for the agent's [`Context`](levity_core::Context), which stays as given.
    ///
    /// By default it is the folder of the agent's file tools, listed when
    /// [`AgentDetails::context`](crate::AgentDetails::context) is called.
    pub fn workspace(mut self, workspace: WorkspaceView) -> Self {
        self.spec.workspace = workspace;
        self
    }

    /// Sets the source that lists the files of the agent's folder, in place of its tools.
    ///
    /// ```
    /// use levity_core::{WorkspaceSource, WorkspaceView};
    /// use levity_loop::Agent;
    /// use levity_test::ScriptedModel;
    ///
    /// struct Listing;
    ///
    /// impl WorkspaceSource for Listing {
    ///     fn view_now(&self) -> WorkspaceView {
    ///         WorkspaceView::new("/project", ["notes.txt"])
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let model = ScriptedModel::new().reply("Tidy.");
    /// let agent = Agent::builder(model).workspace_source(Listing).build()?;
    /// assert_eq!(agent.run("Tidy up").await?.context().workspace.files, ["notes.txt"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn workspace_source(mut self, source: impl WorkspaceSource + 'static) -> Self {
        self.spec.workspace_source = Some(Arc::new(source));
        self
    }

    /// Sets the timeout of a model call; [`DEFAULT_MODEL_TIMEOUT`](Self::DEFAULT_MODEL_TIMEOUT) by
    /// default.
    pub fn model_timeout(mut self, time: Duration) -> Self {
        self.model_timeout = time;
        self
    }

    /// Replays each run when it has ended, and fails it if the replay differs.
    ///
    /// Use it in tests: it detects a planner or a reflector that is not deterministic before a
    /// crash does. A run without a journal is held in memory for the replay.
    pub fn verify_replay(mut self) -> Self {
        self.audit = true;
        self
    }

    /// Sets the runtime that drives the runs, with its journal and clock.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }
}

impl std::fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentBuilder")
            .field("model", &self.model.card().id)
            .finish_non_exhaustive()
    }
}
