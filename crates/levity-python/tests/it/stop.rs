//! Tests that processes end when they are no longer needed.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use levity_python::{Isolation, ProgramLimits, Python};
use serde_json::json;

/// Returns the processes of this program, each with its CPU time in hundredths of a second.
fn processes(program: &Path) -> Vec<u64> {
    let is_it = |path: &Path| std::fs::read_link(path.join("exe")).is_ok_and(|exe| exe == program);
    let entries = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let worked = |path: PathBuf| {
        let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        fields
            .split_whitespace()
            .nth(11)
            .and_then(|ticks| ticks.parse().ok())
            .unwrap_or_default()
    };
    entries.filter(|path| is_it(path)).map(worked).collect()
}

/// Waits until the condition holds; the test's time limit ends it otherwise.
fn wait_until(program: &Path, condition: impl Fn(&[u64]) -> bool) {
    while !condition(&processes(program)) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns `true` if code runs in a process.
fn is_busy(processes: &[u64]) -> bool {
    processes.iter().any(|ticks| *ticks > 10)
}

/// Copies the program, so that other tests' processes are not counted.
fn program() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().canonicalize().unwrap().join("worker");
    std::fs::hard_link(env!("CARGO_BIN_EXE_levity-python-worker"), &program).unwrap();
    (folder, program)
}

fn endless(program: PathBuf) -> Python {
    Python::isolated(Isolation::Process(program))
        .with_limits(ProgramLimits::new().time(Duration::from_secs(3600)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_program_leaves_no_process() {
    let (_folder, program) = program();
    let python = endless(program.clone());
    let (mut tasks, running) = (tokio::task::JoinSet::new(), python.clone());
    tasks.spawn(async move { running.run("while True: pass", json!({})).await });
    wait_until(&program, is_busy);
    tasks.abort_all();
    wait_until(&program, <[u64]>::is_empty);
    // An idle process ends with the interpreter.
    assert_eq!(python.run("1 + 1", json!({})).await.unwrap().result, 2);
    wait_until(&program, |processes| !processes.is_empty());
    drop(python);
    wait_until(&program, <[u64]>::is_empty);
}

/// The environment variable with the program of the process to be killed.
const PROGRAM: &str = "LEVITY_TEST_STOP";

/// The process that the other test kills, not a test.
#[tokio::test]
async fn process_to_be_killed() {
    let Some(program) = std::env::var_os(PROGRAM) else {
        return;
    };
    endless(program.into())
        .run("while True: pass", json!({}))
        .await
        .unwrap();
}

#[test]
fn killing_process_leaves_no_worker() {
    let (_folder, program) = program();
    let mut process_to_be_killed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stop::process_to_be_killed"])
        .env(PROGRAM, &program)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until(&program, is_busy);
    process_to_be_killed.kill().unwrap();
    process_to_be_killed.wait().unwrap();
    wait_until(&program, <[u64]>::is_empty);
}
