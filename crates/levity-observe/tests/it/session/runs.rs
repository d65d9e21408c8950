//! Session files of team runs and forks.

use super::*;

#[tokio::test]
async fn team_writes_sessions_of_its_runs() {
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
    assert_eq!((items.done, items.total), (3, 3));
    assert_eq!(session.starting_plan().completed.len(), 2);
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

    // A continuing run treats its output as done.
    let again = team
        .run(session.starting_plan_repeating(&[id("each")]).unwrap())
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
async fn file_of_run_driven_elsewhere_is_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (free, begun) = (
        Arc::new(tokio::sync::Notify::new()),
        Arc::new(tokio::sync::Notify::new()),
    );
    let (wait, notice) = (free.clone(), begun.clone());
    let hold = levity_dag::Function::new(move |_| {
        let (wait, notice) = (wait.clone(), notice.clone());
        async move {
            notice.notify_one();
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
            .contains("could not continue")
    );
    assert!(!path.exists(), "it is for the other to write");
    free.notify_one();
    crate::support::within(&mut run).await.unwrap();
    assert_eq!(sessions.load("r").await.unwrap().status, "completed");
}

#[tokio::test]
async fn fork_has_separate_session() {
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
    // A run with that id exists, so none of its data changes.
    assert!(team.fork("old").id("old").await.is_err());
    assert_eq!(sessions.load("old").await.unwrap(), old);
    team.fork("old").id("new").await.unwrap();
    let new = sessions.load("new").await.unwrap();
    assert_eq!(
        (new.query.as_str(), new.status.as_str(), new.globals.clone()),
        ("add up", "completed", old.globals)
    );
    assert_eq!(new.starting_plan().completed.len(), 2);
    assert_eq!(log.take(), [""; 0], "all was done");
}

#[tokio::test]
async fn session_of_fork_has_inherited_steps() {
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
