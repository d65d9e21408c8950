//! Concurrency: processes on one conversation, and conversations in one process.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use levity_core::{ConversationChange, ConversationId, ConversationQuery, MemoryStore, Message};
use levity_memory::{Conversations, KeyValueMemory};
use tokio::task::JoinSet;

use crate::children::{BATCH, Kind, batch, race, share, start};
use crate::key_value::Map;
use crate::world::Real;

async fn texts(store: &dyn MemoryStore, id: &str) -> Vec<String> {
    let read = store
        .read(&ConversationId::new(id), 0, usize::MAX)
        .await
        .unwrap();
    read.iter()
        .map(|(_, message)| message.text().into_owned())
        .collect()
}

/// Runs two processes with the same task while this process works as well. None of them finds an
/// existing store.
async fn run_in_parallel(
    task: &str,
    kind: Kind,
    dir: &Path,
    mine: impl AsyncFnOnce(Arc<dyn MemoryStore>),
) {
    let children: Vec<_> = (0..2).map(|_| start(task, kind, dir)).collect();
    mine(kind.open(dir)).await;
    for mut child in children {
        let output = tokio::task::spawn_blocking(move || child.0.wait());
        assert!(output.await.unwrap().unwrap().success());
    }
}

async fn check_two_processes(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    run_in_parallel("race", kind, dir.path(), async |store| {
        race(&*store, 40).await;
    })
    .await;
    let store = kind.open(dir.path());
    let raced = texts(&*store, "raced").await;
    let length = BATCH as usize + 1;
    assert_eq!(raced.len(), 3 * 40 * length);
    let mut counts = HashMap::new();
    for whole in raced.chunks(length) {
        let number: u64 = whole[0].split(' ').nth(1).unwrap().parse().unwrap();
        let expected: Vec<_> = batch(number)
            .iter()
            .map(|message| message.text().into_owned())
            .collect();
        assert_eq!(whole[..length - 1], expected, "a save is in one piece");
        *counts.entry(whole[length - 1].clone()).or_insert(0) += 1;
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [40, 40, 40]);

    run_in_parallel("share", kind, dir.path(), async |store| {
        share(store, 15).await;
    })
    .await;
    let shared = texts(&*store, "shared").await;
    assert_eq!(shared.len(), 3 * 15 * 2);
    assert!(
        shared.chunks(2).all(|run| run[0] == run[1]),
        "no run comes between the saves of another"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_file_store() {
    check_two_processes(Kind::Files).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_sqlite_store() {
    check_two_processes(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_key_value_store() {
    check_two_processes(Kind::KeyValue).await;
}

async fn check_thousand_conversations(make: impl Fn(&Path) -> Arc<dyn MemoryStore>) {
    let dir = tempfile::tempdir().unwrap();
    let conversations = Conversations::new(make(dir.path())).world(Arc::new(Real));
    let mut tasks = JoinSet::new();
    for number in 0..1_000 {
        let conversations = conversations.clone();
        tasks.spawn(async move {
            let id = ConversationId::new(format!("c{number}"));
            let open = conversations.open(&id, 10).await.unwrap();
            for at in 0..2 {
                let message = Message::user(format!("{number} {at}"));
                open.save(ConversationChange::at(at).with_messages([message]))
                    .await
                    .unwrap();
            }
            open
        });
    }
    let mut open = Vec::new();
    while let Some(done) = tasks.join_next().await {
        open.push(done.unwrap());
    }
    assert_eq!(open.len(), 1_000, "all of them are open at once");
    drop(open);
    let store = make(dir.path());
    let infos = store.list(&ConversationQuery::new()).await.unwrap();
    assert_eq!(
        (infos.len(), infos.iter().all(|info| info.end == 2)),
        (1_000, true)
    );
    for number in [0, 17, 999] {
        let expected = [format!("{number} 0"), format!("{number} 1")];
        assert_eq!(texts(&*store, &format!("c{number}")).await, expected);
        drop(store.hold(&format!("c{number}").into()).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_store_handles_thousand_conversations() {
    check_thousand_conversations(|dir| Kind::Files.open(dir)).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_store_handles_thousand_conversations() {
    check_thousand_conversations(|dir| Kind::Sqlite.open(dir)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_value_store_handles_thousand_conversations() {
    let memory = KeyValueMemory::new(Map::default());
    check_thousand_conversations(|_| Arc::new(memory.clone())).await;
}

/// A save of a dropped run does not interleave with the next run.
async fn check_dropped_save(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let conversations = Conversations::new(kind.open(dir.path())).world(Arc::new(Real));
    let id = ConversationId::new("a");
    for number in 0..100 {
        let open = conversations.open(&id, 0).await.unwrap();
        let change = ConversationChange::at(open.remembered().end).with_messages(batch(number));
        {
            let mut save = std::pin::pin!(open.save(change));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            // The save may already be complete, if the store was fast.
            let _ = Future::poll(save.as_mut(), &mut cx);
        }
        drop(open);
        let open = conversations.open(&id, 0).await.unwrap();
        let change =
            ConversationChange::at(open.remembered().end).with_messages([Message::user("next")]);
        open.save(change).await.unwrap();
    }
}

#[tokio::test]
async fn dropped_file_save_completes_before_next_run() {
    check_dropped_save(Kind::Files).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn dropped_sqlite_save_completes_before_next_run() {
    check_dropped_save(Kind::Sqlite).await;
}

#[tokio::test]
async fn dropped_key_value_save_completes_before_next_run() {
    check_dropped_save(Kind::KeyValue).await;
}
