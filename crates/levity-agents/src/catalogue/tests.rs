use levity_dag::{Diff, Graph, Plan, PlanConstraints, StepId};

use super::{Catalogue, defaults, key, node, read};

const TEN: [&str; 10] = [
    "Planner",
    "Browser",
    "Coder",
    "Retriever",
    "Summarizer",
    "Distiller",
    "Thinker",
    "Formatter",
    "Clarification",
    "QA",
];

#[test]
fn built_in_config_defines_ten_agents() {
    let patches = read::patches(node::yaml(defaults::CONFIG).unwrap(), None).unwrap();
    let prompt = |path: &str| defaults::prompt(path).ok_or_else(|| path.to_owned());
    let all = Catalogue::empty()
        .with_patches(patches, None, &prompt)
        .unwrap();
    assert_eq!(all, Catalogue::defaults());
    assert_eq!(
        all.entries().map(|entry| &*entry.name).collect::<Vec<_>>(),
        TEN
    );
}

#[test]
fn agent_lookup_ignores_case_and_suffix() {
    for (name, expected) in [
        ("Coder", "coder"),
        ("CoderAgent", "coder"),
        ("coder_agent", "coder"),
        ("QA", "qa"),
        ("Agent", "agent"),
        ("Agents", "agents"),
        ("ÄrzteAGENT", "ärzte"),
    ] {
        assert_eq!(key(name), expected, "{name}");
    }
    for name in TEN {
        let agent = format!("{name}Agent");
        assert_eq!(
            Catalogue::defaults().find(&agent).map(|entry| &*entry.name),
            Some(name)
        );
    }
}

/// Returns the text between fences.
fn examples(prompt: &str) -> Vec<&str> {
    prompt
        .split("```json\n")
        .skip(1)
        .map(|rest| rest.split("\n```").next().unwrap())
        .collect()
}

#[test]
fn prompt_examples_are_valid_json() {
    for (name, prompt) in defaults::PROMPTS {
        let examples = examples(prompt);
        assert!(!examples.is_empty(), "{name} has none");
        for example in examples {
            let value: serde_json::Value =
                serde_json::from_str(example).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(value.is_object(), "{name}");
        }
        assert!(prompt.lines().count() <= 65, "{name} is too long");
        assert!(
            prompt
                .lines()
                .all(|line| line.starts_with(['{', ' ']) || line.len() <= 140),
            "{name} has long lines"
        );
    }
}

#[test]
fn planner_examples_are_valid_plan_and_change() {
    let prompt = defaults::prompt("prompts/planner.md").unwrap();
    let examples = examples(&prompt);
    let plan = Plan::parse(examples[0]).unwrap();
    assert_eq!(plan.steps.len(), 3);
    let performers = Catalogue::defaults().performers().collect::<Vec<_>>();
    let known = performers
        .into_iter()
        .fold(PlanConstraints::new(), |known, (name, runner)| {
            known.with(name, runner)
        });
    Graph::check(plan.clone(), &known).unwrap();
    let given = Plan::parse(examples[1]).unwrap();
    assert!(
        Graph::check(given.clone(), &known).is_err(),
        "it reads what is given"
    );
    Graph::check(given.given("notes", "n"), &known).unwrap();
    let change: Diff = serde_json::from_str(examples[2]).unwrap();
    let add = &change.add[0];
    assert_eq!(add.fallback_for().map(StepId::as_str), Some("oslo"));
    assert_eq!(add.writes, plan.steps[0].writes);
    assert!(change.give_up.is_none());
    let mut changed = plan;
    changed.steps.push(add.clone());
    Graph::check(changed, &known).unwrap();
}
