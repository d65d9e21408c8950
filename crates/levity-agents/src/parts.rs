use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::text::bare_model_name;
use levity_core::{
    Approver, ContextSource, Limits, Model, Program, Tool, ToolSource, ToolSpec, Toolbox,
};
use levity_loop::AgentBuilder;
use levity_runtime::Runtime;
use levity_tools::{Policy, Registry};

use crate::catalogue::{CatalogEntry, CatalogueError};

/// What the agents of a [`Catalogue`](crate::Catalogue) are built of.
///
/// ```
/// use levity_core::{Tool, ToolCx, ToolOutput, ToolSpec};
/// use levity_agents::{Catalogue, CatalogEntry, AgentParts};
/// use levity_test::{RecordingTool, ScriptedModel};
///
/// let weather = RecordingTool::new("weather", |_| Ok(ToolOutput::text("rain")));
/// let parts = AgentParts::new(ScriptedModel::new())
///     .models(|name| match name {
///         "small" => Ok(std::sync::Arc::new(ScriptedModel::new())),
///         _ => Err("there is no such model".to_owned()),
///     })
///     .tool(weather);
/// let agents = Catalogue::empty().with(CatalogEntry::new("Forecaster", "Tell the weather.").models(["small"]).tools(["weather"]));
/// assert!(agents.build("Forecaster", &parts).is_ok());
/// ```
///
/// An agent has the tools and servers that its entry names: one by one, or by `*` and
/// `*:read_only`; [`Catalogue::unused`](crate::Catalogue::unused) says what no agent has. MCP
/// servers are given by name, each as a source of tools; from `levity_mcp::Servers`, that is
/// `for server in servers.all() { parts = parts.server(server.name(), servers.only([server.name()])) }`.
#[derive(Clone)]
#[must_use = "parts do nothing until an agent is built of them"]
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
}

type FindModel = dyn Fn(&str) -> Result<Arc<dyn Model>, String> + Send + Sync;
type MakeProgram = dyn Fn(&[ToolSpec]) -> Arc<dyn Program> + Send + Sync;
type Finish = dyn Fn(&str, AgentBuilder) -> AgentBuilder + Send + Sync;

impl AgentParts {
    /// With this model for agents that name none.
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
        }
    }

    /// How models are found by name: `levity_llm::Models::model_named_in`, or a table of your own.
    /// The error says why there is none. Of several, the first that knows a name is used.
    ///
    /// The names are from the catalogue's files, which may be a stranger's. `model_named_in` gives
    /// no key to an address in a name.
    pub fn models(
        mut self,
        find: impl Fn(&str) -> Result<Arc<dyn Model>, String> + Send + Sync + 'static,
    ) -> Self {
        self.models.push(Arc::new(find));
        self
    }

    /// Adds a model by name.
    pub fn model_as(self, name: impl Into<String>, model: impl Model + 'static) -> Self {
        let (name, model): (String, Arc<dyn Model>) = (name.into(), Arc::new(model));
        self.models(move |wanted| match wanted == name {
            true => Ok(model.clone()),
            false => Err(format!("it is not `{name}`")),
        })
    }

    /// Adds an MCP server by name; in place of one of the same name.
    pub fn server(mut self, name: impl Into<Arc<str>>, tools: impl ToolSource + 'static) -> Self {
        self.servers.insert(name.into(), Arc::new(tools));
        self
    }

    /// Adds a tool; in place of one of the same name.
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        let tool: Arc<dyn Tool> = Arc::new(tool);
        self.tools(vec![tool])
    }

    /// Adds the tools of a box: an `impl` block under `#[tool]`, or a list.
    pub fn tools(mut self, tools: impl Toolbox) -> Self {
        let tools = tools.into_tools();
        self.tools.extend(
            tools
                .into_iter()
                .map(|tool| (tool.spec().name.as_str().into(), tool)),
        );
        self
    }

    /// Adds the tools that a registry has now.
    pub fn registry(self, registry: &Registry) -> Self {
        let tools: Vec<_> = registry
            .specs()
            .iter()
            .filter_map(|spec| registry.get(&spec.name))
            .collect();
        self.tools(tools)
    }

    /// What runs Python for agents that may, such as `levity_python::RunPython`.
    pub fn code(self, program: impl Program + 'static) -> Self {
        let program: Arc<dyn Program> = Arc::new(program);
        self.code_with(move |_| program.clone())
    }

    /// What runs Python, made for each agent: code that is to call tools needs to know those that
    /// the agent has. What a server has is looked at when the agent is built. For example
    /// `.code_with(|tools| Arc::new(RunPython::new().specs(tools.to_vec())))`.
    pub fn code_with(
        mut self,
        make: impl Fn(&[ToolSpec]) -> Arc<dyn Program> + Send + Sync + 'static,
    ) -> Self {
        self.code = Some(Arc::new(make));
        self
    }

    /// Who is asked about calls that policy does not allow by itself, and answers what agents ask
    /// the user; by default, whoever holds the handle of the run.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Which calls are allowed, asked about or denied.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// What drives runs: its journal, its clock.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// Adds what a source has to say before each agent's prompt.
    pub fn context(mut self, source: impl ContextSource + 'static) -> Self {
        self.context.push(Arc::new(source));
        self
    }

    /// What a run of an agent may use; what its entry says comes on top.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The last word on each agent before it is built, with its name: for settings that an entry
    /// does not have.
    pub fn finish(
        mut self,
        last: impl Fn(&str, AgentBuilder) -> AgentBuilder + Send + Sync + 'static,
    ) -> Self {
        self.finish = Some(Arc::new(last));
        self
    }

    /// Whether there is something that runs Python.
    pub(crate) fn has_code(&self) -> bool {
        self.code.is_some()
    }

    /// What runs Python beside these tools.
    pub(crate) fn program(&self, tools: &[ToolSpec]) -> Option<Arc<dyn Program>> {
        self.code.as_ref().map(|make| make(tools))
    }

    /// The model of this name.
    pub(crate) fn find_model(&self, name: &str) -> Result<Arc<dyn Model>, String> {
        let mut why = "nothing here finds models by name".to_owned();
        for find in &self.models {
            match find(name) {
                Ok(model) => return Ok(model),
                Err(problem) => why = problem,
            }
        }
        Err(why)
    }

    /// The first of an agent's models that can be had.
    pub(crate) fn model_of(&self, entry: &CatalogEntry) -> Result<Arc<dyn Model>, CatalogueError> {
        if entry.models.is_empty() {
            return Ok(self.model.clone());
        }
        let mut why = Vec::new();
        for name in &entry.models {
            match self.find_model(name) {
                Ok(model) => return Ok(model),
                Err(problem) => {
                    why.push(format!(
                        "`{}`: {problem}",
                        levity_dag::__private::short(&bare_model_name(name))
                    ));
                }
            }
        }
        let problem = format!(
            "{}; name another, or leave `model` out for the default one",
            why.join("; ")
        );
        Err(CatalogueError::Model {
            agent: entry.name.clone(),
            problem,
        })
    }
}

/// Agents on this model, without tools.
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
