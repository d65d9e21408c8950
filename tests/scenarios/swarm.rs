//! A swarm whose process is really killed, at every record of its run and of its workers' runs, and
//! another that goes on.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use levity::core::{Entry, MemoryStore, Outcome, Record};
use levity::memory::{FileMemory, SqliteMemory};
use levity::prelude::*;
use serde_json::Value;

use crate::crash::{block_on, done, folder, is_sqlite, logs, run_and_kill};

/// How many calls of models and of tools are written down as finished, in the runs of all.
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

/// The calls of models that were made, finished or not.
fn calls(folder: &Path) -> usize {
    fs::read_to_string(folder.join("calls"))
        .unwrap_or_default()
        .lines()
        .count()
}

/// What the worker that keeps a conversation has in it.
fn kept(folder: &Path) -> Vec<(u64, Arc<Message>)> {
    let store: Box<dyn MemoryStore> = match is_sqlite(folder) {
        true => Box::new(SqliteMemory::new(folder.join("talk.db")).unwrap()),
        false => Box::new(FileMemory::new(folder.join("talk")).unwrap()),
    };
    block_on(store.read(&"c/keeper".into(), 0, usize::MAX)).unwrap()
}

/// What a run is compared with: one that nobody killed.
struct Whole {
    end: Value,
    calls: (usize, usize),
    kept: Vec<(u64, Arc<Message>)>,
}

fn whole(store: &str) -> Whole {
    let folder = folder(&format!("swarm-{store}-whole"));
    let end = run_and_kill(&folder, usize::MAX).unwrap();
    assert_eq!(end["answer"], "All is done.", "{end}");
    let found = Whole {
        end,
        calls: finished(&folder),
        kept: kept(&folder),
    };
    assert_eq!(found.calls.0, calls(&folder), "each call is made once");
    assert_eq!(
        done(&folder).len(),
        found.calls.1,
        "so is each tool: {:?}",
        done(&folder)
    );
    let said = |kind: &str| {
        found.end["bus"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one[3] == kind)
            .count()
    };
    assert_eq!(
        (said("task"), said("failure"), said("result"), said("note")),
        (10, 3, 8, 1),
        "{}",
        found.end
    );
    assert_eq!(
        found.kept.len(),
        4,
        "two tasks and two answers: {:?}",
        found.kept
    );
    let _ = fs::remove_dir_all(folder);
    found
}

/// Goes on with a run that was killed: it ends as if nothing had happened, and nothing that was
/// finished is done again.
fn go_on(folder: &Path, whole: &Whole, when: &str) {
    let (before, made) = (finished(folder), calls(folder));
    let end = run_and_kill(folder, usize::MAX).unwrap();
    assert_eq!(end, whole.end, "{when}");
    assert_eq!(finished(folder), whole.calls, "{when}");
    assert_eq!(
        calls(folder) - made,
        whole.calls.0 - before.0,
        "{when}: calls of models"
    );
    let done = done(folder);
    let sent: Vec<&String> = done
        .iter()
        .filter(|line| line.starts_with("send "))
        .collect();
    let mut once = sent.clone();
    once.sort();
    once.dedup();
    assert_eq!(
        sent.len(),
        once.len(),
        "{when}: something was sent twice: {done:?}"
    );
    let unknown: usize = logs(folder)
        .iter()
        .map(|log| log.matches("\"outcome\":\"unknown\"").count())
        .sum();
    assert!(
        sent.len() + unknown >= 2,
        "{when}: lost in silence: {done:?}"
    );
    assert!(done.len() <= whole.calls.1 + 1, "{when}: {done:?}");
    assert!(kept(folder) == whole.kept, "{when}: {:?}", kept(folder));
}

/// Kills it after so many records, more each time.
fn kill(store: &str, whole: &Whole, first: usize, step: usize) -> usize {
    let mut killed = 0;
    for stop in (first..).step_by(step) {
        let folder = folder(&format!("swarm-{store}-{stop}"));
        let end = run_and_kill(&folder, stop);
        if end.is_none() {
            killed += 1;
            go_on(&folder, whole, &format!("killed after {stop} records"));
        }
        let _ = fs::remove_dir_all(folder);
        if end.is_some() {
            break;
        }
    }
    killed
}

#[test]
fn killed_after_every_record_a_swarm_comes_to_the_same() {
    let whole = whole("files");
    let killed = std::thread::scope(|scope| {
        let other = scope.spawn(|| kill("files", &whole, 0, 2));
        kill("files", &whole, 1, 2) + other.join().unwrap()
    });
    assert!(killed > 100, "{killed}");
}

#[test]
fn so_it_does_with_its_runs_in_sqlite() {
    let whole = whole("sqlite");
    let killed = kill("sqlite", &whole, 3, 7);
    assert!(killed > 15, "{killed}");
}

#[test]
fn killed_again_and_again_a_swarm_comes_to_its_end() {
    let whole = whole("again");
    let folder = folder("swarm-again-and-again");
    let (mut kills, mut step) = (0, 9);
    while run_and_kill(&folder, step).is_none() {
        kills += 1;
        // What is under way at the same time has to begin again with each life.
        step = 9 + kills % 17;
        assert!(kills < 100, "it never ends");
    }
    assert!(kills > 5, "{kills}");
    go_on(&folder, &whole, "again and again");
    let _ = fs::remove_dir_all(folder);
}
