//! Tests of the ready-made workers.

use std::sync::{Arc, Mutex};

use levity_agents::{AgentParts, Catalogue, PresetWorkers};
use levity_core::{Hints, Tool, ToolOutput, ToolSource};
use levity_swarm::{Delegation, PlannedBy, Router, Swarm, SwarmInput, SwarmNotice};
use levity_test::{RecordingTool, ScriptedModel};
use levity_tools::{Policy, Rule};
use serde_json::json;

/// Returns the workers for a goal if there is no router.
async fn chosen(goal: &str) -> Vec<String> {
    let model = ScriptedModel::new().reply("1").reply("2").reply("3");
    let swarm = Swarm::builder(Router::keywords())
        .workers(PresetWorkers::new(model).all().unwrap())
        .build()
        .unwrap();
    let finished = swarm.run(goal).await.unwrap();
    finished
        .plan()
        .iter()
        .map(|one| one.worker.to_string())
        .collect()
}

#[tokio::test]
async fn goal_keywords_select_workers() {
    for (goal, worker_name) in [
        ("Fix the bug in the parser", vec!["coder"]),
        ("Implement a queue and write tests", vec!["coder"]),
        ("Review the parser", vec!["reviewer"]),
        ("Find out when the harbour freezes", vec!["researcher"]),
        (
            "Research queues, implement one and check it",
            vec!["researcher", "coder", "reviewer"],
        ),
        ("Say something", vec!["researcher"]),
    ] {
        assert_eq!(chosen(goal).await, worker_name, "{goal}");
    }
}

#[tokio::test]
async fn catalogue_agents_work_in_swarm() {
    let parts = AgentParts::new(ScriptedModel::new().reply("It rains.")).tool(tool("radar"));
    let worker = Catalogue::defaults().worker("coder", &parts).unwrap();
    let swarm = Swarm::builder(Router::keywords())
        .worker(worker)
        .build()
        .unwrap();
    assert_eq!(swarm.workers().collect::<Vec<_>>(), ["Coder"]);
    assert_eq!(
        swarm.run("What is the weather?").await.unwrap().text(),
        "It rains."
    );
    assert!(Catalogue::defaults().worker("Weatherman", &parts).is_err());
}

#[tokio::test]
async fn router_receives_worker_descriptions() {
    let router = ScriptedModel::new().reply(r#"{"answer": "Nothing to do."}"#);
    let seen = router.clone();
    let swarm = Swarm::builder(Router::new(router))
        .workers(PresetWorkers::new(ScriptedModel::new()).all().unwrap())
        .build()
        .unwrap();
    assert_eq!(swarm.run("Rest").await.unwrap().text(), "Nothing to do.");
    let asked = format!("{:?}", seen.requests());
    for part in [
        "`researcher`: Researches facts",
        "`coder`: Writes code",
        "`reviewer`: Reviews",
    ] {
        assert!(asked.contains(part), "{part} is not in {asked}");
    }
}

#[test]
fn prompts_do_not_mention_missing_tools() {
    let model = ScriptedModel::new();
    for worker in PresetWorkers::new(model).all().unwrap() {
        let description = worker.description();
        for word in ["web", "workspace", "commands"] {
            assert!(
                !description.contains(word),
                "{}: {description}",
                worker.name()
            );
        }
    }
}

/// A source with two tools, of which one only reads.
struct Two;

impl ToolSource for Two {
    fn name(&self) -> &str {
        "two"
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![
            Arc::new(tool("see").with_hints(Hints::new().read_only())),
            Arc::new(tool("set")),
        ]
    }

    fn version(&self) -> u64 {
        1
    }
}

fn tool(name: &str) -> RecordingTool {
    RecordingTool::new(name, |_| Ok(ToolOutput::text("done")))
}

#[tokio::test]
async fn reading_worker_gets_only_read_only_tools() {
    let looks = tool("look").with_hints(Hints::new().read_only());
    let seen = ScriptedModel::new().reply("1").reply("2").reply("3");
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(looks), Arc::new(tool("hit"))];
    let ready = PresetWorkers::new(seen.clone()).tools(tools).source(Two);
    let plan = ["researcher", "coder", "reviewer"].map(|name| Delegation::new(name, name, "Work."));
    let swarm = Swarm::builder(Router::keywords())
        .workers(ready.all().unwrap())
        .max_parallel(1)
        .build()
        .unwrap();
    swarm
        .run(SwarmInput::from("Work").plan(plan))
        .await
        .unwrap();
    let offered: Vec<Vec<String>> = seen
        .requests()
        .iter()
        .map(|request| request.tools.iter().map(|tool| tool.name.clone()).collect())
        .collect();
    assert_eq!(
        offered,
        [
            vec!["look", "see"],
            vec!["look", "hit", "see", "set"],
            vec!["look", "see"]
        ]
    );
}

#[tokio::test]
async fn writing_tool_is_denied_to_reviewer_from_any_source() {
    let hit = tool("hit");
    let calls = hit.clone();
    let model = ScriptedModel::new()
        .call("hit", json!({}))
        .reply("I could not.");
    let seen = model.clone();
    let reviewer = PresetWorkers::new(model)
        .rule(Rule::tool("hit").allow())
        .customize(move |_, agent| agent.tool(hit.clone()))
        .reviewer()
        .unwrap();
    let swarm = Swarm::builder(Router::keywords())
        .worker(reviewer)
        .build()
        .unwrap();
    let finished = swarm.run("Look it over").await.unwrap();
    assert!(
        finished.text().contains("I could not."),
        "{}",
        finished.text()
    );
    assert_eq!(calls.calls().len(), 0);
    let request_text = format!("{:?}", seen.requests());
    assert!(
        request_text.contains("the reviewer changes nothing"),
        "{request_text}"
    );
}

#[tokio::test]
async fn reviewer_cannot_delegate_changes() {
    let hit = tool("hit");
    let calls = hit.clone();
    let does = ScriptedModel::new().call("hit", json!({})).reply("Hit.");
    let helper = levity_loop::Agent::builder(does).tool(hit).build().unwrap();
    let model = ScriptedModel::new()
        .call("helper", json!({"task": "Hit it."}))
        .reply("I could not.");
    let reviewer = PresetWorkers::new(model)
        .customize(move |_, agent| agent.agent("helper", "Hits.", helper.clone()))
        .reviewer()
        .unwrap();
    let swarm = Swarm::builder(Router::keywords())
        .worker(reviewer)
        .build()
        .unwrap();
    swarm.run("Look it over").await.unwrap();
    assert_eq!(calls.calls().len(), 0);
}

#[tokio::test]
async fn customize_can_replace_policy() {
    let hit = tool("hit");
    let calls = hit.clone();
    let model = ScriptedModel::new().call("hit", json!({})).reply("Hit.");
    let reviewer = PresetWorkers::new(model)
        .customize(move |name, agent| match name {
            "reviewer" => agent.tool(hit.clone()).policy(Policy::allow_all()),
            _ => agent,
        })
        .reviewer()
        .unwrap();
    let swarm = Swarm::builder(Router::keywords())
        .worker(reviewer)
        .build()
        .unwrap();
    swarm.run("Look it over").await.unwrap();
    assert_eq!(calls.calls().len(), 1);
}

#[tokio::test]
async fn reviewer_can_send_messages_to_colleagues() {
    let router = ScriptedModel::new()
        .reply(r#"{"delegations": [{"id": "a", "worker": "reviewer", "task": "Look."}]}"#)
        .reply("Fine.");
    let reviews = ScriptedModel::new()
        .call(
            "send_message",
            json!({"to": "coder", "content": "Mind the gap."}),
        )
        .reply("Looked.");
    let ready = PresetWorkers::new(ScriptedModel::new());
    let swarm = Swarm::builder(Router::new(router))
        .worker(ready.coder().unwrap())
        .worker(PresetWorkers::new(reviews).reviewer().unwrap())
        .worker_messages()
        .build()
        .unwrap();
    let finished = swarm.run("Look").await.unwrap();
    let messages: Vec<_> = finished
        .bus()
        .messages()
        .map(|message| message.content.to_string())
        .collect();
    assert!(
        messages.iter().any(|text| text.contains("Mind the gap.")),
        "{messages:?}"
    );
}

#[tokio::test]
async fn keywords_select_worker_if_router_cannot_plan() {
    let router = ScriptedModel::new()
        .reply("I would rather not.")
        .reply("No.")
        .reply("They said so.");
    let model = ScriptedModel::new().reply("Fixed.");
    let swarm = Swarm::builder(Router::new(router))
        .workers(PresetWorkers::new(model).all().unwrap())
        .build()
        .unwrap();
    let by = Arc::new(Mutex::new(None));
    let request_text = by.clone();
    let run = swarm.run("Fix the bug").on_event(move |event| {
        if let Some(SwarmNotice::Planned { by, .. }) = SwarmNotice::of(&event.kind) {
            *request_text.lock().unwrap() = Some(by);
        }
    });
    assert_eq!(run.await.unwrap().reports()[0].worker.as_ref(), "coder");
    assert_eq!(*by.lock().unwrap(), Some(PlannedBy::Keywords));
}

#[cfg(feature = "files")]
mod files {
    use levity_sandbox::Workspace;

    use super::*;

    async fn work(ready: &PresetWorkers, worker_name: &str) -> String {
        let worker = ready
            .all()
            .unwrap()
            .into_iter()
            .find(|worker| worker.name() == worker_name)
            .unwrap();
        let swarm = Swarm::builder(Router::keywords())
            .worker(worker)
            .build()
            .unwrap();
        swarm.run("Work").await.unwrap().text().to_owned()
    }

    fn writes() -> ScriptedModel {
        ScriptedModel::new()
            .call("write_file", json!({"path": "a.txt", "content": "changed"}))
            .reply("Tried.")
    }

    #[tokio::test]
    async fn only_coder_writes_files() {
        for (worker_name, expected_file) in [
            ("coder", "changed"),
            ("reviewer", "as it was"),
            ("researcher", "as it was"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("a.txt"), "as it was").unwrap();
            let space = Workspace::open(folder.path()).unwrap();
            // The loop covers the tools of the role, and tools that the caller adds.
            for added in [false, true] {
                let more = space.clone();
                let ready = PresetWorkers::new(writes())
                    .workspace(space.clone())
                    .customize(move |name, agent| match added && name != "coder" {
                        true => agent.tool(levity_builtin_tools::WriteFile::new(more.clone())),
                        false => agent,
                    });
                assert!(work(&ready, worker_name).await.contains("Tried."));
                assert_eq!(
                    std::fs::read_to_string(folder.path().join("a.txt")).unwrap(),
                    expected_file,
                    "{worker_name}"
                );
            }
        }
    }

    #[cfg(feature = "commands")]
    #[tokio::test]
    async fn reviewer_runs_no_command() {
        use levity_builtin_tools::RunCommand;
        use levity_sandbox::{CommandPolicy, Level, Sandbox};
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "as it was").unwrap();
        let space = Workspace::open(folder.path()).unwrap();
        let run = move |space: &Workspace| {
            let sandbox = Sandbox::builder(space)
                .require_level(Level::Open)
                .build()
                .unwrap();
            RunCommand::new(sandbox).policy(CommandPolicy::new().allow("rm"))
        };
        let model = || {
            ScriptedModel::new()
                .call("run_command", json!({"command": "rm a.txt"}))
                .reply("Tried.")
        };
        let more = space.clone();
        let ready = PresetWorkers::new(model())
            .workspace(space.clone())
            .customize(move |_, agent| agent.tool(run(&more)));
        assert!(work(&ready, "reviewer").await.contains("Tried."));
        assert!(folder.path().join("a.txt").exists());
        let ready = PresetWorkers::new(model())
            .workspace(space.clone())
            .commands(run(&space));
        assert!(work(&ready, "coder").await.contains("Tried."));
        assert!(!folder.path().join("a.txt").exists());
    }

    #[test]
    fn worker_description_lists_tools() {
        let folder = tempfile::tempdir().unwrap();
        let describe = |space| {
            let ready = PresetWorkers::new(ScriptedModel::new()).workspace(space);
            ready.coder().unwrap().description().to_owned()
        };
        assert!(describe(Workspace::open(folder.path()).unwrap()).contains("Edits the workspace"));
        let read_only = Workspace::builder(folder.path())
            .read_only()
            .build()
            .unwrap();
        assert!(!describe(read_only).contains("Edits the workspace"));
    }
}
