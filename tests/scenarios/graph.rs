//! Plans through the facade, with real code, real files and the agents of the catalogue.

use std::sync::{Arc, Mutex};

use levity::agents::{AgentParts, Catalogue};
use levity::core::{Event, Hints, Message, Part, Request, Response, Usage};
use levity::dag::{Error, Plan, PlanNotice, Step, StepStatus, Strategy, Team, TeamInput};
use levity::mcp::{ServerConfig, Servers, WaitFor};
use levity::memory::{Recall, Scope};
use levity::observe::{PlanView, Session, SessionFilter, SessionFolder};
use levity::prelude::*;
use levity::python::RunPython;
use levity::runtime::FileJournal;
use levity::test::{FunctionModel, RecordingTool};
use levity::tools::Policy;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

/// Creates a model that returns the first answer whose key occurs in the request.
fn model(answers: &'static [(&'static str, &'static str)]) -> FunctionModel {
    FunctionModel::new(move |request: &Request| {
        let prompt = request
            .history
            .messages()
            .last()
            .map(|message| message.text().into_owned())
            .unwrap_or_default();
        let answer = answers
            .iter()
            .find(|(key, _)| prompt.contains(key))
            .map_or("?", |(_, answer)| answer);
        let mut response = Response::new(Message::assistant(answer));
        response.usage = Usage::new(100, 20);
        Ok(response)
    })
}

fn notices() -> (
    Arc<Mutex<Vec<PlanNotice>>>,
    impl Fn(&Event) + Send + Sync + 'static,
) {
    let all = Arc::new(Mutex::new(Vec::new()));
    let into = all.clone();
    (all, move |event: &Event| {
        into.lock().unwrap().extend(PlanNotice::of(&event.kind));
    })
}

#[tokio::test]
async fn code_step_reads_variables_and_tries_variants() {
    let team = Team::builder().code(RunPython::new()).build().unwrap();
    let plan = Plan::new()
        .given("numbers", json!([1, 2, 3]))
        .step(
            Step::code("twice", ["oops(", "{'twice': [2 * n for n in numbers]}"])
                .reads(["numbers"])
                .writes(["twice"]),
        )
        .step(
            Step::code("sum", ["sum(twice)"])
                .reads(["twice"])
                .writes(["total"]),
        );
    let finished = team.run(plan).await.unwrap();
    assert_eq!(finished.variable("twice"), Some(&json!([2, 4, 6])));
    assert_eq!(finished.variable("total"), Some(&json!(12)));
}

#[tokio::test]
async fn code_step_calls_tools_of_team() {
    let look = RecordingTool::new("look", |_| Ok(ToolOutput::value(json!(20))))
        .with_hints(Hints::new().read_only());
    let program = RunPython::new().tool(&look);
    let team = Team::builder()
        .tool(look.clone())
        .code(program)
        .build()
        .unwrap();
    let plan = Plan::new().step(Step::code("s", ["look() + 1"]).writes(["x"]));
    assert_eq!(
        team.run(plan).await.unwrap().variable("x"),
        Some(&json!(21))
    );
    assert_eq!(look.calls().len(), 1);
}

#[tokio::test]
async fn failed_code_of_agent_is_reported_and_rewritten() {
    let model = model(&[
        (
            "The code failed",
            r#"{"code_variants": ["undefined", "{'mean': sum(numbers) / len(numbers)}"]}"#,
        ),
        ("mean", r#"{"code": "sum(numbers) / 0"}"#),
    ]);
    let parts = AgentParts::new(model).code(RunPython::new());
    let team = Catalogue::defaults().team(parts).unwrap().build().unwrap();
    let (recorded, observer) = notices();
    let plan = Plan::new().given("numbers", json!([1, 2, 6])).step(
        Step::new("mean", "CoderAgent")
            .prompt("Work out the mean.")
            .reads(["numbers"])
            .writes(["mean"]),
    );
    let finished = team.run(plan).on_event(observer).await.unwrap();
    assert_eq!(finished.variable("mean"), Some(&json!(3.0)));
    let by = recorded
        .lock()
        .unwrap()
        .iter()
        .find_map(|notice| match notice {
            PlanNotice::StepCompleted { writes, .. } => writes.first().map(|written| written.by),
            _ => None,
        });
    assert_eq!(by, Some(Strategy::CodeResult));
}

const PLAN: &str = r#"{"steps": [
    {"id": "read", "agent": "Retriever", "prompt": "Read the table.", "reads": ["file_profiles"],
        "writes": ["rows"]},
    {"id": "sum", "agent": "Summarizer", "prompt": "Sum it up.", "reads": ["rows"],
        "writes": ["summary"]},
    {"id": "check", "agent": "QA", "prompt": "Judge the summary.", "reads": ["summary"]},
    {"id": "report", "agent": "Formatter", "prompt": "Format.", "reads": ["summary"],
        "after": ["check"], "writes": ["report"]}
]}"#;

const ANSWERS: &[(&str, &str)] = &[
    (
        "Look at these files",
        r#"{"file_profiles": [{"file": "tides.csv", "what": "tides"}]}"#,
    ),
    ("Answer with the plan alone", PLAN),
    ("Read the table", r#"{"rows": [["noon", 1.5]]}"#),
    ("Judge the summary", r#"{"verdict": "pass", "issues": []}"#),
    ("Sum it up", "The tide is low at noon."),
    ("Format", r##"{"report": "# Tides\nLow at noon."}"##),
];

#[tokio::test]
async fn catalogue_agents_profile_files_plan_and_judge() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("tides.csv");
    std::fs::write(&table, "time,height\nnoon,1.5\n").unwrap();
    let sessions = SessionFolder::open(dir.path().join("sessions"));
    let journal = FileJournal::new(dir.path().join("journal")).unwrap();
    let runtime = Runtime::new().with_journal(journal);
    let team = Catalogue::defaults()
        .team(model(ANSWERS))
        .unwrap()
        .runtime(runtime)
        .observe(sessions.clone())
        .build()
        .unwrap();
    let view = Arc::new(Mutex::new(PlanView::new()));
    let watching = view.clone();
    let run = team.run(TeamInput::from("What are the tides like?").files([table]));
    let finished = run
        .on_event(move |event| watching.lock().unwrap().apply(event))
        .await
        .unwrap();
    assert_eq!(finished.text(), "# Tides\nLow at noon.");
    assert_eq!(finished.stats().model_calls, 6);
    assert_eq!(finished.usage().total(), 720);

    {
        let view = view.lock().unwrap();
        assert_eq!(view.steps().len(), 4);
        assert!(
            view.steps()
                .iter()
                .all(|step| step.status == StepStatus::Completed)
        );
        assert!(view.summary().contains("report"), "{}", view.summary());
    }

    let listed = sessions.list(&SessionFilter::new()).await.unwrap();
    assert_eq!(listed.len(), 1);
    let session = Session::load(&listed[0].path).await.unwrap();
    assert_eq!(session.finished().count(), 4);
    assert_eq!(session.plan(), finished.plan().unwrap());

    // Repeats some of the steps in a separate run.
    let rerun = team
        .run(session.starting_plan_repeating(&["check".into()]).unwrap())
        .await
        .unwrap();
    assert_eq!(rerun.stats().model_calls, 2);
    assert_eq!(rerun.text(), finished.text());
    // The first run is only read.
    let resumed = team.resume(finished.run().clone()).await.unwrap();
    assert_eq!(
        (resumed.text(), resumed.usage()),
        (finished.text(), finished.usage())
    );
}

#[tokio::test]
async fn ask_user_call_parks_step_until_answer() {
    // The agent calls `ask_user`; the conversation contains the answer of the user.
    let model = FunctionModel::new(|request: &Request| {
        let last = request.history.messages().last().cloned();
        let answered = last
            .iter()
            .flat_map(|message| &message.parts)
            .find_map(|part| match part {
                Part::ToolResult(result) => Some(result.text().into_owned()),
                _ => None,
            });
        Ok(Response::new(match answered {
            Some(answer) => Message::assistant(json!({"place": answer}).to_string()),
            None => {
                let call = levity::core::ToolCall::new(
                    "c1",
                    "ask_user",
                    json!({"question": "Which place?"}),
                );
                Message::new(levity::core::Role::Assistant, vec![Part::ToolCall(call)])
            }
        }))
    });
    let dir = tempfile::tempdir().unwrap();
    let runtime = Runtime::new().with_journal(FileJournal::new(dir.path()).unwrap());
    let parts = AgentParts::new(model).runtime(runtime);
    let team = Catalogue::defaults().team(parts).unwrap().build().unwrap();
    let plan = Plan::new().step(
        Step::new("ask", "Clarification")
            .prompt("Ask for the place.")
            .writes(["place"]),
    );
    let Err(Error::Parked { run, .. }) = team.run(plan).park().await else {
        panic!("it waits")
    };
    let asks = team.asks(&run).await.unwrap();
    assert_eq!(asks.len(), 1);
    let answer = levity::core::RunRequest::Decide {
        effect: asks[0].effect,
        decision: Decision::answer("Brest"),
    };
    team.runtime()
        .send_request(&asks[0].run, answer)
        .await
        .unwrap();
    let finished = team.resume(run).await.unwrap();
    assert_eq!(finished.variable("place"), Some(&json!("Brest")));
}

#[tokio::test]
async fn code_in_answer_runs_only_for_permitted_agents() {
    let model = model(&[
        ("`page` is missing", r#"{"page": "read"}"#),
        ("Read the page", r#"{"code": "{'page': 'run'}"}"#),
        ("Write a program", r#"{"code": "print('hello')"}"#),
    ]);
    let parts = AgentParts::new(model).code(RunPython::new());
    let team = Catalogue::defaults().team(parts).unwrap().build().unwrap();
    let plan = Plan::new()
        .step(
            Step::new("read", "Browser")
                .prompt("Read the page.")
                .writes(["page"]),
        )
        .step(
            Step::new("program", "Coder")
                .prompt("Write a program.")
                .writes(["code"]),
        );
    let finished = team.run(plan).await.unwrap();
    assert_eq!(finished.variable("page"), Some(&json!("read")));
    assert_eq!(finished.variable("code"), Some(&json!("print('hello')")));
}

#[tokio::test]
async fn agents_of_team_recall_facts_of_earlier_session() {
    let recall = Recall::in_memory().unwrap();
    let scopes = [Scope::user("u1")];
    let prompts = Arc::new(Mutex::new(Vec::new()));
    let seen = prompts.clone();
    let model = FunctionModel::new(move |request: &Request| {
        let all: String = request
            .history
            .messages()
            .iter()
            .map(|message| format!("{}\n", message.text()))
            .collect();
        let last = request
            .history
            .messages()
            .last()
            .map(|message| message.text().into_owned());
        let learns = last.is_some_and(|last| last.contains("Learn it"));
        seen.lock().unwrap().push(all);
        Ok(Response::new(match learns {
            true => {
                let fact = json!({"text": "The boat of the user is called Kestrel."});
                let call = levity::core::ToolCall::new("c1", "remember", fact);
                Message::new(levity::core::Role::Assistant, vec![Part::ToolCall(call)])
            }
            false => Message::assistant("Done."),
        }))
    });
    let parts = AgentParts::new(model)
        .context(recall.context(scopes.clone()))
        .customize(move |name, agent| match name {
            "Planner" => agent,
            _ => agent.tools(recall.tools(scopes.clone())),
        });
    let team = Catalogue::defaults().team(parts).unwrap().build().unwrap();
    let plan =
        |prompt: &str| Plan::new().step(Step::new("s", "Thinker").prompt(prompt).writes(["x"]));
    team.run(plan("Learn it: the boat is called Kestrel."))
        .await
        .unwrap();
    team.run(plan("What is the boat called?")).await.unwrap();
    let prompts = prompts.lock().unwrap();
    assert_eq!(prompts.len(), 3);
    assert!(
        prompts[2].contains("The boat of the user is called Kestrel."),
        "{}",
        prompts[2]
    );
}

/// An MCP server in this process with one tool.
fn tides() -> ServerConfig {
    ServerConfig::in_process("tides", || {
        let (client_end, server_end) = tokio::io::duplex(1 << 16);
        #[expect(clippy::disallowed_methods, reason = "the task ends with the pipe")]
        tokio::spawn(async move {
            let (read, mut write) = tokio::io::split(server_end);
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let asked: Value = serde_json::from_str(&line).unwrap();
                let result = match asked["method"].as_str() {
                    Some("initialize") => json!({
                        "protocolVersion": asked["params"]["protocolVersion"],
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "tides", "version": "1"},
                    }),
                    Some("tools/list") => json!({"tools": [
                        {"name": "tide_at", "description": "Returns the \
                            tide.", "inputSchema": {"type": "object"}},
                    ]}),
                    Some("tools/call") => json!({"content": [{"type": "text", "text": "1.5 m"}]}),
                    _ => json!({}),
                };
                if let Some(id) = asked.get("id") {
                    let answer = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
                    write
                        .write_all(format!("{answer}\n").as_bytes())
                        .await
                        .unwrap();
                }
            }
        });
        client_end
    })
}

#[tokio::test]
async fn folder_agent_gets_only_mcp_servers_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let config = "Harbour:\n  prompt: You know the tides.\n  mcp_servers: [tides]\n";
    std::fs::write(dir.path().join("agent_config.yaml"), config).unwrap();
    let offered = Arc::new(Mutex::new(Vec::new()));
    let seen = offered.clone();
    // The model calls the offered tool and returns its result.
    let model = FunctionModel::new(move |request: &Request| {
        let last = request.history.messages().last().cloned().unwrap();
        let result = last.parts.iter().find_map(|part| match part {
            Part::ToolResult(result) => Some(result.text().into_owned()),
            _ => None,
        });
        seen.lock().unwrap().push(
            request
                .tools
                .iter()
                .map(|tool| tool.name.clone())
                .collect::<Vec<_>>(),
        );
        Ok(Response::new(match (result, request.tools.first()) {
            (None, Some(tool)) => {
                let call = levity::core::ToolCall::new("c1", tool.name.as_str(), json!({}));
                Message::new(levity::core::Role::Assistant, vec![Part::ToolCall(call)])
            }
            (result, _) => Message::assistant(result.unwrap_or_else(|| "nothing".to_owned())),
        }))
    });
    let servers = Servers::builder().server(tides()).start().unwrap();
    servers.wait(WaitFor::All).await;
    let mut parts = AgentParts::new(model).policy(Policy::allow_all());
    for server in servers.all() {
        parts = parts.server(server.name(), servers.only([server.name()]));
    }
    let team = Catalogue::load(dir.path())
        .unwrap()
        .team(parts)
        .unwrap()
        .build()
        .unwrap();
    let plan = Plan::new()
        .step(
            Step::new("tide", "Harbour")
                .prompt("How high is it?")
                .writes(["tide"]),
        )
        .step(
            Step::new("think", "Thinker")
                .prompt("Think.")
                .after("tide")
                .writes(["thought"]),
        );
    let finished = team.run(plan).await.unwrap();
    servers.stop().await;
    assert!(
        finished
            .variable("tide")
            .unwrap()
            .to_string()
            .contains("1.5 m"),
        "{finished:?}"
    );
    let offered = offered.lock().unwrap();
    assert_eq!(offered.len(), 3);
    assert!(
        offered[0].len() == 1 && offered[0][0].ends_with("tide_at"),
        "{offered:?}"
    );
    assert!(
        offered[2].is_empty(),
        "agents that do not name the server must not have its tools: {offered:?}"
    );
}

#[test]
fn blocking_call_executes_plan() {
    let team = Team::builder()
        .function("one", |_: levity::dag::StepInput| async { Ok(json!(1)) })
        .build()
        .unwrap();
    let plan = Plan::new().step(Step::new("s", "one").writes(["x"]));
    let finished: levity::dag::TeamAnswer = team.run(plan).blocking().unwrap();
    assert_eq!(finished.variable("x"), Some(&Value::from(1)));
}
