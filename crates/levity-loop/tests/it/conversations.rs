//! Runs that are part of a conversation, and their saved messages.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity_core::{
    ControlCommand, ConversationChange, ConversationId, Entry, Hints, Journal as _, MemoryError,
    MemoryStore, Message, Role, ToolOutput,
};
use levity_loop::Agent;
use levity_memory::{Conversations, InMemory, SessionNotes, Window};
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::json;

/// A notes tool that records its calls, the last one last.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn last(&self) -> String {
        self.0.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

#[async_trait]
impl SessionNotes for Notes {
    async fn save(&self, _: &ConversationId, text: &str) -> Result<(), MemoryError> {
        self.0.lock().unwrap().push(text.to_owned());
        Ok(())
    }

    async fn forget(&self, _: &ConversationId) -> Result<(), MemoryError> {
        self.0.lock().unwrap().push("forgotten".to_owned());
        Ok(())
    }
}

fn agent(notes: &Notes, runtime: &Runtime, store: &Arc<InMemory>, replies: &[&str]) -> Agent {
    let model = replies
        .iter()
        .fold(ScriptedModel::new(), |model, reply| model.reply(*reply));
    let conversations = Conversations::new(store.clone())
        .world(runtime.world().clone())
        .with_session_notes(notes.clone());
    Agent::builder(model)
        .conversations(conversations)
        .runtime(runtime.clone())
        .build()
        .unwrap()
}

#[tokio::test]
async fn inspecting_a_run_changes_nothing() {
    let (notes, store) = (Notes::default(), Arc::new(InMemory::new()));
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let agent = agent(&notes, &runtime, &store, &["One.", "Two.", "Three."]);
    agent.run("First").conversation("c").id("r1").await.unwrap();
    agent.run("Second").conversation("c").await.unwrap();
    assert!(notes.last().contains("Two."), "{}", notes.last());
    assert_eq!(agent.resume("r1").await.unwrap().text(), "One.");
    assert!(
        notes.last().contains("Two."),
        "the older run took the place of the newer one: {}",
        notes.last()
    );
    assert_eq!(agent.fork("r1").await.unwrap().text(), "Three.");
    assert!(!notes.last().contains("Three."), "{}", notes.last());
    agent
        .conversations()
        .unwrap()
        .forget(&"c".into())
        .await
        .unwrap();
    agent.resume("r1").await.unwrap();
    assert_eq!(notes.last(), "forgotten");
}

#[tokio::test]
async fn conversation_too_long_to_load_begins_with_a_note() {
    let store = Arc::new(InMemory::new());
    let said = (0..400).map(|n| match n % 2 {
        0 => Message::assistant(format!("answer {n}")),
        _ => Message::user(format!("question {n}")),
    });
    store
        .save(&"c".into(), &ConversationChange::at(0).with_messages(said))
        .await
        .unwrap();
    let model = Arc::new(ScriptedModel::new().reply("Here."));
    let agent = Agent::builder(model.clone())
        .memory(store.clone())
        .window(Window::new().all_messages());
    agent
        .build()
        .unwrap()
        .run("Still there?")
        .conversation("c")
        .await
        .unwrap();
    let request = &model.requests()[0];
    assert!(
        store.load(&"c".into(), 1).await.unwrap().summary.is_none(),
        "nothing was summed up"
    );
    let first = &request.history.messages()[0];
    assert_eq!(first.role, Role::User);
    assert!(
        first.text().contains("144 messages are left out"),
        "{}",
        first.text()
    );
}

#[tokio::test]
async fn run_cancelled_while_waiting_for_conversation_has_ended() {
    let journal = Arc::new(MemoryJournal::new());
    let runtime = Runtime::new().with_journal(journal.clone());
    let send = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")));
    let send = send.with_hints(Hints::new().destructive());
    let model = ScriptedModel::new()
        .call("send", json!({}))
        .reply("Sent.")
        .by_history();
    let agent = Agent::builder(model)
        .tool(send)
        .memory(InMemory::new())
        .runtime(runtime)
        .build()
        .unwrap();
    agent
        .run("Send it")
        .conversation("c")
        .id("waits")
        .park()
        .await
        .unwrap_err();
    let busy = agent.run("Send more").conversation("c").start();
    while busy.pending_asks().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let before = journal.read(&"waits".into()).await.unwrap().len();
    let again = agent.resume("waits").start();
    again.cancel("nobody wants it").await.unwrap();
    assert!(
        again
            .await
            .unwrap_err()
            .to_string()
            .contains("nobody wants it")
    );
    let records = journal.read(&"waits".into()).await.unwrap();
    let added: Vec<_> = records[before..]
        .iter()
        .map(|record| &record.entry)
        .collect();
    assert!(
        matches!(
            added[..],
            [
                Entry::Commanded(ControlCommand::Cancel { .. }),
                Entry::Ended(_)
            ]
        ),
        "the run began something: {added:?}"
    );
}
