//! Measures runs on disk: sync, resume, long runs, disk space and listing.
//!
//! - `cargo bench --bench journal` measures everything, in about a minute.
//! - `-- --quick` does so in a few seconds, to check that the benchmark runs.
//!
//! Times are wall-clock times, because most of the time is spent waiting for the disk. The files
//! are in the target folder. `docs/performance.md` explains the results.

#[allow(dead_code, reason = "other benchmarks use the rest")]
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use levity::core::{
    EffectId, Entry, Journal, Limits, MachineKind, Outcome, Record, RunHeader, RunId, RunQuery,
    RunState, Timestamp, ToolCall, ToolResult,
};
use levity::prelude::*;
use levity::runtime::{Durability, FileJournal, SqliteJournal};
use serde_json::json;
use tokio::runtime;
use tokio::task::JoinSet;

use workload::{Caller, agent};

/// Number of parallel runs, compared with one run.
const MANY: usize = 64;
/// Required throughput of the parallel runs, as a multiple of one run.
const GROUP: f64 = 10.0;
/// Allowed time to resume a run of 1,000 turns, in milliseconds.
const RESUME: f64 = 50.0;
/// Allowed time to resume a record of a long run, relative to a short one. Measurements are noisy.
const FLAT: f64 = 1.5;
/// Allowed bytes of a turn in the file beyond its messages.
const BEYOND: f64 = 1024.0;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Without `--bench`, cargo runs this as a test, which only checks that the benchmark runs.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let tokio = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime is built");
    tokio.block_on(async {
        sync(if quick { 20 } else { 300 }).await;
        resume(if quick { 3 } else { 30 }).await;
        long(if quick { &[25, 250] } else { &[2_500, 25_000] }).await;
        room().await;
        list(if quick { 500 } else { 10_000 }).await;
    });
}

/// A temporary folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("bench-{}-{name}", std::process::id());
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn journal(&self, durability: Durability) -> FileJournal {
        FileJournal::new(&self.0)
            .expect("a folder is made")
            .with_durability(durability)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the benchmark measures real time"
)]
fn now() -> Instant {
    Instant::now()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// Measures the records per second that reach the disk, for one run and for many parallel runs.
async fn sync(records: usize) {
    println!(
        "Sync: records that are on the disk before the next one. Goal: {MANY} runs write {GROUP} \
            times as many.\n"
    );
    println!(
        "{:40} {:>12} {:>12} {:>8}",
        "", "one alone/s", "64 at once/s", "ratio"
    );
    for durability in [Durability::Synced, Durability::Buffered] {
        let mut ratios = Vec::new();
        // Measurements alternate, so that a busy disk affects both equally.
        for _ in 0..3 {
            let folder = Folder::new("sync");
            let journal = folder.journal(durability);
            let one = rate(&journal, "one", 1, records).await;
            let many = rate(&journal, "many", MANY, records).await;
            ratios.push((many / one, one, many));
        }
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, one, many) = ratios[1];
        let goal = if durability == Durability::Synced {
            verdict(ratio >= GROUP)
        } else {
            ""
        };
        println!(
            "{:40} {one:>12.0} {many:>12.0} {ratio:>8.1} {goal}",
            format!("{durability:?}")
        );
    }
    println!();
}

async fn rate(journal: &FileJournal, name: &str, runs: usize, records: usize) -> f64 {
    let mut logs = Vec::new();
    for number in 0..runs {
        let run = RunId::from(format!("{name}-{number}"));
        let mut open = journal.open(&run).await.expect("a new run is opened");
        open.log
            .append(&[record(0)])
            .await
            .expect("a record is written");
        logs.push(open.log);
    }
    let start = now();
    let mut writers = JoinSet::new();
    for mut log in logs {
        writers.spawn(async move {
            for seq in 1..=records {
                log.append(&[record(seq as u64)])
                    .await
                    .expect("a record is written");
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.expect("no writer panics");
    }
    (runs * records) as f64 / start.elapsed().as_secs_f64()
}

fn record(seq: u64) -> Record {
    let entry = if seq == 0 {
        Entry::Opened(RunHeader::new(
            MachineKind::new("bench", 1),
            json!({}),
            Limits::default(),
        ))
    } else {
        let call = ToolCall::new(format!("call_{seq}"), "noop", json!({}));
        let result = ToolResult::new(&call, Ok(levity::core::ToolOutput::text("x".repeat(200))));
        Entry::finished(EffectId::new(seq), Outcome::Tool(result))
    };
    Record::new(seq, Timestamp::from_millis(1_700_000_000_000 + seq), entry)
}

/// Creates a run with this number of tool turns in a folder. Returns the size of its messages as
/// JSON in bytes.
async fn make(folder: &Folder, turns: usize) -> usize {
    let runtime = Runtime::new().with_journal(folder.journal(Durability::Buffered));
    let agent = agent(Caller::new(turns))
        .runtime(runtime)
        .build()
        .expect("the agent is valid");
    let answer = agent
        .run("Go")
        .id("r")
        .await
        .expect("the run ends with an answer");
    assert_eq!(answer.stats().tool_calls, turns as u64);
    let messages = answer.history().messages().iter();
    messages
        .map(|message| {
            serde_json::to_vec(message)
                .expect("a message is JSON")
                .len()
        })
        .sum()
}

/// Measures the time to resume a run of 1,000 turns.
async fn resume(samples: usize) {
    const TURNS: usize = 1_000;
    let folder = Folder::new("resume");
    make(&folder, TURNS).await;
    let file = folder.0.join("r.jsonl");
    let content = fs::read(&file).expect("the run is there");
    // The last model call has started, and its outcome is unknown.
    let ends: Vec<usize> = (0..content.len())
        .filter(|at| content[*at] == b'\n')
        .collect();
    let cut = &content[..=ends[ends.len() - 3]];
    let journal = folder.journal(Durability::Buffered);
    let runtime = Runtime::new().with_journal(journal.clone());
    let agent = agent(Caller::new(TURNS))
        .runtime(runtime)
        .build()
        .expect("the agent is valid");
    let (mut reads, mut resumes) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        fs::write(&file, cut).expect("the run is cut");
        let start = now();
        let records = journal
            .read(&RunId::from("r"))
            .await
            .expect("it can be read");
        reads.push(start.elapsed());
        drop(records);
        let start = now();
        let answer = agent
            .resume("r")
            .await
            .expect("the run ends with an answer");
        resumes.push(start.elapsed());
        assert_eq!(
            (answer.text(), answer.stats().tool_calls),
            ("done", TURNS as u64)
        );
    }
    println!(
        "Resume: a run of {TURNS} tool turns, {} KiB, median of {samples}. Goal: {RESUME} ms.\n",
        cut.len() >> 10
    );
    println!("{:40} {:>9.1} ms", "reading its records", median(reads));
    let took = median(resumes);
    println!(
        "{:40} {took:>9.1} ms {}\n",
        "resuming it: read, fold, one turn more",
        verdict(took <= RESUME)
    );
}

/// Measures the time per record to read and resume long runs.
async fn long(lengths: &[usize]) {
    println!(
        "Long runs: reading and resuming, for each record. Goal: the longest takes {FLAT} times as \
            long at most.\n"
    );
    println!(
        "{:24} {:>8} {:>9} {:>12} {:>14} {:>10}",
        "", "turns", "records", "µs to read", "µs to resume", "ms in all"
    );
    let mut firsts = [None; 2];
    for turns in lengths {
        let folder = Folder::new("long");
        make(&folder, *turns).await;
        let (run, file) = (RunId::from("r"), folder.0.join("r.jsonl"));
        let content = fs::read(&file).expect("the run is there");
        let ends: Vec<usize> = (0..content.len())
            .filter(|at| content[*at] == b'\n')
            .collect();
        let cut = &content[..=ends[ends.len() - 3]];
        for (sqlite, first) in [false, true].into_iter().zip(&mut firsts) {
            fs::write(&file, cut).expect("the run is cut");
            let files = folder.journal(Durability::Buffered);
            let records = files.read(&run).await.expect("it can be read");
            let journal: std::sync::Arc<dyn Journal> = match sqlite {
                false => std::sync::Arc::new(files),
                true => {
                    let db = SqliteJournal::new(folder.0.join("r.db")).expect("a file is made");
                    let db = db.with_durability(Durability::Buffered);
                    let mut open = db.open(&run).await.expect("a new run is opened");
                    open.log
                        .append(&records)
                        .await
                        .expect("the records are written");
                    std::sync::Arc::new(db)
                }
            };
            let runtime = Runtime::new().with_journal(journal.clone());
            let agent = agent(Caller::new(*turns))
                .runtime(runtime)
                .build()
                .expect("the agent is valid");
            let start = now();
            assert_eq!(
                journal.read(&run).await.expect("it can be read").len(),
                records.len()
            );
            let read = start.elapsed();
            let start = now();
            agent
                .resume("r")
                .await
                .expect("the run ends with an answer");
            let resumed = start.elapsed();
            let each = |time: Duration| time.as_secs_f64() * 1e6 / records.len() as f64;
            let ratio = each(resumed) / *first.get_or_insert(each(resumed));
            println!(
                "{:24} {turns:>8} {:>9} {:>12.2} {:>14.2} {:>10.0} {:.2} times, {}",
                if sqlite {
                    "SqliteJournal"
                } else {
                    "FileJournal"
                },
                records.len(),
                each(read),
                each(resumed),
                resumed.as_secs_f64() * 1e3,
                ratio,
                verdict(ratio <= FLAT)
            );
        }
    }
    println!();
}

/// Measures the size of the file of a run.
async fn room() {
    println!(
        "Room: the file of a run of tiny tool turns. Goal: {BEYOND} bytes a turn beyond what was \
            said.\n"
    );
    println!(
        "{:>8} {:>10} {:>12} {:>14} {:>16}",
        "turns", "bytes", "bytes/turn", "said/turn", "beyond it/turn"
    );
    for turns in [25, 50, 100, 200, 400] {
        let folder = Folder::new("room");
        let message_bytes = make(&folder, turns).await;
        let bytes = fs::metadata(folder.0.join("r.jsonl"))
            .expect("the run is there")
            .len() as usize;
        let each = |bytes: usize| bytes as f64 / turns as f64;
        let beyond = each(bytes - message_bytes);
        println!(
            "{turns:>8} {bytes:>10} {:>12.0} {:>14.0} {beyond:>16.0} {}",
            each(bytes),
            each(message_bytes),
            verdict(beyond <= BEYOND)
        );
    }
    println!();
}

/// Measures the time to list many runs.
async fn list(runs: usize) {
    let folder = Folder::new("list");
    make(&folder, 20).await;
    let content = fs::read_to_string(folder.0.join("r.jsonl")).expect("the run is there");
    let open: String = content.split_inclusive('\n').take(40).collect();
    for number in 1..runs {
        let (id, text) = (
            format!("run-{number}"),
            if number % 10 == 0 { &open } else { &content },
        );
        let text = text.replacen("\"run\":\"r\"", &format!("\"run\":\"{id}\""), 1);
        fs::write(folder.0.join(format!("{id}.jsonl")), text).expect("a run is written");
    }
    let journal = folder.journal(Durability::Buffered);
    println!(
        "List: {runs} runs of 20 turns in files of {} KiB; every tenth has not ended.\n",
        content.len() >> 10
    );
    let queries = [
        ("all of them", RunQuery::new(), runs),
        (
            "the newest 20",
            RunQuery::new().newest_first().limit(20),
            20,
        ),
        (
            "those that have not ended",
            RunQuery::new().state(RunState::Open),
            (runs - 1) / 10,
        ),
        (
            "one and those below it",
            RunQuery::new().below(RunId::from("run-7")),
            1,
        ),
    ];
    for (name, query, expected) in queries {
        let mut times = Vec::new();
        for _ in 0..5 {
            let start = now();
            let found = journal.list(&query).await.expect("the folder is listed");
            times.push(start.elapsed());
            assert_eq!(found.len(), expected, "{name}");
        }
        println!("{name:40} {:>9.1} ms", median(times));
    }
    println!();
}
