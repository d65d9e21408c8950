//! Tests of tasks whose host is killed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Place, plan};

/// A completed step is not repeated, and the task resumes at the next step.
#[tokio::test]
async fn task_resumes_after_host_is_killed() {
    let place = Place::new("killed");
    let script = place.script(&json!([
        {"call": {"name": "write_file", "args": {"path": "one", "content": "1"}}},
        {"call": {"name": "wait", "args": {"seconds": 3}}},
        {"call": {"name": "write_file", "args": {"path": "two", "content": "2"}}},
        {"reply": "Both are there."},
    ]));
    for journal in ["files", "sqlite.db"] {
        let journal = place.0.join(journal);
        let args = ["--script", &script, "--journal", journal.to_str().unwrap()];
        let host = place.host(&args);
        let client = place.client(&host);
        let mut told = client.notifications();
        let started = client
            .dispatch("Write one and two.", Some("BOTH"))
            .await
            .unwrap();
        client
            .request("agent/subscribe", json!({"task": started["task"]}))
            .await
            .unwrap();
        // The first step is complete once the journal has it, not once its file exists.
        while told
            .next()
            .await
            .unwrap()
            .pointer("/params/event/kind/wait_started")
            .is_none()
        {}
        host.kill();
        assert!(
            !place.work("two").exists() && !place.work("BOTH").exists(),
            "it was killed too late"
        );
        fs::write(place.work("one"), "changed since").unwrap();

        let host = place.host(&args);
        host.wait_for_line(&format!(
            "task {} resumed",
            started["task"].as_str().unwrap()
        ))
        .await;
        let client = place.client(&host);
        let found = client
            .request("fs/wait", json!({"path": "BOTH", "timeout": 40}))
            .await
            .unwrap();
        assert_eq!(found["timed_out"], false);
        assert_eq!(
            (place.read("one"), place.read("two")),
            ("changed since".to_owned(), "2".to_owned())
        );
        let status = client
            .request("agent/status", json!({"task": started["task"]}))
            .await
            .unwrap();
        assert_eq!(
            (&status["state"], &status["stats"]["tool_calls"]),
            (&json!("done"), &json!(3))
        );
        host.kill();

        // The waiting client takes the signal away; it does not return, and the task is still
        // listed.
        fs::remove_file(place.work("BOTH")).unwrap();
        let host = place.host(&args);
        let client = place.client(&host);
        let status = client
            .request("agent/status", json!({"task": started["task"]}))
            .await
            .unwrap();
        assert_eq!(
            (&status["state"], &status["signal"]),
            (&json!("done"), &json!("BOTH"))
        );
        assert!(!place.work("BOTH").exists());
        assert_eq!(host.end(), Some(0));
        for name in ["one", "two"] {
            fs::remove_file(place.work(name)).unwrap();
        }
    }
}

/// The host is killed repeatedly at arbitrary moments: each task is signalled once, by a complete
/// file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_task_is_signalled_once_after_repeated_kills() {
    const TASKS: usize = 12;
    let place = Place::new("storm");
    let script = place.script(&plan());
    let stop = Arc::new(AtomicBool::new(false));
    let (ended, folder) = (stop.clone(), place.work(""));
    // Takes each signal away as soon as it exists, and counts it.
    let taker = std::thread::spawn(move || {
        let mut taken = std::collections::BTreeMap::<String, usize>::new();
        loop {
            let last = ended.load(Ordering::SeqCst);
            take(&folder, &mut taken);
            if last {
                return taken;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    for at in 0..TASKS {
        let host = place.host(&["--script", &script]);
        let client = place.client(&host).retry_time(Duration::ZERO);
        let order = json!({"prompt": "p", "task": format!("t{at}")});
        client.request("agent/dispatch", order).await.unwrap();
        // This sleep waits for nothing: each host is killed at another moment.
        tokio::time::sleep(Duration::from_millis(at as u64 * 3)).await;
        host.kill();
    }
    let host = place.host(&["--script", &script]);
    let client = place.client(&host);
    let listed = client.request("agent/list", json!({})).await.unwrap();
    let tasks = listed["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), TASKS);
    for task in tasks.iter().filter(|task| task["state"] != "done") {
        host.wait_for_line(&format!(
            "task {} ended (complete)",
            task["task"].as_str().unwrap()
        ))
        .await;
    }
    let listed = client.request("agent/list", json!({})).await.unwrap();
    assert!(
        listed["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .all(|task| task["state"] == "done"),
        "{listed}"
    );
    stop.store(true, Ordering::SeqCst);
    let taken = taker.join().unwrap();
    assert_eq!(taken.len(), TASKS, "{taken:?}");
    assert!(taken.values().all(|times| *times == 1), "{taken:?}");
    assert_eq!(host.end(), Some(0));
}

fn take(folder: &Path, taken: &mut std::collections::BTreeMap<String, usize>) {
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.starts_with("DONE_") || name.starts_with("FAILED_") {
            let signal: Value =
                serde_json::from_str(&fs::read_to_string(folder.join(&name)).unwrap()).unwrap();
            assert_eq!(signal["status"], "complete");
            fs::remove_file(folder.join(&name)).unwrap();
            *taken.entry(name).or_default() += 1;
        }
    }
}
