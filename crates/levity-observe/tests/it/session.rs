//! Sessions: what is written while a run goes on, and what can be had back.

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

/// The pages, with a file beside them.
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

/// A whole run: files, a plan, steps that are done, one that failed, one that was skipped.
pub(crate) fn run(name: &str) -> Stream {
    let (plan, edges) = planned();
    let mut stream = Stream::new(name, "compare \"two\" pages\n\u{1f30a}");
    stream
        .tell(json!({"notice": "profiling", "effect": 1}))
        .wait(10);
    stream
        .tell(json!({"notice": "planning", "effect": 2, "again": 0, "replan": 0}))
        .wait(2_000);
    let mut ending = levity_core::Ending::new(Status::Complete);
    ending.usage = crate::stream::usage(500, 70, 123_456_789);
    stream.own(EventKind::ChildFinished {
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
    stream.tell(json!({"notice": "step_skipped", "step": "report", "why": "`compare` failed"}));
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
async fn a_run_is_written_as_a_graph() {
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
    // Nothing else is left in the folder.
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_session_is_had_back() {
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

    // It is drawn like the run itself.
    let mut seen = PlanView::new();
    stream.events.iter().for_each(|event| seen.apply(event));
    let again = session.to_view();
    assert_eq!(
        again.tree(TreeOptions::new()),
        seen.tree(TreeOptions::new())
    );
    assert_eq!(again.summary(), seen.summary());
    assert_eq!((again.dot(), again.mermaid()), (seen.dot(), seen.mermaid()));

    let seed = session.seed();
    let done: Vec<&str> = seed.done.iter().map(|done| done.step.as_str()).collect();
    assert_eq!(
        (done, session.finished().count()),
        (vec!["fetch_a", "fetch_b"], 2)
    );
    assert_eq!(
        seed.done[1].output,
        json!({"b": [1, 2.5, null, 18_446_744_073_709_551_615_u64]})
    );
    assert_eq!(seed.done[1].writes[0].value, seed.done[1].output["b"]);
}

#[tokio::test]
async fn what_depends_on_a_step_is_done_again_with_it() {
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
        let seed = session.seed_without(&steps).unwrap();
        seed.done
            .into_iter()
            .map(|done| done.step.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(left(&["fetch_b"]), ["fetch_a"]);
    assert_eq!(left(&["report"]), ["fetch_a", "fetch_b", "compare"]);
    assert_eq!(left(&[]).len(), 4);
    assert!(
        matches!(session.seed_without(&[id("nobody")]), Err(SessionProblem::NoStep(step)) if step == "nobody")
    );
}

#[tokio::test]
async fn values_of_several_writers_become_one() {
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
async fn a_run_that_goes_on_goes_on_in_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = SessionFolder::open(dir.path());
    let mut stream = Stream::new("r", "g");
    let (plan, edges) = pages();
    stream
        .planned(&plan, &edges)
        .started("fetch_a", 3)
        .completed("fetch_a", json!({"a": "A"}));
    let path = write(&sessions, &stream).await;
    // Days later, only what is new is told.
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
        (session.query.as_str(), session.seed().done.len()),
        ("g", 2)
    );
    assert_eq!(session.globals["a"], "A");
    assert_eq!(session.created, Some(Timestamp::from_millis(BEGIN)));
}

#[tokio::test]
async fn a_write_that_fails_is_told_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join("2026");
    fs::write(&blocked, "a file where a folder should be").unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let stream = run("r1");
    let sessions = SessionFolder::open(dir.path())
        .on_error(move |error| tell.lock().unwrap().push(error.to_string()));
    let writer = sessions.writer(&stream.run);
    let (last, first) = stream.events.split_last().unwrap();
    first.iter().for_each(|event| writer.apply(event));
    let error = writer.flush().await.unwrap_err();
    assert!(matches!(error.problem, SessionProblem::Io(_)), "{error}");
    assert!(told.lock().unwrap()[0].contains("session_r1.json"));
    fs::remove_file(&blocked).unwrap();
    writer.apply(last);
    writer.flush().await.unwrap();
    assert_eq!(
        Session::load(writer.path().unwrap())
            .await
            .unwrap()
            .seed()
            .done
            .len(),
        2
    );
}

#[tokio::test]
async fn what_was_under_way_when_a_run_was_cancelled_is_to_be_done() {
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
async fn a_pipe_in_the_place_of_a_session_is_not_waited_for() {
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
            .ends_with("session_pipe.json`: it is not a regular file"),
        "{error}"
    );
    assert!(
        std::error::Error::source(&error).is_none(),
        "all is said once"
    );
}

#[tokio::test]
async fn a_team_keeps_sessions_of_its_runs() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = SessionFolder::open(dir.path());
    let team = crate::support::simple(&Default::default())
        .observe(sessions.clone())
        .build()
        .unwrap();
    let plan = Plan::new()
        .step(
            Step::new("list", "give")
                .input("give", json!([1, 2, 3]))
                .writes(["list"]),
        )
        .step(
            Step::new("each", "sum")
                .map(FanOut::over("list"))
                .input("plus", 10)
                .writes(["each"]),
        )
        .step(
            Step::new("bad", "fail")
                .after("list")
                .writes(["bad"])
                .retry(Retry::attempts(2).pause(Default::default())),
        )
        .step(Step::new("last", "sum").reads(["bad"]).writes(["last"]));
    let seen = Arc::new(Mutex::new(PlanView::new()));
    let fold = seen.clone();
    let run = team
        .run(TeamInput::from(plan.clone()).goal("add up"))
        .id("kept");
    let ended = run
        .on_event(move |event| fold.lock().unwrap().apply(event))
        .await;
    assert!(
        matches!(ended, Err(levity_dag::Error::Unreached { .. })),
        "{ended:?}"
    );

    let session = sessions.load("kept").await.unwrap();
    assert_eq!(
        (
            session.query.as_str(),
            session.stage,
            session.status.as_str()
        ),
        ("add up", PlanStage::Ended, "failed")
    );
    assert_eq!(session.globals["each"], json!([11, 12, 13]));
    let statuses: Vec<&str> = session
        .steps
        .iter()
        .map(|step| step.status.as_str())
        .collect();
    assert_eq!(statuses, ["completed", "completed", "failed", "skipped"]);
    assert_eq!(session.step("bad").unwrap().spent.attempts, 2);
    let items = session.step("each").unwrap().items.unwrap();
    assert_eq!((items.done, items.of), (3, 3));
    assert_eq!(session.seed().done.len(), 2);
    let (tree, summary) = {
        let seen = seen.lock().unwrap();
        (seen.tree(TreeOptions::new()), seen.summary())
    };
    assert_eq!(
        (
            session.to_view().tree(TreeOptions::new()),
            session.to_view().summary()
        ),
        (tree, summary)
    );

    // What it gave is taken for done by a run that goes on from it.
    let again = team
        .run(session.seed_without(&[id("each")]).unwrap())
        .id("again")
        .await;
    assert!(again.is_err());
    let again = sessions.load("again").await.unwrap();
    assert_eq!(again.globals["each"], json!([11, 12, 13]));
    assert_eq!(
        again.step("list").unwrap().written[0].value,
        json!([1, 2, 3])
    );
}

#[tokio::test]
async fn the_file_of_a_run_that_is_driven_elsewhere_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (free, begun) = (
        Arc::new(tokio::sync::Notify::new()),
        Arc::new(tokio::sync::Notify::new()),
    );
    let (wait, tell) = (free.clone(), begun.clone());
    let hold = levity_dag::Function::new(move |_| {
        let (wait, tell) = (wait.clone(), tell.clone());
        async move {
            tell.notify_one();
            wait.notified().await;
            Ok(json!(1))
        }
    });
    let sessions = SessionFolder::open(dir.path());
    let builder = crate::support::simple(&Default::default())
        .function("hold", hold)
        .observe(sessions.clone());
    let team = builder
        .runtime(Runtime::new().with_journal(MemoryJournal::new()))
        .build()
        .unwrap();
    let mut run = team
        .run(Plan::new().step(Step::new("one", "hold")))
        .id("r")
        .start();
    crate::support::within(begun.notified()).await;
    crate::support::within(async { while sessions.find("r").await.is_err() {} }).await;
    let path = sessions.find("r").await.unwrap();
    fs::remove_file(&path).unwrap();
    let other = crate::support::within(team.resume("r")).await;
    assert!(
        other
            .unwrap_err()
            .to_string()
            .contains("could not be driven")
    );
    assert!(!path.exists(), "it is for the other to write");
    free.notify_one();
    crate::support::within(&mut run).await.unwrap();
    assert_eq!(sessions.load("r").await.unwrap().status, "completed");
}

#[tokio::test]
async fn a_fork_of_a_run_has_a_session_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = SessionFolder::open(dir.path());
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let log = crate::support::Log::default();
    let team = crate::support::simple(&log)
        .observe(sessions.clone())
        .runtime(runtime)
        .build()
        .unwrap();
    let plan = Plan::new()
        .step(Step::new("one", "give").input("give", 1).writes(["one"]))
        .step(
            Step::new("two", "sum")
                .reads(["one"])
                .input("plus", 1)
                .writes(["two"]),
        );
    team.run(TeamInput::from(plan).goal("add up"))
        .id("old")
        .await
        .unwrap();
    let old = sessions.load("old").await.unwrap();
    log.take();
    // A run with that id is there, so nothing of it is changed.
    assert!(team.fork("old").id("old").await.is_err());
    assert_eq!(sessions.load("old").await.unwrap(), old);
    team.fork("old").id("new").await.unwrap();
    let new = sessions.load("new").await.unwrap();
    assert_eq!(
        (new.query.as_str(), new.status.as_str(), new.globals.clone()),
        ("add up", "completed", old.globals)
    );
    assert_eq!(new.seed().done.len(), 2);
    assert_eq!(log.take(), [""; 0], "all was done");
}

#[tokio::test]
async fn the_session_of_a_fork_has_what_it_began_with() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = SessionFolder::open(folder.path());
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let team = crate::support::simple(&Default::default())
        .runtime(runtime)
        .observe(sessions.clone())
        .build()
        .unwrap();
    let plan = Plan::new()
        .step(Step::new("a", "give").input("give", 1).writes(["a"]))
        .step(
            Step::new("b", "give")
                .input("give", 2)
                .writes(["b"])
                .after("a"),
        );
    crate::support::within(team.run(plan).id("one"))
        .await
        .unwrap();
    crate::support::within(team.fork("one").after(2).id("two"))
        .await
        .unwrap();
    let session = sessions.load("two").await.unwrap();
    assert_eq!(
        session
            .finished()
            .map(|step| step.step.id.as_str())
            .collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert_eq!(session.globals["b"], json!(2));
}

/// Only what is broken takes as long.
const LONG: std::time::Duration = std::time::Duration::from_secs(30);

#[test]
fn what_happens_during_a_write_is_in_the_next() {
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
    // The first write has failed, and is not over before we say so.
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
        .tell(json!({"notice": "step_retried", "step": "report", "attempt": 1, "error": "e"}));
    more.events.iter().for_each(|event| writer.apply(event));
    go.send(()).unwrap();
    // Nobody flushes: the work that has begun is finished all the same.
    drop(entered);
    drop(runtime);
    assert!(fails.try_recv().is_err());
    let session = Session::parse(&fs::read(writer.path().unwrap()).unwrap()).unwrap();
    assert_eq!(session.finished().count(), 2);
    assert_eq!(session.step("report").unwrap().error.as_deref(), Some("e"));
}

#[tokio::test]
async fn a_session_that_is_too_large_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = SessionFolder::open(dir.path()).max_bytes(1_000);
    let stream = run("r1");
    let writer = sessions.writer(&stream.run);
    stream.events.iter().for_each(|event| writer.apply(event));
    let error = writer.flush().await.unwrap_err();
    assert!(
        matches!(error.problem, SessionProblem::TooLarge { most: 1_000 }),
        "{error}"
    );
    // And one that is there is not read.
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
fn without_a_runtime_it_is_written_at_once() {
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
async fn sessions_are_listed_and_found() {
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
            .contains("not JSON at line 1"),
        "{all:?}"
    );
    assert_eq!(ids(all), ["xyz/3", "abd2", "abc1", "torn"]);
    assert_eq!(
        ids(sessions.list(&SessionFilter::new().most(1)).await.unwrap()),
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
fn ids_stay_in_the_folder() {
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

/// What a file must be refused with: where, and why.
#[track_caller]
fn refused(file: &str, expected: &str) {
    let problem = Session::parse(file.as_bytes()).unwrap_err();
    assert_eq!(problem.to_string(), expected);
}

#[test]
fn what_is_no_session_is_refused_by_place() {
    refused("", "it is not JSON at line 1, column 0");
    refused(
        "{\"nodes\": [\n{\"id\": ",
        "it is not JSON at line 2, column 7",
    );
    refused("[]", "at ``: it is no object");
    refused("{}", "at `/nodes`: there are no nodes");
    refused(
        r#"{"directed": false, "nodes": []}"#,
        "at `/directed`: it is no directed graph",
    );
    refused(r#"{"nodes": {}}"#, "at `/nodes`: it is no list");
    refused(r#"{"nodes": [7]}"#, "at `/nodes/0`: it is no object");
    refused(
        r#"{"nodes": [{"id": []}]}"#,
        "at `/nodes/0/id`: it is neither a text nor a number",
    );
    refused(
        r#"{"nodes": [{"id": "a"}, {"id": "a"}]}"#,
        "at `/nodes/1/id`: another node has it, too",
    );
    refused(
        r#"{"nodes": [{"id": "a", "reads": "secret"}]}"#,
        "at `/nodes/0/reads`: it is not what a step has there",
    );
    refused(
        r#"{"nodes": [{"id": "a", "agent_prompt": 7}]}"#,
        "at `/nodes/0/agent_prompt`: it is not what a step has there",
    );
    refused(
        r#"{"nodes": [{"id": "a", "attempts": -1}]}"#,
        "at `/nodes/0/attempts`: it is not what it should be",
    );
    refused(
        r#"{"nodes": [{"id": "a", "written": [{}]}]}"#,
        "at `/nodes/0/written`: it is no list of what was written",
    );
    refused(
        r#"{"nodes": [], "edges": [{"source": "a", "target": "b"}]}"#,
        "at `/edges/0/source`: it names no node",
    );
    refused(
        r#"{"nodes": [], "links": [1]}"#,
        "at `/links/0`: it is no object",
    );
    refused(
        r#"{"graph": 1, "nodes": []}"#,
        "at `/graph`: it is no object",
    );
    refused(
        r#"{"graph": {"format": 99}, "nodes": []}"#,
        "at `/graph/format`: a newer version of levity wrote it",
    );
    let deep = format!("{{\"nodes\": {}", "[".repeat(100_000));
    assert!(matches!(
        Session::parse(deep.as_bytes()),
        Err(SessionProblem::Json { .. })
    ));
    assert!(matches!(
        Session::parse(b"{\"nodes\": \"\xff\"}"),
        Err(SessionProblem::Json { .. })
    ));
}

#[tokio::test]
async fn the_error_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("session_x.json");
    let error = Session::load(&path).await.unwrap_err();
    assert!(error.to_string().contains("session_x.json"), "{error}");
    fs::write(&path, "{}").unwrap();
    let error = Session::load(&path).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("session_x.json`: at `/nodes`: there are no nodes"),
        "{error}"
    );
}

/// A file as the program writes it that came first.
const SOURCE: &str = r#"{
    "directed": true, "multigraph": false,
    "graph": {
        "session_id": "12345678", "original_query": "User query", "file_manifest": [],
        "created_at": "2025-01-15T10:30:00", "status": "running",
        "globals_schema": {"data": {"k": 1}, "topic": "tides"}, "output_chain": {}
    },
    "nodes": [
        {"description": "Initial Query", "agent": "System", "status": "completed", "id": "ROOT"},
        {"agent": "RetrieverAgent", "description": "find", "agent_prompt": "Find it.", "reads": ["topic"], "writes": ["data"],
         "status": "completed", "output": {"data": {"k": 1}}, "error": null, "cost": 0.001, "start_time": "2025-01-15T10:30:01.5",
         "end_time": "2025-01-15T10:30:04", "execution_time": 2.5, "input_tokens": 100.0, "output_tokens": 20, "id": "T001",
         "iterations": [1]},
        {"agent": "SummarizerAgent", "reads": ["data"], "writes": ["summary"], "status": "failed",
         "error": "timeout", "output": null, "id": "T002"},
        {"agent": "QAAgent", "status": "odd", "id": 3}
    ],
    "links": [{"source": "ROOT", "target": "T001"}, {"source": "T001", "target": "T002"}, {"source": "T002", "target": 3}]
}"#;

#[test]
fn files_of_the_source_are_read() {
    let session = Session::parse(SOURCE.as_bytes()).unwrap();
    assert_eq!(
        (session.id.as_str(), session.query.as_str(), session.stage),
        ("12345678", "User query", PlanStage::Running)
    );
    assert_eq!(
        session.created.unwrap().to_string(),
        "2025-01-15T10:30:00.000Z"
    );
    assert_eq!(session.plan().given["topic"], "tides");
    assert!(!session.plan().given.contains_key("data"));
    let find = session.step("T001").unwrap();
    assert_eq!(
        (&*find.step.prompt, find.status),
        ("Find it.", StepStatus::Completed)
    );
    assert_eq!(
        (
            find.spent.usage.input,
            find.spent.usage.cost.unwrap().to_string()
        ),
        (Some(100), "$0.001".into())
    );
    assert_eq!(
        (
            find.written[0].value.clone(),
            find.extra["iterations"].clone()
        ),
        (json!({"k": 1}), json!([1]))
    );
    assert_eq!(session.extra["output_chain"], json!({}));
    assert_eq!(session.step("3").unwrap().step.after[0].step, id("T002"));
    assert_eq!(session.step("3").unwrap().status, StepStatus::Pending);
    assert_eq!(session.seed().done.len(), 1);
    assert_eq!(
        session.to_view().tree(TreeOptions::new()),
        "\
ROOT User query
└── T001 ✓ RetrieverAgent 2.5 s
    └── T002 ✗ SummarizerAgent: timeout
        └── 3 ○ QAAgent
"
    );
}

/// A step with everything that a step can have.
fn any_step() -> impl Strategy<Value = Step> {
    let name = "[a-c]{1,2}";
    let words = prop::collection::vec(name.prop_map(|name| name), 0..3);
    let odd = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        2..5_u32,
        "\\PC{0,12}",
    );
    ("\\PC{1,20}", "\\PC{0,12}", words.clone(), words, odd).prop_map(
        |(id, text, reads, writes, odd)| {
            let (fan, budget, when, fallback, attempts, code) = odd;
            let mut step = Step::new(id, text.clone())
                .description(text.clone())
                .prompt(text)
                .reads(reads)
                .writes(writes);
            if fan {
                step = step
                    .map(FanOut::over("list").first(2).reduced_by(Reducer::Concat))
                    .join(Join::Any);
            }
            if budget {
                let budget = Budget::new()
                    .tokens(5)
                    .money(levity_core::Money::from_nanos(7_000_000))
                    .tool_calls(1);
                step = step
                    .budget(budget)
                    .timeout(std::time::Duration::from_millis(1_500))
                    .input("k", json!({"v": [code]}));
            }
            if when {
                step = step
                    .when(Condition::parse("a == 1").unwrap())
                    .on_failure(OnFailure::Continue);
            }
            if fallback {
                step = step
                    .retry(Retry::attempts(attempts))
                    .on_failure(OnFailure::Fallback("z".into()));
            }
            step
        },
    )
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map(".{0,6}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_plan_and_result_is_had_back(
        steps in prop::collection::vec((any_step(), any_json(), 0..4_u8), 0..6),
        goal in ".{0,30}",
        given in any_json(),
    ) {
        let mut plan = Plan::new().given("given", given);
        let mut stream = Stream::new("r", &goal);
        let mut tell = Vec::new();
        for (at, (mut step, value, end)) in steps.into_iter().enumerate() {
            step.id = format!("{}{at}", step.id).into();
            if at > 0 {
                step = step.after(plan.steps[at - 1].id.clone());
            }
            tell.push((step.clone(), value, end));
            plan = plan.step(step);
        }
        let edges: Vec<(&str, &str)> = plan.steps.windows(2).map(|two| (two[0].id.as_str(), two[1].id.as_str())).collect();
        stream.planned(&plan, &edges);
        for (step, value, end) in &tell {
            let writes: serde_json::Map<String, Value> = step.writes.iter().map(|name| (name.to_string(), value.clone())).collect();
            match end {
                0 => stream.wait(3).completed(step.id.as_str(), writes.into()),
                1 => stream.wait(3).failed(step.id.as_str(), &value.to_string()),
                _ => stream.started(step.id.as_str(), 4),
            };
        }
        let dir = tempfile::tempdir().unwrap();
        let writer = SessionFolder::open(dir.path()).writer(&stream.run);
        stream.events.iter().for_each(|event| writer.apply(event));
        let path = writer.path().unwrap();
        let session = Session::parse(&fs::read(&path).unwrap()).unwrap();
        prop_assert_eq!(&**session.plan(), &plan);
        prop_assert_eq!(&session.query, &goal);
        let done = session.seed().done;
        let expected: Vec<_> = tell.iter().filter(|(_, _, end)| *end == 0).collect();
        prop_assert_eq!(done.len(), expected.len());
        for (done, (step, value, _)) in done.iter().zip(expected) {
            prop_assert_eq!(&done.step, &step.id);
            prop_assert!(done.writes.iter().all(|one| one.value == *value && done.output[&*one.name] == *value));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(at in 0..2_000_usize, with in any::<u8>(), cut in any::<bool>()) {
        let mut bytes = SOURCE.as_bytes().to_vec();
        let at = at % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] = with }
        let _ = Session::parse(&bytes).map(|session| (session.seed(), session.to_view().summary()));
    }
}

/// Writes one session again and again, until it is killed.
#[test]
fn writer_process() {
    let Some(dir) = std::env::var_os("LEVITY_TEST_SESSION_WRITER") else {
        return;
    };
    let (plan, edges) = pages();
    let mut stream = Stream::new("killed", "g");
    stream.planned(&plan, &edges);
    let writer = SessionFolder::open(dir).writer(&stream.run);
    stream.events.iter().for_each(|event| writer.apply(event));
    for size in 1.. {
        let mut more = Stream {
            run: "killed".into(),
            now: BEGIN + size,
            events: Vec::new(),
        };
        more.completed("fetch_a", json!({"a": "x".repeat(300_000 + size as usize)}));
        more.events.iter().for_each(|event| writer.apply(event));
    }
}

#[test]
fn a_killed_process_leaves_a_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("2026/03/04/session_killed.json");
    for round in 0..10 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "session::writer_process", "--nocapture"])
            .env("LEVITY_TEST_SESSION_WRITER", dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // It is killed at another place each time: after so many looks at a file that changes under
        // our eyes.
        let mut last = 0;
        let mut changes = 0;
        while changes < 2 + round {
            let size = fs::metadata(&path).map_or(0, |data| data.len());
            changes += u64::from(size != last);
            last = size;
            assert!(child.try_wait().unwrap().is_none(), "the writer has gone");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let session = Session::parse(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(session.query, "g");
    }
    // What was left behind is tidied up by the next.
    let mut stream = Stream::new("killed", "g");
    stream.ended(Status::Complete);
    let writer = SessionFolder::open(dir.path()).writer(&stream.run);
    stream.events.iter().for_each(|event| writer.apply(event));
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn session_and_its_folders_are_made_for_their_owner_alone() {
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
