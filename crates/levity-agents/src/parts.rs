//! The parts of agents: whatever a config can name but not create.
//!
//! A config is data and may be untrusted; models, tools, servers and programs are code of the
//! program. The separation lets the same catalogue run in a test with a scripted model and in
//! production with a real one. Parts are cheap to clone, since everything in them is shared.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::text::bare_model_name;
use levity_core::{
    Approver, ContextSource, Limits, Model, Program, Tool, ToolSource, ToolSpec, Toolbox,
    WorkspaceSource,
};
use levity_loop::AgentBuilder;
use levity_runtime::Runtime;
use levity_tools::{Policy, Registry};

use crate::catalogue::{CatalogueEntry, CatalogueError};

/// The models, tools and servers from which a [`Catalogue`](crate::Catalogue) builds agents.
///
/// ```
/// use levity_core::{Tool, ToolCx, ToolOutput, ToolSpec};
/// use levity_agents::{Catalogue, CatalogueEntry, AgentParts};
/// use levity_test::{RecordingTool, ScriptedModel};
///
/// let weather = RecordingTool::new("weather", |_| Ok(ToolOutput::text("rain")));
/// let parts = AgentParts::new(ScriptedModel::new())
///     .models(|name| match name {
///         "small" => Ok(std::sync::Arc::new(ScriptedModel::new())),
///         _ => Err("there is no such model".to_owned()),
///     })
///     .tool(weather);
/// let forecaster = CatalogueEntry::new("Forecaster", "Tell the weather.");
/// let agents = Catalogue::empty().with(forecaster.models(["small"]).tools(["weather"]));
/// assert!(agents.build("Forecaster", &parts).is_ok());
/// ```
///
/// An agent gets the tools and servers that its entry names: one by one, or by `*` and
/// `*:read_only`. Use [`Catalogue::unused`](crate::Catalogue::unused) to find parts that no agent
/// gets.
///
/// Add MCP servers by name, each as a source of tools. With `levity_mcp::Servers`, write:
///
/// ```text
/// for server in servers.all() {
///     parts = parts.server(server.name(), servers.only([server.name()]));
/// }
/// ```
#[derive(Clone)]
#[must_use = "parts do nothing until an agent is built from them"]
pub struct AgentParts {
    pub(crate) model: Arc<dyn Model>,
    models: Vec<Arc<FindModel>>,
    pub(crate) servers: BTreeMap<Arc<str>, Arc<dyn ToolSource>>,
    pub(crate) tools: BTreeMap<Arc<str>, Arc<dyn Tool>>,
    code: Option<Arc<MakeProgram>>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) policy: Policy,
    pub(crate) runtime: Runtime,
    pub(crate) context: Vec<Arc<dyn ContextSource>>,
    pub(crate) limits: Limits,
    pub(crate) finish: Option<Arc<Finish>>,
    pub(crate) workspace: Option<Arc<dyn WorkspaceSource>>,
}

/// A lookup of a model by name; the error states why there is none.
type FindModel = dyn Fn(&str) -> Result<Arc<dyn Model>, String> + Send + Sync;
/// A function that creates the Python program for an agent with these tools.
type MakeProgram = dyn Fn(&[ToolSpec]) -> Arc<dyn Program> + Send + Sync;
/// A function that changes the builder of an agent, by the agent's name.
type Finish = dyn Fn(&str, AgentBuilder) -> AgentBuilder + Send + Sync;

impl AgentParts {
    /// Creates parts with this model for agents that name no model.
    ///
    /// Without further parts, agents have no tools, the default policy and a runtime without a
    /// journal.
    pub fn new(model: impl Model + 'static) -> Self {
        Self {
            model: Arc::new(model),
            models: Vec::new(),
            servers: BTreeMap::new(),
            tools: BTreeMap::new(),
            code: None,
            approver: None,
            policy: Policy::new(),
            runtime: Runtime::new(),
            context: Vec::new(),
            limits: Limits::new(),
            finish: None,
            workspace: None,
        }
    }

    /// Sets a lookup of models by name: `levity_llm::Models::model_named_in`, or your own table.
    /// Its error states why there is no such model. If you set several, the first that knows a name
    /// is used.
    ///
    /// The names come from the files of the catalogue, which may be untrusted. `model_named_in`
    /// sends no key to an address in a name.
    pub fn models(
        mut self,
        find: impl Fn(&str) -> Result<Arc<dyn Model>, String> + Send + Sync + 'static,
    ) -> Self {
        self.models.push(Arc::new(find));
        self
    }

    /// Adds a model by name.
    ///
    /// ```
    /// use levity_agents::{AgentParts, Catalogue, CatalogueEntry};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let parts = AgentParts::new(ScriptedModel::new())
    ///     .named_model("large", ScriptedModel::new().reply("from the large one"));
    /// let poet = CatalogueEntry::new("Poet", "Write poems.").models(["huge", "large"]);
    /// let poet = Catalogue::empty().with(poet).build("Poet", &parts)?;
    /// assert_eq!(poet.run("A poem, please.").await?.text(), "from the large one");
    /// # Ok(())
    /// # }
    /// ```
    pub fn named_model(self, name: impl Into<String>, model: impl Model + 'static) -> Self {
        let (name, model): (String, Arc<dyn Model>) = (name.into(), Arc::new(model));
        self.models(move |wanted| match wanted == name {
            true => Ok(model.clone()),
            false => Err(format!("it is not named `{name}`")),
        })
    }

    /// Adds an MCP server by name, or replaces the one with the same name.
    ///
    /// The tools are read when an agent needs them, so a server may start later.
    pub fn server(mut self, name: impl Into<Arc<str>>, tools: impl ToolSource + 'static) -> Self {
        self.servers.insert(name.into(), Arc::new(tools));
        self
    }

    /// Adds a tool, or replaces the one with the same name.
    ///
    /// An agent gets it only if its entry names it or has a pattern:
    ///
    /// ```
    /// use levity_agents::{AgentParts, Catalogue};
    /// use levity_core::ToolOutput;
    /// use levity_test::{RecordingTool, ScriptedModel};
    ///
    /// let weather = RecordingTool::new("weather", |_| Ok(ToolOutput::text("rain")));
    /// let parts = AgentParts::new(ScriptedModel::new()).tool(weather);
    /// assert!(format!("{parts:?}").contains("weather"));
    /// assert!(Catalogue::defaults().build("Coder", &parts).is_ok());
    /// ```
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        let tool: Arc<dyn Tool> = Arc::new(tool);
        self.tools(vec![tool])
    }

    /// Adds the tools of a toolbox: an `impl` block under `#[tool]`, or a list.
    ///
    /// If the toolbox has a workspace, such as `FileTools`, all agents report the files of it that
    /// their calls change.
    pub fn tools(mut self, tools: impl Toolbox) -> Self {
        self.workspace = self.workspace.or_else(|| tools.workspace());
        let tools = tools.into_tools();
        self.tools.extend(
            tools
                .into_iter()
                .map(|tool| (tool.spec().name.as_str().into(), tool)),
        );
        self
    }

    /// Adds the current tools of a registry.
    ///
    /// Tools that are registered later are not included.
    pub fn registry(self, registry: &Registry) -> Self {
        let tools: Vec<_> = registry
            .specs()
            .iter()
            .filter_map(|spec| registry.get(&spec.name))
            .collect();
        self.tools(tools)
    }

    /// Sets the program that runs Python for agents with that permission, such as
    /// `levity_python::RunPython`.
    pub fn code(self, program: impl Program + 'static) -> Self {
        let program: Arc<dyn Program> = Arc::new(program);
        self.code_with(move |_| program.clone())
    }

    /// Sets a function that creates the Python program for each agent. Use it if code calls tools,
    /// because the program must know the tools of the agent. The tools of servers are read when the
    /// agent is built. For example:
    /// `.code_with(|tools| Arc::new(RunPython::new().specs(tools.to_vec())))`.
    pub fn code_with(
        mut self,
        make: impl Fn(&[ToolSpec]) -> Arc<dyn Program> + Send + Sync + 'static,
    ) -> Self {
        self.code = Some(Arc::new(make));
        self
    }

    /// Sets the approver of calls that the policy does not allow automatically. It also answers the
    /// agents' questions to the user. By default, the holder of the run's handle does both.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Sets the policy that allows, denies or requires approval for calls.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the runtime that drives the runs, with its journal and clock.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// Adds a context source, whose blocks precede each agent's prompt.
    pub fn context(mut self, source: impl ContextSource + 'static) -> Self {
        self.context.push(Arc::new(source));
        self
    }

    /// Sets the limits of a run; the limits of an agent's entry apply as well.
    ///
    /// The lower value of both applies to each limit.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets a function that changes each agent by name before it is built, for settings that an
    /// entry does not have.
    ///
    /// ```
    /// use levity_agents::{AgentParts, Catalogue, CatalogueEntry};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().reply("Roses are red.");
    /// let parts = AgentParts::new(model.clone()).customize(|name, agent| match name {
    ///     "Poet" => agent.instructions("Write short poems."),
    ///     _ => agent,
    /// });
    /// let agents = Catalogue::empty().with(CatalogueEntry::new("Poet", "Write poems."));
    /// agents.build("Poet", &parts)?.run("A poem, please.").await?;
    /// assert!(model.requests()[0].system.as_ref().unwrap().contains("short poems"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn customize(
        mut self,
        last: impl Fn(&str, AgentBuilder) -> AgentBuilder + Send + Sync + 'static,
    ) -> Self {
        self.finish = Some(Arc::new(last));
        self
    }

    /// Returns `true` if there is a program that runs Python.
    pub(crate) fn has_code(&self) -> bool {
        self.code.is_some()
    }

    /// Creates the program that runs Python next to these tools.
    pub(crate) fn program(&self, tools: &[ToolSpec]) -> Option<Arc<dyn Program>> {
        self.code.as_ref().map(|make| make(tools))
    }

    /// Finds the model with this name.
    ///
    /// # Errors
    /// Returns the reason of the last lookup, or that none is set.
    pub(crate) fn find_model(&self, name: &str) -> Result<Arc<dyn Model>, String> {
        let mut reason = "no lookup of models by name is set".to_owned();
        for find in &self.models {
            match find(name) {
                Ok(model) => return Ok(model),
                Err(problem) => reason = problem,
            }
        }
        Err(reason)
    }

    /// Returns the first available model of an agent.
    ///
    /// # Errors
    /// Lists the reason for each named model, without the secret parts of addresses.
    pub(crate) fn model_of(
        &self,
        entry: &CatalogueEntry,
    ) -> Result<Arc<dyn Model>, CatalogueError> {
        if entry.models.is_empty() {
            return Ok(self.model.clone());
        }
        let mut reasons = Vec::new();
        for name in &entry.models {
            match self.find_model(name) {
                Ok(model) => return Ok(model),
                Err(problem) => {
                    reasons.push(format!(
                        "`{}`: {problem}",
                        levity_dag::__private::short(&bare_model_name(name))
                    ));
                }
            }
        }
        let problem = format!(
            "{}; name another model, or omit `model` to use the default one",
            reasons.join("; ")
        );
        Err(CatalogueError::Model {
            agent: entry.name.clone(),
            problem,
        })
    }
}

/// Creates parts with this model, without tools.
impl<M: Model + 'static> From<M> for AgentParts {
    fn from(model: M) -> Self {
        Self::new(model)
    }
}

impl fmt::Debug for AgentParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentParts")
            .field("model", &self.model.card().id)
            .field("servers", &self.servers.keys())
            .field("tools", &self.tools.keys())
            .field("code", &self.has_code())
            .finish_non_exhaustive()
    }
}
