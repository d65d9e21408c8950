//! Tests of `levity plan --estimate`.

use std::process::Output;

use serde_json::{Value, json};

use crate::{check, command, file, levity, text};

/// A plan with a step of an agent without tools and one with a tool of `--tools`.
fn plan() -> Value {
    json!({"steps": [
        {"id": "think", "agent": "Thinker", "prompt": "Compare.", "writes": ["choice"]},
        {"id": "code", "agent": "Coder", "prompt": "Count.", "reads": ["choice"], "writes": ["n"]},
    ]})
}

/// Estimates the plan above with a model whose price levity knows; no call is made.
fn estimate_file(name: &str, args: &[&str]) -> Output {
    let path = file(&format!("estimate-{name}.json"), &plan().to_string());
    let fixed = ["plan", "--estimate", "--plan", path.to_str().unwrap()];
    let mut command = command(&[&fixed[..], args].concat());
    command.env("ANTHROPIC_API_KEY", "sk-ant-0123456789");
    command.output().unwrap()
}

#[test]
fn estimate_of_file_names_agent_model_and_cost_of_each_step() {
    let model = ["--model", "anthropic:claude-sonnet-4-5", "--workspace", "."];
    let output = estimate_file("text", &model);
    check(&output, 0, "This is an estimate, not a limit");
    let printed = text(&output);
    let line = |start: &str| {
        let found = printed.lines().find(|line| line.starts_with(start));
        found
            .unwrap_or_else(|| panic!("no `{start}` in {printed}"))
            .to_owned()
    };
    for (step, agent) in [("think", "Thinker"), ("code", "Coder")] {
        let line = line(step);
        assert!(
            line.contains(agent) && line.contains("anthropic:claude"),
            "{line}"
        );
        assert!(line.contains(" to ") && line.contains("$0."), "{line}");
    }
    assert!(line("total").contains("$0."), "{printed}");
    assert!(
        !printed.contains("Making the plan took"),
        "no planner was called: {printed}"
    );

    let output = estimate_file("json", &[&model[..], &["--json"]].concat());
    let found: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(found["steps"][1]["agent"], "Coder");
    let low = |step: usize| found["steps"][step]["cost"]["low"].as_f64().unwrap();
    assert!(low(0) > 0.0 && low(1) > low(0), "{found}");
    let sum = found["total"]["known_cost"]["low"].as_f64().unwrap();
    assert!((sum - low(0) - low(1)).abs() < 1e-9, "{found}");
    assert_eq!(found["plan"]["steps"][0]["id"], "think");
    assert_eq!(found["planning"], Value::Null);
}

#[test]
fn estimate_of_goal_calls_planner_once_and_runs_no_step() {
    let replies = json!([{"reply": plan().to_string()}]);
    let script = file("estimate-script.json", &replies.to_string());
    let script = script.to_str().unwrap();
    // A second call would fail, because the script has only one reply.
    let output = levity(&["plan", "--estimate", "Compare", "--script", script]);
    check(&output, 0, "think");
    let printed = text(&output);
    assert!(printed.contains("Making the plan took"), "{printed}");
    let unknown = printed.lines().filter(|line| line.contains("unknown"));
    assert_eq!(
        unknown.count(),
        4,
        "two steps, the total and the note: {printed}"
    );

    let price = ["--limit-cost", "1", "--assume-price", "1:4"];
    let args = ["plan", "--estimate", "Compare", "--script", script];
    let output = levity(&[&args[..], &price].concat());
    check(&output, 0, "$0.");
    assert!(!text(&output).contains("unknown"), "{output:?}");
}

#[test]
fn estimate_stores_nothing_and_reports_invalid_plans() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "sessions = \"s\"\nmax-turns = 3\n";
    std::fs::write(folder.path().join("levity.toml"), settings).unwrap();
    let levity_in = |args: &[&str]| command(args).current_dir(folder.path()).output().unwrap();
    check(&levity_in(&["trust", "--yes"]), 0, "");
    check(&levity_in(&["plan", "--estimate", "Compare"]), 0, "total");
    assert!(!folder.path().join("s").exists());

    // A plan from a file may read what a run sets.
    let reads = r#"{"steps": [{"id": "a", "agent": "Thinker",
        "reads": ["file_manifest", "original_query"], "writes": ["x"]}]}"#;
    let reads = file("estimate-reads.json", reads);
    let reads = reads.to_str().unwrap();
    let args = [
        "plan",
        "--estimate",
        "Count",
        "--plan",
        reads,
        "--file",
        reads,
    ];
    check(&levity(&args), 0, "total");
    let wrong = r#"{"steps": [{"id": "a", "agent": "Codr"}]}"#;
    let wrong = file("estimate-wrong.json", wrong);
    let args = ["plan", "--estimate", "--plan", wrong.to_str().unwrap()];
    check(&levity(&args), 2, "did you mean `Coder`");
    let script = file(
        "estimate-no-plan.json",
        r#"[{"reply": "no"}, {"reply": "no"}, {"reply": "no"}]"#,
    );
    let args = [
        "plan",
        "--estimate",
        "x",
        "--script",
        script.to_str().unwrap(),
    ];
    check(&levity(&args), 1, "the planner made no valid plan");
    check(
        &levity(&["plan", "--estimate", "x", "--sessions", "s"]),
        2,
        "cannot be used with",
    );
}
