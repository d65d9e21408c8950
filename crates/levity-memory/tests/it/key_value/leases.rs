//! Leases of conversations.

use super::*;

async fn yield_times(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn lease_is_renewed_while_held_and_ends_with_process() {
    let (map, world) = (Arc::new(Map::default()), Arc::new(ManualWorld::new()));
    let alive = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let lives = alive.clone();
    let failing = FaultyStore::new(map.clone(), move |_| {
        if lives.load(Ordering::Relaxed) {
            Fault::None
        } else {
            Fault::Fail
        }
    });
    let first = KeyValueMemory::new(failing).with_world(world.clone());
    let second = KeyValueMemory::new(map.clone()).with_world(world.clone());
    let id = ConversationId::new("a");
    let lease = first.hold(&id).await.unwrap();
    first
        .save(&id, &ConversationChange::at(0).with_messages([text(0)]))
        .await
        .unwrap();
    for _ in 0..10 {
        yield_times(20).await;
        world.advance(Duration::from_secs(10));
        yield_times(20).await;
        let busy = [
            second.hold(&id).await.unwrap_err().kind(),
            second.forget(&id).await.unwrap_err().kind(),
            second
                .expire(&id, Timestamp::from_millis(u64::MAX))
                .await
                .unwrap_err()
                .kind(),
        ];
        assert_eq!(busy, [MemoryErrorKind::Busy; 3]);
    }
    alive.store(false, Ordering::Relaxed);
    world.advance(Duration::from_secs(21));
    yield_times(20).await;
    let taken = second.hold(&id).await.unwrap();
    // The first holder returns, and has lost the conversation.
    alive.store(true, Ordering::Relaxed);
    let late = ConversationChange::at(1).with_messages([text(1)]);
    assert_eq!(
        first.save(&id, &late).await.unwrap_err().kind(),
        MemoryErrorKind::Busy
    );
    assert_eq!(
        first.trim(&id, 1).await.unwrap_err().kind(),
        MemoryErrorKind::Busy
    );
    drop(lease);
    yield_times(20).await;
    assert_eq!(
        first.hold(&id).await.unwrap_err().kind(),
        MemoryErrorKind::Busy
    );
    second.save(&id, &late).await.unwrap();
    drop(taken);
    yield_times(20).await;
    drop(first.hold(&id).await.unwrap());
    assert!(
        second.forget(&id).await.is_err(),
        "the other process has not let go yet"
    );
    yield_times(20).await;
    assert!(second.forget(&id).await.unwrap());
    assert_eq!(map.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn wait_for_releases_leaves_no_lease() {
    let store = Arc::new(racing());
    let (memory, other) = (
        KeyValueMemory::new(store.clone()),
        KeyValueMemory::new(store.clone()),
    );
    let leases = [
        memory.hold(&"a".into()).await.unwrap(),
        memory.hold(&"b".into()).await.unwrap(),
    ];
    drop(leases);
    let held_lease = memory.hold(&"c".into()).await.unwrap();
    memory.wait_for_releases().await;
    assert_eq!(store.store.keys(), ["conversations/c"]);
    drop(other.hold(&"a".into()).await.unwrap());
    drop(held_lease);
}

#[tokio::test]
async fn forget_never_removes_held_conversation() {
    let id = ConversationId::new("a");
    let (mut held, mut forgotten) = (0, 0);
    for delay in 0..60 {
        let memory = KeyValueMemory::new(FaultyStore::new(Map::default(), |_| Fault::Yield));
        memory
            .save(&id, &ConversationChange::at(0).with_messages([text(0)]))
            .await
            .unwrap();
        let hold = async {
            yield_times(delay % 30).await;
            let lease = memory.hold(&id).await.unwrap();
            (lease, memory.load(&id, 1).await.unwrap())
        };
        let forget = async {
            yield_times(30 - delay % 30 + delay / 30).await;
            memory.forget(&id).await.map_err(|error| error.kind())
        };
        let ((lease, read), removal) = tokio::join!(hold, forget);
        assert_eq!(
            memory.load(&id, 1).await.unwrap(),
            read,
            "nothing changes while it is held"
        );
        assert_eq!(
            removal,
            if read.end > 0 {
                Err(MemoryErrorKind::Busy)
            } else {
                Ok(true)
            }
        );
        held += u64::from(removal.is_err());
        forgotten += u64::from(removal.is_ok());
        drop(lease);
    }
    assert!(held > 5 && forgotten > 5, "{held} {forgotten}");
}

#[test]
fn lease_of_ended_runtime_can_be_taken_by_same_store() {
    let memory = KeyValueMemory::new(Map::default());
    let id = ConversationId::new("a");
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let lease = runtime().block_on(memory.hold(&id)).unwrap();
    drop(lease);
    drop(runtime().block_on(memory.hold(&id)).unwrap());
}
