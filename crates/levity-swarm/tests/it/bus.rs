use std::sync::Arc;

use futures_util::StreamExt;
use levity_core::{
    Ending, EventKind, Input, Machine, MachineKind, MachineOutput, Status, Timestamp,
};
use levity_loop::Agent;
use levity_runtime::{Events, MachineRun, Runtime};
use levity_swarm::{Bus, BusMessage, Lagged, MessageKind, Messages, NewMessage};
use levity_test::ScriptedModel;
use serde_json::{Value, json};

/// A machine that posts messages on a bus and emits an event for each, mixed with other events.
#[derive(Debug)]
struct PostingMachine {
    words: usize,
    bus: Bus,
    ending: Option<Ending>,
}

impl Machine for PostingMachine {
    fn kind(&self) -> MachineKind {
        MachineKind::new("talk", 1)
    }

    fn save(&self) -> Value {
        json!({"words": self.words, "bus": self.bus.messages().collect::<Vec<_>>(),
            "ending": self.ending})
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        let Input::Begin { run, .. } = input else {
            return;
        };
        for word in 0..self.words {
            let draft = NewMessage::new("coder", "reviewer", MessageKind::Note, word.to_string());
            let message = self
                .bus
                .post(draft, Timestamp::from_millis(word as u64), &run);
            step.emit(swarm(json!({"message": message})));
            step.emit(swarm(json!({"fell_back": {"why": "prose"}})));
            step.emit(EventKind::Custom {
                name: "graph".into(),
                data: json!({"message": message}),
            });
        }
        step.emit(swarm(json!({"message": {"id": "no number"}})));
        self.ending = Some(Ending::new(Status::Complete));
    }

    fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }
}

fn swarm(data: Value) -> EventKind {
    EventKind::Custom {
        name: "swarm".into(),
        data,
    }
}

/// Returns the bus and all events of a finished machine run.
async fn run_posts(words: usize) -> (Bus, Events) {
    let machine = PostingMachine {
        words,
        bus: Bus::new(),
        ending: None,
    };
    let agent = Agent::builder(ScriptedModel::new()).build().unwrap();
    let mut handle = Runtime::new().start(MachineRun::new(machine, agent.executor()));
    let events = handle.events();
    (handle.await.unwrap().machine.bus, events)
}

#[tokio::test]
async fn messages_contains_all_bus_messages_and_nothing_else() {
    let (bus, events) = run_posts(500).await;
    let received: Result<Vec<BusMessage>, Lagged> = Messages::new(events)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect();
    assert!(received.unwrap().iter().eq(bus.messages()));
    assert_eq!(bus.len(), 500);
}

#[tokio::test]
async fn late_listener_receives_lagged_error() {
    let (bus, events) = run_posts(5_000).await;
    let mut messages = Messages::new(events);
    let lagged = messages.next().await.unwrap().unwrap_err();
    assert!(lagged.missed > 10_000, "{lagged}");
    let first = messages.next().await.unwrap().unwrap();
    assert!(first.id > 1 && bus.since(first.id - 1).next() == Some(&first));
    let mut last = first;
    while let Some(message) = messages.next().await {
        let message = message.unwrap();
        assert_eq!(message.id, last.id + 1);
        last = message;
    }
    assert_eq!(last.id, bus.last_id());
}

/// A log in a real file is read back.
#[tokio::test]
async fn log_roundtrips_through_file() {
    let (bus, _events) = run_posts(50).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bus.jsonl");
    bus.write_json_lines(&mut std::fs::File::create(&path).unwrap())
        .unwrap();
    let file = std::io::BufReader::new(std::fs::File::open(&path).unwrap());
    let read = Bus::read_json_lines(file).unwrap();
    assert!(read.messages().eq(bus.messages()));
    assert!(
        read.context_for("reviewer", 100)
            .into_iter()
            .eq(bus.context_for("reviewer", 100))
    );
}

/// All types can be sent to another thread and shared.
#[test]
fn bus_types_are_send_and_sync() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Bus>();
    shared::<Messages>();
    shared::<levity_observe::Lineage>();
    shared::<Arc<Bus>>();
}
