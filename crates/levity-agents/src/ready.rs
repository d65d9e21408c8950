//! Ready-made workers: a researcher, a coder and a reviewer.
//!
//! A worker is an ordinary agent with a prompt, tools and a policy for its role. The tools decide
//! on the text of the prompt and of the description, so that neither the model nor a router expects
//! more than there is. The reading roles are protected twice: they get only tools with the
//! read-only hint, and the first rule of their policy denies all others, including those that
//! `finish` adds.

use std::fmt;
use std::sync::Arc;

use levity_core::{Approver, Model, Result, Tool, ToolSource, Toolbox, WorkspaceSource};
use levity_loop::{Agent, AgentBuilder};
use levity_runtime::Runtime;
use levity_swarm::Worker;
use levity_tools::{Policy, Rule};

use crate::shared::{ReadOnly, Shared, only_reads};
use role::{Equipment, Role};

mod role;

/// Builds ready-made workers: a researcher, a coder and a reviewer, with prompts, tools and
/// policies.
///
/// ```
/// use levity_agents::PresetWorkers;
/// use levity_swarm::{Router, Swarm};
/// use levity_test::ScriptedModel;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (fast, careful) = (ScriptedModel::new(), ScriptedModel::new());
/// let ready = PresetWorkers::new(fast);
/// let swarm = Swarm::builder(Router::keywords())
///     .worker(ready.researcher()?)
///     .worker(ready.coder()?)
///     .worker(PresetWorkers::new(careful).reviewer()?)
///     .build()?;
/// assert_eq!(swarm.workers().collect::<Vec<_>>(), ["researcher", "coder", "reviewer"]);
/// # Ok(())
/// # }
/// ```
///
/// | | researcher | coder | reviewer |
/// |---|---|---|---|
/// | a workspace (`files`) | reads, lists, searches | and writes, edits | reads, lists, searches |
/// | commands (`commands`) | no | yes | no |
/// | the web (`web`) | fetches, searches | no | no |
/// | tools without the read-only hint | are denied | need approval if destructive | are denied |
/// | turns for a task | 20 | 40 | 20 |
///
/// Without tools, the workers use only the task and their own knowledge. Their prompts and
/// descriptions promise no more than that.
#[derive(Clone)]
#[must_use = "call `coder`, `reviewer`, `researcher` or `all` to build workers"]
pub struct PresetWorkers {
    model: Arc<dyn Model>,
    files: Vec<Arc<dyn Tool>>,
    commands: Option<Arc<dyn Tool>>,
    fetch: Option<Arc<dyn Tool>>,
    search: Option<Arc<dyn Tool>>,
    more: Vec<Arc<dyn Tool>>,
    rules: Vec<Rule>,
    approver: Option<Arc<dyn Approver>>,
    runtime: Option<Runtime>,
    sources: Vec<Arc<dyn ToolSource>>,
    finish: Vec<Arc<Finish>>,
    workspace: Option<Arc<dyn WorkspaceSource>>,
}

/// A function that changes the builder of a worker, by the worker's name.
type Finish = dyn Fn(&str, AgentBuilder) -> AgentBuilder + Send + Sync;

impl PresetWorkers {
    /// Creates workers with this model, without tools.
    ///
    /// The example shows the effect of a tool without the read-only hint:
    ///
    /// ```
    /// use levity_agents::PresetWorkers;
    /// use levity_core::ToolOutput;
    /// use levity_core::Tool;
    /// use levity_test::{RecordingTool, ScriptedModel};
    /// use std::sync::Arc;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let deploy: Arc<dyn Tool> =
    ///     Arc::new(RecordingTool::new("deploy", |_| Ok(ToolOutput::text("done"))));
    /// let ready = PresetWorkers::new(ScriptedModel::new()).tools(vec![deploy]);
    /// assert_eq!(
    ///     format!("{ready:?}"),
    ///     r#"PresetWorkers { researcher: [], coder: ["deploy"], reviewer: [], .. }"#
    /// );
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(model: impl Model + 'static) -> Self {
        Self {
            model: Arc::new(model),
            files: Vec::new(),
            commands: None,
            fetch: None,
            search: None,
            more: Vec::new(),
            rules: Vec::new(),
            approver: None,
            runtime: None,
            sources: Vec::new(),
            finish: Vec::new(),
            workspace: None,
        }
    }

    /// Sets the workspace. The coder writes its files unless it is read-only; the others read them.
    #[cfg(feature = "files")]
    pub fn workspace(mut self, workspace: levity_sandbox::Workspace) -> Self {
        let files = levity_builtin_tools::FileTools::new(workspace);
        self.workspace = files.workspace();
        self.files = files.into_tools();
        self
    }

    /// Sets the tool with which the coder runs commands.
    #[cfg(feature = "commands")]
    pub fn commands(mut self, tool: levity_builtin_tools::RunCommand) -> Self {
        self.commands = Some(Arc::new(tool));
        self
    }

    /// Sets the tool with which the researcher fetches pages.
    #[cfg(feature = "web")]
    pub fn web(mut self, tool: levity_builtin_tools::WebFetch) -> Self {
        self.fetch = Some(Arc::new(tool));
        self
    }

    /// Sets the tool with which the researcher searches the web.
    #[cfg(feature = "web")]
    pub fn web_search(mut self, tool: levity_builtin_tools::WebSearch) -> Self {
        self.search = Some(Arc::new(tool));
        self
    }

    /// Adds tools: all of them for the coder, and those with the read-only hint for the others.
    pub fn tools(mut self, tools: impl Toolbox) -> Self {
        self.more.extend(tools.into_tools());
        self
    }

    /// Adds a set of tools that may change at run time, with the same rules as
    /// [`tools`](Self::tools).
    pub fn source(mut self, source: impl ToolSource + 'static) -> Self {
        self.sources.push(Arc::new(source));
        self
    }

    /// Adds a policy rule for all workers. It cannot allow the researcher or the reviewer to change
    /// anything.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets the approver of calls that need approval; by default, the holder of the run's handle.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Sets the runtime that provides the time for tools; in a swarm, the swarm's runtime drives
    /// the runs.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Adds a function that receives the name and the builder of each worker, and can change the
    /// worker before it is built. A tool added here without the read-only hint is still denied to
    /// the researcher and the reviewer, unless you also replace their policy. Several functions
    /// apply one after the other.
    ///
    /// ```
    /// use levity_agents::PresetWorkers;
    /// use levity_test::ScriptedModel;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let coder = PresetWorkers::new(ScriptedModel::new())
    ///     .customize(|name, agent| if name == "coder" { agent.max_turns(80) } else { agent })
    ///     .coder()?;
    /// assert_eq!(coder.name(), "coder");
    /// # Ok(())
    /// # }
    /// ```
    pub fn customize(
        mut self,
        finish: impl Fn(&str, AgentBuilder) -> AgentBuilder + Send + Sync + 'static,
    ) -> Self {
        self.finish.push(Arc::new(finish));
        self
    }

    /// Builds the researcher, which finds information and changes nothing.
    ///
    /// # Errors
    /// Fails if the agent cannot be built, for example because two tools have the same name.
    pub fn researcher(&self) -> Result<Worker> {
        self.worker(Role::Researcher)
    }

    /// Builds the coder, which writes code.
    ///
    /// # Errors
    /// Fails under the same conditions as [`researcher`](Self::researcher).
    pub fn coder(&self) -> Result<Worker> {
        self.worker(Role::Coder)
    }

    /// Builds the reviewer, which reports faults in the work of others and changes nothing.
    ///
    /// # Errors
    /// Fails under the same conditions as [`researcher`](Self::researcher).
    pub fn reviewer(&self) -> Result<Worker> {
        self.worker(Role::Reviewer)
    }

    /// Builds the researcher, the coder and the reviewer, in the order in which they work without a
    /// router.
    ///
    /// ```
    /// use levity_agents::PresetWorkers;
    /// use levity_test::ScriptedModel;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let workers = PresetWorkers::new(ScriptedModel::new()).all()?;
    /// let names: Vec<_> = workers.iter().map(|worker| worker.name()).collect();
    /// assert_eq!(names, ["researcher", "coder", "reviewer"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails under the same conditions as [`researcher`](Self::researcher).
    pub fn all(&self) -> Result<Vec<Worker>> {
        [Role::Researcher, Role::Coder, Role::Reviewer]
            .into_iter()
            .map(|role| self.worker(role))
            .collect()
    }

    /// Returns the names of the tools that none of these workers gets, because they are not
    /// read-only and the coder is not among the workers.
    ///
    /// ```
    /// # use levity_core::ToolOutput;
    /// use levity_agents::PresetWorkers;
    /// use levity_test::{RecordingTool, ScriptedModel};
    ///
    /// let send = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")));
    /// let send = send.with_hints(levity_core::Hints::new());
    /// let send: std::sync::Arc<dyn levity_core::Tool> = std::sync::Arc::new(send);
    /// let workers = PresetWorkers::new(ScriptedModel::new()).tools(vec![send]);
    /// assert_eq!(workers.unused_tools(&["researcher", "reviewer"]), ["send"]);
    /// assert!(workers.unused_tools(&["coder"]).is_empty());
    /// ```
    pub fn unused_tools(&self, workers: &[&str]) -> Vec<String> {
        if workers.contains(&Role::Coder.name()) {
            return Vec::new();
        }
        let of_sources = self.sources.iter().flat_map(ToolSource::tools);
        let tools = self.more.iter().cloned().chain(of_sources);
        tools
            .filter(|tool| !only_reads(tool.spec()))
            .map(|tool| tool.spec().name.clone())
            .collect()
    }

    /// The functions of `finish` come last, so they can replace any setting.
    fn worker(&self, role: Role) -> Result<Worker> {
        let has = self.equipment(role);
        let mut agent = Agent::builder(self.model.clone())
            .instructions(role.prompt(has))
            .tools(self.tools_of(role))
            .policy(self.policy_of(role))
            .max_turns(role.turns());
        if let Some(approver) = &self.approver {
            agent = agent.approver(Shared(approver.clone()));
        }
        if let Some(runtime) = &self.runtime {
            agent = agent.runtime(runtime.clone());
        }
        if let Some(workspace) = &self.workspace {
            agent = agent.workspace_source(workspace.clone());
        }
        for source in self.sources.iter().cloned() {
            agent = match role.only_reads() {
                true => agent.source(ReadOnly(source)),
                false => agent.source(source),
            };
        }
        let finished = self
            .finish
            .iter()
            .fold(agent, |agent, finish| finish(role.name(), agent));
        let agent = finished.build()?;
        let worker = Worker::new(role.name(), role.description(has), agent);
        Ok(worker.keywords(role.keywords().iter().copied()))
    }

    /// The order is: files, the tools of the role, then the added ones.
    fn tools_of(&self, role: Role) -> Vec<Arc<dyn Tool>> {
        let (commands, fetch, search) = match role {
            Role::Coder => (&self.commands, &None, &None),
            Role::Researcher => (&None, &self.fetch, &self.search),
            Role::Reviewer => (&None, &None, &None),
        };
        let single = [commands, fetch, search].into_iter().flatten();
        let mut tools: Vec<Arc<dyn Tool>> = self
            .files
            .iter()
            .chain(single)
            .chain(&self.more)
            .cloned()
            .collect();
        if role.only_reads() {
            tools.retain(|tool| only_reads(tool.spec()));
        }
        tools
    }

    /// Returns the facts that the prompt and the description of a role depend on.
    fn equipment(&self, role: Role) -> Equipment {
        Equipment {
            reads_files: !self.files.is_empty(),
            writes_files: !role.only_reads()
                && self.files.iter().any(|tool| !only_reads(tool.spec())),
            commands: role == Role::Coder && self.commands.is_some(),
            web: role == Role::Researcher && self.fetch.is_some(),
            search: role == Role::Researcher && self.search.is_some(),
        }
    }

    /// The deny rule of a reading worker comes first, so that no other rule can allow a change.
    fn policy_of(&self, role: Role) -> Policy {
        let mut policy = Policy::new();
        if role.only_reads() {
            let reason = format!(
                "the {} changes nothing; report what should be done, and leave it to others",
                role.name()
            );
            policy = policy.rule(Rule::any().when(|spec, _| !only_reads(spec)).deny(reason));
        }
        self.rules.iter().cloned().fold(policy, Policy::rule)
    }
}

impl fmt::Debug for PresetWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |role| {
            self.tools_of(role)
                .iter()
                .map(|tool| tool.spec().name.clone())
                .collect::<Vec<_>>()
        };
        f.debug_struct("PresetWorkers")
            .field("researcher", &names(Role::Researcher))
            .field("coder", &names(Role::Coder))
            .field("reviewer", &names(Role::Reviewer))
            .finish_non_exhaustive()
    }
}
