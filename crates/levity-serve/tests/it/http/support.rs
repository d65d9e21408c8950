//! Servers and agents for the tests.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{CancelToken, Hints, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_serve::http::HttpApi;
use levity_serve::{AccessControl, Listener, Runs, Token};
use levity_test::ScriptedModel;
use levity_tools::{Policy, Rule};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::{Client, TOKEN};

/// A server that stops when this value is dropped.
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) runs: Runs,
    stop: CancelToken,
    serving: JoinSet<levity_serve::Result<()>>,
}

impl Server {
    pub(crate) async fn new(runs: Runs) -> Self {
        Self::with(runs, |api| api).await
    }

    pub(crate) async fn with(runs: Runs, set: impl FnOnce(HttpApi) -> HttpApi) -> Self {
        let access = AccessControl::new(Token::new(TOKEN).unwrap());
        let stop = CancelToken::new();
        let listener = Listener::bind("127.0.0.1:0", access)
            .await
            .unwrap()
            .stop_on(stop.clone());
        Self::on(listener, stop, runs, set)
    }

    pub(crate) fn on(
        listener: Listener,
        stop: CancelToken,
        runs: Runs,
        set: impl FnOnce(HttpApi) -> HttpApi,
    ) -> Self {
        let client = Client(listener.address());
        let mut serving = JoinSet::new();
        serving.spawn(set(HttpApi::new(runs.clone())).serve(listener));
        Self {
            client,
            runs,
            stop,
            serving,
        }
    }

    /// Shuts the server down gracefully.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        self.serving.join_next().await.unwrap().unwrap().unwrap();
    }
}

/// Returns an agent that follows a script, stores its runs in this journal, and asks before it
/// deletes.
pub(crate) fn agent(model: ScriptedModel, journal: &MemoryJournal) -> Agent {
    let runtime = Runtime::new().with_journal(journal.clone());
    let policy = Policy::new().rule(Rule::tool("delete").ask("nothing is deleted unasked"));
    Agent::builder(model.by_history())
        .tool(Echo::new("delete", Hints::new().destructive()))
        .tool(Echo::new("look", Hints::new().read_only()))
        .policy(policy)
        .ask_user()
        .max_turns(10_000)
        .runtime(runtime)
        .build()
        .unwrap()
}

/// A tool that returns its arguments.
pub(crate) struct Echo(ToolSpec);

impl Echo {
    pub(crate) fn new(name: &str, hints: Hints) -> Self {
        let input = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        Self(
            ToolSpec::new(name, "Says what it was called with.")
                .with_input(input)
                .with_hints(hints),
        )
    }
}

#[async_trait]
impl Tool for Echo {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(args.to_string()))
    }
}

/// A tool that waits for a permit for each call.
pub(crate) struct HeldTool(ToolSpec, Arc<Semaphore>);

impl HeldTool {
    pub(crate) fn new() -> (Self, Arc<Semaphore>) {
        let permits = Arc::new(Semaphore::new(0));
        let spec = ToolSpec::new("hold", "Waits.").with_hints(Hints::new().read_only());
        (Self(spec, permits.clone()), permits)
    }
}

#[async_trait]
impl Tool for HeldTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.1.acquire().await.unwrap().forget();
        Ok(ToolOutput::text("held"))
    }
}
