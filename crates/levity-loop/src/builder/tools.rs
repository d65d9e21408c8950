//! What an agent can call, and how.

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
use crate::asked;
use crate::wait;

impl AgentBuilder {
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

    /// Adds a set of tools that may change while the agent runs.
    pub fn source(mut self, source: impl ToolSource + 'static) -> Self {
        self.tool_count += 1;
        self.tools = self.tools.source(source);
        self
    }

    /// With more tools than this, the model is not told of all of them in every request: it is told
    /// of those that were added one by one, and finds those of [sources](Self::source) by a tool
    /// `find_tools`. What it has found or called is offered from then on.
    /// [`DEFAULT_SEARCH_ABOVE`](Self::DEFAULT_SEARCH_ABOVE) by default.
    pub fn tool_search(mut self, above: usize) -> Self {
        self.search_above = Some(above);
        self
    }

    /// Tells the model of all tools in every request, however many there are.
    pub fn without_tool_search(mut self) -> Self {
        self.search_above = None;
        self
    }

    /// Lets this agent hand work to another one, which it calls like a tool. The other one's runs
    /// are children of this one's: in the same event stream, within the same limits, ended with it.
    /// It asks its own approver, or whoever holds the handle of the run.
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
        self = self.tool(Loops::new(spec));
        self.spec.delegates.insert(name.clone());
        self.delegates.insert(name, agent);
        self
    }

    /// Adds a tool whose calls are runs of their own, such as code that calls other tools. What it
    /// calls goes through this agent's policy, limits and journal.
    pub fn program(mut self, program: impl Program + 'static) -> Self {
        let program: Arc<dyn Program> = Arc::new(program);
        let name = program.spec().name.clone();
        self = self.tool(Loops::program(program.clone()));
        self.spec.delegates.insert(name.clone());
        self.programs.insert(name, program);
        self
    }

    /// Lets the model wait, by a tool `wait`, for at most `longest` at a time. A run that waits can
    /// be left in its journal; see [`Run::park`](levity_runtime::Run::park).
    pub fn waits(mut self, longest: Duration) -> Self {
        self.spec.longest_wait = Some(longest);
        self.tool(Loops::new(wait::spec(longest)))
    }

    /// Lets the model ask the user, by a tool `ask_user`: the run waits for an answer. The approver
    /// is asked, or whoever holds the handle of a started run, and answers with
    /// [`Decision::Answer`](levity_core::Decision::Answer);
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

    /// Lets the model end the run by a tool `finish`, for models that otherwise talk when they
    /// should work. A reply without calls still is an answer.
    pub fn finish_tool(mut self) -> Self {
        self.spec.finishes = true;
        self.tool(Loops::new(asked::finish_spec()))
    }

    /// Lets the model tell something to whoever runs it, by a tool of this spec: what it is called
    /// with is noted in [`Ending::signals`](levity_core::Ending::signals), the model is told so,
    /// and the run goes on. Nothing is performed, so no policy and no approver is asked.
    ///
    /// The arguments are checked against the schema, as for any tool. A run takes in 256 signals
    /// and 256 KiB of their arguments; beyond that the model is told that no more are taken.
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

    /// As [`signal`](Self::signal), and the run ends with it: its answer is the text that stood
    /// beside the call, which may be empty, and is not held against a schema. It must be called
    /// alone; otherwise the model is told so.
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

    /// How many tools the model may call in one turn; 64 by default. The model is told of each call
    /// beyond that: the call was left out. A reply of more than
    /// [`Fold::MAX_CALLS`](levity_core::Fold::MAX_CALLS) calls is malformed.
    pub fn max_calls_per_turn(mut self, calls: usize) -> Self {
        self.spec.max_calls = calls;
        self
    }

    /// One call of one tool, and then the answer.
    pub fn single_tool(mut self) -> Self {
        self.spec.single_tool = true;
        self
    }

    /// Which tool the first turn of a run may or must call; the model decides by default, and on
    /// later turns always does.
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

    /// How long a tool may take that does not say so itself; 60 seconds by default.
    pub fn tool_timeout(mut self, time: Duration) -> Self {
        self.tool_timeout = Some(time);
        self
    }

    /// How many tool calls all runs of the agent may have under way at once; 1,024 by default. The
    /// others wait for their turn.
    pub fn max_concurrent_tools(mut self, calls: usize) -> Self {
        self.max_concurrent = Some(calls);
        self
    }

    /// How many bytes of a tool's output the model is shown; 32 KiB by default. The whole is kept
    /// with the conversation, and the model can read it in pieces: 8 MiB of each output, 64 MiB in
    /// all, the newest.
    pub fn max_tool_output(mut self, bytes: usize) -> Self {
        self.max_output = Some(bytes);
        self
    }

    fn add_signal(mut self, spec: ToolSpec, is_last: bool) -> Self {
        self.signals.push((Arc::new(spec.clone()), is_last));
        self.tool(Loops::new(spec))
    }
}

/// Shows among the tools what the loop does itself, before any dispatcher sees the call.
struct Loops {
    spec: ToolSpec,
    program: Option<Arc<dyn Program>>,
}

impl Loops {
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
impl Tool for Loops {
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
            "this is done by the loop, not called as a tool",
        ))
    }
}
