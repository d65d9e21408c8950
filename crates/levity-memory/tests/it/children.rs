//! Tasks of child processes: this test binary, started again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use levity_core::{
    ConversationChange, ConversationId, MemoryErrorKind, MemoryStore, Message, Summary,
};
#[cfg(feature = "sqlite")]
use levity_memory::SqliteMemory;
use levity_memory::{Conversations, Durability, FileMemory, KeyValueMemory};

use crate::key_value::Values;
use crate::world::Real;

const TASK: &str = "LEVITY_MEMORY_TASK";
const STORE: &str = "LEVITY_MEMORY_STORE";
const PATH: &str = "LEVITY_MEMORY_PATH";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Files,
    #[cfg(feature = "sqlite")]
    Sqlite,
    /// A folder of values, which needs no crash recovery.
    KeyValue,
}

impl Kind {
    /// Opens the store in a folder, as any process does.
    pub(crate) fn open(self, dir: &Path) -> Arc<dyn MemoryStore> {
        match self {
            Self::Files => Arc::new(
                FileMemory::new(dir.join("files"))
                    .unwrap()
                    .with_durability(Durability::Buffered),
            ),
            #[cfg(feature = "sqlite")]
            Self::Sqlite => {
                let store = SqliteMemory::new(dir.join("memory.db")).unwrap();
                Arc::new(store.with_durability(Durability::Buffered))
            }
            Self::KeyValue => Arc::new(KeyValueMemory::new(Values(dir.join("values")))),
        }
    }
}

/// A child process that ends with its test.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Kills the process at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process that runs `task` with a store, with piped output.
pub(crate) fn start(task: &str, kind: Kind, dir: &Path) -> Process {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "children::child_process",
            "--nocapture",
            "--test-threads=1",
        ])
        .envs([(TASK, task), (STORE, &format!("{kind:?}"))])
        .env(PATH, dir)
        .stdout(Stdio::piped())
        .spawn();
    Process(child.unwrap())
}

/// Does nothing, unless it was started as a child process.
#[test]
fn child_process() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let dir = PathBuf::from(std::env::var_os(PATH).unwrap());
    let kind = match std::env::var(STORE).unwrap().as_str() {
        "Files" => Kind::Files,
        #[cfg(feature = "sqlite")]
        "Sqlite" => Kind::Sqlite,
        "KeyValue" => Kind::KeyValue,
        other => panic!("no store is called {other}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = kind.open(&dir);
        match task.as_str() {
            "write" => write(store).await,
            "hold" => hold(store).await,
            "race" => race(&*store, 40).await,
            "share" => share(store, 15).await,
            other => panic!("no task is called {other}"),
        }
    });
}

/// The number of messages in each save of [`write`], and the number of last saves that it leaves.
pub(crate) const BATCH: u64 = 3;
pub(crate) const RETAINED: u64 = 10;

/// Returns the messages of the `number`th save.
pub(crate) fn batch(number: u64) -> Vec<Message> {
    (0..BATCH)
        .map(|n| Message::user(format!("save {number} message {n} {}", "x".repeat(200))))
        .collect()
}

/// Saves until it is killed, and reports each completed save.
async fn write(store: Arc<dyn MemoryStore>) {
    let (id, other) = (ConversationId::new("main"), ConversationId::new("other"));
    let _hold = store.hold(&id).await.unwrap();
    let mut end = store.load(&id, 0).await.unwrap().end;
    println!("begun");
    loop {
        let number = end / BATCH;
        let summary = Summary::new(format!("up to {number}"), end);
        store
            .save(
                &id,
                &ConversationChange::at(end)
                    .with_messages(batch(number))
                    .with_summary(summary),
            )
            .await
            .unwrap();
        println!("saved {number}");
        end += BATCH;
        if number.is_multiple_of(4) {
            store
                .trim(&id, end.saturating_sub(BATCH * RETAINED))
                .await
                .unwrap();
        }
        if number.is_multiple_of(5) {
            store.search(&id, "message", 1).await.unwrap();
            let at = store.load(&other, 0).await.unwrap().end;
            store
                .save(&other, &ConversationChange::at(at).with_messages(batch(0)))
                .await
                .unwrap();
            store.forget(&other).await.unwrap();
        }
    }
}

/// Holds a conversation until the process is killed.
async fn hold(store: Arc<dyn MemoryStore>) {
    let _hold = store.hold(&"main".into()).await.unwrap();
    println!("held");
    std::future::pending::<()>().await;
}

/// Returns the messages of the `number`th save, which are unique to this process.
fn own_batch(number: u64) -> Vec<Message> {
    let mut messages = batch(number);
    messages.push(Message::user(format!("by {}", std::process::id())));
    messages
}

/// Saves concurrently without holding; a save that is too late loads again.
pub(crate) async fn race(store: &dyn MemoryStore, times: u64) {
    let id = ConversationId::new("raced");
    for number in 0..times {
        loop {
            let end = store.load(&id, 0).await.unwrap().end;
            match store
                .save(
                    &id,
                    &ConversationChange::at(end).with_messages(own_batch(number)),
                )
                .await
            {
                Ok(()) => break,
                Err(error) => assert_eq!(error.kind(), MemoryErrorKind::Moved, "{error}"),
            }
        }
    }
}

/// Opens a conversation repeatedly, and saves twice each time.
pub(crate) async fn share(store: Arc<dyn MemoryStore>, times: u64) {
    let conversations = Conversations::new(store).world(Arc::new(Real));
    let id = ConversationId::new("shared");
    for number in 0..times {
        let open = conversations.open(&id, 0).await.unwrap();
        let end = open.remembered().end;
        for part in 0..2 {
            let text = format!("{} {number}", std::process::id());
            let at = end + part;
            open.save(ConversationChange::at(at).with_messages([Message::user(text)]))
                .await
                .unwrap();
        }
    }
    // A store may release a hold in the background, but before the process ends.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}
