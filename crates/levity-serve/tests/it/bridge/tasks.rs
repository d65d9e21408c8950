use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_core::{JournalError, JournalErrorKind};
use levity_loop::Agent;
use levity_runtime::{FileJournal, MemoryJournal, Runtime};
use levity_sandbox::Workspace;
use levity_serve::bridge::{BridgeClient, BridgeHost, ErrorKind, HostLimits};
use levity_serve::{AccessControl, Listener, NewRun, Runs, Token};
use levity_test::ScriptedModel;
use serde_json::json;
use tokio::task::JoinSet;

use super::{TOKEN, TestHost, within};

#[tokio::test]
async fn dispatched_task_ends_with_a_signal_file() {
    let model = ScriptedModel::new()
        .call(
            "write_file",
            json!({"path": "ARCHITECTURE.md", "content": "# Plan\n"}),
        )
        .reply("It is planned.");
    let stage = TestHost::scripted(model).await;
    let client = stage.client();
    let mut was_notified = client.notifications();
    let started = client
        .request(
            "agent/dispatch",
            json!({"prompt": "Plan it.", "done": "DONE_plan"}),
        )
        .await
        .unwrap();
    let task = started["task"].as_str().unwrap().to_owned();
    assert_eq!(
        started["signal"],
        json!({"done": "DONE_plan", "failed": format!("FAILED_{task}")})
    );
    let found = client
        .request("fs/wait", json!({"path": "DONE_plan", "timeout": 30}))
        .await
        .unwrap();
    assert_eq!(found["timed_out"], false);
    let signal = client
        .request("fs/read", json!({"path": "DONE_plan"}))
        .await
        .unwrap();
    let signal: serde_json::Value =
        serde_json::from_str(signal["content"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&signal["task"], &signal["answer"]),
        (&json!(task), &json!("It is planned."))
    );
    assert_eq!(
        fs::read_to_string(stage.folder.path().join("ARCHITECTURE.md")).unwrap(),
        "# Plan\n"
    );
    let status = client
        .request("agent/status", json!({"task": task}))
        .await
        .unwrap();
    assert_eq!(
        (&status["state"], &status["signal"]),
        (&json!("done"), &json!("DONE_plan"))
    );
    let list = client.request("agent/list", json!({})).await.unwrap();
    assert_eq!(list["tasks"][0]["task"], json!(task));
    // Clients were notified of the agent's change, the task's events and its signal.
    let (mut changed, mut ended) = (Vec::new(), false);
    while !ended || changed.len() < 2 {
        let was_notified = within(was_notified.next()).await.unwrap();
        match was_notified["method"].as_str().unwrap() {
            "fs/changed" => {
                assert_eq!(was_notified["params"]["by"]["task"], json!(task));
                changed.push(was_notified["params"]["path"].as_str().unwrap().to_owned());
            }
            "agent/event" => {
                ended |= was_notified["params"]["event"]["kind"]["run_ended"].is_object();
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(changed, ["ARCHITECTURE.md", "DONE_plan"]);
    assert!(
        stage.was_notified(&format!("dispatched task {task}: Plan it."))
            && stage.was_notified("ended (complete): DONE_plan")
    );
}

#[tokio::test]
async fn failed_or_cancelled_task_reports_its_status() {
    let stage = TestHost::scripted(ScriptedModel::new()).await;
    let client = stage.client();
    let started = client.dispatch("x", None).await.unwrap();
    let failed = format!("FAILED_{}", started["task"].as_str().unwrap());
    client
        .request("fs/wait", json!({"path": failed, "timeout": 30}))
        .await
        .unwrap();
    let status = client
        .request("agent/status", json!({"task": started["task"]}))
        .await
        .unwrap();
    assert_eq!(status["state"], "failed");

    let stage = TestHost::scripted(ScriptedModel::new().hang()).await;
    let client = stage.client();
    let started = client.dispatch("x", Some("sub/READY")).await.unwrap();
    let which = json!({"task": started["task"]});
    assert_eq!(
        client.request("agent/status", which.clone()).await.unwrap()["state"],
        "running"
    );
    client.request("agent/cancel", which.clone()).await.unwrap();
    client
        .request("fs/wait", json!({"glob": "FAILED_*", "timeout": 30}))
        .await
        .unwrap();
    assert_eq!(
        client.request("agent/status", which.clone()).await.unwrap()["state"],
        "cancelled"
    );
    assert_eq!(
        client
            .request("agent/cancel", which)
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Ended
    );
    assert!(!stage.folder.path().join("sub/READY").exists());
}

#[tokio::test]
async fn cancel_with_too_long_reason_is_rejected() {
    let stage = TestHost::scripted(ScriptedModel::new().hang()).await;
    let mut raw = stage.raw().await;
    raw.request("agent/dispatch", json!({"prompt": "x", "task": "a"}))
        .await
        .unwrap();
    let cancel = |length: usize| json!({"task": "a", "reason": "x".repeat(length)});
    assert_eq!(
        raw.refusal("agent/cancel", cancel(100_001)).await,
        "too_large"
    );
    raw.request("agent/cancel", cancel(100_000)).await.unwrap();
}

#[tokio::test]
async fn repeated_dispatch_with_same_id_starts_one_task() {
    let stage = TestHost::scripted(ScriptedModel::new().reply("one").reply("two")).await;
    let client = stage.client();
    let order = json!({"prompt": "p", "task": "mine"});
    let many = (0..10).map(|_| client.request("agent/dispatch", order.clone()));
    let answers = futures_util::future::join_all(many).await;
    let known: Vec<_> = answers
        .iter()
        .map(|answer| answer.as_ref().unwrap()["known"].as_bool().unwrap())
        .collect();
    assert_eq!(known.iter().filter(|known| !**known).count(), 1);
    client
        .request("fs/wait", json!({"path": "DONE_mine", "timeout": 30}))
        .await
        .unwrap();
    assert_eq!(
        client.request("agent/dispatch", order).await.unwrap()["known"],
        true,
        "also when it has ended"
    );
    let other = client
        .request("agent/dispatch", json!({"prompt": "q", "task": "mine"}))
        .await
        .unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Exists);
    for bad in ["", "a.b", "../x", "a/b", "ü", &"x".repeat(65)] {
        let error = client
            .request("agent/dispatch", json!({"prompt": "p", "task": bad}))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
    }
}

#[tokio::test]
async fn dispatch_with_invalid_parameters_is_rejected() {
    let stage = TestHost::scripted(ScriptedModel::new()).await;
    fs::write(stage.folder.path().join("there"), "mine").unwrap();
    let mut raw = stage.raw().await;
    for (done, kind) in [
        ("there", "exists"),
        ("../x", "outside"),
        ("/etc/x", "outside"),
        (".git/hooks/post-commit", "denied"),
        ("C:\\x", "invalid"),
        ("a\0", "invalid"),
        ("", "invalid"),
        ("[plan]", "invalid"),
        ("{a,b}", "invalid"),
        (".levity-signal-mine", "invalid"),
        ("signals/.levity-signal-mine", "invalid"),
    ] {
        assert_eq!(
            raw.refusal("agent/dispatch", json!({"prompt": "p", "done": done}))
                .await,
            kind,
            "{done:?}"
        );
    }
    assert_eq!(
        raw.refusal("agent/dispatch", json!({"prompt": " "})).await,
        "invalid"
    );
    assert_eq!(
        raw.refusal("agent/dispatch", json!({"prompt": "x".repeat(100_001)}))
            .await,
        "too_large"
    );
    assert_eq!(
        raw.refusal("agent/status", json!({"task": "nope"})).await,
        "not_found"
    );
    // This also holds if the names follow from the task's own id.
    for name in ["DONE_mine", "FAILED_mine"] {
        fs::write(stage.folder.path().join(name), "another's").unwrap();
        for order in [
            json!({"prompt": "p", "task": "mine"}),
            json!({"prompt": "p", "task": "mine", "done": "READY"}),
        ] {
            assert_eq!(
                raw.refusal("agent/dispatch", order).await,
                "exists",
                "{name}"
            );
        }
        fs::remove_file(stage.folder.path().join(name)).unwrap();
    }
    let failure = json!({"prompt": "p", "task": "mine", "done": "FAILED_mine"});
    assert_eq!(raw.refusal("agent/dispatch", failure).await, "exists");
    assert_eq!(
        raw.request("agent/list", json!({})).await.unwrap(),
        json!({"tasks": []})
    );
}

/// A client that waits for a task never mistakes another task's signal for its own.
#[tokio::test]
async fn signal_file_name_belongs_to_one_task() {
    let stage = TestHost::scripted(ScriptedModel::new().hang().hang()).await;
    let mut raw = stage.raw().await;
    let first = json!({"prompt": "p", "task": "a", "done": "READY"});
    raw.request("agent/dispatch", first.clone()).await.unwrap();
    for other in [
        json!({"prompt": "q", "done": "READY"}),
        json!({"prompt": "q", "done": "DONE_a"}),
        json!({"prompt": "q", "done": "FAILED_a"}),
    ] {
        assert_eq!(raw.refusal("agent/dispatch", other).await, "exists");
    }
    assert_eq!(
        raw.request("agent/dispatch", first).await.unwrap()["known"],
        true
    );
    raw.request("agent/cancel", json!({"task": "a"}))
        .await
        .unwrap();
    raw.request("fs/wait", json!({"path": "FAILED_a", "timeout": 30}))
        .await
        .unwrap();
    within(async {
        while raw
            .request(
                "agent/dispatch",
                json!({"prompt": "q", "task": "b", "done": "READY"}),
            )
            .await
            .is_err()
        {}
    })
    .await;
}

/// An id that the journal has but the host does not belongs to another task.
#[tokio::test]
async fn dispatch_with_existing_run_id_is_rejected() {
    let journal = MemoryJournal::new();
    for expected in [None, Some(ErrorKind::Exists)] {
        let folder = tempfile::tempdir().unwrap();
        let host = BridgeHost::builder(Workspace::open(folder.path()).unwrap())
            .build()
            .unwrap();
        let runtime = Runtime::new().with_journal(journal.clone());
        let agent = Agent::builder(ScriptedModel::new().reply("x"))
            .runtime(runtime)
            .build()
            .unwrap();
        host.commander(Runs::new(agent)).await.unwrap();
        let (address, _served) = serve(&host).await;
        let client = BridgeClient::new(&address, Token::new(TOKEN).unwrap()).unwrap();
        let started = client
            .request("agent/dispatch", json!({"prompt": "p", "task": "a"}))
            .await;
        assert_eq!(started.err().map(|error| error.kind()), expected);
        if expected.is_none() {
            client
                .request("fs/wait", json!({"path": "DONE_a", "timeout": 30}))
                .await
                .unwrap();
        }
    }
}

/// The glob that a dispatch returns finds its signal even if `.gitignore` names the folder.
#[tokio::test]
async fn signal_in_ignored_folder_is_found() {
    let stage = TestHost::scripted(ScriptedModel::new().reply("x")).await;
    fs::write(stage.folder.path().join(".gitignore"), "signals/\n").unwrap();
    let client = stage.client();
    client.dispatch("p", Some("signals/plan")).await.unwrap();
    let wait = json!({"glob": "{signals/plan,FAILED_x}", "timeout": 10});
    assert_eq!(
        client.request("fs/wait", wait).await.unwrap()["found"],
        json!(["signals/plan"])
    );
}

#[tokio::test]
async fn client_retries_while_the_host_is_loading() {
    let stage = TestHost::loading(HostLimits::new()).await;
    let client = stage.client();
    assert_eq!(
        client.request("host/info", json!({})).await.unwrap()["ready"],
        false
    );
    client
        .request("fs/write", json!({"path": "a", "content": ""}))
        .await
        .unwrap();
    assert_eq!(
        stage
            .raw()
            .await
            .refusal("agent/dispatch", json!({"prompt": "p"}))
            .await,
        "not_ready"
    );
    let impatient = client.clone().retry_time(Duration::ZERO);
    let error = impatient.dispatch("p", None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReady);
    assert!(error.to_string().contains("still loading"), "{error}");
    let (started, ()) = within(async {
        tokio::join!(client.dispatch("p", None), async {
            client.request("ping", json!({})).await.unwrap();
            stage
                .host
                .commander(stage.runs(ScriptedModel::new().reply("x")))
                .await
                .unwrap();
        })
    })
    .await;
    assert_eq!(started.unwrap()["known"], false);
}

/// Tasks of an earlier host are resumed as slots become free, and ended ones are signalled.
#[tokio::test]
async fn tasks_of_an_earlier_host_are_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (work, notes) = (folder.path().join("work"), folder.path().join("notes"));
    fs::create_dir(&work).unwrap();
    let journal = MemoryJournal::new();
    let build = || {
        BridgeHost::builder(Workspace::open(&work).unwrap())
            .tasks(&notes)
            .build()
    };
    let runs = |model: ScriptedModel, most: usize| {
        let runtime = Runtime::new().with_journal(journal.clone());
        Runs::new(Agent::builder(model).runtime(runtime).build().unwrap()).max_runs(most)
    };
    let first = build().unwrap();
    first
        .commander(runs(ScriptedModel::new().hang().hang().hang(), 3))
        .await
        .unwrap();
    let (address, served) = serve(&first).await;
    let client = BridgeClient::new(&address, Token::new(TOKEN).unwrap()).unwrap();
    for task in ["a", "b", "c"] {
        client
            .request("agent/dispatch", json!({"prompt": "p", "task": task}))
            .await
            .unwrap();
    }
    let full = client
        .request("agent/dispatch", json!({"prompt": "p"}))
        .await
        .unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Full);
    assert!(build().is_err(), "two hosts do not share tasks");
    drop((served, first, client));
    let second = within(async {
        loop {
            match build() {
                Ok(host) => return host,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    second
        .commander(runs(
            ScriptedModel::new().reply("x").reply("y").reply("z"),
            1,
        ))
        .await
        .unwrap();
    let (address, _served) = serve(&second).await;
    let client = BridgeClient::new(&address, Token::new(TOKEN).unwrap()).unwrap();
    for task in ["a", "b", "c"] {
        let path = format!("DONE_{task}");
        let found = client
            .request("fs/wait", json!({"path": path, "timeout": 30}))
            .await
            .unwrap();
        assert_eq!(found["timed_out"], false, "{task}");
    }
}

/// Tasks that end while others are being recovered free slots as well, and a signal has the time at
/// which its task ended.
#[tokio::test]
async fn queued_tasks_are_resumed_when_slots_become_free() {
    let folder = tempfile::tempdir().unwrap();
    let (work, notes) = (folder.path().join("work"), folder.path().join("notes"));
    fs::create_dir(&work).unwrap();
    // A tool that runs other code in the meantime.
    let journal = FileJournal::new(folder.path().join("journal")).unwrap();
    let runs = |model: ScriptedModel, most: usize| {
        let runtime = Runtime::new().with_journal(journal.clone());
        Runs::new(Agent::builder(model).runtime(runtime).build().unwrap()).max_runs(most)
    };
    let tasks: Vec<String> = (0..30).map(|at| format!("t{at}")).collect();
    {
        let model = tasks
            .iter()
            .fold(ScriptedModel::new(), |model, _| model.hang());
        let first = BridgeHost::builder(Workspace::open(&work).unwrap())
            .tasks(&notes)
            .build()
            .unwrap();
        first.commander(runs(model, 64)).await.unwrap();
        let (address, _served) = serve(&first).await;
        let client = BridgeClient::new(&address, Token::new(TOKEN).unwrap()).unwrap();
        for task in &tasks {
            client
                .request("agent/dispatch", json!({"prompt": "p", "task": task}))
                .await
                .unwrap();
        }
    }
    let second = within(async {
        loop {
            match BridgeHost::builder(Workspace::open(&work).unwrap())
                .tasks(&notes)
                .build()
            {
                Ok(host) => return host,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    let model = tasks
        .iter()
        .fold(ScriptedModel::new(), |model, _| model.reply("x"));
    second.commander(runs(model, 1)).await.unwrap();
    // A second commander is rejected, and changes nothing of the first.
    let other = Runs::new(Agent::builder(ScriptedModel::new()).build().unwrap());
    assert!(second.commander(other).await.is_err());
    let (address, _served) = serve(&second).await;
    let client = BridgeClient::new(&address, Token::new(TOKEN).unwrap()).unwrap();
    for task in &tasks {
        let wait = json!({"path": format!("DONE_{task}"), "timeout": 60});
        assert_eq!(
            within(client.request("fs/wait", wait)).await.unwrap()["timed_out"],
            false,
            "{task}"
        );
    }
    let signal: serde_json::Value =
        serde_json::from_slice(&fs::read(work.join("DONE_t0")).unwrap()).unwrap();
    assert!(signal["ended"].as_str().unwrap() > "2020", "{signal}");
}

/// Others may have written the records and the journal. The workspace changes only if the runs of
/// the tasks may be resumed.
#[tokio::test]
async fn recorded_tasks_with_rejected_runs_change_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let (work, notes) = (folder.path().join("work"), folder.path().join("notes"));
    fs::create_dir(&work).unwrap();
    fs::create_dir(&notes).unwrap();
    fs::write(work.join(".levity-signal-named"), "mine").unwrap();
    fs::write(work.join(".levity-signal-lost"), "mine").unwrap();
    let journal = MemoryJournal::new();
    let runs = |model: ScriptedModel| {
        let runtime = Runtime::new().with_journal(journal.clone());
        Runs::new(Agent::builder(model).runtime(runtime).build().unwrap())
    };
    let first = runs(ScriptedModel::new().reply("theirs").reply("theirs"));
    for task in ["ended", "named"] {
        let run = first.start(NewRun::new("p").id(task)).unwrap();
        assert!(within(run.outcome()).await.ending().is_some());
    }
    for task in ["ended", "named", "lost"] {
        let stage = match task {
            "ended" => json!("open"),
            _ => json!({"signalling": {
                "from": format!(".levity-signal-{task}"), "path": format!("R_{task}"), "good": true,
            }}),
        };
        let record = json!({
            "task": task, "prompt": "", "made": 1, "done": format!("R_{task}"),
            "failed": format!("FAILED_{task}"), "stage": stage,
        });
        fs::write(notes.join(format!("{task}.json")), record.to_string()).unwrap();
    }
    let notices = Arc::new(Mutex::new(Vec::new()));
    let build = || {
        let notices = notices.clone();
        BridgeHost::builder(Workspace::open(&work).unwrap())
            .tasks(&notes)
            .on_notice(move |notice| notices.lock().unwrap().push(notice.to_string()))
            .build()
            .unwrap()
    };
    let names = || {
        let entries = fs::read_dir(&work).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let host = build();
    let reject = |_: &_| Err(JournalError::new(JournalErrorKind::Refused, "not your run"));
    host.commander(runs(ScriptedModel::new()).resume_if(reject))
        .await
        .unwrap();
    assert_eq!(names(), [".levity-signal-lost", ".levity-signal-named"]);
    let problems = std::mem::take(&mut *notices.lock().unwrap());
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems
            .iter()
            .all(|notice| notice.contains("not your run"))
    );
    assert!(!notes.join("lost.json").exists(), "its run does not exist");
    drop(host);
    // The records remain, so the tasks are published once their runs are trusted.
    build().commander(runs(ScriptedModel::new())).await.unwrap();
    assert_eq!(names(), [".levity-signal-lost", "R_ended", "R_named"]);
}

async fn serve(host: &BridgeHost) -> (String, JoinSet<()>) {
    let access = AccessControl::new(Token::new(TOKEN).unwrap());
    let listener = Listener::bind("127.0.0.1:0", access).await.unwrap();
    let (address, host) = (format!("ws://{}", listener.address()), host.clone());
    let mut served = JoinSet::new();
    served.spawn(async move { host.serve(listener).await.unwrap() });
    (address, served)
}
