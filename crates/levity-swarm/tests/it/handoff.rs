//! A conversation that is passed on.

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

/// What is told, in order.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<SwarmNotice>>>);

impl Told {
    fn hear(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let told = self.0.clone();
        move |event| told.lock().unwrap().extend(SwarmNotice::of(&event.kind))
    }

    /// Each notice of the swarm in short.
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
                FailureAction::StandIn { worker: other } => {
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

/// What the model was last asked: all messages in one text each, with the names of what was called.
fn asked(model: &ScriptedModel) -> Vec<String> {
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
async fn it_is_passed_on_twice_with_all_that_was_said_and_done() {
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
    let told = Told::default();
    let finished = swarm
        .run("My boiler is cold.")
        .on_event(told.hear())
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
    assert_eq!(told.lines(), lines);
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
    let shown = asked(&repairs);
    assert_eq!(shown.len(), 10, "{shown:?}");
    assert_eq!(shown[0], "User:My boiler is cold.");
    assert_eq!(shown[4], "Tool:=noted");
    assert!(
        shown[9].contains("`billing` has passed it on to you") && shown[9].contains("It is paid."),
        "{shown:?}"
    );
}

/// The desk passes it on after a look, and the pilot answers; what the pilot was shown.
async fn carried(handoff: Handoff) -> (Vec<String>, Told) {
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
    let told = Told::default();
    let finished = swarm
        .build()
        .unwrap()
        .run("Pay it.")
        .on_event(told.hear())
        .await
        .unwrap();
    assert_eq!(finished.text(), "Done.");
    assert_eq!(
        finished.conversation().len(),
        6,
        "whatever goes along, all of it is kept"
    );
    let mut shown = asked(&pilot);
    assert!(
        shown.pop().unwrap().contains("Order 7."),
        "the note always goes along"
    );
    (shown, told)
}

#[tokio::test]
async fn what_goes_along_is_what_the_filter_says() {
    let first = || Handoff::starting_with("desk");
    let all = [
        "User:Pay it.",
        "Assistant:Let me look.<look>",
        "Tool:=order 7 is unpaid",
        "Assistant:I pass you on.<transfer_to>",
        "Tool:=noted",
    ];
    let check = async |carry: HandoffHistory, expected: &[&str]| {
        let shown = carried(
            first()
                .carry(HandoffHistory::Note)
                .carry_to("pilot", carry.clone()),
        )
        .await
        .0;
        assert_eq!(shown, expected, "{carry:?}");
        assert_eq!(
            carried(first().carry(carry.clone())).await.0,
            expected,
            "{carry:?} for all"
        );
    };
    check(HandoffHistory::Everything, &all).await;
    check(
        HandoffHistory::Words,
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
async fn what_a_filter_returns_can_always_be_sent() {
    let shown = |carry| async { carried(Handoff::starting_with("desk").carry(carry)).await.0 };
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
    assert_eq!(shown(twice).await.len(), 10, "calls of one id are renamed");
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
async fn a_filter_that_panics_takes_nothing_down() {
    let (shown, told) =
        carried(Handoff::starting_with("desk").carry(HandoffHistory::by(|_| panic!("no")))).await;
    assert_eq!(
        shown,
        [
            "User:Pay it.",
            "Assistant:Let me look.",
            "Assistant:I pass you on."
        ]
    );
    assert!(
        told.lines().contains(&"filter failed for pilot".to_owned()),
        "{:?}",
        told.lines()
    );
}

#[tokio::test]
async fn who_passes_it_to_and_fro_must_answer() {
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
    let told = Told::default();
    let finished = swarm
        .build()
        .unwrap()
        .run("Decide.")
        .on_event(told.hear())
        .await
        .unwrap();
    assert_eq!(finished.text(), "So be it.");
    assert!(
        told.lines().contains(&"ping not to pong".to_owned()),
        "{:?}",
        told.lines()
    );
    assert_eq!(finished.reports().len(), 6);
    let last = ping.requests().pop().unwrap();
    assert!(
        !last.tools.iter().any(|tool| tool.name == "transfer_to"),
        "it has the tool no more"
    );
    let shown = asked(&ping);
    assert!(
        shown[shown.len() - 2].contains("it goes in circles"),
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
async fn it_is_passed_on_only_so_often() {
    for most in [0, 1, 2] {
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
        let swarm = Swarm::builder(Handoff::starting_with("w0").max_handoffs(most))
            .workers(workers)
            .worker(worker("w4", &last));
        let finished = swarm.build().unwrap().run("Go.").await.unwrap();
        assert_eq!(finished.text(), format!("w{most} answers"));
        let handed = finished
            .bus()
            .messages()
            .filter(|message| message.kind == MessageKind::Handoff)
            .count();
        assert_eq!(handed, most as usize);
    }
}

#[tokio::test]
async fn a_name_that_is_not_allowed_is_refused_by_the_tool() {
    let triage = ScriptedModel::new()
        .turn(pass("nobody", ""))
        .turn(pass("triage", ""))
        .turn(pass("repairs", ""))
        .reply("I stay.");
    let quiet = ScriptedModel::new();
    let swarm =
        Swarm::builder(Handoff::starting_with("triage").to("triage", ["billing"])).workers([
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

/// More workers than are named in the tool: who is meant is looked at when it is passed on.
#[tokio::test]
async fn a_name_that_nobody_has_is_told_and_then_refused() {
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
    let told = Told::default();
    let finished = swarm.run("Go.").on_event(told.hear()).await.unwrap();
    assert_eq!(finished.text(), "Enough.");
    let not: Vec<_> = told
        .lines()
        .into_iter()
        .filter(|line| line.contains(" not to "))
        .collect();
    assert_eq!(not, ["w1 not to w7o", "w70 not to w70", "w70 not to x"]);
    let shown = asked(&first);
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
async fn a_leg_that_fails_is_tried_again() {
    let billing = ScriptedModel::new()
        .fail(ModelErrorKind::BadRequest)
        .reply("Paid.");
    let swarm = three([
        worker("triage", &passing("billing")),
        worker("billing", &billing),
        worker("repairs", &ScriptedModel::new()),
    ]);
    let told = Told::default();
    let finished = swarm
        .build()
        .unwrap()
        .run("Pay.")
        .on_event(told.hear())
        .await
        .unwrap();
    assert_eq!(
        (finished.text(), finished.report("leg2").unwrap().attempts),
        ("Paid.", 2)
    );
    assert!(
        told.lines()
            .contains(&"leg2 billing failed, Retry".to_owned()),
        "{:?}",
        told.lines()
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
async fn who_stands_in_takes_the_leg_that_failed() {
    let repairs = ScriptedModel::new().reply("I did it for them.");
    let swarm = three([
        worker("triage", &passing("billing")),
        worker("billing", &failing()).stand_in("repairs"),
        worker("repairs", &repairs),
    ]);
    let told = Told::default();
    let finished = swarm
        .build()
        .unwrap()
        .run("Pay.")
        .on_event(told.hear())
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
        told.lines()
            .contains(&"leg2 billing failed, repairs".to_owned()),
        "{:?}",
        told.lines()
    );
    let shown = asked(&repairs);
    assert!(
        shown
            .last()
            .unwrap()
            .contains("You stand in for `billing`, who failed."),
        "{shown:?}"
    );
}

#[tokio::test]
async fn what_nobody_can_do_goes_back_to_who_passed_it_on() {
    let triage = passing("billing").reply("Nobody is at the till; call again.");
    let swarm = three([
        worker("triage", &triage),
        worker("billing", &failing()),
        worker("repairs", &ScriptedModel::new()),
    ]);
    let told = Told::default();
    let finished = swarm
        .build()
        .unwrap()
        .run("Pay.")
        .on_event(told.hear())
        .await
        .unwrap();
    assert_eq!(finished.text(), "Nobody is at the till; call again.");
    assert_eq!(
        (finished.status(), finished.last_speaker()),
        (&Status::Complete, Some("triage"))
    );
    assert!(
        told.lines()
            .contains(&"leg2 billing failed, triage".to_owned()),
        "{:?}",
        told.lines()
    );
    assert!(
        !triage.requests()[1]
            .tools
            .iter()
            .any(|tool| tool.name == "transfer_to")
    );
    let shown = asked(&triage);
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
async fn when_nobody_is_left_the_failure_has_the_conversation() {
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
        panic!("nobody could answer")
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
async fn a_run_after_another_goes_on_with_who_had_it_last() {
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
    let shown = asked(&repairs);
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
async fn a_swarm_gets_the_words_and_the_note_and_its_answer_ends_it() {
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
    let task = asked(&inner).pop().unwrap();
    assert!(
        task.starts_with("User:Carry the piano.") && task.contains("Look at it."),
        "{task}"
    );
    assert!(
        !inner.requests()[0]
            .tools
            .iter()
            .any(|tool| tool.name == "transfer_to"),
        "there is nobody else"
    );
}

/// Waits until it is let go.
struct Gate {
    spec: ToolSpec,
    reached: Arc<Notify>,
    open: Arc<Notify>,
}

#[async_trait]
impl Tool for Gate {
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
async fn what_the_host_says_is_heard_by_the_next_leg_or_by_one_more() {
    let (reached, open) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let gate = |model: ScriptedModel| {
        let spec = ToolSpec::new("wait", "Waits.");
        let gate = Gate {
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
    let swarm = Swarm::builder(Handoff::starting_with("triage").carry(HandoffHistory::Note))
        .agent("triage", "Hears.", gate(triage))
        .agent("billing", "Pays.", gate(billing.clone()))
        .build()
        .unwrap();
    let handle = swarm.run("Pay.").start();
    for words in ["In cash.", "And post it."] {
        reached.notified().await;
        handle.control().say(Message::user(words)).await.unwrap();
        open.notify_one();
    }
    let finished = handle.await.unwrap();
    assert_eq!(
        (finished.text(), finished.reports().len()),
        ("And posted.", 3)
    );
    let shown = asked(&billing);
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
async fn near_a_limit_nothing_is_passed_on() {
    let triage = ScriptedModel::new()
        .turn(pass("billing", "").usage(94_000, 1_000))
        .turn(Turn::new().text("As far as I know.").usage(10, 10));
    let swarm = three([
        worker("triage", &triage),
        worker("billing", &ScriptedModel::new()),
        worker("repairs", &ScriptedModel::new()),
    ]);
    let told = Told::default();
    let run = swarm
        .build()
        .unwrap()
        .run("Pay.")
        .limits(Limits::new().tokens(100_000));
    let finished = run.on_event(told.hear()).await.unwrap();
    assert_eq!(finished.text(), "As far as I know.");
    assert_eq!(finished.status(), &Status::BestEffort(Limit::Tokens));
    assert!(
        told.lines().contains(&"triage not to billing".to_owned()),
        "{:?}",
        told.lines()
    );
}

/// All who speak have one script: each goes on where the conversation is.
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
async fn stopped_after_every_record_it_comes_to_the_same() {
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
async fn what_a_journal_tells_is_what_was_told() {
    let journal = MemoryJournal::new();
    let swarm = story(journal);
    let live = Arc::new(Mutex::new(Vec::new()));
    let heard = live.clone();
    let run = swarm.run("Mend it.").id("r").on_event(move |event| {
        if *event.run.as_str() == *"r" && !event.kind.is_fleeting() {
            heard.lock().unwrap().push(event.clone());
        }
    });
    run.await.unwrap();
    let told = swarm.history(&"r".into()).await.unwrap();
    let notices = |events: &[Event]| {
        events
            .iter()
            .filter_map(|event| SwarmNotice::of(&event.kind))
            .collect::<Vec<_>>()
    };
    let live = live.lock().unwrap();
    assert_eq!(notices(&told), notices(&live));
    assert_eq!(told, *live);
}
