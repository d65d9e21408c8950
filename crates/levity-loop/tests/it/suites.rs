use std::sync::Arc;

use levity_core::{
    ChildRun, Effect, Message, ModelCall, Offer, Request, ToolCall, ToolRun, ToolSpec,
};
use levity_loop::{Agent, AgentBuilder, ModelPlanner, ModelReflector, RulePlanner};
use levity_memory::Window;
use levity_test::{RecordingTool, ScriptedModel, Turn, conformance};
use serde_json::json;

fn tool() -> RecordingTool {
    RecordingTool::new("tool", |_| Ok(levity_core::ToolOutput::text("ok")))
}

fn model() -> ScriptedModel {
    ScriptedModel::looping(Turn::new().text("Well."))
}

/// Returns agents with different settings, whose machines all pass the suite.
fn agents() -> Vec<AgentBuilder> {
    let helper = Agent::builder(model()).build().unwrap();
    vec![
        Agent::builder(model()),
        Agent::builder(model())
            .tool(tool())
            .instructions("Be brief."),
        Agent::builder(model())
            .tool(tool())
            .max_turns(2)
            .single_tool(),
        Agent::builder(model())
            .tool(tool())
            .planner(ModelPlanner::new())
            .reflector(ModelReflector::new()),
        Agent::builder(model())
            .planner(RulePlanner::new().when("do", ["this", "that"]))
            .max_turns(1),
        Agent::builder(model())
            .tool(tool())
            .agent("helper", "Helps.", helper),
        Agent::builder(model())
            .tool(tool())
            .ask_user()
            .finish_tool(),
        Agent::builder(model())
            .signal(ToolSpec::new("tool", "Tells."))
            .ending_signal(ToolSpec::new("end", "Ends.")),
        Agent::builder(model())
            .tool(tool())
            .window(Window::new().tokens(600)),
        Agent::builder(model())
            .tool(tool())
            .allow_wait(std::time::Duration::from_secs(60))
            .tool_search(0),
    ]
}

#[tokio::test]
async fn machine_passes_conformance_suite() {
    for agent in agents() {
        let agent = agent.build().unwrap();
        conformance::machine(|| agent.machine("Do it")).await;
        let restore = |state: serde_json::Value| agent.restore(&state).unwrap();
        conformance::machine_restored(|| agent.machine("Do it"), restore).await;
        conformance::machine_damaged(|| agent.machine("Do it"), |state| agent.restore(state)).await;
    }
}

#[tokio::test]
async fn executor_passes_conformance_suite() {
    let effects = || {
        let request = Request::new().with_message(Message::user("Hello"));
        vec![
            Effect::Model(ModelCall::new("main", request.clone(), Offer::All)),
            Effect::Model(ModelCall::new("planner", request, Offer::None)),
            Effect::Tool(ToolRun::new(ToolCall::new("c1", "tool", json!({})))),
            Effect::Child(ChildRun::new("helper", json!({"task": "help"}))),
        ]
    };
    for agent in agents() {
        let agent = agent.build().unwrap();
        conformance::executor(|| agent.executor(), effects()).await;
    }
}

/// Tools that work in a folder.
struct FolderToolbox(&'static str);

impl levity_core::WorkspaceSource for FolderToolbox {
    fn view_now(&self) -> levity_core::WorkspaceView {
        levity_core::WorkspaceView::new(self.0, ["notes.txt"])
    }
}

impl levity_core::Toolbox for FolderToolbox {
    fn into_tools(self) -> Vec<Arc<dyn levity_core::Tool>> {
        vec![Arc::new(tool())]
    }

    fn workspace(&self) -> Option<Arc<dyn levity_core::WorkspaceSource>> {
        Some(Arc::new(FolderToolbox(self.0)))
    }
}

#[tokio::test]
async fn answer_context_has_workspace_of_file_tools() {
    let root = async |agent: AgentBuilder| {
        let answer = agent.build().unwrap().run("Tidy up").await.unwrap();
        let workspace = answer.context().workspace;
        (workspace.root, workspace.files.len())
    };
    let view = levity_core::WorkspaceView::new("told", ["a", "b"]);
    let none = (String::new(), 0);
    assert_eq!(root(Agent::builder(model()).tool(tool())).await, none);
    assert_eq!(
        root(Agent::builder(model()).tools(FolderToolbox("desk"))).await,
        ("desk".to_owned(), 1)
    );
    // The given workspace takes precedence over that of the tools, in any order.
    assert_eq!(
        root(
            Agent::builder(model())
                .tools(FolderToolbox("desk"))
                .workspace(view.clone())
        )
        .await,
        ("told".to_owned(), 2)
    );
    let source = Agent::builder(model())
        .workspace_source(FolderToolbox("source"))
        .tools(FolderToolbox("desk"));
    assert_eq!(root(source).await, ("source".to_owned(), 1));
}
