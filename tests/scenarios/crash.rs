//! Kills a real process after every record in turn, and resumes its run in another process.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use levity::core::{Entry, Journal, JournalErrorKind, MemoryStore, Record, RunId, RunQuery};
use levity::memory::{FileMemory, SqliteMemory};
use levity::prelude::*;
use levity::runtime::SqliteJournal;
use serde_json::{Value, json};

pub fn folder(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("crash-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn crasher(folder: &Path, stop: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crasher"));
    command
        .arg(folder)
        .arg(stop.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let name = folder.to_string_lossy();
    let mode = ["talk", "swarm"]
        .into_iter()
        .find(|mode| name.contains(mode));
    match (is_sqlite(folder), mode) {
        (true, None) => drop(command.arg("sqlite")),
        (true, Some(mode)) => drop(command.arg(format!("{mode}-sqlite"))),
        (false, Some(mode)) => drop(command.arg(mode)),
        (false, None) => {}
    }
    command
}

/// Returns `true` if the runs of the folder are stored in SQLite, which its name states.
pub fn is_sqlite(folder: &Path) -> bool {
    folder.to_string_lossy().contains("sqlite")
}

/// Returns the records of each run as lines of JSON. The records of the lead are first.
pub fn logs(folder: &Path) -> Vec<String> {
    if is_sqlite(folder) {
        return block_on(sqlite_logs(folder));
    }
    let paths = fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let mut logs: Vec<PathBuf> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .collect();
    logs.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    let text = |path| fs::read_to_string(path).unwrap();
    logs.into_iter()
        .map(|path| {
            text(path)
                .lines()
                .skip(1)
                .map(|line| format!("{line}\n"))
                .collect()
        })
        .collect()
}

async fn sqlite_logs(folder: &Path) -> Vec<String> {
    let journal = SqliteJournal::new(folder.join("runs.db")).unwrap();
    let mut logs = Vec::new();
    for summary in journal.list(&RunQuery::new()).await.unwrap() {
        let records = journal.read(&summary.run).await.unwrap();
        logs.push(
            records
                .iter()
                .map(|record| format!("{}\n", serde_json::to_string(record).unwrap()))
                .collect(),
        );
    }
    logs
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

/// Runs the program until it pauses, and kills it with SIGKILL. Returns its last line if it ended
/// before that.
pub fn run_and_kill(folder: &Path, stop: usize) -> Option<Value> {
    let mut child = crasher(folder, stop).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut last = None;
    for line in lines {
        if line == "stopped" {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        last = serde_json::from_str(&line).ok();
    }
    assert!(child.wait().unwrap().success());
    last
}

/// Returns the actions of the tools, one line each, with the key of the call.
pub fn actions(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("done")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn sent(actions: &[String]) -> Vec<&String> {
    actions
        .iter()
        .filter(|line| line.starts_with("send "))
        .collect()
}

/// Counts the final bookings by key. A booking counts until it is undone.
fn booked(actions: &[String]) -> Vec<(&str, usize)> {
    let mut booked: Vec<(&str, usize)> = Vec::new();
    for line in actions {
        let Some((mode @ ("book" | "give_back"), key)) = line.split_once(' ') else {
            continue;
        };
        let at = booked
            .iter()
            .position(|(other, _)| *other == key)
            .unwrap_or_else(|| {
                booked.push((key, 0));
                booked.len() - 1
            });
        booked[at].1 = if mode == "book" { booked[at].1 + 1 } else { 0 };
    }
    booked
}

/// Asserts that the run ended as without a kill, and that nothing was sent twice.
#[track_caller]
fn check(folder: &Path, end: &Value, when: &str) {
    assert_eq!(end["answer"], "All is done.", "{when}");
    assert_eq!(
        end["calls"],
        json!(["look", "look", "set", "book", "send", "helper"]),
        "{when}"
    );
    let actions = actions(folder);
    let sent = sent(&actions);
    let mut unique = sent.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(
        sent.len(),
        unique.len(),
        "{when}: something was sent twice: {actions:?}"
    );
    let booked = booked(&actions);
    let booked_once = booked.len() == 2 && booked.iter().all(|(_, times)| *times == 1);
    assert!(
        booked_once,
        "{when}: lead and helper must book once each: {actions:?}"
    );
    let reported_unknown = end["unknown"].as_u64().unwrap_or_default() as usize;
    // The unknown call can be a call of the helper, which only its own log contains.
    let unknown_in_logs: usize = logs(folder)
        .iter()
        .map(|log| log.matches("\"outcome\":\"unknown\"").count())
        .sum();
    assert!(unknown_in_logs >= reported_unknown, "{when}");
    assert!(
        sent.len() + unknown_in_logs >= 2,
        "{when}: a call was lost without a report: {actions:?}"
    );
}

#[test]
fn run_killed_after_any_record_sends_nothing_twice() {
    kill_after_every_record("files");
}

#[test]
fn sqlite_run_killed_after_any_record_sends_nothing_twice() {
    kill_after_every_record("sqlite");
}

fn kill_after_every_record(store: &str) {
    let complete = folder(&format!("{store}-whole"));
    let end = run_and_kill(&complete, usize::MAX).unwrap();
    check(&complete, &end, "without a kill");
    assert_eq!(sent(&actions(&complete)).len(), 2);
    let records = logs(&complete)[0].lines().count();
    assert!(records > 20, "{records}");

    let (mut killed, mut undone) = (0, 0);
    for stop in 0.. {
        let folder = folder(&format!("{store}-{stop}"));
        if let Some(end) = run_and_kill(&folder, stop) {
            check(&folder, &end, "after the last record");
            break;
        }
        killed += 1;
        let end = run_and_kill(&folder, usize::MAX).unwrap();
        check(&folder, &end, &format!("killed after {stop} records"));
        undone += actions(&folder)
            .iter()
            .filter(|line| line.starts_with("give_back "))
            .count();
        let _ = fs::remove_dir_all(folder);
    }
    assert!(undone >= 2, "interrupted bookings must be undone: {undone}");
    assert!(
        killed > records,
        "killed {killed} times, but the lead alone has {records} records"
    );
    let _ = fs::remove_dir_all(complete);
}

/// Returns the stored messages and the summary of the conversation.
fn stored_conversation(
    folder: &Path,
) -> (
    Vec<(u64, std::sync::Arc<Message>)>,
    Option<levity::core::Summary>,
) {
    let store: Box<dyn MemoryStore> = match is_sqlite(folder) {
        true => Box::new(SqliteMemory::new(folder.join("talk.db")).unwrap()),
        false => Box::new(FileMemory::new(folder.join("talk")).unwrap()),
    };
    let id = "c".into();
    block_on(async {
        let summary = store.load(&id, 0).await.unwrap().summary;
        (store.read(&id, 0, usize::MAX).await.unwrap(), summary)
    })
}

#[test]
fn conversation_killed_after_any_record_stores_messages_once() {
    for store in ["talk-files", "talk-sqlite"] {
        let complete = folder(&format!("{store}-whole"));
        assert_eq!(
            run_and_kill(&complete, usize::MAX).unwrap()["answer"],
            "All is done."
        );
        let (messages, summary) = stored_conversation(&complete);
        assert_eq!(
            messages.len(),
            14 + 14,
            "earlier messages, the goal, six exchanges and the answer"
        );
        assert_eq!(
            &*summary.as_ref().unwrap().text,
            "A summary of the conversation."
        );
        let compactions = logs(&complete)[0]
            .matches("\"name\":\"summariser\"")
            .count();
        assert!(compactions >= 2, "compacted only {compactions} times");
        for stop in 0.. {
            let folder = folder(&format!("{store}-{stop}"));
            if run_and_kill(&folder, stop).is_some() {
                break;
            }
            let end = run_and_kill(&folder, usize::MAX).unwrap();
            assert_eq!(
                end["answer"], "All is done.",
                "killed after {stop} records: {end}"
            );
            let found = stored_conversation(&folder);
            assert!(
                found == (messages.clone(), summary.clone()),
                "killed after {stop} records: {found:?}"
            );
            let _ = fs::remove_dir_all(folder);
        }
        let _ = fs::remove_dir_all(complete);
    }
}

#[test]
fn repeatedly_killed_run_still_ends() {
    // With fewer records per process, the run would only repeat the calls in progress and never
    // advance.
    for (store, step) in [
        ("files", 5),
        ("files", 7),
        ("files", 9),
        ("sqlite", 6),
        ("sqlite", 8),
    ] {
        let folder = folder(&format!("{store}-again-{step}"));
        let mut kills = 0;
        let end = loop {
            match run_and_kill(&folder, step) {
                Some(end) => break end,
                None => kills += 1,
            }
            assert!(
                kills < 100,
                "the run never ends with {step} records per process"
            );
        };
        check(&folder, &end, &format!("{step} records per process"));
        let _ = fs::remove_dir_all(folder);
    }
}

#[cfg(unix)]
fn signal(name: &str, process: u32) {
    assert!(
        Command::new("kill")
            .args([name, &process.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

/// Opens a run as soon as possible. The paused process must lose its lease first.
#[cfg(unix)]
async fn take_over(journal: &SqliteJournal, run: &RunId) -> levity::core::OpenRun {
    loop {
        match journal.open(run).await {
            Ok(open) => return open,
            Err(error) => assert_eq!(error.kind(), JournalErrorKind::Busy, "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(unix)]
#[test]
fn paused_process_without_lease_stops_writing() {
    let folder = folder("sqlite-paused");
    let mut child = crasher(&folder, 9)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("stopped"));
    signal("-STOP", child.id());

    let journal = SqliteJournal::new(folder.join("runs.db")).unwrap();
    let (before, run) = (logs(&folder), RunId::new("r"));
    let mut open = block_on(take_over(&journal, &run));
    let next = open.records.len() as u64;
    let command = levity::core::ControlCommand::Cancel {
        reason: "taken over".to_owned(),
    };
    let own_record = Record::new(
        next,
        levity::core::Timestamp::default(),
        Entry::Commanded(command),
    );
    block_on(open.log.append(std::slice::from_ref(&own_record))).unwrap();

    signal("-CONT", child.id());
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = lines.next().unwrap();
    assert!(
        output.contains("was taken over by another process"),
        "{output}"
    );
    assert!(!child.wait().unwrap().success());
    drop(open);
    let after = logs(&folder);
    let own_record = format!("{}\n", serde_json::to_string(&own_record).unwrap());
    assert_eq!(
        after[0],
        format!("{}{own_record}", before[0]),
        "only the new owner may add records"
    );
    let _ = fs::remove_dir_all(folder);
}

#[cfg(unix)]
#[test]
fn full_disk_loses_no_records() {
    let mut stopped = 0;
    for blocks in [150, 250, 350, 500, 800] {
        let folder = folder(&format!("sqlite-full-{blocks}"));
        // Limits the file size to this number of blocks. Writing more returns an error instead of
        // raising a signal.
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
        let complete = crasher(&folder, usize::MAX);
        let mut limited = Command::new("sh");
        limited
            .args(["-c", &script, "sh"])
            .arg(complete.get_program())
            .args(complete.get_args());
        let ended = limited.stdin(Stdio::null()).output().unwrap();
        let output = String::from_utf8(ended.stdout).unwrap();
        if !ended.status.success() {
            stopped += 1;
            assert!(
                output.contains("the journal `runs.db` could not be written"),
                "{output}"
            );
        }
        let end = run_and_kill(&folder, usize::MAX).unwrap();
        check(&folder, &end, &format!("with {blocks} blocks"));
        let _ = fs::remove_dir_all(folder);
    }
    assert!(stopped > 1, "the disk was never full");
}

#[test]
fn only_one_of_two_resuming_processes_drives_run() {
    let folder = folder("sqlite-two");
    assert!(run_and_kill(&folder, 9).is_none());
    let resume = || {
        crasher(&folder, usize::MAX)
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let both = [resume(), resume()].map(|child| child.wait_with_output().unwrap().stdout);
    let ends = both.map(|output| serde_json::from_slice::<Value>(&output).unwrap());
    // One process drives the run. The other one finds it in progress or ended.
    assert!(
        ends.iter().any(|end| end["answer"] == "All is done."),
        "{ends:?}"
    );
    let refused = |end: &Value| {
        end["error"]
            .as_str()
            .is_some_and(|error| error.contains("driven by another process"))
    };
    for end in ends {
        assert!(refused(&end) || end["answer"] == "All is done.", "{end}");
    }
    let end = run_and_kill(&folder, usize::MAX).unwrap();
    check(&folder, &end, "after two processes at once");
    let _ = fs::remove_dir_all(folder);
}
