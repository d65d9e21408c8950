//! Parsing of session files.

use super::*;

/// Checks that a file is rejected with this location and reason.
#[track_caller]
fn check_rejected(file: &str, expected: &str) {
    let problem = Session::parse(file.as_bytes()).unwrap_err();
    assert_eq!(problem.to_string(), expected);
}

#[test]
fn parse_rejects_invalid_files_with_location() {
    check_rejected("", "invalid JSON at line 1, column 0");
    check_rejected(
        "{\"nodes\": [\n{\"id\": ",
        "invalid JSON at line 2, column 7",
    );
    check_rejected("[]", "at ``: expected an object");
    check_rejected("{}", "at `/nodes`: the list of nodes is missing");
    check_rejected(
        r#"{"directed": false, "nodes": []}"#,
        "at `/directed`: expected a directed graph",
    );
    check_rejected(r#"{"nodes": {}}"#, "at `/nodes`: expected a list");
    check_rejected(r#"{"nodes": [7]}"#, "at `/nodes/0`: expected an object");
    check_rejected(
        r#"{"nodes": [{"id": []}]}"#,
        "at `/nodes/0/id`: expected a string or a number",
    );
    check_rejected(
        r#"{"nodes": [{"id": "a"}, {"id": "a"}]}"#,
        "at `/nodes/1/id`: another node has the same id",
    );
    check_rejected(
        r#"{"nodes": [{"id": "a", "reads": "secret"}]}"#,
        "at `/nodes/0/reads`: invalid value for a step",
    );
    check_rejected(
        r#"{"nodes": [{"id": "a", "agent_prompt": 7}]}"#,
        "at `/nodes/0/agent_prompt`: invalid value for a step",
    );
    check_rejected(
        r#"{"nodes": [{"id": "a", "attempts": -1}]}"#,
        "at `/nodes/0/attempts`: invalid value",
    );
    check_rejected(
        r#"{"nodes": [{"id": "a", "written": [{}]}]}"#,
        "at `/nodes/0/written`: expected a list of written variables",
    );
    check_rejected(
        r#"{"nodes": [], "edges": [{"source": "a", "target": "b"}]}"#,
        "at `/edges/0/source`: expected the id of a node",
    );
    check_rejected(
        r#"{"nodes": [], "links": [1]}"#,
        "at `/links/0`: expected an object",
    );
    check_rejected(
        r#"{"graph": 1, "nodes": []}"#,
        "at `/graph`: expected an object",
    );
    check_rejected(
        r#"{"graph": {"format": 99}, "nodes": []}"#,
        "at `/graph/format`: written by a newer version of levity; update levity",
    );
    let deep = format!("{{\"nodes\": {}", "[".repeat(100_000));
    assert!(matches!(
        Session::parse(deep.as_bytes()),
        Err(SessionProblem::Json { .. })
    ));
    assert!(matches!(
        Session::parse(b"{\"nodes\": \"\xff\"}"),
        Err(SessionProblem::Json { .. })
    ));
}

#[tokio::test]
async fn load_error_names_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("session_x.json");
    let error = Session::load(&path).await.unwrap_err();
    assert!(error.to_string().contains("session_x.json"), "{error}");
    fs::write(&path, "{}").unwrap();
    let error = Session::load(&path).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("session_x.json`: at `/nodes`: the list of nodes is missing"),
        "{error}"
    );
}

/// A file as the original program writes it.
pub(super) const SOURCE: &str = r#"{
    "directed": true, "multigraph": false,
    "graph": {
        "session_id": "12345678", "original_query": "User query", "file_manifest": [],
        "created_at": "2025-01-15T10:30:00", "status": "running",
        "globals_schema": {"data": {"k": 1}, "topic": "tides"}, "output_chain": {}
    },
    "nodes": [
        {"description": "Initial Query", "agent": "System", "status": "completed", "id": "ROOT"},
        {"agent": "RetrieverAgent", "description": "find", "agent_prompt": "Find it.",
            "reads": ["topic"], "writes": ["data"],
         "status": "completed", "output": {"data": {"k": 1}}, "error": null, "cost": 0.001,
         "start_time": "2025-01-15T10:30:01.5",
         "end_time": "2025-01-15T10:30:04", "execution_time": 2.5, "input_tokens": 100.0,
         "output_tokens": 20, "id": "T001",
         "iterations": [1]},
        {"agent": "SummarizerAgent", "reads": ["data"], "writes": ["summary"], "status": "failed",
         "error": "timeout", "output": null, "id": "T002"},
        {"agent": "QAAgent", "status": "odd", "id": 3}
    ],
    "links": [{"source": "ROOT", "target": "T001"}, {"source": "T001", "target": "T002"},
    {"source": "T002", "target": 3}]
}"#;

#[test]
fn files_of_original_program_are_read() {
    let session = Session::parse(SOURCE.as_bytes()).unwrap();
    assert_eq!(
        (session.id.as_str(), session.query.as_str(), session.stage),
        ("12345678", "User query", PlanStage::Running)
    );
    assert_eq!(
        session.created.unwrap().to_string(),
        "2025-01-15T10:30:00.000Z"
    );
    assert_eq!(session.plan().given["topic"], "tides");
    assert!(!session.plan().given.contains_key("data"));
    let find = session.step("T001").unwrap();
    assert_eq!(
        (&*find.step.prompt, find.status),
        ("Find it.", StepStatus::Completed)
    );
    assert_eq!(
        (
            find.spent.usage.input,
            find.spent.usage.cost.unwrap().to_string()
        ),
        (Some(100), "$0.001".into())
    );
    assert_eq!(
        (
            find.written[0].value.clone(),
            find.extra["iterations"].clone()
        ),
        (json!({"k": 1}), json!([1]))
    );
    assert_eq!(session.extra["output_chain"], json!({}));
    assert_eq!(session.step("3").unwrap().step.after[0].step, id("T002"));
    assert_eq!(session.step("3").unwrap().status, StepStatus::Pending);
    assert_eq!(session.starting_plan().completed.len(), 1);
    assert_eq!(
        session.to_view().tree(TreeOptions::new()),
        "\
ROOT User query
└── T001 ✓ RetrieverAgent 2.5 s
    └── T002 ✗ SummarizerAgent: timeout
        └── 3 ○ QAAgent
"
    );
}
