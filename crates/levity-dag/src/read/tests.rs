use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Graph, Plan, PlanConstraints, StepRunner, StepRunnerKind};

#[track_caller]
fn assert_parses_to(text: &str, expected: &Value) {
    let plan = Plan::parse(text).unwrap();
    assert_eq!(&serde_json::to_value(&plan).unwrap(), expected);
    let again: Plan = serde_json::from_value(expected.clone()).unwrap();
    assert_eq!(again, plan, "the serialized plan is read back");
}

#[track_caller]
fn assert_rejected(text: &str, expected: &[&str]) {
    let faults = Plan::parse(text).unwrap_err().faults;
    assert_eq!(
        faults
            .iter()
            .map(|fault| fault.message.as_str())
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn own_form_is_parsed() {
    let whole = json!({
        "steps": [
            {"id": "a", "agent": "Coder", "writes": ["x"]},
            {
                "id": "b", "agent": "QA", "description": "d", "prompt": "p", "reads": ["x"],
                "writes": ["y"],
                "after": [{"step": "a"}, {"step": "c", "when": "x > 1"}], "join": "any",
                "when": "x",
                "map": {
                    "over": "x",
                    "as": "one",
                    "most": 5,
                    "quorum": 2,
                    "stop_early": true,
                    "reducer": "sum",
                },
                "inputs": {"k": [1]}, "retry": {"attempts": 3, "pause": 0.5}, "timeout": 30.0,
                "budget": {"tokens": 10, "money": 0.25, "model_calls": 3, "tool_calls": 4},
                "on_failure": {"fallback": "c"},
            },
            {"id": "c", "code": ["1", "2"], "instead_of": "b", "on_failure": "continue"},
        ],
        "variables": {"x": {"schema": {"type": "array"}, "reducer": "concat"}},
        "given": {"q": "why"},
    });
    assert_parses_to(&whole.to_string(), &whole);
    let plan = Plan::parse(&whole.to_string()).unwrap();
    assert!(
        plan.steps[0].more.is_none(),
        "a step without options has no box"
    );
}

#[test]
fn short_forms_are_parsed() {
    assert_parses_to(
        r#"{"steps": {"a": {"agent": "A", "reads": "x", "dependsOn": ["b", 1, "ROOT"],
            "agent_prompt": "do", "retry": 2,
            "map": "l", "code": null, "whatever": {}, "status": "pending"},
            "b": {"id": "b", "code": "1"},
            "1": {"agent": "A", "code": {"CODE_1A": "x", "CODE_1B": "y"}, "when": true}},
            "variables": {"v": "last", "w": null}}"#,
        &json!({
            "steps": [
                {
                    "id": "a", "agent": "A", "prompt": "do", "reads": ["x"],
                    "after": [{"step": "b"}, {"step": "1"}],
                    "map": {"over": "l", "as": "item", "most": 1000},
                    "retry": {"attempts": 2, "pause": 1.0},
                },
                {"id": "b", "code": ["1"]},
                {"id": "1", "agent": "A", "code": ["x", "y"], "when": "true"},
            ],
            "variables": {"v": {"reducer": "last"}, "w": {}},
        }),
    );
}

#[test]
fn node_link_form_is_parsed() {
    let expected = json!({
        "steps": [
            {"id": "1", "agent": "A", "prompt": "do it", "writes": ["x"]},
            {
                "id": "T002",
                "agent": "B",
                "reads": ["x"],
                "after": [{"step": "1"}, {"step": "T003", "when": "x"}],
            },
            {"id": "T003", "agent": "B", "after": [{"step": "1"}]},
        ],
        "given": {"q": 1},
    });
    let nodes = r#"[{"id": "ROOT", "description": "query", "status": "completed"},
        {"id": 1, "agent": "A", "agent_prompt": "do it", "writes": ["x"], "status": "failed",
            "output": {}, "cost": 1.5},
        {"id": "T002", "agent": "B", "reads": ["x"], "depends_on": ["1"], "execution_time": 3},
        {"id": "T003", "agent": "B"}]"#;
    let edges = r#"[{"source": "ROOT", "target": 1}, {"source": 1, "target": "T002", "key": 0},
        {"source": "T003", "target": "T002", "when": "x"}, [1, "T003"]]"#;
    let rest =
        r#""directed": true, "multigraph": false, "graph": {"given": {"q": 1}, "session_id": "s"}"#;
    assert_parses_to(
        &format!(r#"{{{rest}, "nodes": {nodes}, "links": {edges}}}"#),
        &expected,
    );
    assert_parses_to(
        &format!(r#"{{"plan_graph": {{{rest}, "nodes": {nodes}, "edges": {edges}}}, "why": 1}}"#),
        &expected,
    );
    assert_parses_to(
        &format!(r#"{{"output": {{"plan": {{{rest}, "edges": {edges}, "nodes": {nodes}}}}}}}"#),
        &expected,
    );
    assert_parses_to(
        r#"{"nodes": [{"id": "a", "agent": "A"}]}"#,
        &json!({"steps": [{"id": "a", "agent": "A"}]}),
    );
}

#[test]
fn malformed_json_of_models_is_repaired() {
    let expected =
        json!({"steps": [{"id": "a", "agent": "A"}, {"id": "b", "agent": "B", "reads": ["x"]}]});
    let body = "{steps: [{'id': 'a', 'agent': 'A'}, {'id': 'b', 'agent': 'B', 'reads': ['x',],},]}";
    assert_parses_to(
        &format!("Here is the plan:\n```json\n{body}\n```\nGood luck!"),
        &expected,
    );
    assert_parses_to(body.trim_end_matches('}'), &expected);
    assert_parses_to(&json!(expected.to_string()).to_string(), &expected);
    let example = concat!(
        r#"Like {"a much longer example": {"that": "is no plan", "#,
        r#""but": "has more text than the plan below"}}:"#,
    );
    assert_parses_to(
        &format!(r#"{example} {{"steps": [{{"id": "a", "agent": "A",}}]}}"#),
        &json!({"steps": [{"id": "a", "agent": "A"}]}),
    );
}

#[test]
fn truncated_plan_is_rejected() {
    let text =
        r#"{"steps": [{"id": "a", "agent": "A"}, {"id": "b", "agent": "B", "prompt": "and th"#;
    assert_rejected(
        text,
        &["the plan is cut off at byte 81; write it completely"],
    );
}

#[test]
fn parse_faults_name_field_and_expected_type() {
    assert_rejected(
        "",
        &["the text is not a plan: the text of 0 bytes contains no JSON"],
    );
    assert_rejected(
        "42",
        &["a plan is an object with a list `steps`, not a number"],
    );
    assert_rejected("{}", &["the plan has no `steps`; write {\"steps\": [..]}"]);
    assert_rejected(
        r#"{"steps": 5, "variables": [], "given": 7}"#,
        &[
            "`variables` must be an object, not a list",
            "`given` must be an object of names and values, not a number",
            "`steps` must be a list of objects, not a number",
        ],
    );
    assert_rejected(
        r#"{"nodes": [], "links": 7}"#,
        &["`links` must be a list of objects, not a number"],
    );
    assert_rejected(
        r#"{"nodes": [{"id": "fetch"}],
            "links": [{"source": "fetch"}, {"source": 1, "target": "fetsh"}, 3, [1]]}"#,
        &[
            "link 1: `source` and `target` must be ids of nodes",
            "link 2 leads to `fetsh`, which is not a node; did you mean `fetch`?",
            "link 3 must be an object with the ids `source` and `target`, not a number",
            "link 4 must be an object with the ids `source` and `target`, not a list",
        ],
    );
    assert_rejected(
        r#"[7, {"agent": "A"}]"#,
        &[
            "step 1 must be an object, not a number",
            "step 2: `id` is missing; give the step a unique text",
        ],
    );
    assert_rejected(
        r#"{"steps": [{"id": "a", "agent": 1, "prompt": [], "reads": 5, "writes": ["x", 1],
            "after": {"when": "x"},
            "join": "most", "when": "x >", "map": {"most": -1}, "inputs": [], "retry": "often",
            "timeout": -3,
            "budget": {"tokens": 1.5, "money": "much", "tokes": 1}, "instead_of": [],
            "on_failure": "explode", "code": [1],
            "write": ["x"]}], "variables": {"v": "median", "w": 3}}"#,
        &[
            "variable `v`: `reducer` must be one of list, concat, merge, sum, join, first, last",
            "variable `w` must be an object, not a number",
            "step `a`: `agent` must be a text, not a number",
            "step `a`: `prompt` must be a text, not a list",
            "step `a`: `reads` must be a list of names, not a number",
            "step `a`: `writes` must be a list of names only, not a number",
            "step `a`, `after`: `step` must be the id of a step",
            "step `a`: `join` must be \"all\" or \"any\"",
            "step `a`: `when` is not a valid condition: a value is missing at character 4",
            "step `a`: `on_failure` must be \"fail\", \"skip\", \"continue\" or \
                {\"fallback\": \"<id of a step>\"}",
            "step `a`, `map`: `over` must name the variable that contains the list",
            "step `a`: `code` must be a text or a list of texts, not a list",
            "step `a`: `inputs` must be an object of names and values, not a list",
            "step `a`: `retry` must be a number of attempts, not a text",
            "step `a`: `timeout` must not be negative",
            "step `a`, `budget`: `tokens` must be a whole number that is not negative, not a \
                number",
            "step `a`, `budget`: `money` must be a number, not a text",
            "step `a`, `budget`: there is no field `tokes`; did you mean `tokens`?",
            "step `a`: `instead_of` must be the id of a step, not a list",
            "step `a`: there is no field `write`; did you mean `writes`?",
        ],
    );
}

#[test]
fn parse_faults_name_their_step() {
    let faults = Plan::parse(r#"{"steps": [{"id": "a", "map": {"over": 3}}]}"#)
        .unwrap_err()
        .faults;
    assert!(
        faults
            .iter()
            .all(|fault| fault.step.as_ref().is_some_and(|step| step.as_str() == "a")),
        "{faults:?}"
    );
}

#[test]
fn huge_numbers_and_deep_nesting_are_rejected() {
    let plan = Plan::parse(
        r#"{"steps": [{"id": "a", "agent": "A", "retry": 1e15, "timeout": 1e300,
        "map": {"over": "x", "most": 18446744073709551615}}]}"#,
    )
    .unwrap();
    let faults = Graph::check(
        plan,
        &PlanConstraints::new().with("A", StepRunner::new(StepRunnerKind::Agent, "")),
    )
    .unwrap_err();
    assert_eq!(faults.faults.len(), 4, "{faults}");
    let deep = format!(
        r#"{{"steps": {}1{}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    assert!(
        Plan::parse(&deep)
            .unwrap_err()
            .to_string()
            .contains("nested deeper than 128")
    );
}

/// A plan text with some characters changed.
fn mutated() -> impl Strategy<Value = String> {
    let whole = r#"{"plan": {"nodes": [{"id": 1, "agent": "A", "map": {"over": "x", "most": 3},
        "retry": {"attempts": 2}},
        {"id": "b", "after": [{"step": 1, "when": "x > 1"}], "on_failure": {"fallback": "c"},
            "budget": {"money": 1}}],
        "links": [{"source": 1, "target": "b"}], "variables": {"x": {"reducer": "sum"}}}}"#;
    let letters = prop::sample::select("{}[]\",:01-.ntf\\e \u{e9}".chars().collect::<Vec<_>>());
    prop::collection::vec((0..whole.len(), letters, 0..12usize), 0..6).prop_map(move |changes| {
        let mut text = whole.to_owned();
        for (at, letter, len) in changes {
            let from = levity_core::text::head(&text, at).len();
            let to = levity_core::text::head(&text, from + len).len();
            text.replace_range(from..to, &letter.to_string());
        }
        text
    })
}

fn any_json() -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(vec![
        "steps", "nodes", "links", "id", "agent", "reads", "after", "map", "retry", "budget",
        "over", "plan", "when",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((keys.clone(), inner), 0..5).prop_map(|pairs| pairs
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #[test]
    fn parse_never_panics_on_mutated_text(text in mutated()) {
        if let Ok(plan) = Plan::parse(&text) {
            let _ = Graph::check(plan.clone(), &PlanConstraints::new());
            let again = Plan::from_value(serde_json::to_value(&plan).unwrap());
            prop_assert_eq!(again.unwrap(), plan);
        }
    }

    #[test]
    fn from_value_never_panics_on_any_json(value in any_json()) {
        if let Ok(plan) = Plan::from_value(value) {
            let _ = Graph::check(plan.clone(), &PlanConstraints::new());
            let again = Plan::parse(&serde_json::to_string(&plan).unwrap());
            prop_assert_eq!(again.unwrap(), plan);
        }
    }
}
