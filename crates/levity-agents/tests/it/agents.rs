//! Tests of agents built from parts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity_agents::{
    AgentPart, AgentParts, Catalogue, CatalogueEntry, CatalogueError, Requirement,
};
use levity_core::{
    Approver, Ask, AskKind, Capabilities, Child, Decision, Executor, Model, ModelCard, Program,
    Tool, ToolError, ToolOutput, ToolSource, ToolSpec,
};
use levity_dag::{Budget, Plan, Step};
use levity_test::{RecordingTool, ScriptedModel, Turn};
use serde_json::{Value, json};

/// A server with one tool.
struct Server(&'static str, RecordingTool);

impl ToolSource for Server {
    fn name(&self) -> &str {
        self.0
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![Arc::new(self.1.clone())]
    }

    fn version(&self) -> u64 {
        1
    }
}

fn tool(name: &str) -> RecordingTool {
    RecordingTool::new(name, |_| Ok(ToolOutput::text("42 results")))
}

fn without_tools() -> ModelCard {
    let mut capabilities = Capabilities::default();
    capabilities.tools = false;
    ModelCard::new("test", "plain").with_capabilities(capabilities)
}

fn names(model: &ScriptedModel, at: usize) -> Vec<String> {
    model.requests()[at]
        .tools
        .iter()
        .map(|tool| tool.name.clone())
        .collect()
}

fn system(model: &ScriptedModel, at: usize) -> String {
    model.requests()[at]
        .system
        .as_deref()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn default_agents_run_with_model_alone() {
    let agents = Catalogue::defaults();
    for entry in agents.entries() {
        let model = ScriptedModel::new().reply("{\"x\": 1}");
        let agent = agents
            .build(&entry.name, &AgentParts::new(model.clone()))
            .unwrap();
        let answer = agent.run("Do it.").await.unwrap();
        assert_eq!(answer.text(), "{\"x\": 1}", "{}", entry.name);
        let system = system(&model, 0);
        assert!(
            system.starts_with(entry.prompt.trim_end()),
            "{}",
            entry.name
        );
        let lacks = entry.servers.len() + entry.tools.len() > 0;
        assert_eq!(
            system.contains("You have no tools."),
            lacks,
            "{}",
            entry.name
        );
        assert_eq!(
            system.contains("Python cannot be run"),
            &*entry.name == "Coder"
        );
        let own = if entry.ask_user {
            vec!["ask_user"]
        } else {
            Vec::new()
        };
        assert_eq!(names(&model, 0), own, "{}", entry.name);
    }
}

#[tokio::test]
async fn available_parts_are_used_and_missing_ones_listed() {
    let model = ScriptedModel::new().reply("done");
    let (search, fetch, other) = (tool("browse"), tool("web_fetch"), tool("other"));
    let parts = AgentParts::new(model.clone())
        .server("browser", Server("browser", search))
        .tool(fetch)
        .tool(other);
    let agents = Catalogue::defaults();
    agents
        .build("Browser", &parts)
        .unwrap()
        .run("Look it up.")
        .await
        .unwrap();
    assert_eq!(names(&model, 0), ["web_fetch", "browse"]);
    let system = system(&model, 0);
    assert!(
        system.contains("- There is no such thing as the tool `web_search`.\nCall only the tools"),
        "{system}"
    );
    assert!(!system.contains("web_fetch"), "{system}");

    let missing = agents.missing(&parts);
    assert!(missing.iter().all(|missing| !missing.required));
    let listed: Vec<_> = missing
        .iter()
        .filter(|m| &*m.agent == "Coder")
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        listed,
        ["`Coder` works without a program that runs Python",]
    );
}

#[test]
fn missing_required_part_returns_error() {
    let parts = AgentParts::new(ScriptedModel::new())
        .server("browser", Server("browser", tool("t")))
        .tool(tool("read_file"));
    let agents = Catalogue::empty()
        .with(CatalogueEntry::new("A", "a").servers(["brwser"]))
        .with(CatalogueEntry::new("B", "b").tools(["file_reader"]))
        .with(CatalogueEntry::new("C", "c").code(Requirement::Required))
        .with(CatalogueEntry::new("D", "d").models(["gemini", "ollama"]));
    let error_text = |name: &str| agents.build(name, &parts).unwrap_err().to_string();
    assert_eq!(
        error_text("a"),
        "the agent `A` requires the MCP server `brwser`, which is missing; perhaps you meant \
            `browser`; add it, or write `brwser?` to make it optional"
    );
    assert_eq!(
        error_text("b"),
        "the agent `B` requires the tool `file_reader`, which is missing; available: `read_file`; \
            add it, or write `file_reader?` to make it optional"
    );
    assert_eq!(
        error_text("c"),
        "the agent `C` requires a program that runs Python, which is missing; add it, or write \
            `code: optional` to make it optional"
    );
    assert_eq!(
        error_text("d"),
        "no model of the agent `D` is available: `gemini`: no lookup of models by name is set; \
            `ollama`: no lookup of models by name is set; name another model, or omit `model` to \
            use the default one"
    );
    assert_eq!(
        error_text("e"),
        "no agent is named `e`; available: `A`, `B`, `C`, `D`"
    );
    let missing = agents.missing(&parts);
    assert_eq!(missing.len(), 5);
    assert!(missing.iter().all(|missing| missing.required));
    assert_eq!(missing[3].part, AgentPart::Model("gemini".into()));
}

#[test]
fn disabled_agent_is_not_built() {
    let mut off = CatalogueEntry::new("A", "a");
    off.enabled = false;
    let error = Catalogue::empty()
        .with(off)
        .build("A", &AgentParts::new(ScriptedModel::new()))
        .unwrap_err();
    assert!(matches!(error, CatalogueError::Disabled { .. }), "{error}");
}

#[tokio::test]
async fn first_available_model_is_used() {
    let (small, large) = (
        ScriptedModel::new(),
        ScriptedModel::new().reply("large").reply("large"),
    );
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (seen, found) = (asked.clone(), large.clone());
    let parts = AgentParts::new(small).models(move |name| {
        seen.lock().unwrap().push(name.to_owned());
        if name == "large" {
            Ok(Arc::new(found.clone()) as Arc<dyn Model>)
        } else {
            Err("no key is set".to_owned())
        }
    });
    let agents =
        Catalogue::empty().with(CatalogueEntry::new("A", "a").models(["tiny", "large", "huge"]));
    let answer = agents.build("A", &parts).unwrap().run("?").await.unwrap();
    assert_eq!(answer.text(), "large");
    assert_eq!(*asked.lock().unwrap(), ["tiny", "large"]);
    let missing = agents.missing(&parts);
    assert_eq!(missing.len(), 2, "tiny and huge");
    assert!(missing.iter().all(|missing| !missing.required));

    let parts = AgentParts::new(ScriptedModel::new()).named_model("huge", large);
    assert_eq!(
        agents
            .build("A", &parts)
            .unwrap()
            .run("?")
            .await
            .unwrap()
            .text(),
        "large"
    );
}

const CALL: &str =
    r#"{"thought": "look", "call_tool": {"name": "find", "arguments": {"q": "tides"}}}"#;

#[tokio::test]
async fn text_call_is_executed_with_any_model() {
    for native in [true, false] {
        let model = ScriptedModel::new()
            .turn(Turn::new().text(CALL).pieces(5))
            .reply(
                "```json\n{\"call_tool\": {\"tool_name\": \"find\", \"tool_arguments\": {}}}\n```",
            )
            .reply(r#"{"answer": "42"}"#);
        let model = if native {
            model
        } else {
            model.with_card(without_tools())
        };
        let find = tool("find");
        let agents = Catalogue::empty().with(CatalogueEntry::new("A", "Find it.").servers(["rag"]));
        let parts = AgentParts::new(model.clone()).server("rag", Server("rag", find.clone()));
        let answer = agents
            .build("A", &parts)
            .unwrap()
            .run("Find the tides.")
            .await
            .unwrap();
        assert_eq!(answer.text(), r#"{"answer": "42"}"#);
        assert_eq!(
            find.calls()[0].args,
            json!({"q": "tides"}),
            "native: {native}"
        );
        assert_eq!(find.calls().len(), 2);
        model.assert_finished();
        let sent = serde_json::to_string(&model.requests()[1].history).unwrap();
        assert!(sent.contains("42 results"), "the result goes back: {sent}");
        assert_eq!(names(&model, 0).len(), usize::from(native));
        assert_eq!(
            system(&model, 0).contains("<tool_call>"),
            !native,
            "it is taught where it is needed"
        );
    }
}

/// The task of a step asks for JSON, but a call in text must not be taken for the answer.
#[tokio::test]
async fn text_call_is_executed_in_step_with_json_answer() {
    let model = ScriptedModel::new()
        .with_card(without_tools())
        .reply(CALL)
        .reply(r#"{"x": "42"}"#);
    let find = tool("find");
    let agents = Catalogue::empty().with(CatalogueEntry::new("A", "a").tools(["find"]));
    let parts = AgentParts::new(model.clone()).tool(find.clone());
    let team = agents.team(parts).unwrap().build().unwrap();
    team.run(Plan::new().step(Step::new("s", "A").prompt("Find the tides.").writes(["x"])))
        .await
        .unwrap();
    assert_eq!(find.calls().len(), 1);
    model.assert_finished();
}

#[tokio::test]
async fn native_and_text_calls_work_together() {
    let model = ScriptedModel::new()
        .call("find", json!({"q": 1}))
        .reply(CALL)
        .reply("{}");
    let find = tool("find");
    let agents = Catalogue::empty().with(CatalogueEntry::new("A", "a").tools(["find"]));
    let parts = AgentParts::new(model.clone()).tool(find.clone());
    agents.build("A", &parts).unwrap().run("?").await.unwrap();
    assert_eq!(find.calls().len(), 2);
}

#[tokio::test]
async fn text_calls_are_ignored_if_disabled() {
    let find = tool("find");
    let agents = Catalogue::empty().with(
        CatalogueEntry::new("A", "a")
            .tools(["find"])
            .without_text_tools(),
    );
    let parts = AgentParts::new(ScriptedModel::new().reply(CALL)).tool(find.clone());
    assert_eq!(
        agents
            .build("A", &parts)
            .unwrap()
            .run("?")
            .await
            .unwrap()
            .text(),
        CALL
    );
    assert!(find.calls().is_empty());
}

#[tokio::test]
async fn last_turn_is_announced_and_has_no_tools() {
    // The same text call three times in a row would be answered from its cached result.
    let call = |turn: usize| CALL.replace("tides", &turn.to_string());
    let script = (0..14)
        .fold(ScriptedModel::new(), |script, turn| {
            script.reply(call(turn))
        })
        .reply("{\"x\": 1}");
    let find = tool("find");
    let agents = Catalogue::empty().with(CatalogueEntry::new("A", "a").tools(["find"]));
    let parts = AgentParts::new(script.clone()).tool(find.clone());
    let answer = agents.build("A", &parts).unwrap().run("?").await.unwrap();
    assert_eq!((answer.text(), find.calls().len()), ("{\"x\": 1}", 14));
    script.assert_finished();
    let last = script.requests().pop().unwrap();
    assert!(
        serde_json::to_string(&last.history)
            .unwrap()
            .contains("This is your last turn")
    );
}

struct User;

#[async_trait]
impl Approver for User {
    async fn decide(&self, ask: &Ask) -> Decision {
        match ask.wanted {
            AskKind::Answer => Decision::answer("the one in Norway"),
            _ => Decision::Allow,
        }
    }
}

#[tokio::test]
async fn clarification_agent_asks_user() {
    let question =
        r#"{"call_tool": {"name": "ask_user", "arguments": {"question": "Which Bergen?"}}}"#;
    let model = ScriptedModel::new()
        .reply(question)
        .reply("{\"city\": \"Bergen, Norway\"}");
    let parts = AgentParts::new(model.clone()).approver(User);
    let agent = Catalogue::defaults()
        .build("ClarificationAgent", &parts)
        .unwrap();
    assert_eq!(
        agent.run("Which city?").await.unwrap().text(),
        "{\"city\": \"Bergen, Norway\"}"
    );
    assert!(
        serde_json::to_string(&model.requests()[1].history)
            .unwrap()
            .contains("the one in Norway")
    );
}

/// A program that only records the tools it was created for.
struct Code(ToolSpec);

#[async_trait]
impl Program for Code {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn child(
        &self,
        _: &Value,
        _: Option<&Value>,
        _: Arc<dyn Executor>,
    ) -> Result<Child, ToolError> {
        Err(ToolError::failed("nothing is run here"))
    }
}

#[tokio::test]
async fn coder_gets_python_program_with_its_tools() {
    let model = ScriptedModel::new().reply("{}").reply("{}");
    let parts = AgentParts::new(model.clone())
        .server("rag", Server("rag", tool("find")))
        .tool(tool("other"))
        .code_with(|tools| {
            let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
            Arc::new(Code(ToolSpec::new(
                "run_python",
                format!("Runs Python with {}.", names.join(", ")),
            )))
        });
    let agents = Catalogue::defaults();
    agents
        .build("Coder", &parts)
        .unwrap()
        .run("?")
        .await
        .unwrap();
    let tools = model.requests()[0].tools.clone();
    assert_eq!(names(&model, 0), ["run_python", "other", "find"]);
    assert_eq!(tools[0].description, "Runs Python with other, find.");
    assert!(!system(&model, 0).contains("Python cannot be run"));
    assert!(
        !system(&model, 0).contains("# What is not here"),
        "it lacks nothing: {}",
        system(&model, 0)
    );
    agents
        .build("Thinker", &parts)
        .unwrap()
        .run("?")
        .await
        .unwrap();
    assert!(names(&model, 1).is_empty(), "only those who may");
}

#[tokio::test]
async fn limits_and_finish_function_apply_to_agent() {
    let entry = CatalogueEntry::new("A", "a")
        .budget(Budget::new().model_calls(1))
        .timeout(Duration::from_secs(5))
        .tools(["find"]);
    let agents = Catalogue::empty().with(entry);
    let model = ScriptedModel::new().reply(CALL).reply("best effort");
    let parts = AgentParts::new(model.clone())
        .tool(tool("find"))
        .limits(levity_core::Limits::new().tokens(1_000_000))
        .customize(|name, builder| builder.instructions(format!("I am {name}.")));
    let ended = agents.build("A", &parts).unwrap().run("?").await;
    assert_eq!(
        model.requests().len(),
        1,
        "one call of a model, and no more: {ended:?}"
    );
    assert_eq!(system(&model, 0), "I am A.");
}

#[test]
fn build_error_names_agent() {
    let agents = Catalogue::empty().with(CatalogueEntry::new("A", "a").max_turns(0));
    let error = agents
        .build("A", &AgentParts::new(ScriptedModel::new()))
        .unwrap_err();
    assert_eq!(error.to_string(), "cannot build the agent `A`");
    assert!(
        std::error::Error::source(&error)
            .unwrap()
            .to_string()
            .contains("max_turns")
    );
}

#[tokio::test]
async fn team_program_runs_code_of_agents() {
    let model = ScriptedModel::new().reply("{\"x\": 1}");
    let code = Code(ToolSpec::new("run_python", "Runs Python."));
    let parts = AgentParts::new(model.clone()).code(code);
    let team = Catalogue::defaults().team(parts).unwrap().build().unwrap();
    team.run(Plan::new().step(Step::new("s", "Coder").prompt("Count.").writes(["x"])))
        .await
        .unwrap();
    assert_eq!(names(&model, 0), ["run_python"]);
    let system = system(&model, 0);
    assert!(
        !system.contains("cannot be run") && !system.contains("You have no tools"),
        "{system}"
    );
}

/// Creates a tool with the read-only hint.
fn reader(name: &str) -> impl Tool + 'static {
    tool(name).with_hints(levity_core::Hints::new().read_only())
}

#[tokio::test]
async fn default_agents_get_tools_and_servers_by_role() {
    let agents = Catalogue::defaults();
    let parts = |model: &ScriptedModel| {
        AgentParts::new(model.clone())
            .tool(reader("read_file"))
            .tool(reader("list_files"))
            .tool(reader("now"))
            .tool(reader("web_fetch"))
            .tool(tool("write_artifact"))
            .tool(tool("write_file"))
            .tool(tool("run_command"))
            .tool(tool("shout"))
            .server("notes", Server("notes", tool("add_note")))
            .server(
                "search",
                Server(
                    "search",
                    tool("look_up").with_hints(levity_core::Hints::new().read_only()),
                ),
            )
    };
    let all = [
        "list_files",
        "now",
        "read_file",
        "run_command",
        "shout",
        "web_fetch",
        "write_artifact",
        "write_file",
        "add_note",
        "look_up",
    ];
    let expected: [(&str, &[&str]); 10] = [
        ("Planner", &[]),
        ("Browser", &["web_fetch", "look_up"]),
        ("Coder", &all),
        (
            "Retriever",
            &["read_file", "list_files", "web_fetch", "now", "look_up"],
        ),
        ("Summarizer", &[]),
        ("Distiller", &["read_file", "list_files"]),
        ("Thinker", &[]),
        ("Formatter", &["write_artifact"]),
        ("Clarification", &["ask_user"]),
        ("QA", &["read_file", "list_files"]),
    ];
    for (name, expected) in expected {
        let model = ScriptedModel::new().reply("{}");
        agents
            .build(name, &parts(&model))
            .unwrap()
            .run("?")
            .await
            .unwrap();
        assert_eq!(names(&model, 0), expected, "{name}");
        assert_eq!(agents.tool_names(name, &parts(&model)).unwrap(), expected);
    }
    assert_eq!(agents.unused(&parts(&ScriptedModel::new())), []);
}

/// A prompt that mentions a tool which its agent never gets makes the model invent calls.
#[test]
fn default_prompts_mention_only_tools_of_their_agents() {
    let tools = [
        "ask_user",
        "edit_file",
        "list_files",
        "read_file",
        "read_given_file",
        "run_command",
        "run_python",
        "search_files",
        "web_fetch",
        "web_search",
        "write_artifact",
        "write_file",
    ];
    let parts = AgentParts::new(ScriptedModel::new());
    let parts = tools[1..].iter().fold(parts, |parts, name| match *name {
        "run_command" | "run_python" | "write_file" | "write_artifact" | "edit_file" => {
            parts.tool(tool(name))
        }
        name => parts.tool(reader(name)),
    });
    let agents = Catalogue::defaults();
    for entry in agents.entries() {
        let owned = agents.tool_names(&entry.name, &parts).unwrap();
        for name in tools.iter().filter(|name| entry.prompt.contains(**name)) {
            assert!(
                owned.iter().any(|tool| tool == name),
                "{}: {name}",
                entry.name
            );
        }
    }
    let says = |agent: &str, part: &str| agents.find(agent).unwrap().prompt.contains(part);
    for agent in ["Coder", "Formatter", "Planner"] {
        assert!(says(agent, "below `artifacts/`"), "{agent}");
    }
    assert!(says("Formatter", "`write_artifact`") && says("Clarification", "`ask_user`"));
}

#[test]
fn unused_parts_are_listed() {
    let code = Code(ToolSpec::new("run_python", "Runs Python."));
    let parts = AgentParts::new(ScriptedModel::new())
        .tool(reader("read_file"))
        .tool(tool("write_file"))
        .server("notes", Server("notes", tool("add_note")))
        .code(code);
    let unused = |agents: &Catalogue| -> Vec<String> {
        agents
            .unused(&parts)
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let reads = Catalogue::empty().with(
        CatalogueEntry::new("A", "a")
            .tools(["*:read_only"])
            .servers(["*:read_only"]),
    );
    assert_eq!(
        unused(&reads),
        [
            "the tool `write_file`",
            "the MCP server `notes`",
            "a program that runs Python"
        ]
    );
    let mut off = CatalogueEntry::new("B", "b")
        .tools(["*"])
        .servers(["*"])
        .code(Requirement::Optional);
    assert!(unused(&reads.clone().with(off.clone())).is_empty());
    off.enabled = false;
    assert_eq!(
        unused(&reads.with(off)).len(),
        3,
        "a disabled agent has no parts"
    );
    assert_eq!(
        unused(&Catalogue::empty().with(CatalogueEntry::new("A", "a"))).len(),
        4
    );
}

#[tokio::test]
async fn planner_prompt_lists_tools_of_agents() {
    let model = ScriptedModel::new()
        .reply(r#"{"steps": [{"id": "a", "agent": "Thinker", "writes": ["x"]}]}"#)
        .reply("{\"x\": 1}");
    let parts = AgentParts::new(model.clone())
        .tool(tool("write_file"))
        .tool(reader("read_file"));
    let team = Catalogue::defaults().team(parts).unwrap().build().unwrap();
    team.run("Do it").await.unwrap();
    let asked = model.requests()[0].history.messages()[0]
        .text()
        .into_owned();
    let line = |agent: &str| {
        asked
            .lines()
            .find(|line| line.starts_with(&format!("- `{agent}`")))
            .unwrap()
            .to_owned()
    };
    assert!(
        line("Coder").ends_with("Tools: read_file, write_file."),
        "{}",
        line("Coder")
    );
    assert!(line("QA").ends_with("Tools: read_file."), "{}", line("QA"));
    assert!(!line("Thinker").contains("Tools"), "{}", line("Thinker"));
}
