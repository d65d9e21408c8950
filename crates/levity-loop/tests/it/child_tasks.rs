//! Child runs of an agent: their goal, their history, their conversation, and their result.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity_core::{
    Child, ChildRun, ConversationId, Effect, EffectClass, EffectCx, EffectId, Ending, Eventual,
    Executor, History, Input, Limits, Machine, MachineKind, MachineOutput, MemoryError,
    MemoryErrorKind, MemoryStore, Message, Outcome, OutputSchema, PrepareCx, Prepared, Status,
    Timestamp, ToolError,
};
use levity_loop::{Agent, ChildTask};
use levity_memory::{Conversations, InMemory, SessionNotes};
use levity_runtime::{EndedMachine, MachineRun, MemoryJournal, Runtime, StoppedMachine};
use levity_test::{FaultyJournal, ManualWorld, ScriptedModel};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A machine that runs one child agent, and ends as that ends.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ParentMachine {
    ending: Option<Ending>,
    /// The times of its inputs.
    times: Vec<Timestamp>,
}

impl Machine for ParentMachine {
    fn kind(&self) -> MachineKind {
        MachineKind::new("above", 1)
    }

    fn save(&self) -> Value {
        json!(self)
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        self.times.push(step.at());
        match input {
            Input::Begin { .. } => {
                step.request(
                    EffectId::new(0),
                    Effect::Child(ChildRun::new("below", json!({}))),
                );
            }
            Input::Finished {
                outcome: Outcome::Child(ending),
                ..
            } => self.ending = Some(*ending),
            Input::Cancel { reason } => {
                self.ending = Some(Ending::new(Status::Cancelled { reason }));
            }
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }
}

type MakeTask = Box<dyn Fn() -> ChildTask + Send + Sync>;

struct ParentExecutor(Agent, MakeTask);

#[async_trait]
impl Executor for ParentExecutor {
    fn prepare(&self, _: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
        Prepared::new(EffectClass::ReadOnly).into()
    }

    async fn execute(&self, _: Effect, _: EffectCx) -> Outcome {
        Outcome::Unknown
    }

    async fn child(&self, _: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        self.0.child((self.1)(), saved).await
    }
}

fn below(
    agent: &Agent,
    task: impl Fn() -> ChildTask + Send + Sync + 'static,
) -> Arc<ParentExecutor> {
    Arc::new(ParentExecutor(agent.clone(), Box::new(task)))
}

fn audited(executor: &Arc<ParentExecutor>) -> MachineRun<ParentMachine> {
    MachineRun::new(ParentMachine::default(), executor.clone())
        .limits(Limits::new())
        .audit(|_, _| async { Ok(ParentMachine::default()) })
}

async fn send(
    runtime: &Runtime,
    agent: &Agent,
    task: impl Fn() -> ChildTask + Send + Sync + 'static,
) -> Ending {
    let done = runtime
        .run(audited(&below(agent, task)).id("r".into()))
        .await
        .unwrap();
    done.machine.ending.unwrap()
}

fn journaled() -> Runtime {
    Runtime::new().with_journal(MemoryJournal::new())
}

#[tokio::test]
async fn child_task_has_history_and_returns_its_messages() {
    let model = ScriptedModel::new().reply("Blue.");
    let agent = Agent::builder(model.clone()).build().unwrap();
    let mut history = History::new();
    history.push(Message::user("I like blue.")).unwrap();
    let before = history.clone();
    let ending = send(&journaled(), &agent, move || {
        ChildTask::new("What do I like?")
            .history(before.clone())
            .include_messages()
    })
    .await;
    assert_eq!(
        (&*ending.text, model.requests()[0].history.len()),
        ("Blue.", 2)
    );
    let said: Vec<_> = ending
        .messages
        .iter()
        .map(|message| message.text().into_owned())
        .collect();
    assert_eq!(
        said,
        ["What do I like?", "Blue."],
        "what was before is not said again"
    );
    history.append(ending.messages).unwrap();
    assert_eq!(history.len(), 3);
}

#[tokio::test]
async fn child_task_answer_is_validated_against_schema() {
    let model = ScriptedModel::new().reply("seven").reply("{\"total\": 7}");
    let agent = Agent::builder(model).build().unwrap();
    let schema = json!({"type": "object", "properties": {"total": {"type": "integer"}},
        "required": ["total"]});
    let schema = Arc::new(OutputSchema::new("sum", schema));
    let ending = send(&journaled(), &agent, move || {
        ChildTask::from("2 + 5?").output(schema.clone())
    })
    .await;
    assert_eq!(ending.value, Some(json!({"total": 7})));
}

#[tokio::test]
async fn child_task_conversation_without_memory_fails_like_a_run() {
    let agent = Agent::builder(ScriptedModel::new()).build().unwrap();
    let error = agent
        .child(ChildTask::new("Do it").conversation("c"), None)
        .await
        .err()
        .unwrap();
    let source = std::error::Error::source(&error)
        .unwrap()
        .downcast_ref::<MemoryError>()
        .unwrap();
    assert_eq!(
        (source.kind(), error.is_retryable()),
        (MemoryErrorKind::Refused, false)
    );
    assert!(
        error
            .explain()
            .contains("the agent has no memory to store conversations in"),
        "{}",
        error.explain()
    );
}

/// A notes tool that records its calls, the last one last.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl SessionNotes for Notes {
    async fn save(&self, _: &ConversationId, text: &str) -> Result<(), MemoryError> {
        self.0.lock().unwrap().push(text.to_owned());
        Ok(())
    }

    async fn forget(&self, _: &ConversationId) -> Result<(), MemoryError> {
        Ok(())
    }
}

struct TestAgent {
    store: Arc<InMemory>,
    notes: Notes,
    talks: Conversations,
}

impl TestAgent {
    fn new(runtime: &Runtime) -> Self {
        let (store, notes) = (Arc::new(InMemory::new()), Notes::default());
        let talks = Conversations::new(store.clone())
            .world(runtime.world().clone())
            .with_session_notes(notes.clone());
        Self {
            store,
            notes,
            talks,
        }
    }

    fn agent(&self, model: ScriptedModel) -> Agent {
        Agent::builder(model)
            .conversations(self.talks.clone())
            .build()
            .unwrap()
    }

    async fn messages(&self) -> Vec<String> {
        let kept = self.store.load(&"c".into(), 100).await.unwrap().messages;
        kept.iter()
            .map(|message| message.text().into_owned())
            .collect()
    }
}

#[tokio::test]
async fn child_task_continues_a_conversation() {
    let runtime = journaled();
    let kept = TestAgent::new(&runtime);
    let agent = kept.agent(ScriptedModel::new().reply("Noted.").reply("Blue."));
    agent.run("I like blue.").conversation("c").await.unwrap();
    // The audit runs while the first machine holds the conversation, and does not wait for it.
    let ending = send(&runtime, &agent, || {
        ChildTask::new("What do I like?").conversation("c")
    })
    .await;
    assert_eq!(ending.text, "Blue.");
    assert_eq!(
        kept.messages().await,
        ["I like blue.", "Noted.", "What do I like?", "Blue."]
    );
    assert!(
        kept.notes
            .0
            .lock()
            .unwrap()
            .last()
            .unwrap()
            .contains("Blue.")
    );
    assert_eq!(kept.notes.0.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn cancelled_child_task_returns_its_messages() {
    for from_above in [false, true] {
        let runtime = journaled();
        let kept = TestAgent::new(&runtime);
        let agent = kept.agent(ScriptedModel::new().hang());
        let executor = below(&agent, || ChildTask::new("Do it").conversation("c"));
        let mut run = runtime.start(audited(&executor).id("r".into()));
        let mut events = run.events();
        while !matches!(
            events.next().await.unwrap().kind,
            levity_core::EventKind::ModelStarted { .. }
        ) {}
        let below = run.control().child(&run.id().child(EffectId::new(0)));
        below.send_message("Also this.").await.unwrap();
        let ended = if from_above {
            run.control().clone()
        } else {
            below
        };
        ended.cancel("enough").await.unwrap();
        let ending = run.await.unwrap().machine.ending.unwrap();
        assert_eq!(
            ending.status,
            Status::Cancelled {
                reason: "enough".into()
            }
        );
        assert_eq!(
            kept.messages().await,
            ["Do it", "Also this."],
            "{from_above}"
        );
    }
}

#[tokio::test]
async fn child_task_resumed_anywhere_is_in_conversation_once() {
    let whole = Arc::new(FaultyJournal::new(MemoryJournal::new()));
    let runtime = Runtime::new().with_journal(whole.clone());
    let agent = TestAgent::new(&runtime).agent(ScriptedModel::new().reply("Blue."));
    send(&runtime, &agent, || {
        ChildTask::new("What do I like?")
            .conversation("c")
            .include_messages()
    })
    .await;
    for stop in 1..whole.records() {
        let journal = Arc::new(MemoryJournal::new());
        let first = Runtime::new()
            .with_journal(FaultyJournal::new(journal.clone()).stop_after_records(stop));
        let kept = TestAgent::new(&first);
        let agent = kept.agent(ScriptedModel::new().reply("Blue.").by_history());
        let executor = below(&agent, || {
            ChildTask::new("What do I like?")
                .conversation("c")
                .include_messages()
        });
        let Err(StoppedMachine { .. }) = first.run(audited(&executor).id("r".into())).await else {
            panic!("{stop}")
        };
        let second = Runtime::new().with_journal(journal);
        // A run that has ended needs no conversation, even if another run holds it.
        let had_ended = stop + 2 == whole.records();
        let other = if had_ended {
            Some(kept.store.hold(&"c".into()).await.unwrap())
        } else {
            None
        };
        let notes = kept.notes.0.lock().unwrap().len();
        let job = MachineRun::resume("r".into(), executor, |_, state| {
            Ok(ParentMachine::deserialize(state).unwrap())
        });
        let EndedMachine { machine, .. } = second.run(job).await.unwrap();
        let ending = machine.ending.unwrap();
        assert_eq!(
            (&*ending.text, ending.messages.len()),
            ("Blue.", 2),
            "after {stop} records"
        );
        assert_eq!(
            kept.messages().await,
            ["What do I like?", "Blue."],
            "after {stop} records"
        );
        assert!(
            !had_ended || kept.notes.0.lock().unwrap().len() == notes,
            "nothing is left to do for it"
        );
        drop(other);
        assert!(
            kept.store.hold(&"c".into()).await.is_ok(),
            "nobody holds it any more"
        );
    }
}

#[tokio::test]
async fn resumed_child_task_leases_its_conversation() {
    let journal = Arc::new(MemoryJournal::new());
    let first =
        Runtime::new().with_journal(FaultyJournal::new(journal.clone()).stop_after_records(3));
    let kept = TestAgent::new(&first);
    let agent = kept.agent(ScriptedModel::new().hang().hang());
    let executor = below(&agent, || ChildTask::new("Do it").conversation("c"));
    first
        .run(MachineRun::new(ParentMachine::default(), executor.clone()).id("r".into()))
        .await
        .err()
        .unwrap();
    let second = Runtime::new().with_journal(journal);
    let mut run = second.start(MachineRun::resume("r".into(), executor, |_, state| {
        Ok(ParentMachine::deserialize(state).unwrap())
    }));
    let mut events = run.events();
    while !matches!(
        events.next().await.unwrap().kind,
        levity_core::EventKind::ModelStarted { .. }
    ) {}
    let held = kept
        .store
        .hold(&"c".into())
        .await
        .err()
        .map(|error| error.kind());
    assert_eq!(held, Some(MemoryErrorKind::Busy));
    run.stop().await;
    assert!(kept.store.hold(&"c".into()).await.is_ok());
}

#[tokio::test]
async fn machine_gets_same_times_after_resume_and_replay() {
    let world = ManualWorld::new();
    world.set(Timestamp::from_millis(5_000));
    let journal = Arc::new(MemoryJournal::new());
    let runtime = Runtime::new()
        .with_world(world)
        .with_journal(journal.clone());
    let agent = Agent::builder(ScriptedModel::new().reply("Done."))
        .build()
        .unwrap();
    let executor = below(&agent, || ChildTask::new("Do it"));
    let first = runtime
        .run(audited(&executor).id("r".into()))
        .await
        .unwrap()
        .machine;
    assert_eq!(first.times, [Timestamp::from_millis(5_000); 2]);
    let records = runtime.journal().read(&"r".into()).await.unwrap();
    // Another clock, the same times.
    let other = Runtime::new().with_journal(journal);
    let job = MachineRun::resume("r".into(), executor, |_, state| {
        Ok(ParentMachine::deserialize(state).unwrap())
    });
    assert_eq!(other.run(job).await.unwrap().machine.times, first.times);
    let replay = levity_runtime::replay(&"r".into(), &records, |_, state| {
        Ok(ParentMachine::deserialize(state).unwrap())
    })
    .unwrap();
    assert_eq!(replay.machine.times, first.times);
}
