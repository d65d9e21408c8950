//! The command as a user meets it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn levity(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_levity")).args(args).output().unwrap()
}

/// A file of this test run's own.
fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

#[track_caller]
fn check(output: &Output, code: i32, part: &str) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    assert!(out.contains(part) || err.contains(part), "{out}{err}");
    assert!(!err.contains("panicked"), "{err}");
}

#[test]
fn without_a_model_a_stand_in_says_what_it_is() {
    let output = levity(&["run", "What is 2 + 5?"]);
    check(&output, 0, "a scripted stand-in");
    check(&output, 0, "calls  add {\"a\":2,\"b\":5}");
}

#[test]
fn a_script_is_followed() {
    let script = r#"[{"call": {"name": "add", "args": {"a": 1, "b": 2}}}, {"reply": "Three."}]"#;
    let path = file("script.json", script);
    let output = levity(&["run", "-q", "What is 1 + 2?", "--script", path.to_str().unwrap()]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Three.\n");
}

#[test]
fn events_are_json_lines() {
    let output = levity(&["run", "What is 2 + 5?", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let events: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events[0]["kind"]["run_started"].is_object());
    let last = &events.last().unwrap()["kind"]["run_ended"];
    assert_eq!(last["status"], "complete");
}

#[test]
fn what_is_wrong_is_said_with_the_way_out() {
    check(&levity(&["run"]), 2, "Usage");
    check(&levity(&["run", "x", "--max-turns", "0"]), 2, "set 1 or more");
    check(&levity(&["run", "x", "--script", "nowhere.json"]), 2, "`nowhere.json` cannot be read");
    let path = file("odd.json", r#"[{"reply": "a"}, {"answer": "b"}]"#);
    check(&levity(&["run", "x", "--script", path.to_str().unwrap()]), 2, "step 2");
    let path = file("short.json", r#"[{"call": {"name": "add", "args": {"a": 1, "b": 2}}}]"#);
    check(&levity(&["run", "x", "--script", path.to_str().unwrap()]), 1, "script has only 1");
    let path = file("fails.json", r#"[{"fail": "overloaded"}]"#);
    check(&levity(&["run", "x", "--script", path.to_str().unwrap()]), 1, "the model gave no reply");
}

#[test]
fn a_run_that_is_kept_can_be_looked_at_and_gone_on_with() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kept-{}", std::process::id()));
    let kept = folder.to_str().unwrap();
    check(&levity(&["runs", "list", "--journal", kept]), 1, "there is no folder");
    check(&levity(&["run", "What?", "--journal", kept, "--id", "monday"]), 0, "kept as run monday");
    check(&levity(&["runs", "list", "--journal", kept]), 0, "monday  8 records  complete");
    check(&levity(&["runs", "show", "monday", "--journal", kept]), 0, "add gave 7.0");
    check(&levity(&["runs", "show", "tuesday", "--journal", kept]), 1, "there is no run `tuesday`");
    // It has ended: its answer is read from the journal, and nothing is called or written.
    let before = fs::read(folder.join("monday.jsonl")).unwrap();
    let again = levity(&["run", "-q", "What?", "--journal", kept, "--id", "monday"]);
    check(&again, 0, "A scripted stand-in cannot know.");
    assert_eq!(fs::read(folder.join("monday.jsonl")).unwrap(), before);
    let shown = levity(&["runs", "show", "monday", "--journal", kept, "--json"]);
    assert_eq!(String::from_utf8(shown.stdout).unwrap().lines().count(), 8);
    fs::write(folder.join("monday.jsonl"), "garbage\n").unwrap();
    check(&levity(&["runs", "show", "monday", "--journal", kept]), 1, "left as it is");
    fs::remove_dir_all(folder).unwrap();
}
