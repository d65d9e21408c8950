//! A process that is really killed, at every record in turn, and another that goes on with its run.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("crash-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn crasher(folder: &Path, stop: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crasher"));
    command.arg(folder).arg(stop.to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Lets it run until it stands still, and kills it (SIGKILL); the last line when it ended by itself.
fn run_and_kill(folder: &Path, stop: usize) -> Option<Value> {
    let mut child = crasher(folder, stop).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
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
fn done(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("done")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn sent(done: &[String]) -> Vec<&String> {
    done.iter().filter(|line| line.starts_with("send ")).collect()
}

/// What is booked in the end, by its key: a booking counts until it is given back.
fn booked(done: &[String]) -> Vec<(&str, usize)> {
    let mut booked: Vec<(&str, usize)> = Vec::new();
    for line in done {
        let Some((what @ ("book" | "give_back"), key)) = line.split_once(' ') else { continue };
        let at = booked.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
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
    assert_eq!(end["calls"], json!(["look", "look", "set", "book", "send", "helper"]), "{when}");
    let done = done(folder);
    let sent = sent(&done);
    let mut once = sent.clone();
    once.sort();
    once.dedup();
    assert_eq!(sent.len(), once.len(), "{when}: something was sent twice: {done:?}");
    let booked = booked(&done);
    let once = booked.len() == 2 && booked.iter().all(|(_, times)| *times == 1);
    assert!(once, "{when}: lead and helper book once each: {done:?}");
    let told_unknown = end["unknown"].as_u64().unwrap_or_default() as usize;
    // The helper's own call may be the unknown one; its log says so.
    let helper = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let logs = helper.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let unknown_in_logs: usize =
        logs.map(|path| fs::read_to_string(path).unwrap().matches("\"outcome\":\"unknown\"").count()).sum();
    assert!(unknown_in_logs >= told_unknown, "{when}");
    assert!(sent.len() + unknown_in_logs >= 2, "{when}: lost in silence: {done:?}");
}

#[test]
fn killed_after_every_record_it_ends_the_same_and_sends_nothing_twice() {
    let whole = folder("whole");
    let end = run_and_kill(&whole, usize::MAX).unwrap();
    check(&whole, &end, "without a kill");
    assert_eq!(sent(&done(&whole)).len(), 2);
    let records: usize = ["r.jsonl"]
        .iter()
        .map(|name| fs::read_to_string(whole.join(name)).unwrap().lines().count() - 1)
        .sum();
    assert!(records > 20, "{records}");

    let (mut killed, mut undone) = (0, 0);
    for stop in 0.. {
        let folder = folder(&stop.to_string());
        if let Some(end) = run_and_kill(&folder, stop) {
            check(&folder, &end, "after the last record");
            break;
        }
        killed += 1;
        let end = run_and_kill(&folder, usize::MAX).unwrap();
        check(&folder, &end, &format!("killed after {stop} records"));
        undone += done(&folder).iter().filter(|line| line.starts_with("give_back ")).count();
        let _ = fs::remove_dir_all(folder);
    }
    assert!(undone >= 2, "a booking that was cut off is given back: {undone}");
    assert!(killed > records, "killed {killed} times, and the lead alone has {records} records");
    let _ = fs::remove_dir_all(whole);
}

#[test]
fn killed_again_and_again_it_still_comes_to_its_end() {
    // Fewer records at a time would only be enough to begin again what was under way.
    for step in [5, 7, 9] {
        let folder = folder(&format!("again-{step}"));
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
