//! Conversations: one run at a time, expiry and limits.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    ConversationChange, ConversationId, ConversationQuery, MemoryError, MemoryErrorKind,
    MemoryStore, Message, Part, Role, Summary, ToolCall, ToolOutput, ToolResult, World,
};
use levity_memory::{Conversations, InMemory, SessionNotes};
use levity_test::ManualWorld;
use tokio::sync::Mutex;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn setup() -> (InMemory, ManualWorld, Conversations) {
    let (store, world) = (InMemory::new(), ManualWorld::new());
    (
        store.clone(),
        world.clone(),
        Conversations::new(store).world(world),
    )
}

fn texts(count: usize) -> Vec<Message> {
    (0..count)
        .map(|n| Message::user(format!("message {n}")))
        .collect()
}

#[tokio::test]
async fn reopened_conversation_has_saved_messages() {
    let (_, _, conversations) = setup();
    let id = conversations.new_id();
    assert_eq!(id.as_str().len(), 32);
    assert_ne!(id, conversations.new_id());
    let mut open = conversations.open(&id, 10).await.unwrap();
    assert_eq!(open.take().end, 0);
    assert_eq!(open.id(), &id);
    open.save(ConversationChange::at(0).with_messages(texts(20)))
        .await
        .unwrap();
    drop(open);
    let open = conversations.open(&id, 10).await.unwrap();
    assert_eq!(
        (open.remembered().messages.len(), open.remembered().end),
        (10, 20)
    );
    assert_eq!(open.remembered().changed, ManualWorld::START);
}

#[tokio::test]
async fn open_admits_runs_of_one_conversation_in_order() {
    let (_, _, conversations) = setup();
    let id = conversations.new_id();
    let order = Mutex::new(Vec::new());
    let run = async |number: u32| {
        let open = conversations.open(&id, 0).await.unwrap();
        let at = open.remembered().end;
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        open.save(ConversationChange::at(at).with_messages(texts(2)))
            .await
            .unwrap();
        order.lock().await.push(number);
    };
    futures_util::future::join_all((0..50).map(run)).await;
    assert_eq!(*order.lock().await, (0..50).collect::<Vec<_>>());
    assert_eq!(
        conversations.open(&id, 0).await.unwrap().remembered().end,
        100
    );
}

#[tokio::test]
async fn open_waits_for_other_process_then_returns_busy() {
    let (store, world) = (InMemory::new(), ManualWorld::auto());
    let conversations = Conversations::new(store.clone())
        .world(world.clone())
        .max_wait(Duration::from_secs(10));
    let id = ConversationId::new("taken");
    // Another process does not share this one's queues, only the store.
    let hold = store.hold(&id).await.unwrap();
    let error = conversations.open(&id, 10).await.unwrap_err();
    assert_eq!(error.kind(), MemoryErrorKind::Busy);
    assert_eq!(
        world.now().since(ManualWorld::START),
        Duration::from_secs(10)
    );
    assert_eq!(
        conversations.forget(&id).await.unwrap_err().kind(),
        MemoryErrorKind::Busy
    );
    let release = async {
        world.sleep(Duration::from_secs(3)).await;
        drop(hold);
    };
    let (open, ()) = tokio::join!(conversations.open(&id, 10), release);
    open.unwrap();
}

#[tokio::test]
async fn dropped_open_future_leaves_queue() {
    let (_, _, conversations) = setup();
    let id = conversations.new_id();
    let open = conversations.open(&id, 0).await.unwrap();
    {
        let mut waiting = std::pin::pin!(conversations.open(&id, 0));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(Future::poll(waiting.as_mut(), &mut cx).is_pending());
    }
    drop(open);
    conversations.open(&id, 0).await.unwrap();
}

#[tokio::test]
async fn expired_conversation_reads_empty_and_is_removed() {
    let (store, world, conversations) = setup();
    let (id, other) = (conversations.new_id(), conversations.new_id());
    for id in [&id, &other] {
        let open = conversations.open(id, 0).await.unwrap();
        open.save(
            ConversationChange::at(0)
                .with_messages(texts(3))
                .with_summary(Summary::new("They met.", 1)),
        )
        .await
        .unwrap();
    }
    world.advance(30 * DAY);
    assert_eq!(
        conversations.open(&id, 10).await.unwrap().remembered().end,
        3,
        "not yet"
    );
    world.advance(Duration::from_millis(1));
    assert_eq!(
        conversations.list(&ConversationQuery::new()).await.unwrap(),
        []
    );
    let open = conversations.open(&id, 10).await.unwrap();
    assert_eq!(*open.remembered(), Default::default());
    assert_eq!(store.load(&id, 10).await.unwrap(), Default::default());
    open.save(ConversationChange::at(0).with_messages(texts(1)))
        .await
        .unwrap();
    drop(open);
    let open = conversations.open(&other, 10).await;
    assert_eq!(
        conversations.clean_up().await.unwrap().removed,
        0,
        "it is open, and was removed by that"
    );
    drop(open);
    assert_eq!(
        conversations
            .list(&ConversationQuery::new())
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn clean_up_removes_expired_conversations_not_in_use() {
    let (store, world, conversations) = setup();
    for number in 0..500 {
        let open = conversations
            .open(&format!("{number}").into(), 0)
            .await
            .unwrap();
        open.save(ConversationChange::at(0).with_messages(texts(1)))
            .await
            .unwrap();
        world.advance(Duration::from_secs(1));
    }
    store
        .save(
            &"undated".into(),
            &ConversationChange::at(0).with_messages(texts(1)),
        )
        .await
        .unwrap();
    let open = conversations.open(&"7".into(), 1).await.unwrap();
    world.set(ManualWorld::START.after(30 * DAY + Duration::from_secs(400)));
    let page = conversations
        .list(&ConversationQuery::new().limit(3))
        .await
        .unwrap();
    assert_eq!(
        page.iter().map(|info| info.id.as_str()).collect::<Vec<_>>(),
        ["undated", "400", "401"]
    );
    let cleaned = conversations.clean_up().await.unwrap();
    assert_eq!((cleaned.removed, cleaned.failed), (399, 0));
    drop(open);
    let left = store.list(&ConversationQuery::new()).await.unwrap();
    assert_eq!(
        left.len(),
        102,
        "100 younger ones, the one in use, and one that nobody knows the age of"
    );

    let keep = conversations.clean_up_periodically(Conversations::CLEAN_UP_INTERVAL);
    let turn = async {
        world.until_sleeping(1).await;
        world.advance(Duration::from_secs(60));
        world.until_sleeping(1).await;
    };
    futures_util::future::select(std::pin::pin!(keep), std::pin::pin!(turn)).await;
    assert_eq!(
        store.list(&ConversationQuery::new()).await.unwrap().len(),
        41
    );
    let unlimited = Conversations::new(store.clone())
        .world(world.clone())
        .never_expire();
    world.advance(1000 * DAY);
    assert_eq!(unlimited.clean_up().await.unwrap().removed, 0);
}

#[tokio::test]
async fn open_trims_history_beyond_limit() {
    let (store, _, conversations) = setup();
    let conversations = conversations.max_messages(10);
    let id = conversations.new_id();
    let end = async |count: usize, upto: u64| {
        let open = conversations.open(&id, 0).await.unwrap();
        let at = open.remembered().end;
        open.save(
            ConversationChange::at(at)
                .with_messages(texts(count))
                .with_summary(Summary::new("…", upto)),
        )
        .await
        .unwrap();
        drop(open);
        let open = conversations.open(&id, 100).await.unwrap();
        drop(open);
        store.load(&id, 0).await.unwrap().first
    };
    assert_eq!(
        end(20, 0).await,
        0,
        "what is in no summary is kept, up to twice the bound"
    );
    assert_eq!(end(1, 4).await, 4, "what is in the summary goes");
    assert_eq!(
        end(1, 20).await,
        12,
        "and only as far as there are too many"
    );
    assert_eq!(
        end(40, 20).await,
        42,
        "beyond twice the bound it goes anyway"
    );
}

#[tokio::test]
async fn open_does_not_return_trimmed_messages() {
    let (_, _, conversations) = setup();
    let conversations = conversations.max_messages(10);
    let id = conversations.new_id();
    let open = conversations.open(&id, 0).await.unwrap();
    open.save(ConversationChange::at(0).with_messages(texts(40)))
        .await
        .unwrap();
    drop(open);
    for _ in 0..2 {
        let open = conversations.open(&id, 100).await.unwrap();
        let seen = open.remembered();
        assert_eq!((seen.first, seen.end, seen.messages.len()), (20, 40, 20));
        assert_eq!(seen.messages[0].text(), "message 20");
    }
}

/// A session store that only records calls.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<ConversationId>>>);

#[async_trait]
impl SessionNotes for Notes {
    async fn save(&self, id: &ConversationId, _: &str) -> Result<(), MemoryError> {
        self.0.lock().await.push(id.clone());
        Ok(())
    }

    async fn forget(&self, id: &ConversationId) -> Result<(), MemoryError> {
        self.0.lock().await.retain(|noted| noted != id);
        Ok(())
    }
}

#[tokio::test]
async fn forget_removes_late_note_of_other_process() {
    let (store, world, notes) = (InMemory::new(), ManualWorld::auto(), Notes::default());
    let conversations = Conversations::new(store.clone())
        .world(world.clone())
        .with_session_notes(notes.clone());
    let id = ConversationId::new("taken");
    let hold = store.hold(&id).await.unwrap();
    let end = async {
        world.sleep(Duration::from_secs(3)).await;
        notes.save(&id, "They met.").await.unwrap();
        drop(hold);
    };
    let (forgotten, ()) = tokio::join!(conversations.forget(&id), end);
    forgotten.unwrap();
    assert_eq!(*notes.0.lock().await, []);
}

#[tokio::test]
async fn open_drops_leading_tool_results_without_calls() {
    let (_, _, conversations) = setup();
    let id = conversations.new_id();
    let call = ToolCall::new("c1", "add", serde_json::json!({}));
    let result = ToolResult::new(&call, Ok(ToolOutput::text("7")));
    let messages = [
        Message::user("2 + 5?"),
        Message::new(Role::Assistant, [Part::ToolCall(call)]),
        Message::new(Role::Tool, [Part::ToolResult(result)]),
        Message::assistant("7"),
    ];
    let open = conversations.open(&id, 0).await.unwrap();
    open.save(ConversationChange::at(0).with_messages(messages))
        .await
        .unwrap();
    drop(open);
    for (limit, expected) in [(1, 1), (2, 1), (3, 3), (4, 4)] {
        let open = conversations.open(&id, limit).await.unwrap();
        assert_eq!(open.remembered().messages.len(), expected, "of {limit}");
        let list: Vec<Message> = open
            .remembered()
            .messages
            .iter()
            .map(|message| Message::clone(message))
            .collect();
        levity_core::History::try_from(list).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_handles_thousand_conversations_at_once() {
    let (store, world) = (InMemory::new(), ManualWorld::new());
    let conversations = Arc::new(Conversations::new(store).world(world));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..2_000_u64 {
        let conversations = conversations.clone();
        tasks.spawn(async move {
            let open = conversations
                .open(&format!("{}", number % 1_000).into(), 10)
                .await
                .unwrap();
            let at = open.remembered().end;
            tokio::task::yield_now().await;
            open.save(ConversationChange::at(at).with_messages(texts(3)))
                .await
                .unwrap();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let infos = conversations.list(&ConversationQuery::new()).await.unwrap();
    assert_eq!(
        (infos.len(), infos.iter().map(|info| info.end).sum::<u64>()),
        (1_000, 6_000)
    );
}
