//! Agent runs that earlier versions wrote resume with this version.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use levity::core::{Journal as _, RunQuery, RunState};
use levity::prelude::*;
use levity::runtime::{Durability, FileJournal};
use levity::test::{ManualWorld, ScriptedModel, Turn};
use serde_json::json;

fn fixtures(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crates/levity-runtime/tests/fixtures")
        .join(name)
}

/// Tools that record their calls. `set` hangs if `stuck` is set.
#[derive(Clone, Default)]
struct Tools {
    done: Arc<Mutex<Vec<String>>>,
    stuck: bool,
}

#[tool]
impl Tools {
    /// Sets something. Repeating it changes nothing.
    #[tool(idempotent)]
    async fn set(&self, cx: &ToolCx) -> String {
        self.done.lock().unwrap().push(format!("set {}", cx.key));
        if self.stuck {
            std::future::pending::<()>().await;
        }
        "set".to_owned()
    }

    /// Wipes something, if it is allowed to.
    #[tool(destructive)]
    async fn wipe(&self) -> String {
        self.done.lock().unwrap().push("wipe".to_owned());
        "wiped".to_owned()
    }
}

fn lead(folder: &Path, tools: &Tools, lead: ScriptedModel, helper: ScriptedModel) -> Agent {
    let journal = FileJournal::new(folder)
        .unwrap()
        .with_durability(Durability::Buffered);
    let helper = Agent::builder(helper).tools(tools.clone()).build().unwrap();
    Agent::builder(lead)
        .instructions("Tidy up.")
        .tools(tools.clone())
        .agent("helper", "Helps.", helper)
        .runtime(
            Runtime::new()
                .with_journal(journal)
                .with_world(ManualWorld::new()),
        )
        .build()
        .unwrap()
}

/// Starts a run, allows it to wipe, and stops it while its helper is setting something.
async fn interrupt_run(folder: &Path) {
    let tools = Tools {
        stuck: true,
        ..Tools::default()
    };
    let delegation = Turn::new()
        .call("helper", json!({"task": "Set it."}))
        .usage(10, 5);
    let model = ScriptedModel::new()
        .call("wipe", json!({}))
        .turn(delegation);
    let helper = ScriptedModel::new().call("set", json!({}));
    let agent = lead(folder, &tools, model, helper);
    let mut run = agent.run("Go").id("r").start();
    let mut events = run.events();
    loop {
        match events.next().await.unwrap().kind {
            EventKind::Asked(ask) => run.approve(&ask).await.unwrap(),
            EventKind::ToolStarted { call, .. } if call.name == "set" => break,
            _ => {}
        }
    }
    run.stop().await;
}

fn empty(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// If `LEVITY_FIXTURES=DIR` is set, the test also writes the run to DIR. Use this to create
/// fixtures for a version with a new format.
#[tokio::test]
async fn agent_run_of_this_version_resumes() {
    if let Some(folder) = std::env::var_os("LEVITY_FIXTURES") {
        interrupt_run(Path::new(&folder)).await;
    }
    let folder = empty("now");
    interrupt_run(&folder).await;
    assert_resumes(&folder).await;
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn agent_run_of_earlier_version_resumes() {
    let folder = empty("upgrade");
    let files = fs::read_dir(fixtures("agent"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for file in files {
        fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
    assert_resumes(&folder).await;
    fs::remove_dir_all(folder).unwrap();
}

/// Asserts that the run resumes with its child, and repeats only idempotent calls.
async fn assert_resumes(folder: &Path) {
    let journal = FileJournal::new(folder).unwrap();
    let listed = journal.list(&RunQuery::new()).await.unwrap();
    let found: Vec<_> = listed
        .iter()
        .map(|run| (run.run.depth(), run.child, run.state()))
        .collect();
    assert_eq!(
        found,
        [(0, false, RunState::Open), (1, true, RunState::Open)]
    );

    let tools = Tools::default();
    let (model, helper) = (
        ScriptedModel::new().reply("All is tidy."),
        ScriptedModel::new().reply("It is set."),
    );
    let agent = lead(folder, &tools, model.clone(), helper.clone());
    let answer = agent.resume("r").await.unwrap();
    assert_eq!(answer.text(), "All is tidy.");
    let calls: Vec<_> = answer
        .history()
        .calls()
        .map(|(call, result)| (call.name.clone(), result.text()))
        .collect();
    let expected = [("wipe", "wiped"), ("helper", "It is set.")];
    assert_eq!(
        calls,
        expected.map(|(name, text)| (name.into(), text.into()))
    );
    // The interrupted idempotent call is repeated with its old key, and nothing else.
    let done = tools.done.lock().unwrap().clone();
    assert_eq!(done.len(), 1, "{done:?}");
    assert!(done[0].starts_with("set r."), "{done:?}");
    assert_eq!((model.requests().len(), helper.requests().len()), (1, 1));
}
