use serde_json::json;

use crate::{
    Diff, FaultKind, Graph, OnFailure, Plan, PlanConstraints, Reducer, Step, StepId, StepRunner,
    StepRunnerKind, Variable,
};

fn known() -> PlanConstraints {
    PlanConstraints::new().with("a", StepRunner::new(StepRunnerKind::Agent, ""))
}

fn step(id: &str) -> Step {
    Step::new(id, "a")
}

fn plan() -> Plan {
    Plan::new()
        .step(step("fetch").writes(["page"]))
        .step(
            step("sum")
                .reads(["page"])
                .writes(["summary"])
                .prompt("Sum it up."),
        )
        .step(step("check").reads(["summary"]).after("sum"))
        .variable("page", Variable::new().reducer(Reducer::Last))
        .given("q", 1)
}

fn settled(id: &StepId) -> bool {
    id.as_str() == "fetch"
}

#[track_caller]
fn applied(text: &str) -> serde_json::Value {
    let diff = Diff::parse(text, &plan(), &settled).unwrap();
    serde_json::to_value(diff.apply(&plan(), &settled).unwrap()).unwrap()["steps"].clone()
}

#[track_caller]
fn assert_rejected(text: &str, expected: &[(FaultKind, &str)]) {
    let changed =
        Diff::parse(text, &plan(), &settled).and_then(|diff| diff.apply(&plan(), &settled));
    let faults = changed.unwrap_err().faults;
    let faults: Vec<_> = faults
        .iter()
        .map(|fault| (fault.kind, fault.message.as_str()))
        .collect();
    assert_eq!(faults, expected);
}

#[test]
fn diff_is_merged_over_plan() {
    let fetch = json!({"id": "fetch", "agent": "a", "writes": ["page"]});
    let steps = applied(
        r#"Sure: ```json
        {"reason": "r",
         "add": [{"id": "look", "agent": "a", "instead_of": "fetch", "writes": ["page"]}],
         "remove": "check",
         "change": [{"id": "sum", "agent_prompt": "Shorter.", "dependsOn": ["look"]}],
         "links": [{"source": "ROOT", "target": "look"}]}
        ```"#,
    );
    assert_eq!(
        steps,
        json!([
            fetch,
            {
                "id": "sum",
                "agent": "a",
                "prompt": "Shorter.",
                "reads": ["page"],
                "writes": ["summary"],
                "after": [{"step": "look"}],
            },
            {"id": "look", "agent": "a", "writes": ["page"], "instead_of": "fetch"},
        ])
    );
    let steps = applied(r#"{"diff": {"change": {"id": "check", "reads": null, "after": null}}}"#);
    assert_eq!(steps[2], json!({"id": "check", "agent": "a"}));
    let steps = applied(r#"{"remove": ["check"], "add": [{"id": "check", "agent": "a"}]}"#);
    assert_eq!(steps[2], json!({"id": "check", "agent": "a"}));
}

#[test]
fn whole_plan_is_accepted_as_diff() {
    let text = r#"{"reason": "new", "nodes": [{"id": "sum", "agent": "a", "reads": ["page"],
        "writes": ["summary"],
        "prompt": "Sum it up."}, {"id": "tell", "agent": "a"}],
        "links": [{"source": "sum", "target": "tell"}]}"#;
    let diff = Diff::parse(text, &plan(), &settled).unwrap();
    assert_eq!(
        serde_json::to_value(&diff).unwrap(),
        json!({
            "reason": "new", "remove": ["check"],
            "add": [{"id": "tell", "agent": "a", "after": [{"step": "sum"}]}],
        })
    );
    let new = diff.apply(&plan(), &settled).unwrap();
    assert_eq!(
        Diff::between(&plan(), &new),
        Diff {
            reason: String::new(),
            ..diff
        }
    );
    assert!(Diff::between(&new, &new).is_empty());
    let old = Graph::check(plan(), &known()).unwrap();
    Graph::check_changed(new, &known(), &old, &settled).unwrap();
}

#[test]
fn complete_unknown_step_in_change_is_added() {
    let steps = applied(
        r#"{"change": [{"id": "tell", "agent": "a"}, {"id": "sum", "agent": "a", "prompt": "?"}]}"#,
    );
    assert_eq!(steps[3], json!({"id": "tell", "agent": "a"}));
    assert_eq!(steps[1]["prompt"], json!("?"));
    assert_rejected(
        r#"{"change": [{"id": "sun", "prompt": "?"}]}"#,
        &[(
            FaultKind::Reference,
            "step `sun` does not exist and cannot be changed; did you mean `sum`?",
        )],
    );
}

#[test]
fn apply_reports_faults_in_given_order() {
    let ids: Vec<String> = (0..12).map(|n| format!("gone {n}")).collect();
    let text = json!({"remove": ids}).to_string();
    let diff = Diff::parse(&text, &plan(), &settled).unwrap();
    let faults = diff.apply(&plan(), &settled).unwrap_err().faults;
    let reported: Vec<_> = faults
        .iter()
        .filter_map(|fault| fault.step.as_ref())
        .map(StepId::as_str)
        .collect();
    assert_eq!(reported, ids[..reported.len()]);
    assert!(reported.len() > 5, "{reported:?}");
}

#[test]
fn give_up_accepts_text_or_flag() {
    let parse = |text| Diff::parse(text, &plan(), &settled).unwrap().give_up;
    assert_eq!(parse(r#"{"give_up": "no way"}"#).as_deref(), Some("no way"));
    assert_eq!(
        parse(r#"{"give_up": true, "reason": "r"}"#).as_deref(),
        Some("r")
    );
    assert_eq!(parse(r#"{"give_up": false, "remove": ["sum"]}"#), None);
}

#[test]
fn settled_steps_cannot_be_changed() {
    assert_rejected(
        r#"{"remove": ["fetch"], "change": [{"id": "fetch", "agent": "b"}],
            "add": [{"id": "fetch", "agent": "a"}]}"#,
        &[
            (
                FaultKind::Settled,
                "step `fetch` has started or finished and cannot be removed; add a step with \
                    another id and \
                 `instead_of` for its work",
            ),
            (
                FaultKind::Settled,
                "step `fetch` has started or finished and cannot be changed; add a step with \
                    another id and \
                 `instead_of` for its work",
            ),
            (
                FaultKind::Id,
                "step `fetch` is changed twice, or both changed and removed; keep one",
            ),
            (
                FaultKind::Settled,
                "step `fetch` has started or finished and cannot be added again; choose another id",
            ),
        ],
    );
    // A whole plan cannot rewrite a settled step, nor add a predecessor to it.
    let whole = r#"{"steps": [{"id": "fetch", "agent": "a", "writes": ["page"], "after": ["new"]},
        {"id": "new", "agent": "a"}]}"#;
    let diff = Diff::parse(whole, &plan(), &settled).unwrap();
    assert_eq!(
        diff.apply(&plan(), &settled).unwrap_err().faults[0].kind,
        FaultKind::Settled
    );
}

#[test]
fn fallback_to_settled_step_is_rejected() {
    assert_rejected(
        r#"{"change": [{"id": "sum", "on_failure": {"fallback": "fetch"}}]}"#,
        &[(
            FaultKind::Settled,
            "step `sum` cannot fall back to `fetch`, which has started or finished; add a step \
                for that",
        )],
    );
}

#[test]
fn invalid_diffs_are_rejected() {
    assert_rejected(
        "{}",
        &[(
            FaultKind::Malformed,
            "the change has none of `add`, `remove`, `change` and `give_up`, and no `steps` of a \
                whole plan",
        )],
    );
    assert_rejected(
        r#"{"add": []}"#,
        &[(
            FaultKind::Malformed,
            "the change changes nothing; use `add`, `remove`, `change` or `give_up`",
        )],
    );
    assert_rejected(
        r#"{"add": [{"id": "x", "read": []}], "remove": [[]], "reason": 1}"#,
        &[
            (
                FaultKind::Malformed,
                "`reason` must be a text, not a number",
            ),
            (
                FaultKind::Malformed,
                "step `x`: there is no field `read`; did you mean `reads`?",
            ),
            (
                FaultKind::Malformed,
                "`remove` must be a list of ids of steps, not a list",
            ),
        ],
    );
    assert_rejected(
        r#"{"add": [{"id": "x"}, {"id": "x"}, {"id": "sum"}], "remove": ["chek"],
            "change": [{"id": "nobody"}],
            "variables": {"page": "first", "new": "sum"}}"#,
        &[
            (
                FaultKind::Reference,
                "step `chek` does not exist and cannot be removed; did you mean `check`?",
            ),
            (
                FaultKind::Reference,
                "step `nobody` does not exist and cannot be changed",
            ),
            (
                FaultKind::Id,
                "two new steps have the id `x`; give each its own",
            ),
            (
                FaultKind::Id,
                "step `sum` already exists; use `change`, or choose another id",
            ),
            (
                FaultKind::Variable,
                "the declaration of `page` cannot be changed; use another variable",
            ),
        ],
    );
}

fn judged() -> Plan {
    Plan::new()
        .step(step("fetch").writes(["page"]))
        .step(
            step("draft")
                .reads(["page"])
                .writes(["text"])
                .prompt("Write.")
                .on_failure(OnFailure::Fallback("spare".into())),
        )
        .step(step("spare").reads(["page"]).writes(["text"]))
        .step(step("polish").reads(["text"]).writes(["nice"]))
        .step(step("aside").reads(["page"]))
        .step(
            step("qa")
                .reads(["nice"])
                .writes(["verdict"])
                .after("aside"),
        )
        .step(step("end").reads(["nice"]).after("qa"))
}

#[test]
fn redo_copies_rejected_work_and_judge() {
    let graph = Graph::check(judged(), &known()).unwrap();
    let issues = ["too long".to_owned(), "no sources".to_owned()];
    let diff = Diff::redo(&graph, &"qa".into(), &["draft".into()], &issues);
    assert_eq!(diff.reason, "`qa` sent the work back: too long");
    let ids: Vec<_> = diff.add.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["draft~2", "spare~2", "polish~2", "qa~2"]);
    assert_eq!(
        diff.add[0].on_failure,
        OnFailure::Fallback("spare~2".into())
    );
    assert_eq!(
        diff.add[0].prompt.as_ref(),
        "Write.\n\nThis was done before and sent back. Do it once more, without what was wrong. \
            What was wrong:\n- too long\n- no sources"
    );
    assert_eq!(diff.add[3].fallback_for(), Some(&"qa".into()));
    assert!(diff.add[2].more.is_none());

    let started = |id: &StepId| id.as_str() != "end" && !id.as_str().contains('~');
    let changed = diff.apply(graph.plan(), &started).unwrap();
    let again = Graph::check_changed(changed, &known(), &graph, &started).unwrap();
    let predecessors = |id: &str| {
        let mut before: Vec<_> = again
            .before(again.find(id).unwrap())
            .map(|(at, _)| again.step(at).unwrap().id.to_string())
            .collect();
        before.sort();
        before
    };
    assert_eq!(predecessors("draft~2"), ["fetch"]);
    assert_eq!(
        predecessors("polish~2"),
        ["draft", "draft~2", "spare", "spare~2"]
    );
    assert_eq!(predecessors("qa~2"), ["aside", "polish", "polish~2", "qa"]);
    assert_eq!(predecessors("end"), ["polish", "polish~2", "qa", "qa~2"]);
    assert_eq!(predecessors("qa"), ["aside", "polish"]);
    let third = Diff::redo(&again, &"qa~2".into(), &["polish~2".into()], &[]);
    let ids: Vec<_> = third
        .add
        .iter()
        .map(|step| (step.id.as_str(), step.fallback_for().map(StepId::as_str)))
        .collect();
    assert_eq!(ids, [("polish~3", None), ("qa~3", Some("qa~2"))]);
    let started = |id: &StepId| id.as_str() != "end" && !id.as_str().contains("~3");
    Graph::check_changed(
        third.apply(again.plan(), &started).unwrap(),
        &known(),
        &again,
        &started,
    )
    .unwrap();
}

#[test]
fn redo_without_named_steps_copies_direct_predecessors() {
    let graph = Graph::check(judged(), &known()).unwrap();
    for named in [&[][..], &["end".into()], &["nobody".into(), "qa".into()]] {
        let diff = Diff::redo(&graph, &"qa".into(), named, &[]);
        let ids: Vec<_> = diff.add.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(ids, ["polish~2", "aside~2", "qa~2"]);
    }
    assert!(Diff::redo(&graph, &"nobody".into(), &[], &[]).is_empty());
}
