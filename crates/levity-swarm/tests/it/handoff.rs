//! A conversation that is passed on.

use std::sync::{Arc, Mutex};

use levity_core::{
    Event, EventKind, Message, ModelErrorKind, Part, Role, Status, Tool, ToolErrorKind, ToolOutput,
};
use levity_loop::Agent;
use levity_swarm::{
    Carry, Error, Finished, Handoff, MessageKind, Notice, ReportStatus, Swarm, SwarmBuilder, Then, Worker,
};
use levity_test::{RecordingTool, ScriptedModel, Turn};
use serde_json::json;

fn agent(model: &ScriptedModel) -> Agent {
    Agent::builder(model.clone()).tool(look()).build().unwrap()
}

fn look() -> impl Tool {
    RecordingTool::new("look", |_| Ok(ToolOutput::text("order 7 is unpaid")))
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

/// What is told, in order.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Notice>>>);

impl Told {
    fn hear(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let told = self.0.clone();
        move |event| told.lock().unwrap().extend(Notice::of(&event.kind))
    }

    /// Each notice of the swarm in short.
    fn lines(&self) -> Vec<String> {
        let line = |notice: &Notice| match notice {
            Notice::Began { id, worker, attempt, .. } => Some(format!("{id} {worker} begins {attempt}")),
            Notice::Done { id, worker } => Some(format!("{id} {worker} done")),
            Notice::Failed { id, worker, then, .. } => Some(match then {
                Then::StandIn { worker: other } => format!("{id} {worker} failed, {other}"),
                then => format!("{id} {worker} failed, {then:?}"),
            }),
            Notice::HandedOff { from, to, .. } => Some(format!("{from} to {to}")),
            Notice::LoopFound { from, to, .. } => Some(format!("{from} not to {to}")),
            Notice::FilterFailed { to, .. } => Some(format!("filter failed for {to}")),
            _ => None,
        };
        self.0.lock().unwrap().iter().filter_map(line).collect()
    }
}

fn roles(messages: &[Arc<Message>]) -> Vec<Role> {
    messages.iter().map(|message| message.role).collect()
}

fn kinds(finished: &Finished) -> Vec<MessageKind> {
    finished.bus().messages().map(|message| message.kind).collect()
}

/// What the model was last asked: all messages in one text each, with the names of what was called.
fn asked(model: &ScriptedModel) -> Vec<String> {
    let requests = model.requests();
    let line = |message: &Arc<Message>| {
        let calls: Vec<_> = message.calls().map(|call| format!("<{}>", call.name)).collect();
        let results: Vec<_> = message.results().map(|result| format!("={}", result.text())).collect();
        format!("{:?}:{}{}{}", message.role, message.text(), calls.concat(), results.concat())
    };
    requests.last().unwrap().history.messages().iter().map(line).collect()
}

#[tokio::test]
async fn it_is_passed_on_twice_with_all_that_was_said_and_done() {
    let triage =
        ScriptedModel::new().call("look", json!({})).turn(pass("billing", "Order 7.").text("One moment."));
    let billing = ScriptedModel::new().call("look", json!({})).turn(pass("repairs", "It is paid."));
    let repairs = ScriptedModel::new().reply("It will be mended on Monday.");
    let swarm = Swarm::builder(Handoff::starting_with("triage"))
        .workers([worker("triage", &triage), worker("billing", &billing), worker("repairs", &repairs)])
        .build()
        .unwrap();
    let told = Told::default();
    let finished = swarm.run("My boiler is cold.").on_event(told.hear()).await.unwrap();
    assert_eq!((finished.text(), finished.status()), ("It will be mended on Monday.", &Status::Complete));
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
    let expected = [User, Assistant, Tool, Assistant, Tool, Assistant, Tool, Assistant, Tool, Assistant];
    assert_eq!(roles(finished.conversation()), expected, "{:?}", finished.conversation());
    assert_eq!(kinds(&finished), [MessageKind::Handoff, MessageKind::Handoff, MessageKind::Answer]);
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
