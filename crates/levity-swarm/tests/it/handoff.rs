//! Tests of a conversation that is passed on.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity_core::{
    Event, Hints, Limit, Limits, Message, ModelErrorKind, Part, Role, Status, Tool, ToolCx,
    ToolError, ToolErrorKind, ToolOutput, ToolSpec,
};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_swarm::{
    Error, FailureAction, Handoff, HandoffHistory, MessageKind, ReportStatus, Swarm, SwarmAnswer,
    SwarmBuilder, SwarmInput, SwarmNotice, Worker,
};
use levity_test::crash::{self, Life};
use levity_test::{ManualWorld, RecordingTool, ScriptedModel, Turn};
use serde_json::json;
use tokio::sync::Notify;

fn agent(model: &ScriptedModel) -> Agent {
    Agent::builder(model.clone()).tool(look()).build().unwrap()
}

fn look() -> impl Tool {
    RecordingTool::new("look", |_| Ok(ToolOutput::text("order 7 is unpaid")))
        .with_hints(Hints::new().read_only())
}

fn worker(name: &str, model: &ScriptedModel) -> Worker {
    Worker::new(name, format!("The {name} desk."), agent(model))
}

fn pass(to: &str, note: &str) -> Turn {
    Turn::new().call("transfer_to", json!({"to": to, "note": note}))
}

fn passing(to: &str) -> ScriptedModel {
    ScriptedModel::new().turn(pass(to, "Look at it."))
}

fn failing() -> ScriptedModel {
    ScriptedModel::new()
        .fail(ModelErrorKind::BadRequest)
        .fail(ModelErrorKind::BadRequest)
}

fn three(workers: [Worker; 3]) -> SwarmBuilder {
    Swarm::builder(Handoff::starting_with("triage")).workers(workers)
}

/// The notices of a run, in order.
#[derive(Clone, Default)]
struct NoticeLog(Arc<Mutex<Vec<SwarmNotice>>>);

impl NoticeLog {
    fn recorder(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let notices = self.0.clone();
        move |event| notices.lock().unwrap().extend(SwarmNotice::of(&event.kind))
    }

    /// Returns a short line for each notice of the swarm.
    fn lines(&self) -> Vec<String> {
        let line = |notice: &SwarmNotice| match notice {
            SwarmNotice::Began {
                id,
                worker,
                attempt,
                ..
            } => Some(format!("{id} {worker} begins {attempt}")),
            SwarmNotice::Done { id, worker } => Some(format!("{id} {worker} done")),
            SwarmNotice::Failed {
                id, worker, then, ..
            } => Some(match then {
                FailureAction::Fallback { worker: other } => {
                    format!("{id} {worker} failed, {other}")
                }
                then => format!("{id} {worker} failed, {then:?}"),
            }),
            SwarmNotice::HandedOff { from, to, .. } => Some(format!("{from} to {to}")),
            SwarmNotice::LoopFound { from, to, .. } => Some(format!("{from} not to {to}")),
            SwarmNotice::FilterFailed { to, .. } => Some(format!("filter failed for {to}")),
            _ => None,
        };
        self.0.lock().unwrap().iter().filter_map(line).collect()
    }
}

fn roles(messages: &[Arc<Message>]) -> Vec<Role> {
    messages.iter().map(|message| message.role).collect()
}

fn kinds(finished: &SwarmAnswer) -> Vec<MessageKind> {
    finished
        .bus()
        .messages()
        .map(|message| message.kind)
        .collect()
}

/// Returns the last request to a model: one text per message, with the names of its calls.
fn last_request(model: &ScriptedModel) -> Vec<String> {
    let requests = model.requests();
    let line = |message: &Arc<Message>| {
        let calls: Vec<_> = message
            .calls()
            .map(|call| format!("<{}>", call.name))
            .collect();
        let results: Vec<_> = message
            .results()
            .map(|result| format!("={}", result.text()))
            .collect();
        format!(
            "{:?}:{}{}{}",
            message.role,
            message.text(),
            calls.concat(),
            results.concat()
        )
    };
    requests
        .last()
        .unwrap()
        .history
        .messages()
        .iter()
        .map(line)
        .collect()
}

#[tokio::test]
async fn conversation_is_passed_on_twice_with_full_history() {
    let triage = ScriptedModel::new()
        .call("look", json!({}))
        .turn(pass("billing", "Order 7.").text("One moment."));
    let billing = ScriptedModel::new()
        .call("look", json!({}))
        .turn(pass("repairs", "It is paid."));
    let repairs = ScriptedModel::new().reply("It will be mended on Monday.");
    let swarm = Swarm::builder(Handoff::starting_with("triage"))
        .workers([
            worker("triage", &triage),
            worker("billing", &billing),
            worker("repairs", &repairs),
        ])
        .build()
        .unwrap();
    let notices = NoticeLog::default();
    let finished = swarm
        .run("My boiler is cold.")
        .on_event(notices.recorder())
        .await
        .unwrap();
    assert_eq!(
        (finished.text(), finished.status()),
        ("It will be mended on Monday.", &Status::Complete)
    );
    assert_eq!(finished.last_speaker(), Some("repairs"));
    let lines = [
        "leg1 triage begins 1",
        "leg1 triage done",
        "triage to billing",
        "leg2 billing begins 1",
        "leg2 billing done",
        "billing to repairs",
        "leg3 repairs begins 1",
        "leg3 repairs done",
    ];
    assert_eq!(notices.lines(), lines);
    use Role::{Assistant, Tool, User};
    let expected = [
        User, Assistant, Tool, Assistant, Tool, Assistant, Tool, Assistant, Tool, Assistant,
    ];
    assert_eq!(
        roles(finished.conversation()),
        expected,
        "{:?}",
        finished.conversation()
    );
    assert_eq!(
        kinds(&finished),
        [
            MessageKind::Handoff,
            MessageKind::Handoff,
            MessageKind::Answer
        ]
    );
    assert_eq!(finished.stats().model_calls, 5);
    let shown = last_request(&repairs);
    assert_eq!(shown.len(), 10, "{shown:?}");
    assert_eq!(shown[0], "User:My boiler is cold.");
    assert_eq!(shown[4], "Tool:=noted");
    assert!(
        shown[9].contains("`billing` has passed it on to you") && shown[9].contains("It is paid."),
        "{shown:?}"
    );
}

/// Runs a handoff from a desk to a pilot; returns the messages that the pilot saw.
async fn run_handoff(handoff: Handoff) -> (Vec<String>, NoticeLog) {
    let desk = ScriptedModel::new()
        .turn(
            Turn::new()
                .thinking("hm")
                .text("Let me look.")
                .call("look", json!({})),
        )
        .turn(
            Turn::new()
                .text("I pass you on.")
                .call("transfer_to", json!({"to": "pilot", "note": "Order 7."})),
        );
    let pilot = ScriptedModel::new().reply("Done.");
    let swarm = Swarm::builder(handoff).workers([worker("desk", &desk), worker("pilot", &pilot)]);
    let notices = NoticeLog::default();
    let finished = swarm
        .build()
        .unwrap()
        .run("Pay it.")
        .on_event(notices.recorder())
        .await
        .unwrap();
    assert_eq!(finished.text(), "Done.");
    assert_eq!(
        finished.conversation().len(),
        6,
        "the conversation contains all messages"
    );
    let mut shown = last_request(&pilot);
    assert!(
        shown.pop().unwrap().contains("Order 7."),
        "the note is always included"
    );
    (shown, notices)
}

#[tokio::test]
async fn handoff_history_decides_which_messages_are_included() {
    let first = || Handoff::starting_with("desk");
    let all = [
        "User:Pay it.",
        "Assistant:Let me look.<look>",
        "Tool:=order 7 is unpaid",
        "Assistant:I pass you on.<transfer_to>",
        "Tool:=noted",
    ];
    let check = async |carry: HandoffHistory, expected: &[&str]| {
        let shown = run_handoff(
            first()
                .history(HandoffHistory::Note)
                .history_for("pilot", carry.clone()),
        )
        .await
        .0;
        assert_eq!(shown, expected, "{carry:?}");
        assert_eq!(
            run_handoff(first().history(carry.clone())).await.0,
            expected,
            "{carry:?} for all"
        );
    };
    check(HandoffHistory::Everything, &all).await;
    check(
        HandoffHistory::TextOnly,
        &[
            "User:Pay it.",
            "Assistant:Let me look.",
            "Assistant:I pass you on.",
        ],
    )
    .await;
    check(HandoffHistory::Last(0), &all[3..]).await;
    // A result is not shown without its call.
    check(HandoffHistory::Last(1), &all[1..]).await;
    check(HandoffHistory::Last(2), &all[1..]).await;
    check(HandoffHistory::Last(3), &all).await;
    check(HandoffHistory::Last(usize::MAX), &all).await;
    check(HandoffHistory::Note, &["User:Pay it."]).await;
    check(
        HandoffHistory::by(|messages| messages[..1].to_vec()),
        &all[..1],
    )
    .await;
    check(HandoffHistory::by(|_| Vec::new()), &[]).await;
}

#[tokio::test]
async fn filtered_history_is_always_valid() {
    let shown = |carry| async {
        run_handoff(Handoff::starting_with("desk").history(carry))
            .await
            .0
    };
    let halves = HandoffHistory::by(|all| {
        let calls = |message: &&Arc<Message>| message.role != Role::Tool;
        all.iter().filter(calls).cloned().collect()
    });
    assert_eq!(
        shown(halves).await,
        [
            "User:Pay it.",
            "Assistant:Let me look.",
            "Assistant:I pass you on."
        ]
    );
    let results = HandoffHistory::by(|all| {
        all.iter()
            .filter(|message| message.role != Role::Assistant)
            .cloned()
            .collect()
    });
    assert_eq!(shown(results).await, ["User:Pay it."]);
    let backwards = HandoffHistory::by(|all| all.iter().rev().cloned().collect());
    assert_eq!(
        shown(backwards).await,
        [
            "Assistant:I pass you on.",
            "Assistant:Let me look.",
            "User:Pay it."
        ]
    );
    let twice = HandoffHistory::by(|all| [all, all].concat());
    assert_eq!(
        shown(twice).await.len(),
        10,
        "duplicate call ids are renamed"
    );
    let odd = HandoffHistory::by(|all| {
        let call = all[1].calls().next().unwrap().clone();
        let by_user = Message::new(Role::User, [Part::text("mine"), Part::ToolCall(call)]);
        vec![
            by_user.into(),
            all[2].clone(),
            Message::new(Role::Tool, [Part::text("odd")]).into(),
        ]
    });
    assert_eq!(shown(odd).await, ["User:mine"]);
}

#[tokio::test]
async fn panicking_filter_falls_back_to_text_messages() {
    let (shown, notices) =
        run_handoff(Handoff::starting_with("desk").history(HandoffHistory::by(|_| panic!("no"))))
            .await;
    assert_eq!(
        shown,
        [
            "User:Pay it.",
            "Assistant:Let me look.",
            "Assistant:I pass you on."
        ]
    );
    assert!(
        notices
            .lines()
            .contains(&"filter failed for pilot".to_owned()),
        "{:?}",
        notices.lines()
    );
}

#[tokio::test]
async fn repeated_handoffs_force_answer() {
    let ping = ScriptedModel::new()
        .turn(pass("pong", ""))
        .turn(pass("pong", ""))
        .turn(pass("pong", ""))
        .reply("So be it.");
    let pong = ScriptedModel::new()
        .turn(pass("ping", ""))
        .turn(pass("ping", ""));
    let swarm = Swarm::builder(Handoff::starting_with("ping"))
        .workers([worker("ping", &ping), worker("pong", &pong)]);
    let notices = NoticeLog::default();
    let finished = swarm
        .build()
        .unwrap()
        .run("Decide.")
        .on_event(notices.recorder())
        .await
        .unwrap();
    assert_eq!(finished.text(), "So be it.");
    assert!(
        notices.lines().contains(&"ping not to pong".to_owned()),
        "{:?}",
        notices.lines()
    );
    assert_eq!(finished.reports().len(), 6);
    let last = ping.requests().pop().unwrap();
    assert!(
        !last.tools.iter().any(|tool| tool.name == "transfer_to"),
        "the worker no longer has the tool"
    );
    let shown = last_request(&ping);
    assert!(
        shown[shown.len() - 2].contains("which is a loop"),
        "{shown:?}"
    );
    assert!(
        shown.last().unwrap().contains("Answer the user yourself"),
        "{shown:?}"
    );
    let denied = finished
        .conversation()
        .iter()
        .flat_map(|message| message.results())
        .last();
    assert_eq!(
        denied.and_then(|result| result.error),
        Some(ToolErrorKind::Denied)
    );
}

#[tokio::test]
async fn number_of_handoffs_is_limited() {
    for max_handoffs in [0, 1, 2] {
        let models: Vec<ScriptedModel> = (0..4)
            .map(|n| {
                ScriptedModel::new()
                    .turn(pass(&format!("w{}", n + 1), ""))
                    .reply(format!("w{n} answers"))
            })
            .collect();
        let workers = models
            .iter()
            .enumerate()
            .map(|(n, model)| worker(&format!("w{n}"), model));
        let last = ScriptedModel::new();
        let swarm = Swarm::builder(Handoff::starting_with("w0").max_handoffs(max_handoffs))
            .workers(workers)
            .worker(worker("w4", &last));
        let finished = swarm.build().unwrap().run("Go.").await.unwrap();
        assert_eq!(finished.text(), format!("w{max_handoffs} answers"));
        let handed = finished
            .bus()
            .messages()
            .filter(|message| message.kind == MessageKind::Handoff)
            .count();
        assert_eq!(handed, max_handoffs as usize);
    }
}

#[tokio::test]
async fn recipient_that_is_not_allowed_is_rejected_by_tool() {
    let triage = ScriptedModel::new()
        .turn(pass("nobody", ""))
        .turn(pass("triage", ""))
        .turn(pass("repairs", ""))
        .reply("I stay.");
    let quiet = ScriptedModel::new();
    let swarm =
        Swarm::builder(Handoff::starting_with("triage").allow_transfers("triage", ["billing"]))
            .workers([
                worker("triage", &triage),
                worker("billing", &quiet),
                worker("repairs", &quiet),
            ]);
    let finished = swarm.build().unwrap().run("Help.").await.unwrap();
    assert_eq!((finished.text(), finished.reports().len()), ("I stay.", 1));
    let tools = &triage.requests()[0].tools;
    let tool = tools
        .iter()
        .find(|tool| tool.name == "transfer_to")
        .unwrap();
    assert_eq!(tool.input["properties"]["to"]["enum"], json!(["billing"]));
    assert!(
        tool.description.contains("The billing desk."),
        "{}",
        tool.description
    );
}

/// With more workers than the tool names, the recipient is checked at the handoff.
#[tokio::test]
async fn unknown_recipient_is_reported_and_then_refused() {
    let first = ScriptedModel::new()
        .turn(pass("w7o", ""))
        .turn(pass("w70", ""));
    let right = ScriptedModel::new()
        .turn(pass("w70", ""))
        .turn(pass("x", ""))
        .turn(pass("y", ""))
        .reply("Enough.");
    let quiet = ScriptedModel::new();
    let others = (2..70).map(|n| worker(&format!("w{n}"), &quiet));
    let swarm = Swarm::builder(Handoff::starting_with("w1")).worker(worker("w1", &first));
    let swarm = swarm
        .workers(others)
        .worker(worker("w70", &right))
        .build()
        .unwrap();
    let notices = NoticeLog::default();
    let finished = swarm.run("Go.").on_event(notices.recorder()).await.unwrap();
    assert_eq!(finished.text(), "Enough.");
    let not: Vec<_> = notices
        .lines()
        .into_iter()
        .filter(|line| line.contains(" not to "))
        .collect();
    assert_eq!(not, ["w1 not to w7o", "w70 not to w70", "w70 not to x"]);
    let shown = last_request(&first);
    assert!(
        shown
            .last()
            .unwrap()
            .contains("did you mean `w7`? You have"),
        "{shown:?}"
    );
    let tool = first.requests()[0]
        .tools
        .iter()
        .find(|tool| tool.name == "transfer_to")
        .unwrap()
        .clone();
    assert!(
        tool.description.len() < 30_000 && tool.description.contains("and 19 more"),
        "{}",
        tool.description
    );
}

#[tokio::test]
async fn failed_leg_is_retried() {
    let billing = ScriptedModel::new()
        .fail(ModelErrorKind::BadRequest)
        .reply("Paid.");
    let swarm = three([
        worker("triage", &passing("billing")),
        worker("billing", &billing),
        worker("repairs", &ScriptedModel::new()),
    ]);
    let notices = NoticeLog::default();
    let finished = swarm
        .build()
        .unwrap()
        .run("Pay.")
        .on_event(notices.recorder())
        .await
        .unwrap();
    assert_eq!(
        (finished.text(), finished.report("leg2").unwrap().attempts),
        ("Paid.", 2)
    );
    assert!(
        notices
            .lines()
            .contains(&"leg2 billing failed, Retry".to_owned()),
        "{:?}",
        notices.lines()
    );
    assert_eq!(
        kinds(&finished),
        [
            MessageKind::Handoff,
            MessageKind::Failure,
            MessageKind::Answer
        ]
    );
    assert_eq!(finished.conversation().len(), 4);
}

#[tokio::test]
async fn fallback_worker_takes_over_failed_leg() {
    let repairs = ScriptedModel::new().reply("I did it for them.");
    let swarm = three([
        worker("triage", &passing("billing")),
        worker("billing", &failing()).fallback("repairs"),
        worker("repairs", &repairs),
    ]);
    let notices = NoticeLog::default();
    let finished = swarm
        .build()
        .unwrap()
        .run("Pay.")
        .on_event(notices.recorder())
        .await
        .unwrap();
    assert_eq!(
        (finished.text(), finished.last_speaker()),
        ("I did it for them.", Some("repairs"))
    );
    let leg = finished.report("leg2").unwrap();
    assert_eq!(
        (&*leg.worker, leg.attempts, leg.status),
        ("repairs", 3, ReportStatus::Done)
    );
    assert!(
        notices
            .lines()
            .contains(&"leg2 billing failed, repairs".to_owned()),
        "{:?}",
        notices.lines()
    );
    let shown = last_request(&repairs);
    assert!(
        shown
            .last()
            .unwrap()
            .contains("You stand in for `billing`, who failed."),
        "{shown:?}"
    );
}

#[tokio::test]
async fn failed_leg_returns_to_previous_holder() {
    let triage = passing("billing").reply("Nobody is at the till; call again.");
    let swarm = three([
        worker("triage", &triage),
        worker("billing", &failing()),
        worker("repairs", &ScriptedModel::new()),
    ]);
    let notices = NoticeLog::default();
    let finished = swarm
        .build()
        .unwrap()
        .run("Pay.")
        .on_event(notices.recorder())
        .await
        .unwrap();
    assert_eq!(finished.text(), "Nobody is at the till; call again.");
    assert_eq!(
        (finished.status(), finished.last_speaker()),
        (&Status::Complete, Some("triage"))
    );
    assert!(
        notices
            .lines()
            .contains(&"leg2 billing failed, triage".to_owned()),
        "{:?}",
        notices.lines()
    );
    assert!(
        !triage.requests()[1]
            .tools
            .iter()
            .any(|tool| tool.name == "transfer_to")
    );
    let shown = last_request(&triage);
    assert!(
        shown
            .last()
            .unwrap()
            .contains("`billing` could not go on with it"),
        "{shown:?}"
    );
    assert_eq!(finished.failures().count(), 1);
}

#[tokio::test]
async fn failure_without_remaining_holder_contains_conversation() {
    let triage = passing("billing")
        .fail(ModelErrorKind::BadRequest)
        .fail(ModelErrorKind::BadRequest);
    let billing = passing("repairs")
        .fail(ModelErrorKind::BadRequest)
        .fail(ModelErrorKind::BadRequest);
    let swarm = three([
        worker("triage", &triage),
        worker("billing", &billing),
        worker("repairs", &failing()),
    ]);
    let Err(Error::Unreached { why, partial }) = swarm.build().unwrap().run("Pay.").await else {
        panic!("the run must fail")
    };
    assert!(why.contains("`triage`"), "{why}");
    use Role::{Assistant, Tool, User};
    let partial: SwarmAnswer = partial.downcast().unwrap();
    assert_eq!(
        roles(partial.conversation()),
        [User, Assistant, Tool, Assistant, Tool]
    );
    let workers: Vec<_> = partial
        .reports()
        .iter()
        .map(|report| &*report.worker)
        .collect();
    assert_eq!(
        workers,
        ["triage", "billing", "repairs", "billing", "triage"]
    );
    for model in [triage, billing] {
        model.assert_finished();
    }
}

#[tokio::test]
async fn later_run_continues_with_last_holder() {
    let triage = passing("billing");
    let repairs = ScriptedModel::new().reply("It is mended.");
    let swarm = three([
        worker("triage", &triage),
        worker(
            "billing",
            &ScriptedModel::new()
                .reply("Paid.")
                .turn(pass("repairs", "")),
        ),
        worker("repairs", &repairs),
    ])
    .build()
    .unwrap();
    let first = swarm.run("Pay.").await.unwrap();
    assert_eq!(first.last_speaker(), Some("billing"));
    let second = swarm
        .run(SwarmInput::from("And mend it.").after(&first))
        .await
        .unwrap();
    assert_eq!(
        (second.text(), second.last_speaker()),
        ("It is mended.", Some("repairs"))
    );
    let workers: Vec<_> = second
        .reports()
        .iter()
        .map(|report| &*report.worker)
        .collect();
    assert_eq!(workers, ["billing", "repairs"]);
    let shown = last_request(&repairs);
    let expected = [
        "User:Pay.",
        "Assistant:<transfer_to>",
        "Tool:=noted",
        "Assistant:Paid.",
        "User:And mend it.",
    ];
    assert_eq!(shown[..5], expected);
    assert_eq!(second.conversation().len(), 8);
}

#[tokio::test]
async fn nested_swarm_gets_message_and_note_and_its_answer_ends_run() {
    let inner = ScriptedModel::new().reply("We did it together.");
    let crew = Swarm::builder(Handoff::starting_with("one"))
        .worker(worker("one", &inner))
        .build()
        .unwrap();
    let swarm = Swarm::builder(Handoff::starting_with("desk"))
        .worker(worker("desk", &passing("crew")))
        .worker(Worker::swarm("crew", "Many hands.", crew));
    let finished = swarm
        .build()
        .unwrap()
        .run("Carry the piano.")
        .await
        .unwrap();
    assert_eq!(finished.text(), "We did it together.");
    assert_eq!(
        finished.conversation().last().unwrap().text(),
        "We did it together."
    );
    let task = last_request(&inner).pop().unwrap();
    assert!(
        task.starts_with("User:Carry the piano.") && task.contains("Look at it."),
        "{task}"
    );
    assert!(
        !inner.requests()[0]
            .tools
            .iter()
            .any(|tool| tool.name == "transfer_to"),
        "the inner swarm has no other worker"
    );
}

/// A tool that waits for a notification.
struct BlockingTool {
    spec: ToolSpec,
    reached: Arc<Notify>,
    open: Arc<Notify>,
}

#[async_trait]
impl Tool for BlockingTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: serde_json::Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.reached.notify_one();
        self.open.notified().await;
        Ok(ToolOutput::text("open"))
    }
}

#[tokio::test]
async fn host_message_reaches_next_leg_or_additional_one() {
    let (reached, open) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let gate = |model: ScriptedModel| {
        let spec = ToolSpec::new("wait", "Waits.");
        let gate = BlockingTool {
            spec,
            reached: reached.clone(),
            open: open.clone(),
        };
        Agent::builder(model).tool(gate).build().unwrap()
    };
    let triage = ScriptedModel::new()
        .call("wait", json!({}))
        .turn(pass("billing", ""));
    let billing = ScriptedModel::new()
        .call("wait", json!({}))
        .reply("Paid.")
        .reply("And posted.");
    let swarm = Swarm::builder(Handoff::starting_with("triage").history(HandoffHistory::Note))
        .agent("triage", "Hears.", gate(triage))
        .agent("billing", "Pays.", gate(billing.clone()))
        .build()
        .unwrap();
    let handle = swarm.run("Pay.").start();
    for words in ["In cash.", "And post it."] {
        reached.notified().await;
        handle
            .control()
            .send_message(Message::user(words))
            .await
            .unwrap();
        open.notify_one();
    }
    let finished = handle.await.unwrap();
    assert_eq!(
        (finished.text(), finished.reports().len()),
        ("And posted.", 3)
    );
    let shown = last_request(&billing);
    assert!(shown[1].contains("The user says: In cash."), "{shown:?}");
    assert_eq!(shown.last().unwrap(), "User:And post it.");
    let users: Vec<_> = finished
        .conversation()
        .iter()
        .filter(|message| message.role == Role::User)
        .collect();
    let users: Vec<_> = users.iter().map(|message| message.text()).collect();
    assert_eq!(users, ["Pay.", "In cash.", "And post it."]);
}

#[tokio::test]
async fn near_limit_handoff_is_refused() {
    let triage = ScriptedModel::new()
        .turn(pass("billing", "").usage(94_000, 1_000))
        .turn(Turn::new().text("As far as I know.").usage(10, 10));
    let swarm = three([
        worker("triage", &triage),
        worker("billing", &ScriptedModel::new()),
        worker("repairs", &ScriptedModel::new()),
    ]);
    let notices = NoticeLog::default();
    let run = swarm
        .build()
        .unwrap()
        .run("Pay.")
        .limits(Limits::new().tokens(100_000));
    let finished = run.on_event(notices.recorder()).await.unwrap();
    assert_eq!(finished.text(), "As far as I know.");
    assert_eq!(finished.status(), &Status::BestEffort(Limit::Tokens));
    assert!(
        notices
            .lines()
            .contains(&"triage not to billing".to_owned()),
        "{:?}",
        notices.lines()
    );
}

/// Returns a swarm whose workers share one script: each continues where the conversation is.
fn story(journal: impl levity_core::Journal + 'static) -> Swarm {
    let script = ScriptedModel::new()
        .call("look", json!({}))
        .turn(pass("billing", "Order 7."))
        .call("look", json!({}))
        .turn(pass("repairs", "Paid."))
        .reply("On Monday.")
        .by_history();
    Swarm::builder(Handoff::starting_with("triage"))
        .workers(["triage", "billing", "repairs"].map(|name| worker(name, &script)))
        .runtime(
            Runtime::new()
                .with_journal(journal)
                .with_world(ManualWorld::new()),
        )
        .build()
        .unwrap()
}

#[tokio::test]
async fn handoff_stopped_after_every_record_has_same_result() {
    let report = crash::after_every_record(MemoryJournal::new, async |life: Life| {
        let swarm = story(life.journal.clone());
        let run = if life.knows("r").await {
            swarm.resume("r")
        } else {
            swarm.run("Mend it.").id("r")
        };
        let finished = run.await.unwrap();
        let said: Vec<_> = finished
            .bus()
            .messages()
            .map(|said| format!("{} {}", said.from, said.content))
            .collect();
        let reports: Vec<_> = finished
            .reports()
            .iter()
            .map(|leg| (leg.id.clone(), leg.worker.clone()))
            .collect();
        (
            finished.text().to_owned(),
            json!(finished.conversation()),
            said,
            reports,
        )
    })
    .await;
    report.assert_same();
    assert_eq!(report.whole.value.0, "On Monday.");
    assert!(report.stops.len() > 40, "{}", report.stops.len());
}

#[tokio::test]
async fn history_repeats_events_of_live_run() {
    let journal = MemoryJournal::new();
    let swarm = story(journal);
    let live = Arc::new(Mutex::new(Vec::new()));
    let sink = live.clone();
    let run = swarm.run("Mend it.").id("r").on_event(move |event| {
        if *event.run.as_str() == *"r" && !event.kind.is_transient() {
            sink.lock().unwrap().push(event.clone());
        }
    });
    run.await.unwrap();
    let replayed = swarm.history(&"r".into()).await.unwrap();
    let notices = |events: &[Event]| {
        events
            .iter()
            .filter_map(|event| SwarmNotice::of(&event.kind))
            .collect::<Vec<_>>()
    };
    let live = live.lock().unwrap();
    assert_eq!(notices(&replayed), notices(&live));
    assert_eq!(replayed, *live);
}
