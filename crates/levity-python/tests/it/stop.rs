//! Processes end when nobody wants them any more.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use levity_python::{Isolation, ProgramLimits, Python};
use serde_json::json;

/// The processes of this program, each with how long it has worked, in hundredths of a second.
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

/// Waits until it is so; the test's own time limit ends it otherwise.
fn wait_until(program: &Path, so: impl Fn(&[u64]) -> bool) {
    while !so(&processes(program)) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Code runs in it.
fn is_busy(processes: &[u64]) -> bool {
    processes.iter().any(|ticks| *ticks > 10)
}

/// A program of its own, so that others' processes are not taken for this one's.
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
async fn a_dropped_program_leaves_no_process() {
    let (_folder, program) = program();
    let python = endless(program.clone());
    let (mut tasks, running) = (tokio::task::JoinSet::new(), python.clone());
    tasks.spawn(async move { running.run("while True: pass", json!({})).await });
    wait_until(&program, is_busy);
    tasks.abort_all();
    wait_until(&program, <[u64]>::is_empty);
    // One that has nothing to do ends with the interpreter.
    assert_eq!(python.run("1 + 1", json!({})).await.unwrap().result, 2);
    wait_until(&program, |processes| !processes.is_empty());
    drop(python);
    wait_until(&program, <[u64]>::is_empty);
}

/// The program that the process to be killed runs code in.
const PROGRAM: &str = "LEVITY_TEST_STOP";

/// Not a test: what the other one kills.
#[tokio::test]
async fn victim() {
    let Some(program) = std::env::var_os(PROGRAM) else {
        return;
    };
    endless(program.into())
        .run("while True: pass", json!({}))
        .await
        .unwrap();
}

#[test]
fn a_killed_process_leaves_no_process() {
    let (_folder, program) = program();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stop::victim"])
        .env(PROGRAM, &program)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until(&program, is_busy);
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until(&program, <[u64]>::is_empty);
}
