//! Memory over key-value stores that race, crash and report wrong results.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    ConversationChange, ConversationId, ConversationQuery, MemoryError, MemoryErrorKind,
    MemoryStore, Message, Summary, Timestamp, World,
};
use levity_memory::{KeyValueMemory, KeyValueStore, Version, Versioned};
use levity_test::{ManualWorld, conformance};

use crate::world::Real;

mod concurrency;
mod damage;
mod leases;

/// A map behind a mutex, which counts its writes.
#[derive(Debug, Default)]
pub(crate) struct Map(Mutex<(u64, BTreeMap<String, Versioned>)>);

impl Map {
    fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().1.keys().cloned().collect()
    }

    fn copy(&self) -> Self {
        Self(Mutex::new(self.0.lock().unwrap().clone()))
    }

    fn set(&self, key: &str, value: Option<&[u8]>) {
        let (writes, map) = &mut *self.0.lock().unwrap();
        *writes += 1;
        match value {
            Some(value) => map.insert(key.to_owned(), Versioned::new(value, *writes)),
            None => map.remove(key),
        };
    }

    fn value(&self, key: &str) -> Vec<u8> {
        self.0.lock().unwrap().1[key].value.clone()
    }
}

#[async_trait]
impl KeyValueStore for Map {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, MemoryError> {
        Ok(self.0.lock().unwrap().1.get(key).cloned())
    }

    async fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Option<&Version>,
    ) -> Result<bool, MemoryError> {
        let plain = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.%/".contains(&byte)
        };
        assert!(key.len() <= 300 && key.bytes().all(plain), "{key}");
        let (writes, map) = &mut *self.0.lock().unwrap();
        let unchanged = map.get(key).map(|there| &there.version) == expected;
        if unchanged {
            *writes += 1;
            map.insert(key.to_owned(), Versioned::new(value, *writes));
        }
        Ok(unchanged)
    }

    async fn delete(&self, key: &str, expected: &Version) -> Result<bool, MemoryError> {
        let map = &mut self.0.lock().unwrap().1;
        Ok(map.get(key).is_some_and(|there| there.version == *expected)
            && map.remove(key).is_some())
    }

    async fn scan(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Versioned)>, MemoryError> {
        let map = &self.0.lock().unwrap().1;
        let found = map
            .iter()
            .filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
        Ok(found
            .take(limit)
            .map(|(key, there)| (key.clone(), there.clone()))
            .collect())
    }
}

/// A store with one file per value, which processes share behind a lock.
pub(crate) struct Values(pub(crate) PathBuf);

impl Values {
    fn lock(&self) -> File {
        fs::create_dir_all(&self.0).unwrap();
        let lock = File::create(self.0.join("lock")).unwrap();
        lock.lock().unwrap();
        lock
    }

    /// A file contains 16 digits of a random version, then the value.
    fn read(&self, key: &str) -> Option<Versioned> {
        let bytes = fs::read(self.0.join(key)).ok()?;
        let (version, value) = bytes.split_at_checked(16)?;
        Some(Versioned::new(value, std::str::from_utf8(version).unwrap()))
    }

    fn keys(&self, dir: &str, keys: &mut Vec<String>) {
        let Ok(entries) = fs::read_dir(self.0.join(dir)) else {
            return;
        };
        for entry in entries.map(Result::unwrap) {
            let key = format!("{dir}{}", entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                self.keys(&format!("{key}/"), keys);
            } else {
                keys.push(key);
            }
        }
    }
}

#[async_trait]
impl KeyValueStore for Values {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, MemoryError> {
        let _lock = self.lock();
        Ok(self.read(key))
    }

    async fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Option<&Version>,
    ) -> Result<bool, MemoryError> {
        let _lock = self.lock();
        if self.read(key).map(|there| there.version).as_ref() != expected {
            return Ok(false);
        }
        let path = self.0.join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let version = format!("{:016x}", Real.random());
        fs::write(path, [version.as_bytes(), value].concat()).unwrap();
        Ok(true)
    }

    async fn delete(&self, key: &str, expected: &Version) -> Result<bool, MemoryError> {
        let _lock = self.lock();
        let unchanged = self
            .read(key)
            .is_some_and(|there| there.version == *expected);
        Ok(unchanged && fs::remove_file(self.0.join(key)).is_ok())
    }

    async fn scan(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Versioned)>, MemoryError> {
        let _lock = self.lock();
        let mut keys = Vec::new();
        self.keys(&prefix[..=prefix.rfind('/').unwrap()], &mut keys);
        keys.retain(|key| key.as_str() > after);
        keys.sort();
        let found = keys
            .into_iter()
            .take(limit)
            .filter_map(|key| self.read(&key).map(|there| (key, there)));
        Ok(found.collect())
    }
}

/// The fault of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// The operation takes a while.
    Yield,
    /// Another writer was faster.
    Lose,
    /// The operation succeeds, but is reported as lost.
    LoseLate,
    /// The operation is not performed, and reported as failed.
    Fail,
    /// The operation is performed, but reported as failed.
    FailLate,
}

/// A store with faults that depend on the number of the operation.
pub(crate) struct FaultyStore<S> {
    store: S,
    count: AtomicUsize,
    fault: Box<dyn Fn(usize) -> Fault + Send + Sync>,
    /// The total number of bytes put, and the maximum in one value.
    bytes: AtomicUsize,
    max_value: AtomicUsize,
}

impl<S> FaultyStore<S> {
    fn new(store: S, fault: impl Fn(usize) -> Fault + Send + Sync + 'static) -> Self {
        let (count, bytes, max_value) = Default::default();
        Self {
            store,
            count,
            fault: Box::new(fault),
            bytes,
            max_value,
        }
    }

    async fn call<T>(
        &self,
        lost: Option<T>,
        call: impl Future<Output = Result<T, MemoryError>>,
    ) -> Result<T, MemoryError> {
        let fault = (self.fault)(self.count.fetch_add(1, Ordering::Relaxed));
        let failed = || Err(MemoryError::new(MemoryErrorKind::Io, "the store is away"));
        if fault != Fault::None {
            tokio::task::yield_now().await;
        }
        match (fault, lost) {
            (Fault::Lose, Some(lost)) => Ok(lost),
            (Fault::LoseLate, Some(lost)) => call.await.map(|_| lost),
            (Fault::Fail, _) => failed(),
            (Fault::FailLate, _) => call.await.and_then(|_| failed()),
            _ => {
                let done = call.await;
                if fault != Fault::None {
                    tokio::task::yield_now().await;
                }
                done
            }
        }
    }
}

#[async_trait]
impl<S: KeyValueStore> KeyValueStore for FaultyStore<S> {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, MemoryError> {
        self.call(None, self.store.get(key)).await
    }

    async fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Option<&Version>,
    ) -> Result<bool, MemoryError> {
        self.bytes.fetch_add(value.len(), Ordering::Relaxed);
        self.max_value.fetch_max(value.len(), Ordering::Relaxed);
        self.call(Some(false), self.store.put(key, value, expected))
            .await
    }

    async fn delete(&self, key: &str, expected: &Version) -> Result<bool, MemoryError> {
        self.call(Some(false), self.store.delete(key, expected))
            .await
    }

    async fn scan(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Versioned)>, MemoryError> {
        // Pages may be shorter than requested.
        self.call(None, self.store.scan(prefix, after, limit.min(3)))
            .await
    }
}

/// Creates a store whose operations take a while, and that loses races without other writers.
pub(crate) fn racing() -> FaultyStore<Map> {
    FaultyStore::new(Map::default(), |count| match count % 7 {
        3 => Fault::Lose,
        _ => Fault::Yield,
    })
}

#[tokio::test]
async fn key_value_memory_over_a_map_conforms() {
    conformance::memory_store(async || KeyValueMemory::new(Map::default())).await;
}

#[tokio::test]
async fn key_value_memory_over_a_racing_store_conforms() {
    conformance::memory_store(async || KeyValueMemory::new(racing())).await;
}

#[tokio::test]
async fn successful_save_reported_as_lost_is_saved_once() {
    let fault = |count: usize| {
        if count.is_multiple_of(5) {
            Fault::LoseLate
        } else {
            Fault::Yield
        }
    };
    let memory = KeyValueMemory::new(FaultyStore::new(Map::default(), fault));
    let id = ConversationId::new("a");
    for at in 0..50 {
        memory
            .save(
                &id,
                &ConversationChange::at(at).with_messages([Message::user(at.to_string())]),
            )
            .await
            .unwrap();
    }
    assert_eq!(memory.read(&id, 0, 99).await.unwrap().len(), 50);
}

fn text(number: u64) -> Message {
    Message::user(format!("word{number} {}", "x".repeat(300)))
}

fn texts(range: std::ops::Range<u64>) -> impl Iterator<Item = Message> {
    range.map(text)
}

/// Returns everything that is visible in a store.
async fn visible_state(store: &dyn MemoryStore) -> String {
    let id = ConversationId::new("a");
    let load = store.load(&id, 7).await.unwrap();
    let read = store.read(&id, 0, usize::MAX).await.unwrap();
    let found = store.search(&id, "word3 word11", 9).await.unwrap();
    let list = store.list(&ConversationQuery::new()).await.unwrap();
    format!("{load:?}\n{read:?}\n{found:?}\n{list:?}")
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Save,
    SaveMuch,
    Summarise,
    Trim(u64),
    Forget,
    Expire,
}

impl Step {
    async fn take(self, store: &dyn MemoryStore) -> Result<(), MemoryError> {
        let id = ConversationId::new("a");
        let at = store.load(&id, 0).await?.end;
        let change = ConversationChange::at(at).when(Timestamp::from_millis(9));
        match self {
            Self::Save => {
                store
                    .save(&id, &change.with_messages(texts(at..at + 2)))
                    .await
            }
            Self::SaveMuch => {
                let long = Message::user("long ".repeat(4_000));
                let change = change
                    .with_messages(texts(at..at + 40))
                    .with_messages([long]);
                store
                    .save(&id, &change.with_summary(Summary::new("Much.", at + 3)))
                    .await
            }
            Self::Summarise => {
                store
                    .save(&id, &change.with_summary(Summary::new("So far.", at)))
                    .await
            }
            Self::Trim(before) => store.trim(&id, before).await,
            Self::Forget => store.forget(&id).await.map(drop),
            Self::Expire => store
                .expire(&id, Timestamp::from_millis(99))
                .await
                .map(drop),
        }
    }
}

fn memory_over(store: impl KeyValueStore + 'static) -> KeyValueMemory {
    KeyValueMemory::new(store).with_max_value_bytes(4 << 10)
}

/// Applies a step to a store that crashes at each of its operations.
async fn crash_everywhere(before: &[Step], step: Step) {
    let base = Arc::new(Map::default());
    for step in before {
        step.take(&memory_over(base.clone())).await.unwrap();
    }
    let (old, done) = (
        visible_state(&memory_over(base.clone())).await,
        Arc::new(base.copy()),
    );
    step.take(&memory_over(done.clone())).await.unwrap();
    let new = visible_state(&memory_over(done.clone())).await;
    for late in [Fault::Fail, Fault::FailLate] {
        for crash in 0.. {
            let map = Arc::new(base.copy());
            let failing = FaultyStore::new(map.clone(), move |count| match count.cmp(&crash) {
                std::cmp::Ordering::Less => Fault::None,
                std::cmp::Ordering::Equal => late,
                std::cmp::Ordering::Greater => Fault::Fail,
            });
            let survived = step.take(&memory_over(failing)).await.is_ok();
            let after = visible_state(&memory_over(map.clone())).await;
            assert!(
                after == old || after == new,
                "{before:?} {step:?}, {late:?} at {crash}:\n{after}"
            );
            if survived {
                assert_eq!(after, new);
                break;
            }
            let store = memory_over(map.clone());
            if after == old {
                step.take(&store).await.unwrap();
            }
            assert_eq!(
                visible_state(&store).await,
                new,
                "{before:?} {step:?}, {late:?} at {crash}"
            );
            Step::Save.take(&store).await.unwrap();
            store.forget(&ConversationId::new("a")).await.unwrap();
            assert_eq!(
                map.keys(),
                Vec::<String>::new(),
                "{before:?} {step:?}, {late:?} at {crash}"
            );
            assert!(crash < 500);
        }
    }
}

#[tokio::test]
async fn crash_between_operations_leaves_old_or_new_state() {
    use Step::{Expire, Forget, Save, SaveMuch, Summarise, Trim};
    let histories: [&[Step]; 5] = [
        &[],
        &[Save],
        &[Save, Save, Summarise],
        &[SaveMuch, Save],
        &[SaveMuch, Trim(17), Save],
    ];
    for before in histories {
        for step in [
            Save,
            SaveMuch,
            Summarise,
            Trim(1),
            Trim(18),
            Trim(u64::MAX),
            Forget,
            Expire,
        ] {
            crash_everywhere(before, step).await;
        }
    }
}

#[tokio::test]
async fn list_finishes_interrupted_removal() {
    for crash in 2..6 {
        let map = Arc::new(Map::default());
        Step::SaveMuch
            .take(&memory_over(map.clone()))
            .await
            .unwrap();
        let failing = FaultyStore::new(map.clone(), move |count| {
            if count > crash {
                Fault::Fail
            } else {
                Fault::None
            }
        });
        memory_over(failing)
            .forget(&ConversationId::new("a"))
            .await
            .unwrap_err();
        let found = memory_over(map.clone())
            .list(&ConversationQuery::new())
            .await
            .unwrap();
        assert!(found.is_empty(), "{crash}: {found:?}");
        assert_eq!(map.keys(), Vec::<String>::new(), "{crash}");
    }
}

#[tokio::test]
async fn save_finishes_interrupted_removal() {
    let map = Arc::new(Map::default());
    Step::SaveMuch
        .take(&memory_over(map.clone()))
        .await
        .unwrap();
    let old = map.keys();
    let failing = FaultyStore::new(map.clone(), |count| {
        if count > 3 { Fault::Fail } else { Fault::None }
    });
    memory_over(failing)
        .forget(&ConversationId::new("a"))
        .await
        .unwrap_err();
    Step::Save.take(&memory_over(map.clone())).await.unwrap();
    assert!(
        map.keys()
            .iter()
            .all(|key| key == "conversations/a" || !old.contains(key)),
        "{:?}",
        map.keys()
    );
}

#[tokio::test]
async fn id_too_long_for_key_reads_empty_and_rejects_save() {
    let (store, id) = (
        memory_over(Map::default()),
        ConversationId::new("A".repeat(200)),
    );
    assert_eq!(store.load(&id, 9).await.unwrap().end, 0);
    assert!(!store.forget(&id).await.unwrap());
    store.trim(&id, 9).await.unwrap();
    let save = ConversationChange::at(0).with_messages([text(0)]);
    assert_eq!(
        store.save(&id, &save).await.unwrap_err().kind(),
        MemoryErrorKind::Refused
    );
    assert_eq!(
        store.hold(&id).await.unwrap_err().kind(),
        MemoryErrorKind::Refused
    );
}

#[tokio::test]
async fn save_cost_does_not_grow_with_conversation() {
    let store = Arc::new(FaultyStore::new(Map::default(), |_| Fault::None));
    let memory = memory_over(store.clone());
    let mut costs = Vec::new();
    for _ in 0..600 {
        let (bytes, count) = (
            store.bytes.load(Ordering::Relaxed),
            store.count.load(Ordering::Relaxed),
        );
        Step::Save.take(&memory).await.unwrap();
        costs.push((
            store.bytes.load(Ordering::Relaxed) - bytes,
            store.count.load(Ordering::Relaxed) - count,
        ));
    }
    let (early, late) = (costs[10], costs[599]);
    assert!(
        late.0 < early.0 + 64 && late.1 == early.1,
        "{early:?} {late:?}"
    );
    let before = store.count.load(Ordering::Relaxed);
    assert_eq!(memory.read(&"a".into(), 600, 4).await.unwrap().len(), 4);
    assert!(
        store.count.load(Ordering::Relaxed) - before < 8,
        "reading in the middle reads little else"
    );
    Step::SaveMuch.take(&memory).await.unwrap();
    assert!(
        store.max_value.load(Ordering::Relaxed) <= 4 << 10,
        "values are bounded"
    );
    let long = ConversationChange::at(1_241).with_summary(Summary::new("x".repeat(5_000), 0));
    let error = memory.save(&"a".into(), &long).await.unwrap_err();
    assert_eq!(error.kind(), MemoryErrorKind::Refused, "{error}");
}
