use std::collections::BTreeSet;

use async_trait::async_trait;
use levity_core::{Event, EventKind, Hints, RunId, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_loop::{Agent, AgentBuilder};
use levity_observe::{Lineage, Origin};
use levity_runtime::Runtime;
use levity_test::{FaultyTool, ScriptedModel, Turn};
use serde_json::{Value, json};

/// A tool that reports progress and does nothing else.
struct ProgressTool(ToolSpec);

impl ProgressTool {
    fn named(name: &str) -> Self {
        Self(ToolSpec::new(name, "Works."))
    }

    fn needing_approval(name: &str) -> Self {
        Self(ToolSpec::new(name, "Works.").with_hints(Hints::new().destructive()))
    }
}

#[async_trait]
impl Tool for ProgressTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        cx.progress.report("half done");
        Ok(ToolOutput::text("done"))
    }
}

fn delegate(turn: Turn, worker: &str) -> Turn {
    turn.call(worker, json!({"task": "Do it."}))
}

/// Returns an agent with two workers: `coder` has a helper and a tool that needs approval,
/// `reviewer` has a tool.
fn team() -> AgentBuilder {
    let helper = ScriptedModel::new()
        .call("read_file", json!({}))
        .reply("Read.");
    let helper = Agent::builder(helper)
        .tool(ProgressTool::named("read_file"))
        .build()
        .unwrap();
    let coder = ScriptedModel::new().turn(delegate(Turn::new(), "helper"));
    let coder = coder.call("write_file", json!({})).reply("Written.");
    let coder = Agent::builder(coder)
        .tool(ProgressTool::needing_approval("write_file"))
        .agent("helper", "Helps.", helper);
    let reviewer = ScriptedModel::new()
        .call("read_file", json!({}))
        .reply("Good.");
    let reviewer = Agent::builder(reviewer)
        .tool(ProgressTool::named("read_file"))
        .build()
        .unwrap();
    let both = delegate(delegate(Turn::new(), "coder"), "reviewer");
    Agent::builder(
        ScriptedModel::new()
            .turn(both)
            .call("look", json!({}))
            .reply("All done."),
    )
    .tool(ProgressTool::named("look"))
    .agent("coder", "Writes.", coder.build().unwrap())
    .agent("reviewer", "Reads.", reviewer)
}

/// Returns the JSON name of an event kind.
fn kind(event: &Event) -> String {
    match serde_json::to_value(&event.kind).unwrap() {
        Value::String(kind) => kind,
        Value::Object(kind) => kind.keys().next().unwrap().clone(),
        other => panic!("{other}"),
    }
}

/// Runs the team to its end and returns each event with its origin.
async fn watched() -> (Lineage, Vec<(Event, Origin)>) {
    let mut run = team().build().unwrap().run("Do it.").id("r1").start();
    let (mut events, control) = (run.events(), run.control().clone());
    let (mut lineage, mut seen) = (Lineage::new("swarm"), Vec::new());
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = &event.kind {
            control.approve(ask).await.unwrap();
        }
        let origin = lineage.apply(&event);
        seen.push((event, origin));
    }
    assert_eq!(run.await.unwrap().text(), "All done.");
    (lineage, seen)
}

#[tokio::test]
async fn every_event_has_origin() {
    let (_, seen) = watched().await;
    let of_tools: BTreeSet<String> = seen
        .iter()
        .filter(|(_, origin)| origin.tool().is_some())
        .map(|(event, origin)| format!("{origin}: {}", kind(event)))
        .collect();
    let tool = |path: &str| {
        ["progress", "tool_finished", "tool_started"].map(|kind| format!("{path}: {kind}"))
    };
    let asked = ["asked", "decided"].map(|kind| format!("swarm › coder › write_file: {kind}"));
    let expected = [
        tool("swarm › coder › helper › read_file"),
        tool("swarm › coder › write_file"),
        tool("swarm › look"),
        tool("swarm › reviewer › read_file"),
    ];
    assert_eq!(
        of_tools,
        expected.into_iter().flatten().chain(asked).collect()
    );

    let of_runs: BTreeSet<String> = seen
        .iter()
        .filter(|(event, _)| {
            matches!(
                event.kind,
                EventKind::RunStarted { .. } | EventKind::RunEnded(_)
            )
        })
        .map(|(event, origin)| format!("{origin}: {}", kind(event)))
        .collect();
    let run = |path: &str| ["run_started", "run_ended"].map(|kind| format!("{path}: {kind}"));
    let expected = [
        run("swarm"),
        run("swarm › coder"),
        run("swarm › coder › helper"),
        run("swarm › reviewer"),
    ];
    assert_eq!(of_runs, expected.into_iter().flatten().collect());

    for (event, origin) in &seen {
        assert_eq!(origin.run, event.run);
        assert_eq!(origin.agents().len(), event.run.depth() + 1, "{origin}");
        assert_eq!(origin.worker().is_some(), event.run.depth() > 0, "{origin}");
    }
}

#[tokio::test]
async fn lineage_is_empty_after_end_of_all_runs() {
    let (lineage, seen) = watched().await;
    assert_eq!(
        format!("{lineage:?}"),
        r#"Lineage { name: "swarm", runs: 0, calls: 0 }"#
    );
    assert!(seen.len() > 40, "{}", seen.len());
    assert_eq!(lineage.runs_of("coder"), []);
}

/// A running worker is found by its name and stopped by its run; the others continue.
#[tokio::test]
async fn worker_is_found_by_name_and_stopped() {
    let hangs = Agent::builder(ScriptedModel::new().call("hang", json!({})));
    let hangs = hangs
        .tool(FaultyTool::hangs().named("hang"))
        .build()
        .unwrap();
    let quick = Agent::builder(ScriptedModel::new().reply("Quick."))
        .build()
        .unwrap();
    let both = delegate(delegate(Turn::new(), "slow"), "quick");
    let team = Agent::builder(ScriptedModel::new().turn(both).reply("One of them."))
        .agent("slow", "Hangs.", hangs)
        .agent("quick", "Answers.", quick);
    let mut run = team.build().unwrap().start("Do it.");
    let (mut events, control, mut lineage) =
        (run.events(), run.control().clone(), Lineage::new("swarm"));
    while let Some(event) = events.next().await {
        let origin = lineage.apply(&event);
        if origin.tool() == Some("hang") && matches!(event.kind, EventKind::ToolStarted { .. }) {
            let runs = lineage.runs_of("slow");
            assert_eq!(runs, std::slice::from_ref(&event.run));
            assert_eq!(
                lineage.origin_of(&runs[0]).unwrap().to_string(),
                "swarm › slow"
            );
            control.child(&runs[0]).cancel("enough").await.unwrap();
        }
    }
    assert_eq!(run.await.unwrap().text(), "One of them.");
    assert_eq!(
        format!("{lineage:?}"),
        r#"Lineage { name: "swarm", runs: 0, calls: 0 }"#
    );
}

/// A late listener never gets a wrong origin: it gets an agent's name, or the id in its place.
#[tokio::test]
async fn late_listener_gets_ids_and_no_wrong_names() {
    let (_, seen) = watched().await;
    for late in 0..seen.len() {
        let mut lineage = Lineage::with_root("swarm", RunId::new("r1"));
        for (event, whole) in &seen[late..] {
            let origin = lineage.apply(event);
            for (at, (name, right)) in origin.agents().iter().zip(whole.agents()).enumerate() {
                let id = event
                    .run
                    .as_str()
                    .splitn(at + 2, '.')
                    .take(at + 1)
                    .collect::<Vec<_>>()
                    .join(".");
                assert!(name == right || **name == *id, "{origin} is not {whole}");
            }
            assert_eq!(origin.agents().len(), whole.agents().len());
            assert!(
                origin.tool().is_none() || origin.tool() == whole.tool(),
                "{origin} is not {whole}"
            );
        }
    }
}

/// A resumed run reports its children again, so that a listener knows them.
#[tokio::test]
async fn resumed_run_reports_its_workers_again() {
    let runtime = Runtime::new().with_journal(levity_runtime::MemoryJournal::new());
    let mut run = team()
        .runtime(runtime.clone())
        .build()
        .unwrap()
        .run("Do it.")
        .id("r1")
        .start();
    let mut events = run.events();
    while !matches!(events.next().await.unwrap().kind, EventKind::Asked(_)) {}
    run.stop().await;
    drop(events);

    let mut run = team()
        .runtime(runtime)
        .build()
        .unwrap()
        .resume("r1")
        .start();
    let (mut events, mut lineage) = (run.events(), Lineage::new("swarm"));
    let asked = loop {
        let event = events.next().await.unwrap();
        let origin = lineage.apply(&event);
        if let EventKind::Asked(_) = &event.kind {
            break origin;
        }
    };
    assert_eq!(asked.to_string(), "swarm › coder › write_file");
    assert_eq!(lineage.runs_of("coder"), [asked.run]);
    run.stop().await;
}
