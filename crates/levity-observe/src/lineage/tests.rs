use levity_core::{Ending, Status, ToolCall};
use serde_json::json;

use super::*;

fn event(run: &str, kind: EventKind) -> Event {
    Event::new(run.into(), 1, levity_core::Timestamp::default(), kind)
}

fn child(effect: u64, child: &str, agent: &str) -> EventKind {
    EventKind::ChildStarted {
        effect: EffectId::new(effect),
        child: child.into(),
        agent: agent.into(),
    }
}

fn call(effect: u64, tool: &str) -> EventKind {
    EventKind::ToolStarted {
        effect: EffectId::new(effect),
        call: ToolCall::new("c1", tool, json!({})),
    }
}

fn progress(effect: u64) -> EventKind {
    EventKind::Progress {
        effect: EffectId::new(effect),
        call: "c1".into(),
        text: "half".into(),
    }
}

fn ended() -> EventKind {
    EventKind::RunEnded(Box::new(Ending::new(Status::Complete)))
}

#[track_caller]
fn check(lineage: &mut Lineage, run: &str, kind: EventKind, expected: &str) {
    assert_eq!(lineage.apply(&event(run, kind)).to_string(), expected);
}

#[test]
fn late_listener_gets_run_ids_in_place_of_unknown_names() {
    let mut lineage = Lineage::new("swarm");
    check(&mut lineage, "r1.3", progress(7), "swarm › r1.3");
    check(
        &mut lineage,
        "r1.3",
        child(8, "r1.3.8", "helper"),
        "swarm › r1.3",
    );
    check(
        &mut lineage,
        "r1.3.8",
        call(1, "read_file"),
        "swarm › r1.3 › helper › read_file",
    );
    check(
        &mut lineage,
        "r1.4.5.6",
        EventKind::Paused,
        "swarm › r1.4 › r1.4.5 › r1.4.5.6",
    );
    check(&mut lineage, "r1", EventKind::Paused, "swarm");
    assert_eq!(lineage.origin_of(&"r1.3".into()), None);
    assert_eq!(
        lineage.origin_of(&"r1.3.8".into()).unwrap().worker(),
        Some("r1.3")
    );
}

#[test]
fn lineage_takes_outermost_run_as_root() {
    let started = || EventKind::RunStarted {
        machine: levity_core::MachineKind::new("agent", 1),
    };
    // An id that contains dots.
    let mut lineage = Lineage::new("swarm");
    check(&mut lineage, "v1.2", started(), "swarm");
    check(&mut lineage, "v1.2", child(3, "v1.2.3", "coder"), "swarm");
    check(&mut lineage, "v1.2.3", EventKind::Paused, "swarm › coder");
    // A listener that joins just before a child starts.
    let mut lineage = Lineage::new("swarm");
    check(&mut lineage, "r1.3", started(), "swarm");
    check(&mut lineage, "r1", EventKind::Paused, "swarm");
    check(&mut lineage, "r1.3", EventKind::Paused, "swarm › r1.3");
    // A swarm inside a larger run.
    let mut lineage = Lineage::with_root("swarm", "g.5".into());
    check(&mut lineage, "g", child(5, "g.5", "team"), "g");
    check(&mut lineage, "g.5", child(1, "g.5.1", "coder"), "swarm");
    check(
        &mut lineage,
        "g.5.1",
        call(2, "shell"),
        "swarm › coder › shell",
    );
    check(&mut lineage, "g.50", EventKind::Paused, "g.50");
    assert_eq!(lineage.runs_of("coder"), [RunId::from("g.5.1")]);
}

#[test]
fn runs_of_returns_runs_in_start_order() {
    let mut lineage = Lineage::new("swarm");
    for effect in [9, 10, 11] {
        lineage.apply(&event(
            "r1",
            child(effect, &format!("r1.{effect}"), "coder"),
        ));
    }
    lineage.apply(&event("r1", child(12, "r1.12", "reviewer")));
    lineage.apply(&event("r1.12", child(1, "r1.12.1", "coder")));
    assert_eq!(
        lineage.runs_of("coder"),
        ["r1.9", "r1.10", "r1.11"].map(RunId::from)
    );
    lineage.apply(&event("r1.10", ended()));
    assert_eq!(lineage.runs_of("coder"), ["r1.9", "r1.11"].map(RunId::from));
    assert_eq!(lineage.runs_of("nobody"), []);
}

#[test]
fn apply_removes_ended_run_with_its_children() {
    let mut lineage = Lineage::new("swarm");
    for (run, kind) in [
        ("r1", child(1, "r1.1", "coder")),
        ("r1", child(10, "r1.10", "other")),
        ("r1.1", child(2, "r1.1.2", "helper")),
        ("r1.1", call(3, "shell")),
        ("r1.1.2", call(1, "read_file")),
        ("r1.10", call(1, "write_file")),
    ] {
        lineage.apply(&event(run, kind));
    }
    let ending = Box::new(Ending::new(Status::Complete));
    lineage.apply(&event(
        "r1",
        EventKind::ChildFinished {
            effect: EffectId::new(1),
            ending,
        },
    ));
    assert_eq!(
        format!("{lineage:?}"),
        r#"Lineage { name: "swarm", runs: 1, calls: 1 }"#
    );
    check(
        &mut lineage,
        "r1.10",
        progress(1),
        "swarm › other › write_file",
    );
    let limit = levity_core::Limit::Tokens;
    lineage.apply(&event(
        "r1",
        EventKind::Refused {
            effect: EffectId::new(10),
            limit,
        },
    ));
    assert_eq!(
        format!("{lineage:?}"),
        r#"Lineage { name: "swarm", runs: 0, calls: 0 }"#
    );
}

#[test]
fn lineage_of_stream_without_ends_stays_within_limit() {
    let mut lineage = Lineage::new("swarm");
    for effect in 0..MAX_ENTRIES as u64 + 10 {
        lineage.apply(&event(
            "r1",
            child(effect, &format!("r1.{effect}"), "coder"),
        ));
        lineage.apply(&event("r1", call(effect, "shell")));
        assert!(lineage.runs.len() + lineage.calls.len() <= MAX_ENTRIES);
    }
    let last = format!("r1.{}", MAX_ENTRIES + 9);
    check(&mut lineage, &last, EventKind::Paused, "swarm › coder");
    check(&mut lineage, "r1.0", EventKind::Paused, "swarm › r1.0");
    assert!(lineage.runs.len() + lineage.calls.len() >= MAX_ENTRIES / 2);
}

#[test]
fn tool_call_of_root_has_no_worker() {
    let mut lineage = Lineage::new("swarm");
    let origin = lineage.apply(&event("r1", call(1, "shell")));
    assert_eq!((origin.worker(), origin.tool()), (None, Some("shell")));
    let origin = lineage.apply(&event("r1", EventKind::Paused));
    assert_eq!((origin.worker(), origin.tool()), (None, None));
}
