//! Views: the state of a fold over events, and its renderings.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Ask, Decision, Delta, EffectId, Event, EventKind, Finish, Message, Status, Timestamp, ToolCall,
    ToolOutput, ToolResult,
};
use levity_dag::{Condition, OnFailure, Plan, Step, StepStatus};
use levity_observe::{Activity, PlanStage, PlanView, TreeOptions};
use proptest::prelude::*;
use serde_json::json;

use crate::stream::{BEGIN, Stream, pages, usage};

fn view(stream: &Stream) -> PlanView {
    let mut view = PlanView::new();
    stream.events.iter().for_each(|event| view.apply(event));
    view
}

fn planned(goal: &str) -> Stream {
    let (plan, edges) = pages();
    let mut stream = Stream::new("r", goal);
    stream.notice(json!({"notice": "planning", "effect": 1, "again": 0, "replan": 0}));
    stream.wait(2_000).planned(&plan, &edges);
    stream
}

fn model_finished(effect: u64) -> EventKind {
    EventKind::ModelFinished {
        effect: EffectId::new(effect),
        message: Arc::new(Message::assistant("well")),
        finish: Finish::Stop,
        usage: usage(200, 10, 1_000_000),
    }
}

#[test]
fn view_follows_run_from_goal_to_end() {
    let mut stream = Stream::new("r", "compare two pages");
    assert_eq!(view(&stream).stage(), PlanStage::Starting);
    stream.notice(json!({"notice": "profiling", "effect": 1}));
    stream.event_of_child("1", model_finished(1));
    assert_eq!(view(&stream).stage(), PlanStage::Profiling);
    stream
        .wait(500)
        .notice(json!({"notice": "planning", "effect": 2, "again": 0, "replan": 0}));
    assert_eq!(view(&stream).stage(), PlanStage::Planning);
    let (plan, edges) = pages();
    let plan = plan.given("file_manifest", json!({"files": [{"path": "a.csv"}]}));
    stream.wait(2_000).planned(&plan, &edges);
    stream
        .started("fetch_a", 3)
        .started("fetch_b", 4)
        .wait(1_500);
    stream
        .completed("fetch_a", json!({"a": "A"}))
        .failed("fetch_b", "no such page");
    stream.notice(json!({"notice": "step_skipped", "step": "compare", "why": "`fetch_b` failed"}));

    let seen = view(&stream);
    assert_eq!(
        (seen.goal(), seen.stage()),
        ("compare two pages", PlanStage::Running)
    );
    assert_eq!(seen.profiling().took, Duration::from_millis(500));
    assert_eq!(seen.profiling().usage, usage(200, 10, 1_000_000));
    assert_eq!(seen.planning().took, Duration::from_secs(2));
    assert_eq!(seen.files(), [json!({"path": "a.csv"})]);
    let statuses: Vec<StepStatus> = seen.steps().iter().map(|step| step.status).collect();
    use StepStatus::{Completed, Failed, Pending, Skipped};
    assert_eq!(statuses, [Completed, Failed, Skipped, Pending]);
    assert_eq!(
        seen.step("compare").unwrap().before,
        ["fetch_a".into(), "fetch_b".into()]
    );
    assert_eq!(
        seen.step("fetch_a").unwrap().took(None),
        Some(Duration::from_millis(1_500))
    );
    assert_eq!(
        seen.step("fetch_b").unwrap().error.as_deref(),
        Some("no such page")
    );
    let totals = seen.totals();
    assert_eq!(
        (
            totals.completed,
            totals.failed,
            totals.skipped,
            totals.steps
        ),
        (1, 1, 1, 4)
    );
    assert_eq!(totals.usage.total(), 1_050 + 210);

    stream.ended(Status::Complete);
    let seen = view(&stream);
    assert_eq!(
        (seen.stage(), seen.ending().unwrap().status.clone()),
        (PlanStage::Ended, Status::Complete)
    );
}

#[test]
fn ended_run_has_no_steps_in_progress() {
    let mut stream = planned("g");
    stream.started("fetch_a", 2).started("fetch_b", 3).wait(400);
    let ask = Ask::new(
        stream.run.child(EffectId::new(3)),
        EffectId::new(1),
        ToolCall::new("1", "x", json!({})),
        "may it?",
    );
    stream.event_of_child("3", EventKind::Asked(ask));
    assert_eq!(
        view(&stream).step("fetch_b").unwrap().status,
        StepStatus::Waiting
    );
    stream.ended(Status::Cancelled {
        reason: "enough".into(),
    });
    let seen = view(&stream);
    assert!(
        seen.steps()
            .iter()
            .all(|step| step.status == StepStatus::Pending),
        "{:?}",
        seen.steps()
    );
    assert_eq!(seen.all_asks().count(), 0);
    assert_eq!(
        seen.step("fetch_a").unwrap().took(None),
        Some(Duration::from_millis(400))
    );
    let summary = seen.summary();
    assert!(
        summary.contains("fetch_a pending: the step was unfinished when the run ended"),
        "{summary}"
    );
    assert!(
        !summary.contains("compare pending: "),
        "it had not begun: {summary}"
    );
}

#[test]
fn activity_of_nested_agents_belongs_to_step() {
    let mut stream = planned("g");
    stream.started("fetch_a", 5);
    stream.event_of_child("5", EventKind::TurnStarted { turn: 1, of: 15 });
    stream.event_of_child(
        "5",
        EventKind::ModelStarted {
            effect: EffectId::new(1),
            slot: "main".into(),
        },
    );
    assert_eq!(view(&stream).steps()[0].activity, Activity::Thinks);
    stream.event_of_child(
        "5",
        EventKind::Delta {
            effect: EffectId::new(1),
            delta: Delta::Text("w".into()),
        },
    );
    assert_eq!(view(&stream).steps()[0].activity, Activity::Writes);
    stream.event_of_child("5", model_finished(1));
    let call = ToolCall::new("c", "web_search", json!({}));
    stream.event_of_child(
        "5.2.7",
        EventKind::ToolStarted {
            effect: EffectId::new(2),
            call: call.clone(),
        },
    );
    let seen = view(&stream);
    assert_eq!(seen.steps()[0].activity.to_string(), "calls web_search");
    assert_eq!(seen.steps()[1].activity, Activity::None);
    let result = ToolResult::new(&call, Ok(ToolOutput::text("found")));
    stream.event_of_child(
        "5.2.7",
        EventKind::ToolFinished {
            effect: EffectId::new(2),
            result,
        },
    );
    // A run whose id only begins with the same digits is unrelated.
    stream.event_of_child("51", model_finished(1));
    let other = Event::new(
        "r5".into(),
        0,
        Timestamp::from_millis(BEGIN),
        model_finished(1),
    );
    stream.events.push(other);

    let spent = view(&stream).steps()[0].spent;
    assert_eq!(
        (spent.usage, spent.stats.turns),
        (usage(200, 10, 1_000_000), 1)
    );
    assert_eq!((spent.stats.model_calls, spent.stats.tool_calls), (1, 1));
    // The final usage replaces the usage reported on the way.
    stream.completed("fetch_a", json!({"a": 1}));
    assert_eq!(
        view(&stream).steps()[0].spent.usage,
        usage(1_000, 50, 2_500_000)
    );
}

#[test]
fn pending_ask_makes_step_wait() {
    let mut stream = planned("g");
    stream.started("fetch_a", 5);
    let ask = |run: &str| {
        Ask::new(
            run.into(),
            EffectId::new(3),
            ToolCall::new("c", "delete", json!({})),
            "may it be deleted?",
        )
    };
    stream.event_of_child("5.1", EventKind::Asked(ask("r.5.1")));
    let seen = view(&stream);
    let step = seen.step("fetch_a").unwrap();
    assert_eq!((step.status, step.asks.len()), (StepStatus::Waiting, 1));
    assert_eq!(step.activity.to_string(), "asks: may it be deleted?");
    assert_eq!(seen.all_asks().count(), 1);
    stream.event_of_child(
        "5.1",
        EventKind::Decided {
            effect: EffectId::new(3),
            decision: Decision::Allow,
        },
    );
    let seen = view(&stream);
    assert_eq!(
        (seen.steps()[0].status, seen.all_asks().count()),
        (StepStatus::Running, 0)
    );

    // The run itself may ask on behalf of a step.
    stream.notice(json!({"notice": "step_asked", "step": "fetch_b", "effect": 3}));
    stream.event_of_run(EventKind::Asked(ask("r")));
    assert_eq!(view(&stream).steps()[1].status, StepStatus::Waiting);
    assert_eq!(view(&stream).stage(), PlanStage::Running);
}

#[test]
fn plan_waits_for_approval() {
    let mut stream = Stream::new("r", "g");
    stream.notice(json!({"notice": "planning", "effect": 1, "again": 0, "replan": 0}));
    let ask = Ask::new(
        "r".into(),
        EffectId::new(2),
        ToolCall::new("c", "plan", json!({})),
        "shall it run?",
    );
    stream.event_of_run(EventKind::Asked(ask));
    let seen = view(&stream);
    assert_eq!((seen.stage(), seen.asks().len()), (PlanStage::Approving, 1));
    stream.event_of_run(EventKind::Decided {
        effect: EffectId::new(2),
        decision: Decision::Allow,
    });
    let (plan, edges) = pages();
    stream.planned(&plan, &edges);
    let seen = view(&stream);
    assert_eq!((seen.stage(), seen.asks().len()), (PlanStage::Running, 0));
}

#[test]
fn replan_preserves_state_of_steps() {
    let mut stream = planned("g");
    stream
        .started("fetch_a", 5)
        .completed("fetch_a", json!({"a": 1}))
        .failed("fetch_b", "gone");
    stream
        .notice(json!({"notice": "replanning", "replan": 1, "steps": ["fetch_b"], "why": "gone"}));
    assert_eq!(view(&stream).stage(), PlanStage::Replanning);
    let (mut plan, mut edges) = pages();
    plan.steps.insert(
        0,
        Arc::new(
            Step::new("mirror", "Retriever")
                .writes(["b"])
                .instead_of("fetch_b"),
        ),
    );
    edges.push(("fetch_b", "mirror"));
    stream.notice(json!({
        "notice": "replanned", "replan": 1, "diff": {"reason": "a mirror"}, "plan": plan,
        "edges": edges
    }));
    stream.started("mirror", 9);
    let seen = view(&stream);
    assert_eq!((seen.replans(), seen.stage()), (1, PlanStage::Running));
    assert_eq!(seen.steps()[0].status, StepStatus::Running);
    assert_eq!(seen.step("fetch_a").unwrap().status, StepStatus::Completed);
    assert_eq!(seen.step("mirror").unwrap().before, ["fetch_b".into()]);
    assert!(
        seen.log()
            .any(|line| line.text == "the plan was changed: a mirror")
    );
}

#[test]
fn list_items_are_counted() {
    let mut stream = planned("g");
    stream.notice(json!({"notice": "fanned_out", "step": "fetch_a", "items": 3}));
    for item in 0..3 {
        stream.notice(json!({
            "notice": "step_started", "step": "fetch_a", "effect": 10 + item, "attempt": 1,
            "round": 1, "item": item
        }));
    }
    stream.notice(json!({"notice": "item_finished", "step": "fetch_a", "item": 1}));
    stream.notice(
        json!({"notice": "item_finished", "step": "fetch_a", "item": 0, "error": "too long"}),
    );
    let seen = view(&stream);
    let items = seen.steps()[0].items.unwrap();
    assert_eq!((items.done, items.failed, items.total), (2, 1, 3));
    // There is one line for the start, regardless of the number of items.
    assert_eq!(seen.log().filter(|line| line.text == "starts").count(), 1);
}

#[test]
fn log_is_bounded_and_log_after_returns_each_line_once() {
    let mut stream = planned("g");
    for _ in 0..2_000 {
        stream.notice(
            json!({"notice": "step_retried", "step": "fetch_a", "attempt": 1,
                "error": "busy\u{1b}[2J"}),
        );
    }
    let seen = view(&stream);
    assert_eq!(seen.log().len(), PlanView::MAX_LOG);
    assert_eq!(seen.log_count(), 2_002);
    assert_eq!(seen.log_after(2_000).len(), 2);
    assert_eq!(seen.log_after(0).len(), PlanView::MAX_LOG);
    assert_eq!(seen.log_after(u64::MAX).len(), 0);
    assert_eq!(
        seen.log().next_back().unwrap().text,
        "attempt 1 failed: busy\u{fffd}[2J"
    );
}

#[test]
fn tree_shows_status_of_each_step() {
    let mut stream = planned("compare two pages");
    stream.started("fetch_a", 5).started("fetch_b", 6).wait(300);
    stream
        .completed("fetch_b", json!({"b": 1}))
        .wait(900)
        .completed("fetch_a", json!({"a": 1}));
    stream.started("compare", 7).wait(65_000);
    stream.event_of_child(
        "7",
        EventKind::ModelStarted {
            effect: EffectId::new(1),
            slot: "main".into(),
        },
    );
    let seen = view(&stream);
    assert_eq!(
        seen.tree(TreeOptions::new()),
        "\
ROOT compare two pages
├── fetch_a ✓ Retriever 1.2 s
│   └── compare ◐ Thinker 1 min 5 s (also after fetch_b): thinks
│       └── report ○ Formatter
└── fetch_b ✓ Retriever 300 ms
"
    );
    assert_eq!(
        seen.tree(TreeOptions::new().ascii()),
        "\
ROOT compare two pages
|-- fetch_a [x] Retriever 1.2 s
|   `-- compare [>] Thinker 1 min 5 s (also after fetch_b): thinks
|       `-- report [ ] Formatter
`-- fetch_b [x] Retriever 300 ms
"
    );
    stream.failed("compare", "no\nwords");
    assert!(
        view(&stream)
            .tree(TreeOptions::new())
            .contains("compare ✗ Thinker 1 min 5 s (also after fetch_b): no words\n")
    );
}

#[test]
fn tree_truncates_wide_and_deep_plans() {
    let mut wide = Plan::new().step(Step::new("list", "Retriever"));
    let mut deep = Plan::new().step(Step::new("s0", "A"));
    for at in 1..=60 {
        wide = wide.step(Step::new(format!("page{at}"), "Browser").after("list"));
        deep = deep.step(Step::new(format!("s{at}"), "A").after(format!("s{}", at - 1)));
    }
    let tree = PlanView::of_plan(wide).tree(TreeOptions::new());
    assert_eq!(tree.lines().count(), 23);
    assert!(
        tree.ends_with("    ├── page20 ○ Browser\n    └── … 40 more (40 pending)\n"),
        "{tree}"
    );
    let tree = PlanView::of_plan(deep).tree(TreeOptions::new());
    assert_eq!(tree.lines().count(), 62);
    assert!(
        tree.lines().all(|line| line.chars().count() < 100) && tree.contains("s60 ○ A"),
        "{tree}"
    );

    // Running and failed steps are not omitted.
    let mut stream = Stream::new("r", "g");
    let mut many = Plan::new();
    for at in 0..100 {
        many = many.step(Step::new(format!("s{at}"), "A"));
    }
    stream
        .planned(&many, &[])
        .started("s99", 5)
        .failed("s50", "no");
    let tree = view(&stream).tree(TreeOptions::new().max_children(3));
    assert_eq!(
        tree,
        "\
ROOT g
├── s0 ○ A
├── s50 ✗ A: no
├── s99 ◐ A 0 ms
└── … 97 more (97 pending)
"
    );
    let tree = view(&stream).tree(TreeOptions::new().max_children(100).max_lines(10));
    assert_eq!(tree.lines().count(), 10, "{tree}");
}

#[test]
fn invalid_plans_are_drawn() {
    let plan = Plan::new()
        .step(Step::new("a", "A").after("b").after("a").after("nobody"))
        .step(Step::new("b", "A").after("a"))
        .step(Step::new("b", "B"));
    let seen = PlanView::of_plan(plan);
    let tree = seen.tree(TreeOptions::new());
    assert_eq!(tree.lines().count(), 4, "{tree}");
    assert!(seen.dot().contains("s2 ["));
}

#[test]
fn summary_has_row_for_each_step() {
    let mut stream = planned("g");
    stream
        .started("fetch_a", 5)
        .wait(1_200)
        .completed("fetch_a", json!({"a": 1}));
    stream
        .started("fetch_b", 6)
        .failed("fetch_b", "no such page");
    stream.notice(json!({"notice": "gave_up", "why": "there is no other page"}));
    stream.ended(Status::Cancelled {
        reason: "enough".into(),
    });
    assert_eq!(
        view(&stream).summary(),
        "\
step      agent      status      time  tokens     cost  attempts
planning                        2.0 s       -        -         1
fetch_a   Retriever  completed  1.2 s   1,050  $0.0025         1
fetch_b   Retriever  failed      0 ms       -        -         1
compare   Thinker    pending        -       -        -         -
report    Formatter  pending        -       -        -         -
total                1 of 4     3.2 s   1,050  $0.0025

fetch_b failed: no such page
gave up: there is no other page
cancelled: enough
"
    );
}

/// Texts that try to break out of a diagram, or to control a terminal.
const HOSTILE: &[&str] = &[
    "\u{1b}]0;title\u{7}\u{1b}[2J",
    "a\" --> b[\"x",
    "</b><script>alert(1)</script>",
    "line\nend\r\ttab\u{2028}",
    "back\\slash\\",
    "\\\"; } digraph x { a -> b",
    "&quot;&#34;&amp;",
    "#quot; #35; %% comment",
    "`md` **bold**",
    "]:::failed; click s0 href \"javascript:alert(1)\"",
    "\u{202e}txt.exe",
    "end",
    "",
    "subgraph",
];

fn hostile_plan() -> Plan {
    let mut plan = Plan::new();
    for (at, text) in HOSTILE.iter().enumerate() {
        let id = format!("{text}{at}");
        plan = plan.step(Step::new(id, *text).description(*text).prompt(*text));
    }
    let long = "x".repeat(100_000);
    let bad = Condition::parse("a == \"--> |x|\"").unwrap();
    plan.step(Step::new(long.clone(), "A").on_failure(OnFailure::Fallback("z".into())))
        .step(Step::new("z", "A").after_if(long, bad))
}

#[test]
fn hostile_texts_are_escaped() {
    for goal in HOSTILE {
        let seen = PlanView::of_plan(hostile_plan()).with_goal(*goal);
        for drawn in [
            seen.tree(TreeOptions::new()),
            seen.mermaid(),
            seen.dot(),
            seen.summary(),
        ] {
            assert!(
                !drawn.contains(|char: char| char.is_control() && char != '\n'),
                "{drawn}"
            );
            assert!(!drawn.contains('\u{202e}'));
            assert!(drawn.lines().all(|line| line.len() < 2_000));
        }
        let tree = seen.tree(TreeOptions::new());
        assert_eq!(tree.lines().count(), HOSTILE.len() + 3, "{tree}");
    }
}

#[test]
fn mermaid_has_line_for_each_node_and_edge() {
    let plan = Plan::new()
        .step(Step::new("a\"-->b", "A").on_failure(OnFailure::Fallback("c".into())))
        .step(Step::new("b", "B").after_if("a\"-->b", Condition::parse("x > 1").unwrap()))
        .step(Step::new("c", "C"));
    let drawn = PlanView::of_plan(plan).with_goal("say \"hi\"").mermaid();
    let expected = "\
flowchart TD
    root([\"ROOT<br/>say #34;hi#34;\"])
    s0[\"a#34;#45;#45;#62;b<br/>A<br/>pending\"]:::pending
    s1[\"b<br/>B<br/>pending\"]:::pending
    s2[\"c<br/>C<br/>pending\"]:::pending
    root --> s0
    s0 -.->|\"if x #62; 1\"| s1
    s0 -.->|\"on failure\"| s2
    classDef pending";
    assert!(drawn.starts_with(expected), "{drawn}");
}

#[test]
fn graphviz_accepts_dot_output() {
    let seen = PlanView::of_plan(hostile_plan()).with_goal(HOSTILE.join(" "));
    let begun = Command::new("dot")
        .arg("-Tsvg")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut dot) = begun else {
        println!("SKIPPED: graphviz is not installed, so nobody reads the drawing");
        return;
    };
    dot.stdin
        .take()
        .unwrap()
        .write_all(seen.dot().as_bytes())
        .unwrap();
    let out = dot.wait_with_output().unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let drawn = String::from_utf8(out.stdout).unwrap();
    assert_eq!(
        drawn.matches("class=\"node").count(),
        seen.steps().len() + 1,
        "{drawn}"
    );
    assert_eq!(
        drawn.matches("class=\"edge").count(),
        seen.steps().len(),
        "{drawn}"
    );
    // Texts appear unchanged, and none was interpreted as syntax.
    assert!(drawn.contains("&amp;quot;&amp;#34;&amp;amp;6"), "{drawn}");
    assert!(drawn.contains("back\\slash\\"), "{drawn}");
}

fn any_event() -> impl Strategy<Value = (String, EventKind)> {
    let run = prop::sample::select(vec![
        "r",
        "r.1",
        "r.2",
        "r.3.4",
        "q",
        "r.x",
        "r.",
        "rr",
        "r.99999999999999999999",
        "",
    ]);
    let step = prop::sample::select(vec!["fetch_a", "fetch_b", "compare", "nobody"]);
    let name = prop::sample::select(vec![
        "step_started",
        "step_retried",
        "step_completed",
        "step_failed",
        "step_skipped",
        "item_finished",
        "fanned_out",
        "step_asked",
        "verdict",
        "replanning",
        "gave_up",
        "planning",
        "rejected",
        "nonsense",
    ]);
    let notice = (name, step, 0..4_u64).prop_map(|(name, step, number)| {
        let data = json!({
            "notice": name, "step": step, "effect": number, "attempt": number, "round": number,
            "item": number,
            "items": number, "error": "e", "why": "w", "writes": [], "output": null, "spent": {},
            "passed": false,
            "issues": [], "replan": number, "again": number, "steps": [step], "faults": []
        });
        EventKind::Custom {
            name: "graph".into(),
            data,
        }
    });
    let other = (0..4_u64).prop_flat_map(|number| {
        let effect = EffectId::new(number);
        let ask = Ask::new(
            "r.1".into(),
            effect,
            ToolCall::new("c", "t", json!(null)),
            "why",
        );
        prop::sample::select(vec![
            EventKind::Asked(ask),
            EventKind::Decided {
                effect,
                decision: Decision::Allow,
            },
            EventKind::Woken { effect },
            model_finished(number),
            EventKind::Lagged { missed: 7 },
            EventKind::RunEnded(Box::new(levity_core::Ending::new(Status::Complete))),
            EventKind::Custom {
                name: "graph".into(),
                data: json!([1]),
            },
        ])
    });
    (run.prop_map(str::to_owned), prop_oneof![notice, other])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn view_accepts_any_events_in_any_order(
        events in prop::collection::vec(any_event(), 0..60),
        begin in 0..3_usize,
    ) {
        let stream = planned("g");
        let mut seen = PlanView::new();
        stream.events.iter().skip(begin).for_each(|event| seen.apply(event));
        for (at, (run, kind)) in events.into_iter().enumerate() {
            let moment = Timestamp::from_millis(at as u64);
            seen.apply(&Event::new(run.as_str().into(), 0, moment, kind));
        }
        let drawn = [seen.tree(TreeOptions::new()), seen.mermaid(), seen.dot(), seen.summary()];
        prop_assert!(drawn.iter().all(|drawn| !drawn.is_empty()));
        prop_assert_eq!(seen.steps().len(), 4);
    }
}
