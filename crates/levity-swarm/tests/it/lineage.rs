use std::collections::BTreeSet;

use async_trait::async_trait;
use levity_core::{Event, EventKind, Hints, RunId, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_loop::{Agent, AgentBuilder};
use levity_observe::{Lineage, Origin};
use levity_runtime::Runtime;
use levity_test::{FaultyTool, ScriptedModel, Turn};
use serde_json::{Value, json};

/// Says how far it is, and does nothing else.
struct Works(ToolSpec);

impl Works {
    fn named(name: &str) -> Self {
        Self(ToolSpec::new(name, "Works."))
    }

    fn that_asks(name: &str) -> Self {
        Self(ToolSpec::new(name, "Works.").with_hints(Hints::new().destructive()))
    }
}

#[async_trait]
impl Tool for Works {
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

/// A whole with two workers at once: `coder` has a helper and a tool that is asked about,
/// `reviewer` a tool.
fn team() -> AgentBuilder {
    let helper = ScriptedModel::new()
        .call("read_file", json!({}))
        .reply("Read.");
    let helper = Agent::builder(helper)
        .tool(Works::named("read_file"))
        .build()
        .unwrap();
    let coder = ScriptedModel::new().turn(delegate(Turn::new(), "helper"));
    let coder = coder.call("write_file", json!({})).reply("Written.");
    let coder = Agent::builder(coder)
        .tool(Works::that_asks("write_file"))
        .agent("helper", "Helps.", helper);
    let reviewer = ScriptedModel::new()
        .call("read_file", json!({}))
        .reply("Good.");
    let reviewer = Agent::builder(reviewer)
        .tool(Works::named("read_file"))
        .build()
        .unwrap();
    let both = delegate(delegate(Turn::new(), "coder"), "reviewer");
    Agent::builder(
        ScriptedModel::new()
            .turn(both)
            .call("look", json!({}))
            .reply("All done."),
    )
    .tool(Works::named("look"))
    .agent("coder", "Writes.", coder.build().unwrap())
    .agent("reviewer", "Reads.", reviewer)
}

/// What a kind of event is called in JSON.
fn kind(event: &Event) -> String {
    match serde_json::to_value(&event.kind).unwrap() {
        Value::String(kind) => kind,
        Value::Object(kind) => kind.keys().next().unwrap().clone(),
        other => panic!("{other}"),
    }
}

/// Runs the team to its end, and says of each event where it comes from.
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
async fn every_event_says_where_it_comes_from() {
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
async fn nothing_stays_when_all_has_ended() {
    let (lineage, seen) = watched().await;
    assert_eq!(
        format!("{lineage:?}"),
        r#"Lineage { name: "swarm", runs: 0, calls: 0 }"#
    );
    assert!(seen.len() > 40, "{}", seen.len());
    assert_eq!(lineage.runs_of("coder"), []);
}

/// A worker is found by its name while it works, and stopped by the run that is found; the others
/// go on.
#[tokio::test]
async fn a_worker_is_found_by_name_and_stopped() {
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
            assert_eq!(lineage.who(&runs[0]).unwrap().to_string(), "swarm › slow");
            control.child(&runs[0]).cancel("enough").await.unwrap();
        }
    }
    assert_eq!(run.await.unwrap().text(), "One of them.");
    assert_eq!(
        format!("{lineage:?}"),
        r#"Lineage { name: "swarm", runs: 0, calls: 0 }"#
    );
}

/// Who comes late, at whatever event, is never told something wrong: an agent's name, or the id in
/// its place.
#[tokio::test]
async fn who_comes_late_is_told_ids_and_nothing_wrong() {
    let (_, seen) = watched().await;
    for late in 0..seen.len() {
        let mut lineage = Lineage::of_run("swarm", RunId::new("r1"));
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

/// A resumed run tells of its children anew, so that a listener knows them.
#[tokio::test]
async fn a_resumed_run_introduces_its_workers_again() {
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
