//! Settings for tools, delegates and signals.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Hints, Permit, Program, Tool, ToolChoice, ToolCx, ToolError, ToolOutput, ToolSource, ToolSpec,
    Toolbox,
};
use serde_json::{Value, json};

use super::AgentBuilder;
use crate::agent::Agent;
use crate::control_tools;
use crate::wait;

impl AgentBuilder {
    /// Adds a tool to the agent.
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
    /// let model = ScriptedModel::new().call("look", json!({})).reply("I see a shed.");
    /// let agent = Agent::builder(model).tool(look).build()?;
    /// assert_eq!(agent.run("Look around.").await?.text(), "I see a shed.");
    /// # Ok(())
    /// # }
    /// ```
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

    /// Adds the tools of a toolbox: an `impl` block under `#[tool]`, or a list.
    pub fn tools(mut self, tools: impl Toolbox) -> Self {
        self.spec.workspace_source = self.spec.workspace_source.or_else(|| tools.workspace());
        let tools = tools.into_tools();
        self.tool_count += tools.len();
        self.tools = self.tools.tools(tools);
        self
    }

    /// Adds every `#[tool]` function that is linked into the program and whose name does not begin
    /// with `_`.
    pub fn linked_tools(mut self) -> Self {
        self.tool_count += 1;
        self.tools = self.tools.linked();
        self
    }

    /// Adds a source of tools, which may change while the agent runs.
    pub fn source(mut self, source: impl ToolSource + 'static) -> Self {
        self.tool_count += 1;
        self.tools = self.tools.source(source);
        self
    }

    /// Sets the number of tools above which the model has to search for tools;
    /// [`DEFAULT_SEARCH_ABOVE`](Self::DEFAULT_SEARCH_ABOVE) by default.
    ///
    /// Above it, a request lists only the tools that were added one by one. The model finds those
    /// of [sources](Self::source) with a tool `find_tools`. A tool that it has found or called is
    /// offered from then on.
    pub fn tool_search(mut self, above: usize) -> Self {
        self.search_above = Some(above);
        self
    }

    /// Lists all tools in every request, however many there are.
    pub fn without_tool_search(mut self) -> Self {
        self.search_above = None;
        self
    }

    /// Adds another agent that this one can delegate work to, by calling it like a tool.
    ///
    /// Runs of the delegate are children of this agent's runs: in the same event stream, within the
    /// same limits, ended with them. The delegate asks its own approver, or the holder of the run's
    /// handle.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_test::ScriptedModel;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let expert = Agent::builder(ScriptedModel::new().reply("It is an oak.")).build()?;
    /// let model = ScriptedModel::new()
    ///     .call("botanist", json!({"task": "Name the tree with lobed leaves."}))
    ///     .reply("An oak.");
    /// let agent = Agent::builder(model).agent("botanist", "Knows all plants.", expert).build()?;
    /// assert_eq!(agent.run("Which tree is this?").await?.text(), "An oak.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn agent(
        mut self,
        name: impl Into<String>,
        description: impl Into<String>,
        agent: Agent,
    ) -> Self {
        let name = name.into();
        let spec = ToolSpec::new(name.clone(), description)
            .with_hints(Hints::new().parallel())
            .with_input(json!({
                "type": "object",
                "properties": {"task": {
                    "type": "string",
                    "description": "What to do, with everything needed to do it: the agent knows \
                        nothing else.",
                }},
                "required": ["task"],
                "additionalProperties": false,
            }));
        self = self.tool(LoopTool::new(spec));
        self.spec.delegates.insert(name.clone());
        self.delegates.insert(name, agent);
        self
    }

    /// Adds a tool whose calls are separate runs, such as code that calls other tools.
    ///
    /// Its calls go through this agent's policy, limits and journal.
    pub fn program(mut self, program: impl Program + 'static) -> Self {
        let program: Arc<dyn Program> = Arc::new(program);
        let name = program.spec().name.clone();
        self = self.tool(LoopTool::program(program.clone()));
        self.spec.delegates.insert(name.clone());
        self.programs.insert(name, program);
        self
    }

    /// Lets the model wait with a tool `wait`, for at most `longest` at a time.
    ///
    /// A waiting run can be parked in its journal; see [`Run::park`](levity_runtime::Run::park).
    pub fn allow_wait(mut self, longest: Duration) -> Self {
        self.spec.longest_wait = Some(longest);
        self.tool(LoopTool::new(wait::spec(longest)))
    }

    /// Lets the model ask the user with a tool `ask_user`; the run waits for the answer.
    ///
    /// The question goes to the approver, or to the holder of the handle of a started run. The
    /// answer is [`Decision::Answer`](levity_core::Decision::Answer).
    /// [`Ask::wanted`](levity_core::Ask::wanted) distinguishes such a question from a request for
    /// approval.
    ///
    /// ```
    /// use levity_core::{Approver, Ask, Decision, AskKind};
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
    ///             AskKind::Answer => Decision::answer("blue"),
    ///             _ => Decision::Allow,
    ///         }
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let question = json!({"question": "Which colour?"});
    /// let model = ScriptedModel::new().call("ask_user", question).reply("Blue it is.");
    /// let agent = Agent::builder(model).ask_user().approver(User).build()?;
    /// assert_eq!(agent.run("Paint the shed").await?.text(), "Blue it is.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn ask_user(mut self) -> Self {
        self.spec.asks_user = true;
        self.tool(LoopTool::new(control_tools::ask_spec()))
    }

    /// Lets the model end the run with a tool `finish`, for models that otherwise talk when they
    /// should work.
    ///
    /// A reply without calls is still an answer.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_test::ScriptedModel;
    ///
    /// let agent = Agent::builder(ScriptedModel::new()).finish_tool().build()?;
    /// # Ok::<(), levity_core::Error>(())
    /// ```
    pub fn finish_tool(mut self) -> Self {
        self.spec.finishes = true;
        self.tool(LoopTool::new(control_tools::finish_spec()))
    }

    /// Lets the model send a signal to the caller of the run, with a tool of this spec.
    ///
    /// The arguments are recorded in [`Ending::signals`](levity_core::Ending::signals), the model
    /// gets a confirmation, and the run continues. The signal performs nothing, so no policy
    /// applies and no approver is asked.
    ///
    /// The arguments are validated against the schema, as for any tool. A run records at most 256
    /// signals and 256 KiB of arguments; beyond that, the model is informed that the signal was not
    /// recorded.
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
    /// let agent = Agent::builder(model).signal(rate).build()?;
    /// let answer = agent.run("The capital of France?").await?;
    /// assert_eq!(answer.text(), "Paris.");
    /// assert_eq!(answer.signals()[0].args["sure"], 0.9);
    /// # Ok(())
    /// # }
    /// ```
    pub fn signal(self, spec: ToolSpec) -> Self {
        self.add_signal(spec, false)
    }

    /// Adds a [`signal`](Self::signal) that also ends the run.
    ///
    /// The answer is the text beside the call, which may be empty and is not validated against a
    /// schema. The model must call the signal alone; otherwise it gets an error.
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
    /// let agent = Agent::builder(model).ending_signal(pass).build()?;
    /// let answer = agent.run("Cancel my order").await?;
    /// assert_eq!(&*answer.signals()[0].name, "pass_on");
    /// # Ok(())
    /// # }
    /// ```
    pub fn ending_signal(self, spec: ToolSpec) -> Self {
        self.add_signal(spec, true)
    }

    /// Sets the maximum number of tool calls in one turn; 64 by default.
    ///
    /// The model gets an error for each call beyond that, which is not made. A reply of more than
    /// [`Fold::MAX_CALLS`](levity_core::Fold::MAX_CALLS) calls is malformed.
    pub fn max_calls_per_turn(mut self, calls: usize) -> Self {
        self.spec.max_calls = calls;
        self
    }

    /// Limits the agent to one call of one tool, followed by the answer.
    pub fn single_tool(mut self) -> Self {
        self.spec.single_tool = true;
        self
    }

    /// Sets the tool that the first turn of a run may or must call. By default, and on all later
    /// turns, the model decides.
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

    /// Sets the timeout of tools that do not set their own; 60 seconds by default.
    pub fn tool_timeout(mut self, time: Duration) -> Self {
        self.tool_timeout = Some(time);
        self
    }

    /// Sets the maximum number of concurrent tool calls over all runs of the agent; 1,024 by
    /// default.
    ///
    /// Further calls wait.
    pub fn max_concurrent_tools(mut self, calls: usize) -> Self {
        self.max_concurrent = Some(calls);
        self
    }

    /// Sets how many bytes of a tool's output the model is shown; 32 KiB by default.
    ///
    /// The whole output is stored with the conversation, and the model can read it in pieces. A run
    /// retains 8 MiB of each output and the newest 64 MiB in all.
    pub fn max_tool_output(mut self, bytes: usize) -> Self {
        self.max_output = Some(bytes);
        self
    }

    fn add_signal(mut self, spec: ToolSpec, is_last: bool) -> Self {
        self.signals.push((Arc::new(spec.clone()), is_last));
        self.tool(LoopTool::new(spec))
    }
}

/// Lists the tools that the loop performs itself, before any dispatcher sees the call.
struct LoopTool {
    spec: ToolSpec,
    program: Option<Arc<dyn Program>>,
}

impl LoopTool {
    fn new(spec: ToolSpec) -> Self {
        Self {
            spec,
            program: None,
        }
    }

    fn program(program: Arc<dyn Program>) -> Self {
        Self {
            spec: program.spec().clone(),
            program: Some(program),
        }
    }
}

#[async_trait]
impl Tool for LoopTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn permit(&self, args: &Value) -> Permit {
        self.program
            .as_ref()
            .map_or(Permit::Allow, |program| program.permit(args))
    }

    fn permit_blocks(&self) -> bool {
        self.program
            .as_ref()
            .is_some_and(|program| program.permit_blocks())
    }

    async fn call(&self, _: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        Err(ToolError::failed(
            "the agent loop performs this call itself; a dispatcher cannot call it",
        ))
    }
}
