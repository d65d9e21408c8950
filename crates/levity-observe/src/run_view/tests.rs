//! Tests with events in many orders.

use levity_core::{
    Ask, CallId, Decision, Delta, EffectId, Ending, Event, EventKind, FileChange, Finish,
    MachineKind, Message, Part, Role, RunId, Status, Timestamp, ToolCall, ToolOutput, ToolResult,
    Usage,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Makes the events of one run.
struct Script {
    run: RunId,
    at: u64,
    seq: u64,
    events: Vec<Event>,
}

impl Script {
    fn new(run: &str, at: u64) -> Self {
        Self {
            run: run.into(),
            at,
            seq: 0,
            events: Vec::new(),
        }
    }

    fn push(&mut self, kind: EventKind) -> &mut Self {
        self.seq += 1;
        let at = Timestamp::from_millis(self.at);
        self.events
            .push(Event::new(self.run.clone(), self.seq, at, kind));
        self
    }

    fn notice(&mut self, name: &str, data: Value) -> &mut Self {
        self.push(EventKind::Custom {
            name: name.to_owned(),
            data,
        })
    }

    fn start(&mut self, machine: &str, goal: &str) -> &mut Self {
        self.push(EventKind::RunStarted {
            machine: MachineKind::new(machine, 1),
        });
        self.push(EventKind::Goal { text: goal.into() })
    }

    /// A model call with pieces before its reply.
    fn model(&mut self, effect: u64, thinking: &str, text: &str) -> &mut Self {
        let effect = EffectId::new(effect);
        self.push(EventKind::ModelStarted {
            effect,
            slot: "main".into(),
        });
        for (at, char) in thinking.char_indices() {
            let delta = Delta::Thinking(thinking[at..at + char.len_utf8()].to_owned());
            self.push(EventKind::Delta { effect, delta });
        }
        for (at, char) in text.char_indices() {
            let delta = Delta::Text(text[at..at + char.len_utf8()].to_owned());
            self.push(EventKind::Delta { effect, delta });
        }
        let parts = [Part::thinking(thinking), Part::text(text)];
        self.push(EventKind::ModelFinished {
            effect,
            message: Message::new(Role::Assistant, parts).into(),
            finish: Finish::Stop,
            usage: Usage::new(10, 2),
        })
    }

    fn tool(&mut self, effect: u64, name: &str) -> &mut Self {
        let (effect, id) = (EffectId::new(effect), format!("c{effect}"));
        let call = ToolCall::new(id.as_str(), name, json!({"path": "a.md"}));
        let result = ToolResult::new(&call, Ok(ToolOutput::text("written")));
        self.push(EventKind::ToolStarted { effect, call });
        self.push(EventKind::Progress {
            effect,
            call: CallId::from(id.as_str()),
            text: "half".into(),
        });
        self.push(EventKind::FileChanged {
            effect,
            call: CallId::from(id.as_str()),
            change: FileChange::written("a.md").with_content(b"# A"),
        });
        self.push(EventKind::ToolFinished { effect, result })
    }

    fn end(&mut self, text: &str) -> &mut Self {
        self.push(EventKind::RunEnded(Box::new(ending(text))))
    }
}

fn ending(text: &str) -> Ending {
    let mut ending = Ending::new(Status::Complete);
    ending.text = text.to_owned();
    ending
}

fn agent(run: &str, at: u64) -> Vec<Event> {
    let mut script = Script::new(run, at);
    script.start("agent", "Write it.");
    script
        .model(1, "Well.", "I write.")
        .tool(2, "write_file")
        .model(3, "", "Done.");
    script.end("Done.").events.clone()
}

/// A team with two steps at the same time and one after them.
fn team(at: u64) -> [Vec<Event>; 3] {
    let mut root = Script::new("r", at);
    root.start("graph", "Compare.");
    let steps = ["a", "b", "c"].map(|id| json!({"id": id, "agent": "Coder", "prompt": "Go."}));
    root.notice(
        "graph",
        json!({"notice": "planned", "plan": {"steps": steps},
        "edges": [["a", "c"], ["b", "c"]]}),
    );
    for (step, effect) in [("a", 1), ("b", 2)] {
        root.notice(
            "graph",
            json!({"notice": "step_started", "step": step, "effect": effect,
            "attempt": 1, "round": 1}),
        );
        root.push(EventKind::ChildStarted {
            effect: EffectId::new(effect),
            child: root.run.child(EffectId::new(effect)),
            agent: "Coder".into(),
        });
    }
    for (step, effect) in [("a", 1), ("b", 2)] {
        root.push(EventKind::ChildFinished {
            effect: EffectId::new(effect),
            ending: Box::new(ending("Done.")),
        });
        root.notice(
            "graph",
            json!({"notice": "step_completed", "step": step, "writes": [],
            "output": {"x": 1}, "spent": {"attempts": 1, "usage": {}, "stats": {}}}),
        );
    }
    root.notice(
        "graph",
        json!({"notice": "step_skipped", "step": "c", "why": "not needed"}),
    );
    root.end("All done.");
    [root.events, agent("r.1", at), agent("r.2", at)]
}

/// Merges the events in a causal order that the choices determine.
fn merge(runs: &[Vec<Event>; 3], choices: &[usize]) -> Vec<Event> {
    let mut next = [0; 3];
    let (mut merged, mut choice) = (Vec::new(), choices.iter().cycle());
    while next.iter().zip(runs).any(|(next, run)| *next < run.len()) {
        let wanted = choice.next().copied().unwrap_or_default();
        let started = |child: usize| {
            merged.iter().any(|event: &Event| {
                matches!(&event.kind, EventKind::ChildStarted { effect, .. }
                    if effect.get() == child as u64)
            })
        };
        let ready = |run: usize| match runs[run].get(next[run]).map(|event| &event.kind) {
            None => false,
            Some(EventKind::ChildFinished { effect, .. }) => {
                let child = effect.get() as usize;
                next[child] == runs[child].len()
            }
            Some(_) => run == 0 || started(run),
        };
        let run = (0..3).map(|at| (at + wanted) % 3).find(|run| ready(*run));
        let run = run.expect("one run can always continue");
        merged.push(runs[run][next[run]].clone());
        next[run] += 1;
    }
    merged
}

fn view_json(events: &[Event]) -> Value {
    serde_json::to_value(RunView::of("r".into(), events)).unwrap()
}

fn durable(events: &[Event]) -> Vec<Event> {
    let mut events = events.to_vec();
    events.retain(|event| !event.kind.is_transient());
    events
}

/// Applies the events, and compares the sum of all changes with the whole view after each.
fn check_changes(events: &[Event], every: usize) {
    let mut view = RunView::new("r".into());
    let (mut page, mut seen) = (json!(view), view.revision());
    for (at, event) in events.iter().enumerate() {
        view.apply(event);
        if at % every == 0 || at + 1 == events.len() {
            let changes = view.changes_since(seen).unwrap();
            changes.apply_to(&mut page);
            seen = view.revision();
            assert_eq!(page, json!(view), "after {event:?}: {changes:?}");
        }
    }
}

#[test]
fn agent_run_becomes_a_chat() {
    let view = view_json(&agent("r", 5));
    let items = view["items"].as_array().unwrap();
    let kinds: Vec<_> = items
        .iter()
        .map(|item| item["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["user", "thinking", "text", "call", "answer"]);
    assert_eq!(items[4]["text"], "Done.");
    assert_eq!(
        (&items[3]["call"]["status"], &items[3]["id"]),
        (&json!("done"), &json!("r:2"))
    );
    assert_eq!(items[3]["call"]["files"][0]["path"], "a.md");
    assert_eq!(
        (&view["state"], &view["goal"]),
        (&json!("ended"), &json!("Write it."))
    );
    assert_eq!(view["artifacts"][0]["item"], "r:2");
    assert_eq!(view["nodes"][0]["status"], "completed");
}

#[test]
fn reply_grows_until_it_is_final() {
    let events = agent("r", 5);
    let mut view = RunView::new("r".into());
    events[..6].iter().for_each(|event| view.apply(event));
    let revision = view.revision();
    view.apply(&events[6]);
    let changes = json!(view.changes_since(revision).unwrap());
    assert_eq!(changes["items"], json!([{"id": "r:1:0", "append": "l"}]));
}

#[test]
fn team_becomes_a_graph() {
    let view = view_json(&merge(&team(5), &[0]));
    let node = |id: &str| {
        let nodes = view["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["id"] == *id).unwrap().clone()
    };
    assert_eq!(
        view["nodes"].as_array().unwrap().len(),
        4,
        "agents are shown as their steps"
    );
    assert_eq!(
        (node("r")["kind"].clone(), node("r/c")["layer"].clone()),
        ("team".into(), 1.into())
    );
    assert_eq!(node("r/a")["status"], "completed");
    assert_eq!(node("r/a")["prompt"], "Write it.");
    assert_eq!(node("r/c")["error"], "not needed");
    assert_eq!(view["edges"], json!([["r/a", "r/c"], ["r/b", "r/c"]]));
    let of_a = view["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["node"] == "r/a");
    assert_eq!(of_a.count(), 4);
    assert_eq!(
        view["items"].as_array().unwrap().last().unwrap()["text"],
        "All done."
    );
}

#[test]
fn early_events_of_a_child_run_are_kept() {
    let runs = team(5);
    let in_order = durable(&merge(&runs, &[0]));
    let mut early = in_order.clone();
    let at = early
        .iter()
        .position(|event| event.run == "r.2".into())
        .unwrap();
    let event = early.remove(at);
    early.insert(0, event);
    assert_eq!(view_json(&early), view_json(&in_order));
}

#[test]
fn oldest_items_are_dropped() {
    let mut script = Script::new("r", 5);
    script.start("agent", "Go.");
    for effect in 0..(MAX_ITEMS as u64 + 10) {
        script.tool(effect, "look");
    }
    let view = view_json(&script.events);
    assert_eq!(view["items"].as_array().unwrap().len(), MAX_ITEMS);
    assert_eq!(view["dropped"], 11);
    check_changes(&script.events, 997);
}

#[test]
fn long_texts_are_cut() {
    let mut script = Script::new("r", 5);
    script.start("agent", &"é".repeat(MAX_TEXT));
    let view = view_json(&script.events);
    assert_eq!(view["items"][0]["truncated"], true);
    assert_eq!(view["items"][0]["text"].as_str().unwrap().len(), MAX_TEXT);
}

#[test]
fn plan_of_a_thousand_steps_is_fast() {
    let mut script = Script::new("r", 5);
    script.start("graph", "Go.");
    let steps: Vec<_> = (0..1_000)
        .map(|step| json!({"id": format!("s{step}")}))
        .collect();
    let edges: Vec<_> = (1..1_000)
        .map(|step| json!([format!("s{}", step / 2), format!("s{step}")]))
        .collect();
    script.notice(
        "graph",
        json!({"notice": "planned", "plan": {"steps": steps}, "edges": edges}),
    );
    for step in 0..1_000 {
        script.notice(
            "graph",
            json!({"notice": "step_started", "step": format!("s{step}"),
            "effect": step, "attempt": 1, "round": 1}),
        );
    }
    let view = view_json(&script.events);
    assert_eq!(view["nodes"].as_array().unwrap().len(), 1_001);
    check_changes(&script.events, 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn view_does_not_depend_on_the_interleaving(
        choices in prop::collection::vec(0..3_usize, 1..40),
        at in 0..3_u64,
    ) {
        let runs = team(at);
        let events = merge(&runs, &choices);
        let expected = view_json(&durable(&merge(&runs, &[0])));
        prop_assert_eq!(view_json(&durable(&events)), expected.clone());
        prop_assert_eq!(view_json(&events), expected);
    }

    #[test]
    fn changes_add_up_to_the_view(
        choices in prop::collection::vec(0..3_usize, 1..40),
        every in 1..30_usize,
    ) {
        check_changes(&merge(&team(5), &choices), every);
    }

    #[test]
    fn any_order_is_accepted(order in Just(merge(&team(5), &[1])).prop_shuffle()) {
        check_changes(&order, 1);
    }
}

#[test]
fn question_that_is_asked_again_keeps_its_id_and_marks_cut_arguments() {
    let call = |length| ToolCall::new("c1", "write_file", json!({"text": "a".repeat(length)}));
    let mut script = Script::new("r", 5);
    script.start("agent", "Write a file.");
    for (effect, length) in [(4, 70_000), (4, 70_000), (6, 100)] {
        let ask = Ask::new("r".into(), EffectId::new(effect), call(length), "it writes");
        script.push(EventKind::Asked(ask));
    }
    let ids = |count| {
        let view = RunView::of("r".into(), &script.events[..count]);
        let asks = view.asks().map(|ask| (ask.id.clone(), ask.truncated));
        asks.collect::<Vec<_>>()
    };
    let all = script.events.len();
    assert_eq!(ids(all - 2), ids(all - 1));
    assert_eq!(ids(all)[0], ids(all - 1)[0]);
    let truncated: Vec<bool> = ids(all).into_iter().map(|(_, cut)| cut).collect();
    assert_eq!(truncated, [true, false]);
}

#[test]
fn question_copied_into_fork_belongs_to_fork() {
    let effect = EffectId::new(4);
    let call = ToolCall::new("c1", "write_file", json!({"path": "a"}));
    let mut script = Script::new("fork", 5);
    script.start("agent", "Write a file.");
    script.push(EventKind::Asked(Ask::new(
        "original".into(),
        effect,
        call,
        "it writes a file",
    )));
    let view = RunView::of("fork".into(), &script.events);
    let asks: Vec<&str> = view.asks().map(|ask| &*ask.id).collect();
    assert!(
        asks.len() == 1 && asks[0].starts_with("fork:4:"),
        "{asks:?}"
    );
    script.push(EventKind::Decided {
        effect,
        decision: Decision::Allow,
    });
    let view = RunView::of("fork".into(), &script.events);
    assert_eq!(view.asks().count(), 0);
}
