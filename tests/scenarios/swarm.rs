//! Kills the process of a swarm after every record of its run and of its workers' runs, and resumes
//! it in another process.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use levity::core::{Entry, MemoryStore, Outcome, Record};
use levity::memory::{FileMemory, SqliteMemory};
use levity::prelude::*;
use serde_json::Value;

use crate::crash::{actions, block_on, folder, is_sqlite, logs, run_and_kill};

/// Counts the finished model calls and tool calls in the journals of all runs.
fn finished(folder: &Path) -> (usize, usize) {
    let logs = if folder.exists() {
        logs(folder)
    } else {
        Vec::new()
    };
    let records = logs.iter().flat_map(|log| log.lines());
    records.fold((0, 0), |(models, tools), line| {
        let record: Record = serde_json::from_str(line).unwrap();
        match record.entry {
            Entry::Finished {
                outcome: Outcome::Model(_),
                ..
            } => (models + 1, tools),
            Entry::Finished {
                outcome: Outcome::Tool(_) | Outcome::Unknown,
                ..
            } => (models, tools + 1),
            _ => (models, tools),
        }
    })
}

/// Counts the model calls that were made, finished or not.
fn calls(folder: &Path) -> usize {
    fs::read_to_string(folder.join("calls"))
        .unwrap_or_default()
        .lines()
        .count()
}

/// Returns the messages of the worker that stores a conversation.
fn stored_messages(folder: &Path) -> Vec<(u64, Arc<Message>)> {
    let store: Box<dyn MemoryStore> = match is_sqlite(folder) {
        true => Box::new(SqliteMemory::new(folder.join("talk.db")).unwrap()),
        false => Box::new(FileMemory::new(folder.join("talk")).unwrap()),
    };
    block_on(store.read(&"c/keeper".into(), 0, usize::MAX)).unwrap()
}

/// The results of a run without a kill, for comparison.
struct Baseline {
    end: Value,
    calls: (usize, usize),
    stored_messages: Vec<(u64, Arc<Message>)>,
}

fn baseline(store: &str) -> Baseline {
    let folder = folder(&format!("swarm-{store}-whole"));
    let end = run_and_kill(&folder, usize::MAX).unwrap();
    assert_eq!(end["answer"], "All is done.", "{end}");
    let baseline_run = Baseline {
        end,
        calls: finished(&folder),
        stored_messages: stored_messages(&folder),
    };
    assert_eq!(
        baseline_run.calls.0,
        calls(&folder),
        "each model call must be made once"
    );
    assert_eq!(
        actions(&folder).len(),
        baseline_run.calls.1,
        "each tool call must be made once: {:?}",
        actions(&folder)
    );
    let messages_of = |kind: &str| {
        baseline_run.end["bus"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one[3] == kind)
            .count()
    };
    assert_eq!(
        (
            messages_of("task"),
            messages_of("failure"),
            messages_of("result"),
            messages_of("note")
        ),
        (10, 3, 8, 1),
        "{}",
        baseline_run.end
    );
    assert_eq!(
        baseline_run.stored_messages.len(),
        4,
        "two tasks and two answers: {:?}",
        baseline_run.stored_messages
    );
    let _ = fs::remove_dir_all(folder);
    baseline_run
}

/// Resumes a killed run. Asserts that it ends as without a kill, and repeats nothing that had
/// finished.
fn resume_and_check(folder: &Path, baseline: &Baseline, when: &str) {
    let (before, calls_before) = (finished(folder), calls(folder));
    let end = run_and_kill(folder, usize::MAX).unwrap();
    assert_eq!(end, baseline.end, "{when}");
    assert_eq!(finished(folder), baseline.calls, "{when}");
    assert_eq!(
        calls(folder) - calls_before,
        baseline.calls.0 - before.0,
        "{when}: model calls"
    );
    let actions = actions(folder);
    let sent: Vec<&String> = actions
        .iter()
        .filter(|line| line.starts_with("send "))
        .collect();
    let mut unique = sent.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(
        sent.len(),
        unique.len(),
        "{when}: something was sent twice: {actions:?}"
    );
    let unknown: usize = logs(folder)
        .iter()
        .map(|log| log.matches("\"outcome\":\"unknown\"").count())
        .sum();
    assert!(
        sent.len() + unknown >= 2,
        "{when}: a call was lost without a report: {actions:?}"
    );
    assert!(actions.len() <= baseline.calls.1 + 1, "{when}: {actions:?}");
    assert!(
        stored_messages(folder) == baseline.stored_messages,
        "{when}: {:?}",
        stored_messages(folder)
    );
}

/// Kills one run after `first` records, and each further one `step` records later. Returns the
/// number of kills.
fn kill_at_each_stop(store: &str, baseline: &Baseline, first: usize, step: usize) -> usize {
    let mut killed = 0;
    for stop in (first..).step_by(step) {
        let folder = folder(&format!("swarm-{store}-{stop}"));
        let end = run_and_kill(&folder, stop);
        if end.is_none() {
            killed += 1;
            resume_and_check(&folder, baseline, &format!("killed after {stop} records"));
        }
        let _ = fs::remove_dir_all(folder);
        if end.is_some() {
            break;
        }
    }
    killed
}

#[test]
fn swarm_killed_after_any_record_ends_the_same() {
    let expected = baseline("files");
    let killed = std::thread::scope(|scope| {
        let other = scope.spawn(|| kill_at_each_stop("files", &expected, 0, 2));
        kill_at_each_stop("files", &expected, 1, 2) + other.join().unwrap()
    });
    assert!(killed > 100, "{killed}");
}

#[test]
fn sqlite_swarm_killed_after_any_record_ends_the_same() {
    let expected = baseline("sqlite");
    let killed = kill_at_each_stop("sqlite", &expected, 3, 7);
    assert!(killed > 15, "{killed}");
}

#[test]
fn repeatedly_killed_swarm_still_ends() {
    let expected = baseline("again");
    let folder = folder("swarm-again-and-again");
    let (mut kills, mut step) = (0, 9);
    while run_and_kill(&folder, step).is_none() {
        kills += 1;
        // Each process repeats the calls that were in progress, so the number of records varies.
        step = 9 + kills % 17;
        assert!(kills < 100, "the run never ends");
    }
    assert!(kills > 5, "{kills}");
    resume_and_check(&folder, &expected, "after repeated kills");
    let _ = fs::remove_dir_all(folder);
}
