//! Plans through the facade: real code, real files, agents of the catalogue.

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

/// A model that answers by what it is told: the first of these whose words are there.
fn model(answers: &'static [(&'static str, &'static str)]) -> FunctionModel {
    FunctionModel::new(move |request: &Request| {
        let told = request
            .history
            .messages()
            .last()
            .map(|message| message.text().into_owned())
            .unwrap_or_default();
        let answer = answers
            .iter()
            .find(|(words, _)| told.contains(words))
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
async fn code_steps_read_variables_and_try_variants() {
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
async fn code_steps_call_the_teams_tools() {
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
async fn code_that_an_agent_wrote_is_run_and_its_failure_told() {
    let model = model(&[
        (
            "The code failed",
            r#"{"code_variants": ["undefined", "{'mean': sum(numbers) / len(numbers)}"]}"#,
        ),
        ("mean", r#"{"code": "sum(numbers) / 0"}"#),
    ]);
    let parts = AgentParts::new(model).code(RunPython::new());
    let team = Catalogue::defaults().team(parts).unwrap().build().unwrap();
    let (told, watch) = notices();
    let plan = Plan::new().given("numbers", json!([1, 2, 6])).step(
        Step::new("mean", "CoderAgent")
            .prompt("Work out the mean.")
            .reads(["numbers"])
            .writes(["mean"]),
    );
    let finished = team.run(plan).on_event(watch).await.unwrap();
    assert_eq!(finished.variable("mean"), Some(&json!(3.0)));
    let by = told.lock().unwrap().iter().find_map(|notice| match notice {
        PlanNotice::StepCompleted { writes, .. } => writes.first().map(|written| written.by),
        _ => None,
    });
    assert_eq!(by, Some(Strategy::CodeResult));
}

const PLAN: &str = r#"{"steps": [
    {"id": "read", "agent": "Retriever", "prompt": "Read the table.", "reads": ["file_profiles"], "writes": ["rows"]},
    {"id": "sum", "agent": "Summarizer", "prompt": "Sum it up.", "reads": ["rows"], "writes": ["summary"]},
    {"id": "check", "agent": "QA", "prompt": "Judge the summary.", "reads": ["summary"]},
    {"id": "report", "agent": "Formatter", "prompt": "Format.", "reads": ["summary"], "after": ["check"], "writes": ["report"]}
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
async fn the_ten_agents_look_at_files_plan_work_and_judge() {
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

    // Some of it is done again, in a run of its own.
    let again = team
        .run(session.seed_without(&["check".into()]).unwrap())
        .await
        .unwrap();
    assert_eq!(again.stats().model_calls, 2);
    assert_eq!(again.text(), finished.text());
    // And the first is only read.
    let resumed = team.resume(finished.run().clone()).await.unwrap();
    assert_eq!(
        (resumed.text(), resumed.usage()),
        (finished.text(), finished.usage())
    );
}

#[tokio::test]
async fn an_agent_that_asks_the_user_makes_its_step_wait() {
    // The agent calls `ask_user`; what the user says is in the conversation.
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
    team.runtime().tell(&asks[0].run, answer).await.unwrap();
    let finished = team.resume(run).await.unwrap();
    assert_eq!(finished.variable("place"), Some(&json!("Brest")));
}

#[tokio::test]
async fn code_in_an_answer_is_run_only_for_those_who_may_and_only_in_place_of_values() {
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
async fn agents_of_a_team_recall_what_was_learned_in_another_session() {
    let recall = Recall::in_memory().unwrap();
    let scopes = [Scope::user("u1")];
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = told.clone();
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
        .finish(move |name, agent| match name {
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
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 3);
    assert!(
        told[2].contains("The boat of the user is called Kestrel."),
        "{}",
        told[2]
    );
}

/// An MCP server in this process with one tool.
fn tides() -> ServerConfig {
    ServerConfig::in_process("tides", || {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        #[expect(clippy::disallowed_methods, reason = "it ends with the pipe")]
        tokio::spawn(async move {
            let (read, mut write) = tokio::io::split(theirs);
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let asked: Value = serde_json::from_str(&line).unwrap();
                let result = match asked["method"].as_str() {
                    Some("initialize") => json!({
                        "protocolVersion": asked["params"]["protocolVersion"],
                        "capabilities": {"tools": {}}, "serverInfo": {"name": "tides", "version": "1"},
                    }),
                    Some("tools/list") => json!({"tools": [
                        {"name": "tide_at", "description": "Tells the \
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
        ours
    })
}

#[tokio::test]
async fn an_agent_of_a_folder_has_the_mcp_servers_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let config = "Harbour:\n  prompt: You know the tides.\n  mcp_servers: [tides]\n";
    std::fs::write(dir.path().join("agent_config.yaml"), config).unwrap();
    let offered = Arc::new(Mutex::new(Vec::new()));
    let seen = offered.clone();
    // It calls what it is offered, and says what came of it.
    let model = FunctionModel::new(move |request: &Request| {
        let told = request.history.messages().last().cloned().unwrap();
        let result = told.parts.iter().find_map(|part| match part {
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
        "those who do not name it do not have it: {offered:?}"
    );
}

#[test]
fn a_blocking_program_carries_out_plans() {
    let team = Team::builder()
        .function("one", |_: levity::dag::StepInput| async { Ok(json!(1)) })
        .build()
        .unwrap();
    let plan = Plan::new().step(Step::new("s", "one").writes(["x"]));
    let finished: levity::dag::TeamAnswer = team.run(plan).blocking().unwrap();
    assert_eq!(finished.variable("x"), Some(&Value::from(1)));
}
