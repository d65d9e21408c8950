//! Measures the time and disk space of conversations.
//!
//! - `cargo bench --bench memory` measures everything, in about a minute.
//! - `-- --quick` does so in a few seconds, to check that the benchmark runs.

#[allow(dead_code, reason = "other benchmarks use the rest")]
mod allocations;
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod clock;
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod measure;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allocations::Counter;
use levity_core::{ConversationChange, ConversationId, MemoryStore, Message, Timestamp};
use levity_memory::{
    Conversations, Counter as Tokens, Durability, FileMemory, InMemory, SqliteMemory, Window,
};
use measure::{Effort, Work, compare, verdict};
use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static ALLOCATOR: allocations::CountingAllocator = allocations::CountingAllocator;

/// Allowed time of an append that does not wait for the disk, in microseconds.
const APPEND: f64 = 50.0;
/// Allowed time to load the last messages of a conversation of any length, in milliseconds.
const LOAD: f64 = 5.0;
/// Allowed bytes of a turn beyond its messages.
const ROOM: f64 = 1_000.0;
/// Allowed time to build the window of a conversation of any length, in milliseconds.
const BUILD: f64 = 1.0;
/// Allowed memory of 10,000 open conversations beyond the messages in their windows.
const OPEN: f64 = 64.0 * 1024.0 * 1024.0;

/// Number of messages in a window.
const WINDOW: usize = 20;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Without `--bench`, cargo runs this as a test, which only checks that the benchmark runs.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    append(if quick { Effort::QUICK } else { Effort::FULL });
    waited_for(if quick { 20 } else { 200 });
    load(if quick {
        &[100, 1_000]
    } else {
        &[100, 10_000, 100_000]
    });
    room(if quick {
        &[25, 50]
    } else {
        &[25, 50, 100, 1_000]
    });
    window(if quick { Effort::QUICK } else { Effort::FULL });
    open(if quick { 500 } else { 10_000 });
}

/// A temporary folder that is removed at the end.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder is made"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("memory.db")
    }

    fn sqlite(&self, durability: Durability) -> SqliteMemory {
        SqliteMemory::new(self.path())
            .expect("a file is made")
            .with_durability(durability)
    }

    fn files(&self, durability: Durability) -> FileMemory {
        let files = FileMemory::new(self.0.path().join("files")).expect("a folder is made");
        files.with_durability(durability)
    }
}

fn one_thread() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime is built")
}

/// Runs a function and measures its wall-clock time.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the benchmark measures real time"
    )]
    let start = Instant::now();
    let done = work();
    (done, start.elapsed())
}

/// Creates a turn: a question and an answer, 190 bytes of JSON.
fn turn(number: u64) -> [Message; 2] {
    let question = format!("What is the weather like in town {number}?");
    let answer = format!("In town {number} it is mild, with a light wind from the west.");
    [Message::user(question), Message::assistant(answer)]
}

fn change(number: u64) -> ConversationChange {
    ConversationChange::at(number * 2)
        .with_messages(turn(number))
        .when(Timestamp::from_millis(number))
}

/// Creates work that saves one turn after another in one conversation.
fn saving(name: &'static str, store: impl MemoryStore + 'static, folder: Arc<Folder>) -> Work {
    let (tokio, id) = (one_thread(), ConversationId::new("bench"));
    let mut number = 0;
    let run = Box::new(move || {
        tokio
            .block_on(store.save(&id, &change(number)))
            .expect("it is saved");
        number += 1;
        let _ = &folder;
    });
    Work {
        name,
        units: 1,
        run,
    }
}

/// Creates the floor (baseline): the same rows, written directly on this thread.
fn by_hand(folder: Arc<Folder>) -> Work {
    let connection = rusqlite::Connection::open(folder.path()).expect("a file is made");
    let tables = "PRAGMA journal_mode = wal; PRAGMA synchronous = NORMAL; \
                  CREATE TABLE conversations (key INTEGER PRIMARY KEY, changed INTEGER, next \
                  INTEGER); \
                  CREATE INDEX changed ON conversations (changed); \
                  INSERT INTO conversations VALUES (1, 0, 0); \
                  CREATE TABLE messages (place INTEGER PRIMARY KEY, message TEXT NOT NULL);";
    connection.execute_batch(tables).expect("tables are made");
    let mut number = 0_i64;
    let run = Box::new(move || {
        let transaction = connection.unchecked_transaction().expect("it begins");
        for (place, message) in (number * 2..).zip(turn(number.cast_unsigned())) {
            let json = serde_json::to_string(&message).expect("it is JSON");
            let sql = "INSERT INTO messages VALUES (?1, ?2)";
            let mut insert = transaction.prepare_cached(sql).expect("it is SQL");
            insert.execute((place, json)).expect("it is written");
        }
        let sql = "UPDATE conversations SET changed = ?1, next = ?2 WHERE key = 1";
        let mut update = transaction.prepare_cached(sql).expect("it is SQL");
        update
            .execute((number, number * 2 + 2))
            .expect("it is written");
        drop(update);
        transaction.commit().expect("it is written");
        number += 1;
        let _ = &folder;
    });
    Work {
        name: "SQLite by hand, on one thread",
        units: 1,
        run,
    }
}

fn append(effort: Effort) {
    println!(
        "Append: a turn of two messages, not waited for until it is on the disk. Goal: {APPEND} \
            µs.\n"
    );
    println!("{:40} {:>9} {:>9} {:>9}", "", "µs CPU", "least", "bytes");
    let folder = || Arc::new(Folder::new());
    let (floor, sqlite) = (folder(), folder());
    let works = vec![
        by_hand(floor),
        saving(
            "SqliteMemory, buffered",
            sqlite.sqlite(Durability::Buffered),
            sqlite,
        ),
        saving("InMemory", InMemory::new(), folder()),
    ];
    let costs = compare(effort, works);
    for cost in &costs {
        let (micros, least) = (cost.nanos / 1e3, cost.least / 1e3);
        let goal = verdict(micros, APPEND);
        println!(
            "{:40} {micros:>9.2} {least:>9.2} {:>9.0} {goal}",
            cost.name, cost.bytes
        );
    }
    println!(
        "{:40} {:.2} times SQLite by hand",
        "",
        costs[1].nanos / costs[0].nanos
    );
    let (tokio, store, id) = (one_thread(), Folder::new(), ConversationId::new("wall"));
    let store = store.sqlite(Durability::Buffered);
    let (_, wall) = timed(|| {
        tokio.block_on(async {
            for number in 0..1_000 {
                store.save(&id, &change(number)).await.expect("it is saved");
            }
        });
    });
    println!(
        "{:40} {:>9.2} µs on the wall's clock\n",
        "SqliteMemory, buffered",
        wall.as_secs_f64() * 1e3
    );
    files();
}

/// Measures saves to files, whose cost depends on the size of the file.
fn files() {
    println!(
        "{:40} {:>9} {:>9}",
        "FileMemory, buffered, of so many turns", "µs wall", "floor"
    );
    for turns in [10, 100, 1_000] {
        let (folder, tokio, id) = (Folder::new(), one_thread(), ConversationId::new("bench"));
        let store = folder.files(Durability::Buffered);
        let all = ConversationChange::at(0).with_messages((0..turns).flat_map(turn));
        tokio.block_on(store.save(&id, &all)).expect("it is saved");
        let (_, wall) = timed(|| {
            for number in turns..turns + 10 {
                tokio
                    .block_on(store.save(&id, &change(number)))
                    .expect("it is saved");
            }
        });
        let bytes = std::fs::read(folder.0.path().join("files/bench.json")).expect("it is there");
        let (_, floor) = timed(|| (0..10).for_each(|_| replace(folder.0.path(), &bytes)));
        let micros = |time: Duration| time.as_secs_f64() * 1e5;
        println!("{turns:40} {:>9.0} {:>9.0}", micros(wall), micros(floor));
    }
    println!();
}

/// The floor (baseline): writes the same bytes and renames the file.
fn replace(dir: &Path, bytes: &[u8]) {
    std::fs::write(dir.join("new"), bytes).expect("it is written");
    std::fs::rename(dir.join("new"), dir.join("old")).expect("it is renamed");
}

fn waited_for(turns: u64) {
    println!("Waited for: turns a second that are on the disk, one conversation and 64 of them.\n");
    let tokio = one_thread();
    for conversations in [1, 64] {
        let folder = Folder::new();
        let store = folder.sqlite(Durability::Synced);
        let (_, wall) = timed(|| {
            tokio.block_on(async {
                let mut tasks = tokio::task::JoinSet::new();
                for name in 0..conversations {
                    let (store, id) = (store.clone(), ConversationId::new(format!("c{name}")));
                    tasks.spawn(async move {
                        for number in 0..turns {
                            store.save(&id, &change(number)).await.expect("it is saved");
                        }
                    });
                }
                tasks.join_all().await;
            });
        });
        let rate = (conversations * turns) as f64 / wall.as_secs_f64();
        println!(
            "{:40} {rate:>9.0} turns/s",
            format!("{conversations} at once")
        );
    }
    println!();
}

fn fill(store: &impl MemoryStore, id: &ConversationId, messages: u64) {
    let tokio = one_thread();
    for start in (0..messages / 2).step_by(500) {
        let end = (start + 500).min(messages / 2);
        let change = ConversationChange::at(start * 2).with_messages((start..end).flat_map(turn));
        tokio
            .block_on(store.save(id, &change))
            .expect("it is saved");
    }
}

fn load(lengths: &[u64]) {
    println!(
        "Load: the last {WINDOW} messages, of a store that was just opened. Goal: {LOAD} ms, and \
            flat.\n"
    );
    println!(
        "{:>9} {:>12} {:>9} {:>12} {:>12}",
        "messages", "first, ms", "least", "again, ms", "in memory"
    );
    for &length in lengths {
        let (folder, tokio, id) = (Folder::new(), one_thread(), ConversationId::new("bench"));
        fill(&folder.sqlite(Durability::Buffered), &id, length);
        let memory = InMemory::new();
        fill(&memory, &id, length);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let load = |store: &dyn MemoryStore| {
            let (loaded, time) = timed(|| {
                tokio
                    .block_on(store.load(&id, WINDOW))
                    .expect("it is loaded")
            });
            assert_eq!((loaded.messages.len(), loaded.end), (WINDOW, length));
            ms(time)
        };
        let mut times: Vec<[f64; 3]> = (0..15)
            .map(|_| {
                let (store, opening) = timed(|| folder.sqlite(Durability::Buffered));
                [ms(opening) + load(&store), load(&store), load(&memory)]
            })
            .collect();
        times.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let [first, again, floor] = times[times.len() / 2];
        let (least, goal) = (times[0][0], verdict(first, LOAD));
        println!("{length:>9} {first:>12.3} {least:>9.3} {again:>12.3} {floor:>12.4} {goal}");
    }
    println!();
}

fn room(turns: &[u64]) {
    println!(
        "Room: bytes for each turn, and beyond its messages as JSON. Goal: {ROOM}, and flat.\n"
    );
    println!(
        "{:>6} {:>9} {:>9} {:>9} {:>9}",
        "turns", "SQLite", "beyond", "file", "beyond"
    );
    for &turns in turns {
        let (folder, id, tokio) = (Folder::new(), ConversationId::new("bench"), one_thread());
        drop(folder.sqlite(Durability::Buffered));
        let empty = size(&folder);
        let (store, files) = (
            folder.sqlite(Durability::Buffered),
            folder.files(Durability::Buffered),
        );
        for number in 0..turns {
            tokio
                .block_on(store.save(&id, &change(number)))
                .expect("it is saved");
            tokio
                .block_on(files.save(&id, &change(number)))
                .expect("it is saved");
        }
        // The file also contains the search index.
        tokio
            .block_on(store.search(&id, "weather", 1))
            .expect("it is searched");
        let json = |message: Message| serde_json::to_string(&message).map_or(0, |json| json.len());
        let payload = (0..turns).flat_map(turn).map(json).sum::<usize>() as f64 / turns as f64;
        let sqlite = (size(&folder) - empty) as f64 / turns as f64;
        let file = folder.0.path().join("files/bench.json");
        let file =
            std::fs::metadata(file).map_or(0, |metadata| metadata.len()) as f64 / turns as f64;
        let (sqlite_overhead, file_overhead) = (sqlite - payload, file - payload);
        let goal = verdict(sqlite_overhead.max(file_overhead), ROOM);
        println!(
            "{turns:>6} {sqlite:>9.0} {sqlite_overhead:>9.0} {file:>9.0} {file_overhead:>9.0} \
            {goal}"
        );
    }
    println!();
}

/// Returns the size of the file after the write-ahead log is merged.
fn size(folder: &Folder) -> u64 {
    let connection = rusqlite::Connection::open(folder.path()).expect("it is opened");
    let moved = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    moved.expect("the write-ahead log is merged");
    std::fs::metadata(folder.path()).map_or(0, |metadata| metadata.len())
}

/// Measures the construction of a window, by the length of the conversation.
fn window(effort: Effort) {
    println!("Window: what is shown within 8,000 tokens. Goal: {BUILD} ms, and flat.\n");
    println!("{:40} {:>9} {:>9} {:>9}", "", "ms CPU", "least", "shown");
    let lengths = [
        ("of 100 messages", 100),
        ("of 1,000", 1_000),
        ("of 10,000", 10_000),
        ("of 100,000", 100_000),
    ];
    let window = Window::new().all_messages().tokens(8_000);
    let mut window_lengths = Vec::new();
    let works = lengths.map(|(name, length)| {
        let messages: Vec<Arc<Message>> = (0..length / 2).flat_map(turn).map(Arc::new).collect();
        let window = window.clone();
        let counter = Tokens::new();
        window_lengths.push(
            window
                .contents(&messages, Some("They talked."), &counter)
                .history
                .len(),
        );
        let run = Box::new(move || {
            let built = window.contents(&messages, Some("They talked."), &counter);
            assert!(built.fits);
            std::hint::black_box(built);
        });
        Work {
            name,
            units: 1,
            run,
        }
    });
    for (cost, window_length) in compare(effort, works.into()).iter().zip(window_lengths) {
        let (millis, least) = (cost.nanos / 1e6, cost.least / 1e6);
        println!(
            "{:40} {millis:>9.3} {least:>9.3} {window_length:>9} {}",
            cost.name,
            verdict(millis, BUILD)
        );
    }
    println!();
}

fn open(count: usize) {
    let goal = OPEN * count as f64 / 1e4;
    println!(
        "Open: memory of {count} open conversations without their windows. Goal: {:.1} MiB.\n",
        goal / (1 << 20) as f64
    );
    println!("{:40} {:>12} {:>12}", "", "heap, bytes", "resident");
    let folder = Folder::new();
    row("InMemory", count, goal, Arc::new(InMemory::new()));
    row(
        "SqliteMemory",
        count,
        goal,
        Arc::new(folder.sqlite(Durability::Buffered)),
    );
    row(
        "FileMemory",
        count,
        goal,
        Arc::new(folder.files(Durability::Buffered)),
    );
}

/// Opens many conversations with a window each, and subtracts the windows.
fn row(name: &str, count: usize, goal: f64, store: Arc<dyn MemoryStore>) {
    let tokio = one_thread();
    let conversations = Conversations::new(store.clone());
    let ids: Vec<_> = (0..count)
        .map(|number| ConversationId::new(format!("c{number}")))
        .collect();
    let now = |change: ConversationChange| change.when(Timestamp::from_millis(4_000_000_000_000));
    tokio.block_on(async {
        for id in &ids {
            store.save(id, &now(change(0))).await.expect("it is saved");
        }
    });
    let (counter, resident) = (Counter::start(), clock::resident().unwrap_or_default());
    let open = tokio.block_on(async {
        let mut open = Vec::with_capacity(count);
        for id in &ids {
            let mut one = conversations
                .open(id, WINDOW)
                .await
                .expect("no process holds it");
            assert_eq!(one.take().messages.len(), 2);
            open.push(one);
        }
        open
    });
    let live = counter.read().live as f64;
    drop(counter);
    let more = clock::resident()
        .unwrap_or_default()
        .saturating_sub(resident) as f64;
    drop(open);
    println!(
        "{name:40} {live:>12.0} {more:>12.0} {}",
        verdict(live.max(more), goal)
    );
}
