//! Memory over stores of keys and values that race, crash and lie.

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

/// A value in each file of a folder, which processes share behind a lock.
pub(crate) struct Values(pub(crate) PathBuf);

impl Values {
    fn lock(&self) -> File {
        fs::create_dir_all(&self.0).unwrap();
        let lock = File::create(self.0.join("lock")).unwrap();
        lock.lock().unwrap();
        lock
    }

    /// A file has 16 digits of a random version, and the value.
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

/// What goes wrong with an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    None,
    /// It takes a while.
    Yield,
    /// Somebody else was faster.
    Lose,
    /// It is done, and reported as lost.
    LoseLate,
    /// It is not done, and reported as failed.
    Fail,
    /// It is done, and reported as failed.
    FailLate,
}

/// A store with trouble that depends on the number of the operation.
pub(crate) struct Troubled<S> {
    store: S,
    count: AtomicUsize,
    trouble: Box<dyn Fn(usize) -> Trouble + Send + Sync>,
    /// So many bytes were put, and so many at once.
    bytes: AtomicUsize,
    most: AtomicUsize,
}

impl<S> Troubled<S> {
    fn new(store: S, trouble: impl Fn(usize) -> Trouble + Send + Sync + 'static) -> Self {
        let (count, bytes, most) = Default::default();
        Self {
            store,
            count,
            trouble: Box::new(trouble),
            bytes,
            most,
        }
    }

    async fn call<T>(
        &self,
        lost: Option<T>,
        call: impl Future<Output = Result<T, MemoryError>>,
    ) -> Result<T, MemoryError> {
        let trouble = (self.trouble)(self.count.fetch_add(1, Ordering::Relaxed));
        let failed = || Err(MemoryError::new(MemoryErrorKind::Io, "the store is away"));
        if trouble != Trouble::None {
            tokio::task::yield_now().await;
        }
        match (trouble, lost) {
            (Trouble::Lose, Some(lost)) => Ok(lost),
            (Trouble::LoseLate, Some(lost)) => call.await.map(|_| lost),
            (Trouble::Fail, _) => failed(),
            (Trouble::FailLate, _) => call.await.and_then(|_| failed()),
            _ => {
                let done = call.await;
                if trouble != Trouble::None {
                    tokio::task::yield_now().await;
                }
                done
            }
        }
    }
}

#[async_trait]
impl<S: KeyValueStore> KeyValueStore for Troubled<S> {
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
        self.most.fetch_max(value.len(), Ordering::Relaxed);
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
        // Pages may be shorter than asked for.
        self.call(None, self.store.scan(prefix, after, limit.min(3)))
            .await
    }
}

/// A store whose every operation takes a while, and that loses races which nobody else is in.
pub(crate) fn racing() -> Troubled<Map> {
    Troubled::new(Map::default(), |count| match count % 7 {
        3 => Trouble::Lose,
        _ => Trouble::Yield,
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
async fn save_that_won_a_race_and_is_reported_as_lost_is_made_once() {
    let trouble = |count: usize| {
        if count.is_multiple_of(5) {
            Trouble::LoseLate
        } else {
            Trouble::Yield
        }
    };
    let memory = KeyValueMemory::new(Troubled::new(Map::default(), trouble));
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

/// All that can be seen of a store.
async fn seen(store: &dyn MemoryStore) -> String {
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

fn over(store: impl KeyValueStore + 'static) -> KeyValueMemory {
    KeyValueMemory::new(store).with_max_value_bytes(4 << 10)
}

/// Takes a step with a store that goes away at each of its operations.
async fn crash_everywhere(before: &[Step], step: Step) {
    let base = Arc::new(Map::default());
    for step in before {
        step.take(&over(base.clone())).await.unwrap();
    }
    let (old, done) = (seen(&over(base.clone())).await, Arc::new(base.copy()));
    step.take(&over(done.clone())).await.unwrap();
    let new = seen(&over(done.clone())).await;
    for late in [Trouble::Fail, Trouble::FailLate] {
        for crash in 0.. {
            let map = Arc::new(base.copy());
            let failing = Troubled::new(map.clone(), move |count| match count.cmp(&crash) {
                std::cmp::Ordering::Less => Trouble::None,
                std::cmp::Ordering::Equal => late,
                std::cmp::Ordering::Greater => Trouble::Fail,
            });
            let survived = step.take(&over(failing)).await.is_ok();
            let after = seen(&over(map.clone())).await;
            assert!(
                after == old || after == new,
                "{before:?} {step:?}, {late:?} at {crash}:\n{after}"
            );
            if survived {
                assert_eq!(after, new);
                break;
            }
            let store = over(map.clone());
            if after == old {
                step.take(&store).await.unwrap();
            }
            assert_eq!(
                seen(&store).await,
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
async fn crash_between_any_two_operations_leaves_the_old_or_the_new_state() {
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
async fn removal_that_was_cut_off_is_finished_by_the_next_list() {
    for crash in 2..6 {
        let map = Arc::new(Map::default());
        Step::SaveMuch.take(&over(map.clone())).await.unwrap();
        let failing = Troubled::new(map.clone(), move |count| {
            if count > crash {
                Trouble::Fail
            } else {
                Trouble::None
            }
        });
        over(failing)
            .forget(&ConversationId::new("a"))
            .await
            .unwrap_err();
        let found = over(map.clone())
            .list(&ConversationQuery::new())
            .await
            .unwrap();
        assert!(found.is_empty(), "{crash}: {found:?}");
        assert_eq!(map.keys(), Vec::<String>::new(), "{crash}");
    }
}

#[tokio::test]
async fn removal_that_was_cut_off_is_finished_by_the_next_save() {
    let map = Arc::new(Map::default());
    Step::SaveMuch.take(&over(map.clone())).await.unwrap();
    let old = map.keys();
    let failing = Troubled::new(map.clone(), |count| {
        if count > 3 {
            Trouble::Fail
        } else {
            Trouble::None
        }
    });
    over(failing)
        .forget(&ConversationId::new("a"))
        .await
        .unwrap_err();
    Step::Save.take(&over(map.clone())).await.unwrap();
    assert!(
        map.keys()
            .iter()
            .all(|key| key == "conversations/a" || !old.contains(key)),
        "{:?}",
        map.keys()
    );
}

#[tokio::test]
async fn id_that_is_too_long_for_a_key_is_unknown_and_refused() {
    let (store, id) = (over(Map::default()), ConversationId::new("A".repeat(200)));
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
async fn turn_of_a_long_conversation_writes_as_much_as_one_of_a_short() {
    let store = Arc::new(Troubled::new(Map::default(), |_| Trouble::None));
    let memory = over(store.clone());
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
        store.most.load(Ordering::Relaxed) <= 4 << 10,
        "values are bounded"
    );
    let long = ConversationChange::at(1_241).with_summary(Summary::new("x".repeat(5_000), 0));
    let error = memory.save(&"a".into(), &long).await.unwrap_err();
    assert_eq!(error.kind(), MemoryErrorKind::Refused, "{error}");
}

#[tokio::test]
async fn damaged_value_is_refused_with_its_key_and_kept() {
    let base = Arc::new(Map::default());
    for step in [Step::SaveMuch, Step::Save, Step::Trim(3)] {
        step.take(&over(base.clone())).await.unwrap();
    }
    let id = ConversationId::new("a");
    let junk: &[&[u8]] = &[
        b"",
        b"\0",
        b"{}",
        b"[]",
        b"null",
        b"1\n",
        b"1\n[]",
        b"1\n[null]",
        b"0\n[]",
        b"99\n[",
        b"4294967295\n[",
        b"\xff\n[]",
        b"-1\n[]",
        b"{\"levity_memory\":1}",
        b"1\n[{\"role\":\"nobody\",\"content\":\"hunter2\"}]",
    ];
    for key in base.keys() {
        let whole = base.value(&key);
        let cut = &whole[..whole.len() - 1];
        for junk in junk.iter().copied().chain([cut]).map(Some).chain([None]) {
            if junk.is_none() && key.starts_with("conversations/") {
                continue;
            }
            let map = Arc::new(base.copy());
            map.set(&key, junk);
            let before = map.keys();
            let store = over(map.clone());
            let error = store.read(&id, 0, usize::MAX).await.unwrap_err();
            assert_eq!(
                error.kind(),
                MemoryErrorKind::Damaged,
                "{key} {junk:?}: {error}"
            );
            let named = error.to_string();
            assert!(
                named.contains("key `") && named.contains("/a") && !named.contains("hunter2"),
                "{named}"
            );
            // None of them panics, and none makes it worse.
            let _ = store.load(&id, 5).await;
            let _ = store.search(&id, "word1", 5).await;
            let _ = store
                .save(&id, &ConversationChange::at(1).with_messages([text(1)]))
                .await;
            let _ = store.list(&ConversationQuery::new()).await.unwrap();
            assert_eq!(map.keys(), before);
            if let Some(junk) = junk {
                assert_eq!(map.value(&key), junk);
            }
        }
    }
}

#[tokio::test]
async fn damaged_head_is_refused_whatever_its_numbers_say() {
    let base = Arc::new(Map::default());
    Step::Save.take(&over(base.clone())).await.unwrap();
    let (id, key) = (ConversationId::new("a"), "conversations/a");
    let head = String::from_utf8(base.value(key)).unwrap();
    let max = u64::MAX.to_string();
    for (field, value) in [
        ("end", &*max),
        ("first", &max),
        ("start", "1"),
        ("save", &max),
        ("revision", &max),
        ("end", "1"),
        ("end", "-1"),
    ] {
        let mut fields: serde_json::Value = serde_json::from_str(&head).unwrap();
        fields[field] = serde_json::from_str(value).unwrap();
        if field == "end" && value == "1" {
            fields["first"] = 2.into();
        }
        base.set(key, Some(fields.to_string().as_bytes()));
        let store = over(base.clone());
        for error in [
            store.load(&id, 5).await.unwrap_err(),
            store
                .save(
                    &id,
                    &ConversationChange::at(u64::MAX).with_messages([text(1)]),
                )
                .await
                .unwrap_err(),
            store.trim(&id, u64::MAX).await.unwrap_err(),
            store.forget(&id).await.unwrap_err(),
            store.hold(&id).await.unwrap_err(),
        ] {
            assert_eq!(
                error.kind(),
                MemoryErrorKind::Damaged,
                "{field} {value}: {error}"
            );
            assert!(error.to_string().contains("`conversations/a`"), "{error}");
        }
    }
    base.set(
        key,
        Some(
            head.replace("\"levity_memory\":1", "\"levity_memory\":2")
                .as_bytes(),
        ),
    );
    let error = over(base.clone()).load(&id, 5).await.unwrap_err();
    assert_eq!(error.kind(), MemoryErrorKind::Version, "{error}");
}

/// A store whose scans never end, since they ignore what came before.
struct Stuck(Map);

#[async_trait]
impl KeyValueStore for Stuck {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, MemoryError> {
        self.0.get(key).await
    }
    async fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Option<&Version>,
    ) -> Result<bool, MemoryError> {
        self.0.put(key, value, expected).await
    }
    async fn delete(&self, key: &str, expected: &Version) -> Result<bool, MemoryError> {
        self.0.delete(key, expected).await
    }
    async fn scan(
        &self,
        prefix: &str,
        _: &str,
        limit: usize,
    ) -> Result<Vec<(String, Versioned)>, MemoryError> {
        self.0.scan(prefix, "", limit).await
    }
}

#[tokio::test]
async fn scan_that_goes_round_in_circles_is_an_error() {
    let store = over(Stuck(Map::default()));
    Step::Save.take(&store).await.unwrap();
    let error = store.list(&ConversationQuery::new()).await.unwrap_err();
    assert!(
        error.kind() == MemoryErrorKind::Io && error.to_string().contains("conversations/a"),
        "{error}"
    );
}

async fn turns(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn lease_is_renewed_while_it_is_held_and_ends_with_its_process() {
    let (map, world) = (Arc::new(Map::default()), Arc::new(ManualWorld::new()));
    let alive = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let lives = alive.clone();
    let failing = Troubled::new(map.clone(), move |_| {
        if lives.load(Ordering::Relaxed) {
            Trouble::None
        } else {
            Trouble::Fail
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
        turns(20).await;
        world.advance(Duration::from_secs(10));
        turns(20).await;
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
    turns(20).await;
    let taken = second.hold(&id).await.unwrap();
    // The first one comes back, and has lost the conversation.
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
    turns(20).await;
    assert_eq!(
        first.hold(&id).await.unwrap_err().kind(),
        MemoryErrorKind::Busy
    );
    second.save(&id, &late).await.unwrap();
    drop(taken);
    turns(20).await;
    drop(first.hold(&id).await.unwrap());
    assert!(
        second.forget(&id).await.is_err(),
        "the other process has not let go yet"
    );
    turns(20).await;
    assert!(second.forget(&id).await.unwrap());
    assert_eq!(map.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn program_that_waits_for_releases_leaves_no_lease() {
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
    let kept = memory.hold(&"c".into()).await.unwrap();
    memory.wait_for_releases().await;
    assert_eq!(store.store.keys(), ["conversations/c"]);
    drop(other.hold(&"a".into()).await.unwrap());
    drop(kept);
}

#[tokio::test]
async fn forget_beside_a_hold_removes_nothing_that_is_held() {
    let id = ConversationId::new("a");
    let (mut held, mut forgotten) = (0, 0);
    for delay in 0..60 {
        let memory = KeyValueMemory::new(Troubled::new(Map::default(), |_| Trouble::Yield));
        memory
            .save(&id, &ConversationChange::at(0).with_messages([text(0)]))
            .await
            .unwrap();
        let hold = async {
            turns(delay % 30).await;
            let lease = memory.hold(&id).await.unwrap();
            (lease, memory.load(&id, 1).await.unwrap())
        };
        let forget = async {
            turns(30 - delay % 30 + delay / 30).await;
            memory.forget(&id).await.map_err(|error| error.kind())
        };
        let ((lease, seen), gone) = tokio::join!(hold, forget);
        assert_eq!(
            memory.load(&id, 1).await.unwrap(),
            seen,
            "nothing changes while it is held"
        );
        assert_eq!(
            gone,
            if seen.end > 0 {
                Err(MemoryErrorKind::Busy)
            } else {
                Ok(true)
            }
        );
        held += u64::from(gone.is_err());
        forgotten += u64::from(gone.is_ok());
        drop(lease);
    }
    assert!(held > 5 && forgotten > 5, "{held} {forgotten}");
}

#[test]
fn lease_of_a_runtime_that_ended_can_be_taken_by_the_same_store() {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_one_conversation_never_mix_their_saves() {
    let store = Arc::new(racing());
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let memory = over(store.clone());
        tasks.spawn(async move {
            let id = ConversationId::new("a");
            for number in 0..25 {
                let save = format!("{writer} {number}");
                loop {
                    let end = memory.load(&id, 0).await.unwrap().end;
                    let messages = (0..3).map(|_| Message::user(save.clone()));
                    match memory
                        .save(&id, &ConversationChange::at(end).with_messages(messages))
                        .await
                    {
                        Ok(()) => break,
                        Err(error) => assert_eq!(error.kind(), MemoryErrorKind::Moved, "{error}"),
                    }
                }
                if number % 5 == 4 {
                    memory.trim(&id, number).await.unwrap();
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let memory = over(store);
    let read = memory.read(&"a".into(), 0, usize::MAX).await.unwrap();
    assert_eq!((read[0].0, read.last().unwrap().0), (24, 4 * 25 * 3 - 1));
    let words: Vec<_> = read
        .iter()
        .map(|(_, message)| message.text().into_owned())
        .collect();
    for save in words.chunks(3) {
        assert!(save.iter().all(|word| *word == save[0]), "{save:?}");
    }
}

/// The messages of a save that can be told from all others, and counted.
fn tagged(save: u64, count: u64) -> impl Iterator<Item = Message> {
    (0..count)
        .map(move |number| Message::user(format!("{save} {number} {count} {}", "x".repeat(700))))
}

/// Every save is there as a whole, as far as it was not trimmed.
fn check_whole(read: &[(u64, Arc<Message>)]) {
    let text = |at: usize| read[at].1.text().into_owned();
    let numbers = |text: &str| -> Vec<u64> {
        text.split(' ')
            .take(3)
            .map(|word| word.parse().unwrap())
            .collect()
    };
    for at in 0..read.len() {
        let here = numbers(&text(at));
        assert!(
            read[at].0 == read[0].0 + at as u64,
            "positions follow one another"
        );
        match read.get(at + 1).map(|_| numbers(&text(at + 1))) {
            Some(next) if here[1] + 1 < here[2] => {
                assert_eq!(next, [here[0], here[1] + 1, here[2]]);
            }
            Some(next) => assert_eq!(next[1], 0),
            None => assert_eq!(here[1] + 1, here[2]),
        }
    }
}

/// Saves, trims or forgets, as `random` says.
async fn disturb(memory: &dyn MemoryStore, number: u64, random: u64) {
    let id = ConversationId::new("a");
    let end = match memory.load(&id, 3).await {
        Ok(found) => found.end,
        Err(error) => panic!("{error}"),
    };
    let done = match random % 16 {
        0 => memory.forget(&id).await.map(drop),
        1 | 2 => memory.trim(&id, end.saturating_sub(random / 16 % 20)).await,
        3..6 => memory
            .read(&id, end.saturating_sub(random / 16 % 40), usize::MAX)
            .await
            .map(|read| {
                let whole = read
                    .iter()
                    .skip_while(|(_, message)| message.text().split(' ').nth(1) != Some("0"));
                check_whole(&whole.cloned().collect::<Vec<_>>());
            }),
        _ => {
            memory
                .save(
                    &id,
                    &ConversationChange::at(end)
                        .with_messages(tagged(number, 1 + random / 16 % 20)),
                )
                .await
        }
    };
    if let Err(error) = done {
        assert_eq!(error.kind(), MemoryErrorKind::Moved, "{error}");
    }
}

#[test]
fn any_order_of_operations_and_dropped_futures_keeps_saves_whole() {
    for seed in 0..100 {
        let world = ManualWorld::new().with_seed(seed);
        let map = Arc::new(Map::default());
        let memory = |world: &ManualWorld| {
            let lose = move |count: usize| {
                if count % 11 == 5 {
                    Trouble::Lose
                } else {
                    Trouble::Yield
                }
            };
            over(Troubled::new(map.clone(), lose)).with_world(world.clone())
        };
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut number = 0;
        let mut begin = || {
            number += 1;
            let (memory, number, random) = (memory(&world), number, world.random());
            Box::pin(async move { disturb(&memory, number, random).await })
        };
        let mut futures: Vec<_> = (0..4).map(|_| begin()).collect();
        for _ in 0..600 {
            let at = (world.random() % 4) as usize;
            // One that is dropped half-way stands for a process that ends.
            if futures[at].as_mut().poll(&mut cx).is_ready() || world.random().is_multiple_of(50) {
                futures[at] = begin();
            }
        }
        drop(futures);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (memory, id) = (memory(&world), ConversationId::new("a"));
            let read = memory.read(&id, 0, usize::MAX).await.unwrap();
            check_whole(&read);
            memory.forget(&id).await.unwrap();
            assert_eq!(map.keys(), Vec::<String>::new(), "seed {seed}");
        });
    }
}
