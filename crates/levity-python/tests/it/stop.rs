//! Processes end when nobody wants them any more.

use std::path::Path;
use std::time::Duration;

use levity_python::{Isolation, Limits, Python};
use serde_json::json;

/// Waits until there is a process of this program, or none; the test's own time limit ends it otherwise.
#[cfg(target_os = "linux")]
fn wait_until(program: &Path, there: bool) {
    let runs = |entry: std::fs::DirEntry| {
        std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program)
    };
    while std::fs::read_dir("/proc").unwrap().flatten().any(runs) != there {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_program_leaves_no_process() {
    // A program of its own, so that others' processes are not taken for this one's.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().canonicalize().unwrap().join("worker");
    std::fs::hard_link(env!("CARGO_BIN_EXE_levity-python-worker"), &program).unwrap();
    let python = Python::isolated(Isolation::Process(program.clone()));
    let endless = python.clone().with_limits(Limits::new().time(Duration::from_secs(3600)));
    let running = tokio::spawn(async move { endless.run("while True: pass", json!({})).await });
    wait_until(&program, true);
    running.abort();
    wait_until(&program, false);
    // One that has nothing to do ends with the interpreter.
    assert_eq!(python.run("1 + 1", json!({})).await.unwrap().result, 2);
    wait_until(&program, true);
    drop(python);
    wait_until(&program, false);
}
