use super::*;

fn names() -> Vec<Arc<str>> {
    ["coder", "researcher", "reviewer"].map(Into::into).to_vec()
}

fn checked(plan: &[Delegation]) -> Result<Vec<u32>, String> {
    let (workers, done) = (names(), BTreeMap::new());
    let known = PlanContext {
        workers: &workers,
        router: "router",
        done: &done,
        reports: &[],
        max_delegations: 32,
    };
    check(plan, &known)
        .map(|order| order.order)
        .map_err(|faults| faults.to_string())
}

#[track_caller]
fn check_text(text: &str, expected: Result<&[u32], &str>) {
    let found = match read(text, &BTreeMap::new()) {
        Ok(RouterAnswer::Plan(plan, _)) => checked(&plan),
        Ok(RouterAnswer::Answer(text)) => Err(format!("answer: {text}")),
        Err(fault) => Err(fault.to_string()),
    };
    assert_eq!(
        found,
        expected.map(<[_]>::to_vec).map_err(ToOwned::to_owned),
        "{text}"
    );
}

#[test]
fn plans_of_models_are_read() {
    let two = r#"{"delegations": [
        {"id": "r", "worker": "reviewer", "task": "look", "depends_on": ["c"]},
        {"id": "c", "worker": "coder", "task": "write", "depends_on": [], "expected": "code"}]}"#;
    check_text(two, Ok(&[1, 0]));
    check_text(
        &format!("Here is the plan:\n```json\n{two}\n```\nGood luck!"),
        Ok(&[1, 0]),
    );
    check_text(
        r#"[{"agent": "coder", "task": "a"},
            {"agent": "reviewer", "task": "b", "depends-on": [1]}]"#,
        Ok(&[0, 1]),
    );
    check_text(
        r#"{"plan": [{"worker": "coder", "task": "a",},
            {"worker": "coder", "task": "b", "after": "d1"},]}"#,
        Ok(&[0, 1]),
    );
    check_text(r#"{"worker": "coder", "task": "all of it"}"#, Ok(&[0]));
    check_text(r#"{"answer": "Hello!"}"#, Err("answer: Hello!"));
    check_text(
        r#"{"delegations": [], "answer": "Hello!"}"#,
        Err("answer: Hello!"),
    );
    check_text(
        r#"{"delegations": [], "answer": ""}"#,
        Err("the plan has no delegations; add at least one"),
    );
    check_text(
        r#"{"delegations": [{"worker": "coder", "task": "t"}], "answer": null}"#,
        Ok(&[0]),
    );
}

#[test]
fn invalid_plans_are_rejected_with_reason() {
    let one = |worker: &str, rest: &str| {
        format!(r#"{{"delegations": [{{"id": "a", "worker": "{worker}", "task": "t"{rest}}}]}}"#)
    };
    check_text(
        "I would ask the coder to write it.",
        Err("the answer is not JSON: the text of 34 bytes contains no JSON"),
    );
    check_text("{}", Err("the answer has no `delegations`"));
    check_text(
        r#"{"delegations": "coder"}"#,
        Err("`delegations` is not a list"),
    );
    check_text(
        r#"{"delegations": []}"#,
        Err("the plan has no delegations; add at least one"),
    );
    check_text(
        r#"{"delegations": ["coder"]}"#,
        Err("delegation 1 is not an object"),
    );
    check_text(
        r#"{"delegations": [{"task": "t"}]}"#,
        Err("`d1` has no `worker`; name one"),
    );
    check_text(
        &one("codr", ""),
        Err("`a` is for `codr`, who is not there; did you mean `coder`?"),
    );
    check_text(
        &one("painter", ""),
        Err("`a` is for `painter`, who is not there"),
    );
    check_text(
        &one("router", ""),
        Err("`a` names the router itself; name a worker"),
    );
    check_text(
        &one("coder", r#", "depends_on": ["a"]"#),
        Err("`a` depends on itself; remove that dependency"),
    );
    check_text(
        &one("coder", r#", "depends_on": ["b"]"#),
        Err("`a` depends on `b`, which does not exist; did you mean `a`?"),
    );
    let ring = r#"{"delegations": [
        {"id": "x", "worker": "coder", "task": "t", "depends_on": ["a"]},
        {"id": "a", "worker": "coder", "task": "t", "depends_on": ["b"]},
        {"id": "b", "worker": "coder", "task": "t", "depends_on": ["a"]}]}"#;
    check_text(
        ring,
        Err("`a` → `b` depend on each other in a cycle; remove one dependency"),
    );
    let many: Vec<String> = (0..500)
        .map(|at| format!(r#"{{"id": "d{at}", "worker": "coder", "task": "t"}}"#))
        .collect();
    let many = format!(r#"{{"delegations": [{}]}}"#, many.join(","));
    check_text(
        &many,
        Err("the plan has 500 delegations, more than the limit of 32; combine some of them"),
    );
    let twice = r#"{"delegations": [{"id": "a", "worker": "coder", "task": "t"},
        {"id": "a", "worker": "coder", "task": " "}]}"#;
    check_text(
        twice,
        Err("two delegations have the id `a`; rename one; `a` has no task; describe the work"),
    );
}

#[test]
fn long_dependency_chain_is_sorted() {
    let plan: Vec<Delegation> = (0..1_000)
        .rev()
        .map(|at| {
            let before = (at > 0).then(|| format!("d{}", at - 1));
            Delegation::new(format!("d{at}"), "coder", "t").after(before)
        })
        .collect();
    let (workers, done) = (names(), BTreeMap::new());
    let known = PlanContext {
        workers: &workers,
        router: "router",
        done: &done,
        reports: &[],
        max_delegations: 1_000,
    };
    let order = check(&plan, &known).unwrap();
    assert_eq!(order.order.first(), Some(&999));
    assert_eq!(order.needs.last(), Some(&vec![998]));
}

#[test]
fn name_suggestions_stop_after_shown_faults() {
    let plan: Vec<_> = (0..200)
        .map(|at| Delegation::new(format!("d{at}"), "codr", "t").after(["x"]))
        .collect();
    let (workers, done) = (names(), BTreeMap::new());
    let known = PlanContext {
        workers: &workers,
        router: "router",
        done: &done,
        reports: &[],
        max_delegations: 200,
    };
    let faults = check(&plan, &known).unwrap_err();
    let hints: Vec<bool> = faults
        .iter()
        .map(|fault| fault.to_string().contains("did you mean"))
        .collect();
    assert_eq!(
        (hints.len(), hints.iter().filter(|hint| **hint).count()),
        (100, 10)
    );
}
