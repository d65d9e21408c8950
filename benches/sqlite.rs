//! Measures the time and disk space of runs in an SQLite file.
//!
//! - `cargo bench --bench sqlite` measures everything, in about a minute.
//! - `-- --quick` does so in a few seconds, to check that the benchmark runs.
//! - `-- --callgrind N` only executes `N` journaled tool turns, for a profiler;
//!   `-- --callgrind N list` creates `N` runs and lists them.

#[allow(dead_code, reason = "other benchmarks use the rest")]
mod allocations;
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod clock;
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod measure;
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod workload;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use levity::core::RunId;
use levity::prelude::*;
use levity::runtime::{Durability, SqliteJournal};
use levity_core::{
    EffectClass, EffectId, EffectKind, EffectNote, Entry, Journal, MachineKind, Outcome, Record,
    RunHeader, RunQuery, RunState, Timestamp, ToolCall, ToolResult,
};
use measure::{Effort, Work, compare, verdict};
use serde_json::json;
use tokio::runtime;
use tokio::task::JoinSet;
use workload::{Caller, agent};

#[global_allocator]
static ALLOCATOR: allocations::CountingAllocator = allocations::CountingAllocator;

/// Allowed additional CPU time of a tool turn with a journal, in microseconds.
const TURN: f64 = 100.0;
/// Allowed time to list 100,000 runs, in milliseconds.
const LIST: f64 = 50.0;
/// Allowed time to open a run of 1,000 turns, in milliseconds.
const RESUME: f64 = 50.0;
/// Required throughput of 64 parallel runs that wait for the disk, as a multiple of one run.
const TOGETHER: f64 = 10.0;
/// Allowed bytes of a turn beyond its records.
const ROOM: f64 = 1_000.0;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|arg| arg == "--callgrind") {
        let count = args
            .get(at + 1)
            .and_then(|count| count.parse().ok())
            .expect("a number");
        return match args.get(at + 2).map(String::as_str) {
            Some("list") => many(count),
            _ => (journaled(&Folder::new(), count).run)(),
        };
    }
    // Without `--bench`, cargo runs this as a test, which only checks that the benchmark runs.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    turns(if quick { Effort::QUICK } else { Effort::FULL });
    many(if quick { 5_000 } else { 100_000 });
    together(if quick { 20 } else { 200 });
    resume();
    room();
}

/// A temporary folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("levity-sqlite-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder is made");
        Self(folder)
    }

    fn journal(&self, durability: Durability) -> SqliteJournal {
        let journal = SqliteJournal::new(self.0.join("runs.db")).expect("a file is made");
        journal.with_durability(durability)
    }

    /// Returns the size of the file after the write-ahead log is merged.
    fn size(&self) -> u64 {
        // Opening and closing the file once more merges the write-ahead log.
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        size(&self.0.join("runs.db"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn one_thread() -> runtime::Runtime {
    runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime is built")
}

/// Runs a function and measures its wall-clock time and CPU time.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration, Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the benchmark measures real time"
    )]
    let (start, cpu) = (Instant::now(), clock::cpu());
    let done = work();
    (done, start.elapsed(), clock::cpu() - cpu)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Creates work that executes one journaled run of `turns` tool turns.
fn journaled(folder: &Folder, turns: usize) -> Work {
    let (tokio, journal) = (one_thread(), folder.journal(Durability::Buffered));
    let runtime = Runtime::new().with_journal(journal);
    let agent = agent(Caller::new(turns))
        .runtime(runtime)
        .build()
        .expect("the agent is valid");
    let run = Box::new(move || {
        let answer = tokio
            .block_on(agent.run("Go").into_future())
            .expect("the run ends");
        assert_eq!(answer.stats().tool_calls, turns as u64);
    });
    Work {
        name: "run(), SqliteJournal, buffered",
        units: turns,
        run,
    }
}

fn unjournaled(turns: usize) -> Work {
    let (tokio, agent) = (
        one_thread(),
        agent(Caller::new(turns))
            .build()
            .expect("the agent is valid"),
    );
    let run = Box::new(move || {
        let answer = tokio
            .block_on(agent.run("Go").into_future())
            .expect("the run ends");
        assert_eq!(answer.stats().tool_calls, turns as u64);
    });
    Work {
        name: "run(), no journal",
        units: turns,
        run,
    }
}

fn turns(effort: Effort) {
    println!(
        "Turns: the model calls a tool that does nothing. Goal: {TURN} µs of CPU more with a \
            journal.\n"
    );
    println!(
        "{:40} {:>6} {:>9} {:>9} {:>9}",
        "", "turns", "µs/turn", "least", "bytes"
    );
    let folder = Folder::new();
    for turns in [10, 100, 1_000] {
        let costs = compare(effort, vec![unjournaled(turns), journaled(&folder, turns)]);
        for cost in &costs {
            let (nanos, least) = (cost.nanos / 1e3, cost.least / 1e3);
            println!(
                "{:40} {turns:>6} {nanos:>9.2} {least:>9.2} {:>9.0}",
                cost.name, cost.bytes
            );
        }
        let more = (costs[1].nanos - costs[0].nanos) / 1e3;
        println!("{:40} {:.2} µs more, {}\n", "", more, verdict(more, TURN));
    }
}

fn opened() -> Entry {
    Entry::Opened(RunHeader::new(
        MachineKind::new("bench", 1),
        json!({"goal": "Go"}),
        Limits::default(),
    ))
}

fn waits() -> Entry {
    let mut note = EffectNote::new(EffectKind::Wait, "wait", EffectClass::ReadOnly);
    note.until = Some(Timestamp::from_millis(1_000));
    Entry::Started {
        effect: EffectId::new(0),
        note,
    }
}

fn finished(seq: u64) -> Record {
    let call = ToolCall::new("call", "noop", json!({}));
    let result = ToolResult::new(&call, Ok(ToolOutput::text("done")));
    let entry = Entry::finished(EffectId::new(seq), Outcome::Tool(result));
    Record::new(seq, Timestamp::from_millis(seq), entry)
}

/// Measures many waiting runs in one file, all of them open at once.
fn many(count: usize) {
    println!("Many: {count} waiting runs in one file, 512 being made at a time, and all listed.\n");
    let (folder, tokio) = (Folder::new(), one_thread());
    let journal = folder.journal(Durability::Buffered);
    let (logs, wall, cpu) = timed(|| tokio.block_on(fill(&journal, count)));
    println!(
        "{:40} {:>9.0} ms, {:.1} µs of CPU each",
        "made",
        millis(wall),
        cpu.as_secs_f64() * 1e6 / count as f64
    );
    let (_, wall, _) = timed(|| {
        drop(logs);
        // The next operation waits until these writes are done.
        tokio
            .block_on(journal.remove(&RunId::from("nobody")))
            .expect("no process drives the run");
    });
    println!("{:40} {:>9.0} ms", "let go of", millis(wall));
    let list = |query: RunQuery| {
        tokio
            .block_on(journal.list(&query))
            .expect("they are listed")
            .len()
    };
    for _ in 0..3 {
        let (listed, wall, cpu) = timed(|| list(RunQuery::new()));
        let goal = verdict(millis(wall), LIST * count as f64 / 1e5);
        println!(
            "{:40} {:>9.1} ms, {:.1} of CPU, {listed} runs, {goal}",
            "all",
            millis(wall),
            millis(cpu)
        );
    }
    let queries = [
        ("the 20 newest", RunQuery::new().newest_first().limit(20)),
        (
            "20 that wait",
            RunQuery::new().state(RunState::Waiting).limit(20),
        ),
        (
            "one and those below it",
            RunQuery::new().below(RunId::from("r77")),
        ),
        (
            "those that are due, which are none",
            RunQuery::new().due(Timestamp::from_millis(1)),
        ),
    ];
    for (name, query) in queries {
        let (listed, wall, _) = timed(|| list(query));
        println!("{name:40} {:>9.3} ms, {listed} runs", millis(wall));
    }
    println!();
}

async fn fill(journal: &SqliteJournal, count: usize) -> Vec<levity_core::OpenRun> {
    let (mut making, mut logs) = (JoinSet::new(), Vec::with_capacity(count));
    for number in 0..count {
        if making.len() >= 512 {
            logs.extend(
                making
                    .join_next()
                    .await
                    .map(|made| made.expect("no task panics")),
            );
        }
        let journal = journal.clone();
        making.spawn(async move {
            let mut open = journal
                .open(&RunId::from(format!("r{number}")))
                .await
                .expect("it is opened");
            let at = Timestamp::from_millis(number as u64);
            let records = [Record::new(0, at, opened()), Record::new(1, at, waits())];
            open.log.append(&records).await.expect("it is written");
            open
        });
    }
    logs.extend(making.join_all().await);
    logs
}

/// Measures runs that wait for the disk after every record, for one run and for 64 parallel runs.
fn together(records: u64) {
    println!(
        "Together: records a second, each waited for until it is on the disk. Goal: {TOGETHER} \
            times as many.\n"
    );
    let tokio = one_thread();
    let rate = |runs: usize| {
        let folder = Folder::new();
        let journal = folder.journal(Durability::Synced);
        let (_, wall, _) = timed(|| tokio.block_on(sync(&journal, runs, records)));
        let rate = (runs as u64 * records) as f64 / wall.as_secs_f64();
        println!("{:40} {rate:>9.0} records/s", format!("{runs} at once"));
        rate
    };
    let (alone, all) = (rate(1), rate(64));
    println!(
        "{:40} {:.1} times, {}\n",
        "",
        all / alone,
        verdict(TOGETHER, all / alone)
    );
}

async fn sync(journal: &SqliteJournal, runs: usize, records: u64) {
    let mut tasks = JoinSet::new();
    for number in 0..runs {
        let journal = journal.clone();
        tasks.spawn(async move {
            let mut open = journal
                .open(&RunId::from(format!("r{number}")))
                .await
                .expect("it is opened");
            for seq in 0..records {
                open.log
                    .append(&[finished(seq)])
                    .await
                    .expect("it is written");
            }
        });
    }
    tasks.join_all().await;
}

/// Creates a run with this number of turns, and returns the size of its records as JSON.
fn make(folder: &Folder, turns: usize) -> f64 {
    let (tokio, journal) = (one_thread(), folder.journal(Durability::Buffered));
    let agent = agent(Caller::new(turns)).runtime(Runtime::new().with_journal(journal.clone()));
    let agent = agent.build().expect("the agent is valid");
    tokio
        .block_on(agent.run("Go").id("r1").into_future())
        .expect("the run ends");
    let records = tokio
        .block_on(journal.read(&RunId::from("r1")))
        .expect("it is read");
    records
        .iter()
        .map(|record| serde_json::to_string(record).map_or(0, |json| json.len()))
        .sum::<usize>() as f64
}

fn resume() {
    println!("Resume: opening a run of 1,000 turns.\n");
    let folder = Folder::new();
    make(&folder, 1_000);
    let (tokio, journal) = (one_thread(), folder.journal(Durability::Buffered));
    for _ in 0..3 {
        let open = || {
            tokio
                .block_on(journal.open(&RunId::from("r1")))
                .expect("it is opened")
                .records
                .len()
        };
        let (records, wall, cpu) = timed(open);
        let goal = verdict(millis(wall), RESUME);
        println!(
            "{:40} {:>9.1} ms, {:.1} of CPU, {goal}",
            format!("{records} records"),
            millis(wall),
            millis(cpu)
        );
    }
    println!();
}

fn room() {
    println!(
        "Room: bytes of the file for each turn, and beyond its records as JSON. Goal: {ROOM}, and \
            flat.\n"
    );
    println!("{:>6} {:>9} {:>9} {:>9}", "turns", "file", "JSON", "beyond");
    for turns in [25, 50, 100, 200, 400] {
        let folder = Folder::new();
        let empty = {
            drop(folder.journal(Durability::Buffered));
            folder.size() as f64
        };
        let json = make(&folder, turns) / turns as f64;
        // Closing the last connection merges the write-ahead log, which happens on another thread.
        let open = one_thread();
        let journal = folder.journal(Durability::Buffered);
        let listed = open
            .block_on(journal.list(&RunQuery::new()))
            .expect("it is listed");
        assert_eq!(listed.len(), 1);
        drop(journal);
        let wal = folder.0.join("runs.db-wal");
        while std::fs::metadata(&wal).is_ok_and(|metadata| metadata.len() > 0) {
            drop(folder.journal(Durability::Buffered));
        }
        let file = (folder.size() as f64 - empty) / turns as f64;
        println!(
            "{turns:>6} {file:>9.0} {json:>9.0} {:>9.0} {}",
            file - json,
            verdict(file - json, ROOM)
        );
    }
}
