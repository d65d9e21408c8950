//! Runs that belong to a conversation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use levity::core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, EventKind, Lease,
    LoadedConversation, MemoryError, MemoryErrorKind, MemoryStore, ModelErrorKind, Request,
    Response, Role, Timestamp,
};
use levity::memory::{Conversations, InMemory, SqliteMemory};
use levity::prelude::*;
use levity::test::{FunctionModel, RecordingTool, ScriptedModel, Turn};
use levity::{Error, ErrorKind};
use serde_json::json;

use crate::support::{add, runtime};

fn texts(request: &Request) -> Vec<String> {
    request
        .history
        .messages()
        .iter()
        .map(|message| message.text().into_owned())
        .collect()
}

async fn stored_messages(store: &impl MemoryStore, id: &str) -> Vec<Arc<Message>> {
    store.load(&id.into(), usize::MAX).await.unwrap().messages
}

#[tokio::test]
async fn run_continues_from_previous_run_of_conversation() {
    let store = Arc::new(InMemory::new());
    let model = ScriptedModel::new()
        .reply("Good to know.")
        .call("add", json!({"a": 2, "b": 5}))
        .reply("7, and blue.")
        .reply("Who knows.");
    let model = Arc::new(model);
    let agent = Agent::builder(model.clone())
        .tool(add)
        .memory(store.clone())
        .verify_replay()
        .build()
        .unwrap();
    agent.run("I like blue.").conversation("c").await.unwrap();
    agent
        .run("2 + 5, and my colour?")
        .conversation("c")
        .await
        .unwrap();
    agent
        .run("What do I like?")
        .conversation("other")
        .await
        .unwrap();
    let requests = model.requests();
    assert_eq!(
        texts(&requests[1]),
        ["I like blue.", "Good to know.", "2 + 5, and my colour?"]
    );
    assert_eq!(
        texts(&requests[3]),
        ["What do I like?"],
        "conversations must not share messages"
    );
    let roles: Vec<Role> = stored_messages(&store, "c")
        .await
        .iter()
        .map(|message| message.role)
        .collect();
    use Role::{Assistant, Tool, User};
    assert_eq!(roles, [User, Assistant, User, Assistant, Tool, Assistant]);
}

#[tokio::test]
async fn notes_of_run_are_not_stored() {
    let store = Arc::new(InMemory::new());
    let model = ScriptedModel::new()
        .call("add", json!({"a": 2, "b": 5}))
        .reply("7.")
        .reply("8.");
    let model = Arc::new(model);
    let agent = Agent::builder(model.clone())
        .tool(add)
        .memory(store.clone())
        .max_turns(2)
        .build()
        .unwrap();
    let answer = agent.run("2 + 5?").conversation("c").await.unwrap();
    assert!(answer.is_best_effort());
    assert!(
        answer
            .history()
            .messages()
            .iter()
            .any(|message| message.role == Role::System),
        "the history must contain the note on the last turn"
    );
    agent.run("And one more?").conversation("c").await.unwrap();
    let last = model.requests().pop().unwrap();
    assert!(
        last.history
            .messages()
            .iter()
            .all(|message| message.role != Role::System),
        "{:?}",
        texts(&last)
    );
    assert_eq!(stored_messages(&store, "c").await.len(), 6);
}

#[tokio::test]
async fn old_messages_are_summarized_and_summary_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteMemory::new(folder.path().join("talk.db")).unwrap());
    let model = Arc::new(ScriptedModel::looping(Turn::new().text("Yes.")));
    let summariser = Arc::new(ScriptedModel::looping(
        Turn::new().text("They agreed on much."),
    ));
    let agent = Agent::builder(model.clone())
        .model_for("summariser", summariser.clone())
        .memory(store.clone());
    let agent = agent.build().unwrap();
    for n in 0..20 {
        agent
            .run(format!("Is {n} a number?"))
            .conversation("c")
            .await
            .unwrap();
    }
    for (n, request) in model.requests().iter().enumerate() {
        assert!(
            request.history.len() <= 12,
            "a summary, at most ten messages, and the goal: {:?}",
            texts(request)
        );
        assert_eq!(texts(request).last().unwrap(), &format!("Is {n} a number?"));
    }
    let last = model.requests().pop().unwrap();
    assert_eq!(texts(&last)[0], "Previous Summary: They agreed on much.");
    assert!(
        (5..=8).contains(&summariser.requests().len()),
        "{}",
        summariser.requests().len()
    );
    let second = texts(&summariser.requests()[1])[0].clone();
    assert!(
        second.contains("They agreed on much.") && !second.contains("Is 0 a number?"),
        "{second}"
    );
    let remembered = store.load(&"c".into(), usize::MAX).await.unwrap();
    assert_eq!(remembered.end, 40);
    assert_eq!(&*remembered.summary.unwrap().text, "They agreed on much.");
    assert_eq!(
        store.read(&"c".into(), 0, 100).await.unwrap().len(),
        40,
        "a summary must not remove messages"
    );
}

#[tokio::test]
async fn failed_summary_is_retried_by_later_run() {
    let store = Arc::new(InMemory::new());
    let model = Arc::new(ScriptedModel::looping(Turn::new().text("Yes.")));
    let summariser = ScriptedModel::new()
        .fail(ModelErrorKind::Server)
        .reply("They agreed.");
    let summariser = Arc::new(summariser);
    let agent = Agent::builder(model.clone())
        .model_for("summariser", summariser.clone())
        .memory(store.clone());
    let agent = agent.build().unwrap();
    for n in 0..7 {
        agent
            .run(format!("Is {n} a number?"))
            .conversation("c")
            .await
            .unwrap();
    }
    let requests: Vec<_> = model
        .requests()
        .iter()
        .map(|request| texts(request)[0].clone())
        .collect();
    assert!(requests[5].starts_with("Is 0"), "{requests:?}");
    assert!(
        requests[6].starts_with("Previous Summary: "),
        "{requests:?}"
    );
    let first_request = texts(&summariser.requests()[0])[0].clone();
    assert!(first_request.contains("Is 0 a number?"));
    agent.run("And 8?").conversation("c").await.unwrap();
    let second_request = texts(&summariser.requests()[1])[0].clone();
    assert!(
        second_request.contains("Is 0 a number?"),
        "a failed summary must be retried with the original messages: {second_request}"
    );
    assert_eq!(
        &*store
            .load(&"c".into(), 0)
            .await
            .unwrap()
            .summary
            .unwrap()
            .text,
        "They agreed."
    );
}

#[tokio::test]
async fn runs_of_one_conversation_execute_one_after_another() {
    let store = Arc::new(InMemory::new());
    let in_progress = Arc::new(AtomicUsize::new(0));
    let max_parallel = Arc::new(AtomicUsize::new(0));
    let (counted, seen) = (in_progress.clone(), max_parallel.clone());
    let slow = RecordingTool::new("slow", move |_| {
        seen.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::yield_now();
        counted.fetch_sub(1, Ordering::SeqCst);
        Ok(ToolOutput::text("done"))
    });
    let model = FunctionModel::new(|request: &Request| {
        let last = request.history.messages().last().unwrap();
        if last.role == Role::Tool {
            return Ok(Response::new(Message::assistant("Done.")));
        }
        let call = levity::core::ToolCall::new("", "slow", json!({}));
        Ok(Response::new(Message::new(
            Role::Assistant,
            [levity::core::Part::ToolCall(call)],
        )))
    });
    let agent = Agent::builder(model)
        .tool(slow)
        .memory(store.clone())
        .build()
        .unwrap();
    let runs = (0..20).map(|n| agent.run(format!("goal {n}")).conversation("c").start());
    for run in runs.collect::<Vec<_>>() {
        run.await.unwrap();
    }
    assert_eq!(max_parallel.load(Ordering::SeqCst), 1);
    let messages = stored_messages(&store, "c").await;
    assert_eq!(messages.len(), 80);
    for run in messages.chunks(4) {
        assert!(
            run[0].text().starts_with("goal ") && run[3].text() == "Done.",
            "{run:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_parallel_conversations_stay_separate() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteMemory::new(folder.path().join("talk.db")).unwrap());
    let model = FunctionModel::new(|request: &Request| {
        let first = request.history.messages()[0].text().into_owned();
        Ok(Response::new(Message::assistant(format!(
            "{first}, {} messages",
            request.history.len()
        ))))
    });
    let agent = Agent::builder(model).memory(store.clone()).build().unwrap();
    for round in 0..2 {
        let runs = (0..1_000).map(|n| {
            (
                n,
                agent
                    .run(format!("I am {n}"))
                    .conversation(format!("c{n}"))
                    .start(),
            )
        });
        for (n, run) in runs.collect::<Vec<_>>() {
            let expected = format!("I am {n}, {} messages", round * 2 + 1);
            assert_eq!(run.await.unwrap().text(), expected);
        }
    }
    assert_eq!(
        store.list(&ConversationQuery::new()).await.unwrap().len(),
        1_000
    );
}

#[tokio::test]
async fn messages_of_cancelled_run_are_stored() {
    let store = Arc::new(InMemory::new());
    let model = ScriptedModel::new()
        .call("add", json!({"a": 2, "b": 5}))
        .hang();
    let agent = Agent::builder(model)
        .tool(add)
        .memory(store.clone())
        .build()
        .unwrap();
    let mut run = agent.run("2 + 5?").conversation("c").start();
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if matches!(event.kind, EventKind::ToolFinished { .. }) {
            break;
        }
    }
    run.cancel("enough").await.unwrap();
    assert_eq!(run.await.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(stored_messages(&store, "c").await.len(), 3);
}

#[tokio::test]
async fn messages_of_failed_run_are_stored() {
    let store = Arc::new(InMemory::new());
    let model = ScriptedModel::new()
        .call("add", json!({"a": 2, "b": 5}))
        .fail(ModelErrorKind::Auth)
        .reply("It was 7.");
    let agent = Agent::builder(model)
        .tool(add)
        .memory(store.clone())
        .build()
        .unwrap();
    let error = agent.run("2 + 5?").conversation("c").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Model);
    assert_eq!(stored_messages(&store, "c").await.len(), 3);
    assert_eq!(
        agent
            .run("Well?")
            .conversation("c")
            .await
            .unwrap()
            .history()
            .len(),
        5
    );
}

#[tokio::test]
async fn resumed_run_saves_new_messages_once() {
    let (complete_runtime, journal) = runtime();
    let agent = |runtime: Runtime, store: Arc<InMemory>| {
        let model = ScriptedModel::new()
            .call("add", json!({"a": 2, "b": 5}))
            .reply("7.")
            .by_history();
        Agent::builder(model)
            .tool(add)
            .memory(store)
            .runtime(runtime)
            .build()
            .unwrap()
    };
    let store = Arc::new(InMemory::new());
    agent(complete_runtime, store.clone())
        .run("2 + 5?")
        .conversation("c")
        .id("r")
        .await
        .unwrap();
    let expected = stored_messages(&store, "c").await;
    assert_eq!(expected.len(), 4);
    let records = levity::core::Journal::read(&journal, &"r".into())
        .await
        .unwrap();
    for cut in 1..records.len() {
        // Each save is complete: the goal, the exchange, the answer.
        for saved in [0, 1, 3, 4] {
            let (runtime, journal) = runtime();
            let mut open = levity::core::Journal::open(&journal, &"r".into())
                .await
                .unwrap();
            open.log.append(&records[..cut]).await.unwrap();
            drop(open);
            // When the process ended, the store may have received more messages than the journal
            // records.
            let store = Arc::new(InMemory::new());
            let change = ConversationChange::at(0).with_messages(expected[..saved].iter().cloned());
            store.save(&"c".into(), &change).await.unwrap();
            let saved_count = saved_count(&records[..cut]);
            let answer = agent(runtime, store.clone()).resume("r").await;
            if saved < saved_count && saved_count < expected.len() {
                // The saves that the journal records are missing, because another program removed
                // them.
                assert!(
                    matches!(answer, Err(Error::Memory { .. })),
                    "{cut} {saved}: {answer:?}"
                );
                continue;
            }
            assert_eq!(answer.unwrap().text(), "7.", "{cut} {saved}");
            assert_eq!(
                stored_messages(&store, "c").await,
                expected[..if saved_count == 4 { saved } else { 4 }],
                "{cut} {saved}"
            );
        }
    }
}

fn is_saved(record: &levity::core::Record) -> bool {
    let entry = &record.entry;
    matches!(
        entry,
        levity::core::Entry::Finished {
            outcome: levity::core::Outcome::Saved(Ok(())),
            ..
        }
    )
}

/// Returns the number of messages that the journal records as saved: the goal with the first save,
/// the exchange with the second.
fn saved_count(records: &[levity::core::Record]) -> usize {
    match records.iter().filter(|record| is_saved(record)).count() {
        0 => 0,
        1 => 1,
        2 => 3,
        _ => 4,
    }
}

/// A store that fails a number of times.
struct FailingStore {
    inner: InMemory,
    fails: AtomicUsize,
    kind: MemoryErrorKind,
}

#[async_trait]
impl MemoryStore for FailingStore {
    async fn load(
        &self,
        id: &ConversationId,
        limit: usize,
    ) -> Result<LoadedConversation, MemoryError> {
        self.inner.load(id, limit).await
    }
    async fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        self.inner.read(id, from, limit).await
    }
    async fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError> {
        let remaining = self.fails.load(Ordering::SeqCst);
        if remaining > 0 {
            self.fails.store(remaining - 1, Ordering::SeqCst);
            return Err(MemoryError::new(self.kind, "the disk is full"));
        }
        self.inner.save(id, change).await
    }
    async fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        self.inner.search(id, query, limit).await
    }
    async fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
        self.inner.trim(id, before).await
    }
    async fn forget(&self, id: &ConversationId) -> Result<bool, MemoryError> {
        self.inner.forget(id).await
    }
    async fn expire(&self, id: &ConversationId, before: Timestamp) -> Result<bool, MemoryError> {
        self.inner.expire(id, before).await
    }
    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, MemoryError> {
        self.inner.list(query).await
    }
    async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError> {
        self.inner.hold(id).await
    }
}

async fn run_on_failing(fails: usize, kind: MemoryErrorKind) -> (Result<Answer, Error>, usize) {
    let store = FailingStore {
        inner: InMemory::new(),
        fails: fails.into(),
        kind,
    };
    let store = Arc::new(store);
    let (runtime, _) = runtime();
    let model = ScriptedModel::new()
        .call("add", json!({"a": 2, "b": 5}))
        .reply("7.");
    let agent = Agent::builder(model)
        .tool(add)
        .memory(store.clone())
        .runtime(runtime)
        .build()
        .unwrap();
    let answer = agent.run("2 + 5?").conversation("c").await;
    (answer, stored_messages(&*store, "c").await.len())
}

#[tokio::test]
async fn temporary_store_failure_loses_no_messages() {
    for fails in [1, 2, 4, 8] {
        let (answer, stored_messages) = run_on_failing(fails, MemoryErrorKind::Io).await;
        assert_eq!(
            (answer.unwrap().text(), stored_messages),
            ("7.", 4),
            "{fails}"
        );
    }
}

#[tokio::test]
async fn permanent_store_failure_keeps_answer() {
    let (answer, stored_messages) = run_on_failing(usize::MAX, MemoryErrorKind::Io).await;
    let error = answer.unwrap_err();
    assert_eq!((error.kind(), stored_messages), (ErrorKind::Memory, 0));
    assert!(error.is_retryable());
    assert_eq!(error.partial().unwrap().text(), "7.");
    assert_eq!(
        error
            .partial_as::<levity::agent::AgentDetails>()
            .unwrap()
            .history()
            .len(),
        4
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_changed_elsewhere_is_not_overwritten() {
    let store = Arc::new(InMemory::new());
    let (elsewhere, id) = (store.clone(), ConversationId::new("c"));
    let tool = RecordingTool::new("write", move |_| {
        let change = ConversationChange::at(1).with_messages([Message::user("I was faster.")]);
        let save = elsewhere.save(&id, &change);
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(save)).unwrap();
        Ok(ToolOutput::text("written"))
    });
    let model = ScriptedModel::new().call("write", json!({})).reply("Done.");
    let agent = Agent::builder(model)
        .tool(tool)
        .memory(store.clone())
        .build()
        .unwrap();
    let run = agent.run("Write it").conversation("c");
    let error = run.await.unwrap_err();
    let Error::Memory { source, partial } = &error else {
        panic!("{error}")
    };
    assert_eq!(source.kind(), MemoryErrorKind::Moved);
    assert!(partial.is_some() && !error.is_retryable());
    assert_eq!(stored_messages(&store, "c").await.len(), 2);
}

#[tokio::test]
async fn fork_does_not_save_to_conversation() {
    let (runtime, _) = runtime();
    let store = Arc::new(InMemory::new());
    let agent = |answer: &str| {
        let model = ScriptedModel::new()
            .call("add", json!({"a": 2, "b": 5}))
            .reply(answer)
            .by_history();
        Agent::builder(model)
            .tool(add)
            .memory(store.clone())
            .runtime(runtime.clone())
            .build()
            .unwrap()
    };
    agent("7.")
        .run("2 + 5?")
        .conversation("c")
        .id("r")
        .await
        .unwrap();
    let forked = agent("Seven.").fork("r").await.unwrap();
    assert_eq!(forked.text(), "Seven.");
    assert_eq!(
        stored_messages(&store, "c").await.last().unwrap().text(),
        "7."
    );
}

#[tokio::test]
async fn conversation_without_memory_returns_error() {
    let agent = Agent::builder(ScriptedModel::new().reply("Hi."))
        .build()
        .unwrap();
    let error = agent.run("Hello").conversation("c").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Memory);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("add one (`.memory(..)`"), "{source}");
}

#[tokio::test]
async fn conversation_held_elsewhere_returns_error() {
    let store = Arc::new(InMemory::new());
    let held = store.hold(&"c".into()).await.unwrap();
    let (runtime, _) = runtime();
    let conversations = Conversations::new(store.clone()).world(runtime.world().clone());
    let agent = Agent::builder(ScriptedModel::new().reply("Hi."))
        .conversations(conversations)
        .runtime(runtime);
    let agent = agent.build().unwrap();
    let error = agent.run("Hello").conversation("c").await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    drop(held);
    assert_eq!(
        agent.run("Hello").conversation("c").await.unwrap().text(),
        "Hi."
    );
}

#[tokio::test]
async fn resumed_run_waiting_for_conversation_can_be_cancelled() {
    let (runtime, journal) = runtime();
    let store = Arc::new(InMemory::new());
    let model = || {
        ScriptedModel::new()
            .call("add", json!({"a": 2, "b": 5}))
            .reply("7.")
            .by_history()
    };
    let agent = |runtime: Runtime, model: ScriptedModel| {
        Agent::builder(model)
            .tool(add)
            .memory(store.clone())
            .runtime(runtime)
            .build()
            .unwrap()
    };
    agent(runtime, model())
        .run("2 + 5?")
        .conversation("c")
        .id("r")
        .await
        .unwrap();
    let records = levity::core::Journal::read(&journal, &"r".into())
        .await
        .unwrap();
    let (runtime, journal) = self::runtime();
    let mut open = levity::core::Journal::open(&journal, &"r".into())
        .await
        .unwrap();
    open.log.append(&records[..3]).await.unwrap();
    drop(open);
    let agent = agent(runtime, model());
    let other = agent
        .conversations()
        .unwrap()
        .open(&"c".into(), 0)
        .await
        .unwrap();
    let run = agent.resume("r").start();
    let control = run.control().clone();
    let (ended, cancelled) = tokio::join!(run, control.cancel("enough"));
    assert!(
        ended.is_err() && cancelled.is_ok(),
        "{ended:?} {cancelled:?}"
    );
    drop(other);
    let second_request = agent.resume("r").await.unwrap_err();
    assert!(
        matches!(&second_request, Error::Cancelled { reason, .. } if reason == "enough"),
        "{second_request}"
    );
    let records = levity::core::Journal::read(&journal, &"r".into())
        .await
        .unwrap();
    assert_eq!(records.len(), 5, "the run started a call: {records:?}");
}
