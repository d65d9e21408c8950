//! Commands to runs that cannot receive them: each is delivered in full, or rejected.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Journal, JournalError, OpenRun, Record, RunId, RunLog, RunQuery, RunRequest, RunSummary,
};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_serve::Runs;
use levity_test::ScriptedModel;
use serde_json::json;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::task::JoinSet;

use super::support::{HeldTool, Server};

/// A journal that blocks writes of root runs while it is held. Child runs continue.
#[derive(Clone, Default)]
pub(crate) struct HeldJournal {
    inner: MemoryJournal,
    gate: Arc<RwLock<()>>,
}

impl HeldJournal {
    /// Holds the journal, once pending writes are done.
    pub(crate) async fn hold(&self) -> OwnedRwLockWriteGuard<()> {
        self.gate.clone().write_owned().await
    }
}

#[async_trait]
impl Journal for HeldJournal {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let OpenRun { records, log, .. } = self.inner.open(run).await?;
        match run.parent() {
            Some(_) => Ok(OpenRun::from_parts(records, log)),
            None => Ok(OpenRun::new(
                records,
                HeldLog {
                    log,
                    gate: self.gate.clone(),
                },
            )),
        }
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.inner.list(query).await
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        self.inner.read(run).await
    }
}

struct HeldLog {
    log: Box<dyn RunLog>,
    gate: Arc<RwLock<()>>,
}

#[async_trait]
impl RunLog for HeldLog {
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let _open = self.gate.read().await;
        self.log.append(records).await
    }

    async fn posted(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        self.log.posted().await
    }
}

#[tokio::test]
async fn command_to_blocked_run_is_accepted_or_rejected() {
    let (held, _permits) = HeldTool::new();
    let journal = HeldJournal::default();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let runtime = Runtime::new().with_journal(journal.clone());
    let agent = Agent::builder(model)
        .tool(held)
        .runtime(runtime)
        .build()
        .unwrap();
    let server = Server::with(Runs::new(agent), |api| {
        api.command_timeout(Duration::from_millis(300))
    })
    .await;
    let client = server.client;
    client
        .post("/v1/runs", json!({"goal": "Hold.", "id": "r"}))
        .await
        .is(201);
    let mut events = client.events("/v1/runs/r/events?transient=0", None).await;
    events.until("tool_started").await;

    let stuck = journal.hold().await;
    let mut asked = JoinSet::new();
    for number in 0..Runs::MAX_PENDING_COMMANDS + 16 {
        asked.spawn(async move {
            client
                .post(
                    "/v1/runs/r/message",
                    json!({"text": format!("word {number}.")}),
                )
                .await
        });
    }
    let (taken, refused): (Vec<_>, Vec<_>) = asked
        .join_all()
        .await
        .into_iter()
        .partition(|answer| answer.status == 202);
    assert_eq!(
        (taken.len(), refused.len()),
        (Runs::MAX_PENDING_COMMANDS, 16)
    );
    for answer in refused {
        assert!(answer.has("retry-after: 1"));
        answer.assert_error(429, "too_many_commands");
    }
    // A cancellation does not wait behind the other commands.
    assert_eq!(
        client.post("/v1/runs/r/cancel", json!({})).await.is(202)["delivery"],
        "waiting"
    );
    // The pending commands do not prevent reading the run.
    assert_eq!(client.get("/v1/runs/r").await.is(200)["state"], "open");
    assert_eq!(
        client.get("/v1/runs/r/asks").await.is(200)["asks"],
        json!([])
    );
    drop(stuck);
    let told = events.rest().await;
    assert_eq!(
        told.iter().filter(|event| event.name == "said").count(),
        Runs::MAX_PENDING_COMMANDS
    );
    assert_eq!(
        told.last().unwrap().data["status"],
        json!({"cancelled": {"reason": "cancelled by HTTP"}})
    );
    server.stop().await;
}
