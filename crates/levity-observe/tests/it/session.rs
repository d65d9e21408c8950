//! Sessions: writing during a run, and reading.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use levity_core::{EventKind, RunId, Status, Timestamp};
use levity_dag::{
    Budget, Condition, FanOut, Join, OnFailure, Plan, Reducer, Retry, Step, StepStatus, TeamInput,
    Variable,
};
use levity_observe::{
    PlanStage, PlanView, Session, SessionFilter, SessionFolder, SessionProblem, TreeOptions,
};
use levity_runtime::{MemoryJournal, Runtime};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::stream::{BEGIN, Stream, id, pages};

mod kill;
mod parse;
mod random;
mod runs;

/// Returns the plan of the pages, with a given file.
fn planned() -> (Plan, Vec<(&'static str, &'static str)>) {
    let (plan, edges) = pages();
    (
        plan.given(
            "file_manifest",
            json!({"files": [{"path": "a.csv", "size": 12}]}),
        ),
        edges,
    )
}

/// Returns a whole run: files, a plan, completed steps, a failed one and a skipped one.
pub(crate) fn run(name: &str) -> Stream {
    let (plan, edges) = planned();
    let mut stream = Stream::new(name, "compare \"two\" pages\n\u{1f30a}");
    stream
        .notice(json!({"notice": "profiling", "effect": 1}))
        .wait(10);
    stream
        .notice(json!({"notice": "planning", "effect": 2, "again": 0, "replan": 0}))
        .wait(2_000);
    let mut ending = levity_core::Ending::new(Status::Complete);
    ending.usage = crate::stream::usage(500, 70, 123_456_789);
    stream.event_of_run(EventKind::ChildFinished {
        effect: levity_core::EffectId::new(2),
        ending: Box::new(ending),
    });
    stream.planned(&plan, &edges);
    stream
        .started("fetch_a", 3)
        .started("fetch_b", 4)
        .wait(1_234);
    stream.completed("fetch_a", json!({"a": {"text": "A\u{0}\u{7f}", "n": 0.1}}));
    stream.wait(1).completed(
        "fetch_b",
        json!({"b": [1, 2.5, null, 18_446_744_073_709_551_615_u64]}),
    );
    stream
        .started("compare", 5)
        .wait(50)
        .failed("compare", "no verdict");
    stream.notice(json!({"notice": "step_skipped", "step": "report", "why": "`compare` failed"}));
    stream.wait(5).ended(Status::Complete);
    stream
}

async fn write(sessions: &SessionFolder, stream: &Stream) -> PathBuf {
    let writer = sessions.writer(&stream.run);
    stream.events.iter().for_each(|event| writer.apply(event));
    writer.flush().await.unwrap();
    writer.path().unwrap()
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[tokio::test]
async fn run_is_written_as_graph() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&SessionFolder::open(dir.path()), &run("r1")).await;
    assert_eq!(path, dir.path().join("2026/03/04/session_r1.json"));
    let file = json_of(&path);
    assert_eq!(
        (&file["directed"], &file["multigraph"]),
        (&json!(true), &json!(false))
    );
    let graph = &file["graph"];
    assert_eq!(graph["session_id"], "r1");
    assert_eq!(graph["original_query"], "compare \"two\" pages\n\u{1f30a}");
    assert_eq!(graph["created_at"], "2026-03-04T05:06:07.000Z");
    assert_eq!(graph["status"], "completed");
    assert_eq!(
        graph["file_manifest"],
        json!([{"path": "a.csv", "size": 12}])
    );
    assert_eq!(graph["globals_schema"]["style"], "short");
    assert_eq!(graph["globals_schema"]["a"]["n"], 0.1);
    let nodes = file["nodes"].as_array().unwrap();
    let ids: Vec<&str> = nodes
        .iter()
        .map(|node| node["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["ROOT", "fetch_a", "fetch_b", "compare", "report"]);
    let node = &nodes[1];
    assert_eq!(
        (&node["agent"], &node["status"]),
        (&json!("Retriever"), &json!("completed"))
    );
    assert_eq!(
        (&node["reads"], &node["writes"], &node["agent_prompt"]),
        (&json!([]), &json!(["a"]), &json!(""))
    );
    assert_eq!(
        (&node["cost"], &node["input_tokens"], &node["output_tokens"]),
        (&json!(0.0025), &json!(1000), &json!(50))
    );
    assert_eq!(
        (&node["start_time"], &node["execution_time"]),
        (&json!("2026-03-04T05:06:09.010Z"), &json!(1.234))
    );
    assert_eq!(node["output"]["a"]["text"], "A\u{0}\u{7f}");
    assert_eq!(
        (&nodes[3]["error"], &nodes[3]["output"]),
        (&json!("no verdict"), &json!(null))
    );
    assert_eq!(
        file["edges"][0],
        json!({"source": "ROOT", "target": "fetch_a", "kind": "root"})
    );
    assert_eq!(
        file["edges"][2],
        json!({"source": "fetch_a", "target": "compare", "kind": "reads", "variables": ["a"]})
    );
    // Nothing else remains in the folder.
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[tokio::test]
async fn session_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let stream = run("r1");
    let path = write(&SessionFolder::open(dir.path()), &stream).await;
    let session = Session::load(&path).await.unwrap();
    assert_eq!(**session.plan(), planned().0);
    assert_eq!(
        (session.id.as_str(), session.stage),
        ("r1", PlanStage::Ended)
    );
    assert_eq!(
        session.planning.usage,
        crate::stream::usage(500, 70, 123_456_789)
    );
    assert!(
        session.extra.is_empty() && session.steps.iter().all(|step| step.extra.is_empty()),
        "{session:?}"
    );

    // The view renders like the run itself.
    let mut seen = PlanView::new();
    stream.events.iter().for_each(|event| seen.apply(event));
    let again = session.to_view();
    assert_eq!(
        again.tree(TreeOptions::new()),
        seen.tree(TreeOptions::new())
    );
    assert_eq!(again.summary(), seen.summary());
    assert_eq!((again.dot(), again.mermaid()), (seen.dot(), seen.mermaid()));

    let seed = session.starting_plan();
    let done: Vec<&str> = seed
        .completed
        .iter()
        .map(|done| done.step.as_str())
        .collect();
    assert_eq!(
        (done, session.finished().count()),
        (vec!["fetch_a", "fetch_b"], 2)
    );
    assert_eq!(
        seed.completed[1].output,
        json!({"b": [1, 2.5, null, 18_446_744_073_709_551_615_u64]})
    );
    assert_eq!(
        seed.completed[1].writes[0].value,
        seed.completed[1].output["b"]
    );
}

#[tokio::test]
async fn seed_without_repeats_dependent_steps() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, edges) = pages();
    let mut stream = Stream::new("r", "g");
    stream.planned(&plan, &edges);
    for (step, writes) in [
        ("fetch_a", "a"),
        ("fetch_b", "b"),
        ("compare", "verdict"),
        ("report", "report"),
    ] {
        stream.completed(step, json!({writes: step}));
    }
    let session = Session::load(write(&SessionFolder::open(dir.path()), &stream).await)
        .await
        .unwrap();
    let left = |steps: &[&str]| {
        let steps: Vec<_> = steps.iter().map(|step| id(step)).collect();
        let seed = session.starting_plan_repeating(&steps).unwrap();
        seed.completed
            .into_iter()
            .map(|done| done.step.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(left(&["fetch_b"]), ["fetch_a"]);
    assert_eq!(left(&["report"]), ["fetch_a", "fetch_b", "compare"]);
    assert_eq!(left(&[]).len(), 4);
    assert!(matches!(
        session.starting_plan_repeating(&[id("nobody")]),
        Err(SessionProblem::NoStep(step)) if step == "nobody"
    ));
}

#[tokio::test]
async fn values_of_several_writers_are_reduced() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan::new()
        .step(
            Step::new("last", "A")
                .reads(["x"])
                .writes(["x"])
                .after("first"),
        )
        .step(Step::new("first", "A").writes(["x", "n"]))
        .step(Step::new("other", "A").writes(["n"]))
        .variable("n", Variable::new().reducer(Reducer::Sum));
    let mut stream = Stream::new("r", "g");
    stream.planned(&plan, &[("first", "last")]);
    stream
        .completed("first", json!({"x": "one", "n": 1}))
        .completed("last", json!({"x": null}));
    stream.completed("other", json!({"n": 41}));
    let path = write(&SessionFolder::open(dir.path()), &stream).await;
    assert_eq!(
        json_of(&path)["graph"]["globals_schema"],
        json!({"n": 42, "x": null})
    );
    let session = Session::load(&path).await.unwrap();
    let written = |step: &str| {
        session
            .step(step)
            .unwrap()
            .written
            .iter()
            .map(|one| one.value.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (written("first"), written("last"), written("other")),
        (
            vec![json!("one"), json!(1)],
            vec![json!(null)],
            vec![json!(41)]
        )
    );
}

#[tokio::test]
async fn resumed_run_continues_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = SessionFolder::open(dir.path());
    let mut stream = Stream::new("r", "g");
    let (plan, edges) = pages();
    stream
        .planned(&plan, &edges)
        .started("fetch_a", 3)
        .completed("fetch_a", json!({"a": "A"}));
    let path = write(&sessions, &stream).await;
    // Days later, only new events arrive.
    let mut later = Stream {
        run: "r".into(),
        now: BEGIN + 5 * 86_400_000,
        events: Vec::new(),
    };
    later
        .started("fetch_b", 9)
        .completed("fetch_b", json!({"b": "B"}));
    assert_eq!(write(&sessions, &later).await, path);
    let session = Session::load(&path).await.unwrap();
    assert_eq!(
        (
            session.query.as_str(),
            session.starting_plan().completed.len()
        ),
        ("g", 2)
    );
    assert_eq!(session.globals["a"], "A");
    assert_eq!(session.created, Some(Timestamp::from_millis(BEGIN)));
}

#[tokio::test]
async fn failed_write_is_reported_and_retried() {
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join("2026");
    fs::write(&blocked, "a file where a folder should be").unwrap();
    let errors = Arc::new(Mutex::new(Vec::new()));
    let notice = errors.clone();
    let stream = run("r1");
    let sessions = SessionFolder::open(dir.path())
        .on_error(move |error| notice.lock().unwrap().push(error.to_string()));
    let writer = sessions.writer(&stream.run);
    let (last, first) = stream.events.split_last().unwrap();
    first.iter().for_each(|event| writer.apply(event));
    let error = writer.flush().await.unwrap_err();
    assert!(matches!(error.problem, SessionProblem::Io(_)), "{error}");
    assert!(errors.lock().unwrap()[0].contains("session_r1.json"));
    fs::remove_file(&blocked).unwrap();
    writer.apply(last);
    writer.flush().await.unwrap();
    assert_eq!(
        Session::load(writer.path().unwrap())
            .await
            .unwrap()
            .starting_plan()
            .completed
            .len(),
        2
    );
}

#[tokio::test]
async fn steps_in_progress_at_cancellation_are_pending() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, edges) = planned();
    let mut stream = Stream::new("r", "g");
    stream
        .planned(&plan, &edges)
        .started("fetch_a", 3)
        .started("fetch_b", 4);
    stream.completed("fetch_a", json!({"a": 1}));
    let writer = SessionFolder::open(dir.path()).writer(&stream.run);
    stream.events.iter().for_each(|event| writer.apply(event));
    writer.flush().await.unwrap();
    stream.ended(Status::Cancelled {
        reason: "enough".into(),
    });
    writer.apply(stream.events.last().unwrap());
    writer.flush().await.unwrap();
    let session = Session::load(writer.path().unwrap()).await.unwrap();
    assert_eq!(session.status, "cancelled");
    let statuses: Vec<StepStatus> = session.steps.iter().map(|step| step.status).collect();
    assert_eq!(
        statuses[..2],
        [StepStatus::Completed, StepStatus::Pending],
        "{statuses:?}"
    );
    assert!(session.step("fetch_b").unwrap().error.is_some());
}

#[cfg(unix)]
#[tokio::test]
async fn pipe_at_session_path_is_rejected_without_blocking() {
    let dir = tempfile::tempdir().unwrap();
    let day = dir.path().join("2026/03/04");
    fs::create_dir_all(&day).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(day.join("session_pipe.json"))
            .status()
            .unwrap()
            .success()
    );
    let sessions = SessionFolder::open(dir.path());
    let listed = sessions.list(&SessionFilter::new()).await.unwrap();
    assert!(
        listed[0]
            .problem
            .as_deref()
            .unwrap()
            .contains("not a regular file"),
        "{listed:?}"
    );
    let error = sessions.load("pipe").await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("session_pipe.json`: not a regular file"),
        "{error}"
    );
    assert!(
        std::error::Error::source(&error).is_none(),
        "all is said once"
    );
}

/// Only a broken test takes this long.
const LONG: std::time::Duration = std::time::Duration::from_secs(30);

#[test]
fn events_during_write_are_in_next_write() {
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join("2026");
    fs::write(&blocked, "a file where a folder should be").unwrap();
    let (go, wait) = std::sync::mpsc::channel();
    let (failing, fails) = std::sync::mpsc::channel();
    let wait = Mutex::new(wait);
    let (plan, edges) = pages();
    let mut stream = Stream::new("r", "g");
    stream.planned(&plan, &edges);
    let sessions = SessionFolder::open(dir.path()).on_error(move |_| {
        failing.send(()).unwrap();
        let _ = wait.lock().unwrap().recv_timeout(LONG);
    });
    let writer = sessions.writer(&stream.run);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let entered = runtime.enter();
    stream.events.iter().for_each(|event| writer.apply(event));
    // The first write has failed, and does not end before the test releases it.
    fails.recv_timeout(LONG).unwrap();
    let mut more = Stream {
        run: "r".into(),
        now: BEGIN + 1,
        events: Vec::new(),
    };
    more.completed("fetch_a", json!({"a": 1}))
        .completed("fetch_b", json!({"b": 1}))
        .started("compare", 9);
    more.events.iter().for_each(|event| writer.apply(event));
    go.send(()).unwrap();
    fails.recv_timeout(LONG).unwrap();
    assert!(fails.try_recv().is_err());
    fs::remove_file(&blocked).unwrap();
    more.events.clear();
    more.failed("compare", "no")
        .notice(json!({"notice": "step_retried", "step": "report", "attempt": 1, "error": "e"}));
    more.events.iter().for_each(|event| writer.apply(event));
    go.send(()).unwrap();
    // No call to `flush` follows: the started write finishes regardless.
    drop(entered);
    drop(runtime);
    assert!(fails.try_recv().is_err());
    let session = Session::parse(&fs::read(writer.path().unwrap()).unwrap()).unwrap();
    assert_eq!(session.finished().count(), 2);
    assert_eq!(session.step("report").unwrap().error.as_deref(), Some("e"));
}

#[tokio::test]
async fn session_beyond_size_limit_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = SessionFolder::open(dir.path()).max_bytes(1_000);
    let stream = run("r1");
    let writer = sessions.writer(&stream.run);
    stream.events.iter().for_each(|event| writer.apply(event));
    let error = writer.flush().await.unwrap_err();
    assert!(
        matches!(error.problem, SessionProblem::TooLarge { max_bytes: 1_000 }),
        "{error}"
    );
    // An existing file that is too large is not read.
    let path = write(&SessionFolder::open(dir.path()), &stream).await;
    assert!(matches!(
        sessions.load("r1").await.unwrap_err().problem,
        SessionProblem::TooLarge { .. }
    ));
    assert_eq!(
        SessionFolder::open(dir.path()).find("r").await.unwrap(),
        path
    );
}

#[test]
fn writer_without_runtime_writes_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let stream = run("r1");
    let writer = SessionFolder::open(dir.path()).writer(&stream.run);
    stream.events.iter().for_each(|event| writer.apply(event));
    assert_eq!(
        json_of(&writer.path().unwrap())["graph"]["status"],
        "completed"
    );
}

#[tokio::test]
async fn list_and_find_return_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = SessionFolder::open(dir.path());
    assert!(
        sessions
            .list(&SessionFilter::new())
            .await
            .unwrap()
            .is_empty()
    );
    for (name, hours, goal) in [
        ("abc1", 0, "tides"),
        ("abd2", 1, "moons"),
        ("xyz/3", 30, "TIDES again"),
    ] {
        let mut stream = Stream::new(name, goal);
        stream
            .events
            .iter_mut()
            .for_each(|event| event.at = Timestamp::from_millis(BEGIN + hours * 3_600_000));
        stream.now += hours * 3_600_000;
        stream.planned(&pages().0, &[]);
        write(&sessions, &stream).await;
    }
    fs::write(
        dir.path().join("2026/03/04/session_torn.json"),
        "{\"graph\": {\"session_id\": \"to",
    )
    .unwrap();
    fs::write(dir.path().join("2026/03/notes.txt"), "not ours").unwrap();
    let ids = |found: Vec<levity_observe::SessionInfo>| {
        found.into_iter().map(|info| info.id).collect::<Vec<_>>()
    };
    let all = sessions.list(&SessionFilter::new()).await.unwrap();
    assert!(
        all[3]
            .problem
            .as_deref()
            .unwrap()
            .contains("invalid JSON at line 1"),
        "{all:?}"
    );
    assert_eq!(ids(all), ["xyz/3", "abd2", "abc1", "torn"]);
    assert_eq!(
        ids(sessions.list(&SessionFilter::new().limit(1)).await.unwrap()),
        ["xyz/3"]
    );
    assert_eq!(
        ids(sessions
            .list(&SessionFilter::new().query("tides"))
            .await
            .unwrap()),
        ["xyz/3", "abc1"]
    );
    assert_eq!(
        ids(sessions
            .list(&SessionFilter::new().status("running"))
            .await
            .unwrap())
        .len(),
        3
    );
    let since = SessionFilter::new().since(Timestamp::from_millis(BEGIN + 1));
    assert_eq!(ids(sessions.list(&since).await.unwrap()), ["xyz/3", "abd2"]);

    assert_eq!(
        sessions.load("xyz/3").await.unwrap().id,
        RunId::new("xyz/3")
    );
    assert!(
        sessions
            .find("abc")
            .await
            .unwrap()
            .ends_with("session_abc1.json")
    );
    let error = sessions.find("ab").await.unwrap_err();
    assert!(
        matches!(&error.problem, SessionProblem::Ambiguous { ids, .. } if ids.len() == 2),
        "{error}"
    );
    assert!(matches!(
        sessions.find("q").await.unwrap_err().problem,
        SessionProblem::Unknown(_)
    ));
    assert!(matches!(
        sessions.find("../../etc").await.unwrap_err().problem,
        SessionProblem::Unknown(_)
    ));
}

#[test]
fn file_names_of_hostile_ids_stay_in_folder() {
    let sessions = SessionFolder::open("s");
    let at = Timestamp::from_millis(BEGIN);
    let name = |id: &str| {
        sessions
            .path(&RunId::new(id), at)
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(name("../../x\0"), "session_..%2f..%2fx%00.json");
    assert_eq!(name("a.5"), "session_a.5.json");
    let (one, other) = (name(&"x".repeat(5_000)), name(&"x".repeat(5_001)));
    assert!(one.len() < 200 && one != other, "{one}");
}

#[cfg(unix)]
#[tokio::test]
async fn session_and_folders_are_private_to_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = write(&SessionFolder::open(dir.path()), &run("r1")).await;
    for place in path.ancestors().take_while(|place| *place != dir.path()) {
        assert_eq!(
            fs::metadata(place).unwrap().permissions().mode() & 0o077,
            0,
            "{place:?}"
        );
    }
}
