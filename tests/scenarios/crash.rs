//! A process that is really killed, at every record in turn, and another that goes on with its run.

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
    let what = ["talk", "swarm"]
        .into_iter()
        .find(|what| name.contains(what));
    match (is_sqlite(folder), what) {
        (true, None) => drop(command.arg("sqlite")),
        (true, Some(what)) => drop(command.arg(format!("{what}-sqlite"))),
        (false, Some(what)) => drop(command.arg(what)),
        (false, None) => {}
    }
    command
}

/// A folder says by its name how runs are kept in it.
pub fn is_sqlite(folder: &Path) -> bool {
    folder.to_string_lossy().contains("sqlite")
}

/// The records of each run, as lines of JSON; those of the lead come first.
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

/// Lets it run until it stands still, and kills it (SIGKILL); the last line when it ended by
/// itself.
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

/// How often each thing was done, by its key.
pub fn done(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("done")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn sent(done: &[String]) -> Vec<&String> {
    done.iter()
        .filter(|line| line.starts_with("send "))
        .collect()
}

/// What is booked in the end, by its key: a booking counts until it is given back.
fn booked(done: &[String]) -> Vec<(&str, usize)> {
    let mut booked: Vec<(&str, usize)> = Vec::new();
    for line in done {
        let Some((what @ ("book" | "give_back"), key)) = line.split_once(' ') else {
            continue;
        };
        let at = booked
            .iter()
            .position(|(other, _)| *other == key)
            .unwrap_or_else(|| {
                booked.push((key, 0));
                booked.len() - 1
            });
        booked[at].1 = if what == "book" { booked[at].1 + 1 } else { 0 };
    }
    booked
}

/// After the kills, the run ends as if nothing had happened, and nothing was sent twice.
#[track_caller]
fn check(folder: &Path, end: &Value, when: &str) {
    assert_eq!(end["answer"], "All is done.", "{when}");
    assert_eq!(
        end["calls"],
        json!(["look", "look", "set", "book", "send", "helper"]),
        "{when}"
    );
    let done = done(folder);
    let sent = sent(&done);
    let mut once = sent.clone();
    once.sort();
    once.dedup();
    assert_eq!(
        sent.len(),
        once.len(),
        "{when}: something was sent twice: {done:?}"
    );
    let booked = booked(&done);
    let once = booked.len() == 2 && booked.iter().all(|(_, times)| *times == 1);
    assert!(once, "{when}: lead and helper book once each: {done:?}");
    let told_unknown = end["unknown"].as_u64().unwrap_or_default() as usize;
    // The helper's own call may be the unknown one; its log says so.
    let unknown_in_logs: usize = logs(folder)
        .iter()
        .map(|log| log.matches("\"outcome\":\"unknown\"").count())
        .sum();
    assert!(unknown_in_logs >= told_unknown, "{when}");
    assert!(
        sent.len() + unknown_in_logs >= 2,
        "{when}: lost in silence: {done:?}"
    );
}

#[test]
fn killed_after_every_record_it_ends_the_same_and_sends_nothing_twice() {
    kill_after_every_record("files");
}

#[test]
fn killed_after_every_record_its_run_in_sqlite_ends_the_same() {
    kill_after_every_record("sqlite");
}

fn kill_after_every_record(store: &str) {
    let whole = folder(&format!("{store}-whole"));
    let end = run_and_kill(&whole, usize::MAX).unwrap();
    check(&whole, &end, "without a kill");
    assert_eq!(sent(&done(&whole)).len(), 2);
    let records = logs(&whole)[0].lines().count();
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
        undone += done(&folder)
            .iter()
            .filter(|line| line.starts_with("give_back "))
            .count();
        let _ = fs::remove_dir_all(folder);
    }
    assert!(
        undone >= 2,
        "a booking that was cut off is given back: {undone}"
    );
    assert!(
        killed > records,
        "killed {killed} times, and the lead alone has {records} records"
    );
    let _ = fs::remove_dir_all(whole);
}

/// What is kept of the conversation.
fn talk(
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
fn killed_after_every_record_a_conversation_has_everything_once() {
    for store in ["talk-files", "talk-sqlite"] {
        let whole = folder(&format!("{store}-whole"));
        assert_eq!(
            run_and_kill(&whole, usize::MAX).unwrap()["answer"],
            "All is done."
        );
        let (messages, summary) = talk(&whole);
        assert_eq!(
            messages.len(),
            14 + 14,
            "what was said before, the goal, six looks, the answer"
        );
        assert_eq!(
            &*summary.as_ref().unwrap().text,
            "Much was said and looked at."
        );
        let compactions = logs(&whole)[0].matches("\"name\":\"summariser\"").count();
        assert!(compactions >= 2, "it became too long {compactions} times");
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
            let found = talk(&folder);
            assert!(
                found == (messages.clone(), summary.clone()),
                "killed after {stop} records: {found:?}"
            );
            let _ = fs::remove_dir_all(folder);
        }
        let _ = fs::remove_dir_all(whole);
    }
}

#[test]
fn killed_again_and_again_it_still_comes_to_its_end() {
    // Fewer records at a time would only be enough to begin again what was under way.
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
            assert!(kills < 100, "it never ends with {step} records at a time");
        };
        check(&folder, &end, &format!("{step} records at a time"));
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

/// Takes a run as soon as it can be had; a process that stands still has to lose its lease first.
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
fn a_process_that_was_paused_and_lost_its_run_writes_no_more() {
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
    let ours = Record::new(
        next,
        levity::core::Timestamp::default(),
        Entry::Commanded(command),
    );
    block_on(open.log.append(std::slice::from_ref(&ours))).unwrap();

    signal("-CONT", child.id());
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let said = lines.next().unwrap();
    assert!(said.contains("was taken over by another process"), "{said}");
    assert!(!child.wait().unwrap().success());
    drop(open);
    let after = logs(&folder);
    let ours = format!("{}\n", serde_json::to_string(&ours).unwrap());
    assert_eq!(
        after[0],
        format!("{}{ours}", before[0]),
        "only what the new owner wrote was added"
    );
    let _ = fs::remove_dir_all(folder);
}

#[cfg(unix)]
#[test]
fn when_there_is_no_room_left_nothing_is_lost() {
    let mut stopped = 0;
    for blocks in [150, 250, 350, 500, 800] {
        let folder = folder(&format!("sqlite-full-{blocks}"));
        // No file may become larger than so many blocks, and writing more is an error and no
        // signal.
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
        let whole = crasher(&folder, usize::MAX);
        let mut limited = Command::new("sh");
        limited
            .args(["-c", &script, "sh"])
            .arg(whole.get_program())
            .args(whole.get_args());
        let ended = limited.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(ended.stdout).unwrap();
        if !ended.status.success() {
            stopped += 1;
            assert!(
                said.contains("the journal `runs.db` could not be written"),
                "{said}"
            );
        }
        let end = run_and_kill(&folder, usize::MAX).unwrap();
        check(&folder, &end, &format!("with {blocks} blocks"));
        let _ = fs::remove_dir_all(folder);
    }
    assert!(stopped > 1, "there was always room");
}

#[test]
fn of_two_processes_that_resume_a_run_one_drives_it() {
    let folder = folder("sqlite-two");
    assert!(run_and_kill(&folder, 9).is_none());
    let resume = || {
        crasher(&folder, usize::MAX)
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let both = [resume(), resume()].map(|child| child.wait_with_output().unwrap().stdout);
    let ends = both.map(|said| serde_json::from_slice::<Value>(&said).unwrap());
    // The other finds it driven, or ended.
    assert!(
        ends.iter().any(|end| end["answer"] == "All is done."),
        "{ends:?}"
    );
    let refused = |end: &Value| {
        end["error"]
            .as_str()
            .is_some_and(|error| error.contains("driven elsewhere"))
    };
    for end in ends {
        assert!(refused(&end) || end["answer"] == "All is done.", "{end}");
    }
    let end = run_and_kill(&folder, usize::MAX).unwrap();
    check(&folder, &end, "after two at once");
    let _ = fs::remove_dir_all(folder);
}
