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
fn refused(text: &str, expected: &[(FaultKind, &str)]) {
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
fn a_change_is_laid_over_the_plan() {
    let fetch = json!({"id": "fetch", "agent": "a", "writes": ["page"]});
    let steps = applied(
        r#"Sure: ```json
        {"reason": "r", "add": [{"id": "look", "agent": "a", "instead_of": "fetch", "writes": ["page"]}], "remove": "check",
         "change": [{"id": "sum", "agent_prompt": "Shorter.", "dependsOn": ["look"]}],
         "links": [{"source": "ROOT", "target": "look"}]}
        ```"#,
    );
    assert_eq!(
        steps,
        json!([
            fetch,
            {"id": "sum", "agent": "a", "prompt": "Shorter.", "reads": ["page"], "writes": ["summary"],
             "after": [{"step": "look"}]},
            {"id": "look", "agent": "a", "writes": ["page"], "instead_of": "fetch"},
        ])
    );
    let steps = applied(r#"{"diff": {"change": {"id": "check", "reads": null, "after": null}}}"#);
    assert_eq!(steps[2], json!({"id": "check", "agent": "a"}));
    let steps = applied(r#"{"remove": ["check"], "add": [{"id": "check", "agent": "a"}]}"#);
    assert_eq!(steps[2], json!({"id": "check", "agent": "a"}));
}

#[test]
fn a_whole_plan_is_a_change_too() {
    let text = r#"{"reason": "new", "nodes": [{"id": "sum", "agent": "a", "reads": ["page"], "writes": ["summary"],
        "prompt": "Sum it up."}, {"id": "tell", "agent": "a"}], "links": [{"source": "sum", "target": "tell"}]}"#;
    let diff = Diff::parse(text, &plan(), &settled).unwrap();
    assert_eq!(
        serde_json::to_value(&diff).unwrap(),
        json!({
            "reason": "new", "remove": ["check"], "add": [{"id": "tell", "agent": "a", "after": [{"step": "sum"}]}],
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
fn a_whole_step_that_is_to_be_changed_and_is_not_there_is_new() {
    let steps = applied(
        r#"{"change": [{"id": "tell", "agent": "a"}, {"id": "sum", "agent": "a", "prompt": "?"}]}"#,
    );
    assert_eq!(steps[3], json!({"id": "tell", "agent": "a"}));
    assert_eq!(steps[1]["prompt"], json!("?"));
    refused(
        r#"{"change": [{"id": "sun", "prompt": "?"}]}"#,
        &[(
            FaultKind::Reference,
            "step `sun` cannot be changed, since it is not there; did you mean `sum`?",
        )],
    );
}

#[test]
fn what_is_wrong_is_told_in_the_order_in_which_it_was_said() {
    let ids: Vec<String> = (0..12).map(|n| format!("gone {n}")).collect();
    let text = json!({"remove": ids}).to_string();
    let diff = Diff::parse(&text, &plan(), &settled).unwrap();
    let faults = diff.apply(&plan(), &settled).unwrap_err().faults;
    let told: Vec<_> = faults
        .iter()
        .filter_map(|fault| fault.step.as_ref())
        .map(StepId::as_str)
        .collect();
    assert_eq!(told, ids[..told.len()]);
    assert!(told.len() > 5, "{told:?}");
}

#[test]
fn giving_up_is_said_in_words_or_not() {
    let parse = |text| Diff::parse(text, &plan(), &settled).unwrap().give_up;
    assert_eq!(parse(r#"{"give_up": "no way"}"#).as_deref(), Some("no way"));
    assert_eq!(
        parse(r#"{"give_up": true, "reason": "r"}"#).as_deref(),
        Some("r")
    );
    assert_eq!(parse(r#"{"give_up": false, "remove": ["sum"]}"#), None);
}

#[test]
fn what_is_settled_stays() {
    refused(
        r#"{"remove": ["fetch"], "change": [{"id": "fetch", "agent": "b"}], "add": [{"id": "fetch", "agent": "a"}]}"#,
        &[
            (
                FaultKind::Settled,
                "step `fetch` has begun or is finished, and cannot be removed; add a step with \
                    another id and \
                 `instead_of` for its work",
            ),
            (
                FaultKind::Settled,
                "step `fetch` has begun or is finished, and cannot be changed; add a step with \
                    another id and \
                 `instead_of` for its work",
            ),
            (
                FaultKind::Id,
                "step `fetch` is changed twice, or removed as well; say one",
            ),
            (
                FaultKind::Settled,
                "step `fetch` has begun or is finished, and cannot be added again; take another id",
            ),
        ],
    );
    // A whole plan cannot rewrite it either, nor give it another step before it.
    let whole = r#"{"steps": [{"id": "fetch", "agent": "a", "writes": ["page"], "after": ["new"]}, {"id": "new", "agent": "a"}]}"#;
    let diff = Diff::parse(whole, &plan(), &settled).unwrap();
    assert_eq!(
        diff.apply(&plan(), &settled).unwrap_err().faults[0].kind,
        FaultKind::Settled
    );
}

#[test]
fn nobody_falls_back_to_what_is_settled() {
    refused(
        r#"{"change": [{"id": "sum", "on_failure": {"fallback": "fetch"}}]}"#,
        &[(
            FaultKind::Settled,
            "step `sum` cannot fall back to `fetch`, which has begun or is finished; add a step \
                for that",
        )],
    );
}

#[test]
fn changes_that_make_no_sense() {
    refused(
        "{}",
        &[(
            FaultKind::Malformed,
            "the change has none of `add`, `remove`, `change` and `give_up`, and no `steps` of a \
                whole plan",
        )],
    );
    refused(
        r#"{"add": []}"#,
        &[(
            FaultKind::Malformed,
            "the change changes nothing; use `add`, `remove`, `change` or `give_up`",
        )],
    );
    refused(
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
    refused(
        r#"{"add": [{"id": "x"}, {"id": "x"}, {"id": "sum"}], "remove": ["chek"], "change": [{"id": "nobody"}],
            "variables": {"page": "first", "new": "sum"}}"#,
        &[
            (
                FaultKind::Reference,
                "step `chek` cannot be removed, since it is not there; did you mean `check`?",
            ),
            (
                FaultKind::Reference,
                "step `nobody` cannot be changed, since it is not there",
            ),
            (
                FaultKind::Id,
                "two new steps have the id `x`; give each its own",
            ),
            (
                FaultKind::Id,
                "step `sum` is there already; use `change`, or take another id",
            ),
            (
                FaultKind::Variable,
                "what is said about `page` cannot be changed; use another variable",
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
fn work_that_is_sent_back_is_done_again() {
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
    assert_eq!(diff.add[3].stands_in_for(), Some(&"qa".into()));
    assert!(diff.add[2].more.is_none());

    let begun = |id: &StepId| id.as_str() != "end" && !id.as_str().contains('~');
    let changed = diff.apply(graph.plan(), &begun).unwrap();
    let again = Graph::check_changed(changed, &known(), &graph, &begun).unwrap();
    let comes_after = |id: &str| {
        let mut before: Vec<_> = again
            .before(again.find(id).unwrap())
            .map(|(at, _)| again.step(at).unwrap().id.to_string())
            .collect();
        before.sort();
        before
    };
    assert_eq!(comes_after("draft~2"), ["fetch"]);
    assert_eq!(
        comes_after("polish~2"),
        ["draft", "draft~2", "spare", "spare~2"]
    );
    assert_eq!(comes_after("qa~2"), ["aside", "polish", "polish~2", "qa"]);
    assert_eq!(comes_after("end"), ["polish", "polish~2", "qa", "qa~2"]);
    assert_eq!(comes_after("qa"), ["aside", "polish"]);
    let third = Diff::redo(&again, &"qa~2".into(), &["polish~2".into()], &[]);
    let ids: Vec<_> = third
        .add
        .iter()
        .map(|step| (step.id.as_str(), step.stands_in_for().map(StepId::as_str)))
        .collect();
    assert_eq!(ids, [("polish~3", None), ("qa~3", Some("qa~2"))]);
    let begun = |id: &StepId| id.as_str() != "end" && !id.as_str().contains("~3");
    Graph::check_changed(
        third.apply(again.plan(), &begun).unwrap(),
        &known(),
        &again,
        &begun,
    )
    .unwrap();
}

#[test]
fn without_a_name_what_stands_before_the_judge_is_done_again() {
    let graph = Graph::check(judged(), &known()).unwrap();
    for named in [&[][..], &["end".into()], &["nobody".into(), "qa".into()]] {
        let diff = Diff::redo(&graph, &"qa".into(), named, &[]);
        let ids: Vec<_> = diff.add.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(ids, ["polish~2", "aside~2", "qa~2"]);
    }
    assert!(Diff::redo(&graph, &"nobody".into(), &[], &[]).is_empty());
}
