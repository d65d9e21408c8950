//! Many concurrent clients, one of which does not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use levity_core::{Hints, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_serve::Runs;
use levity_serve::bridge::HostLimits;
use levity_test::ScriptedModel;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{TestHost, within};

const CLIENTS: usize = 500;
/// The number of reports that the tool makes: more than the system and the host buffer for a
/// client.
const REPORTS: usize = 60_000;

/// A tool that makes many reports.
struct ReportingTool(ToolSpec);

#[async_trait::async_trait]
impl Tool for ReportingTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        for at in 0..REPORTS {
            cx.progress.report(format!("{at} {}", "x".repeat(100)));
            if at % 100 == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(ToolOutput::text("said"))
    }
}

/// Raises the limit of open files for the sockets of both sides.
fn raise_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_never_reads_does_not_delay_500_others() {
    raise_files();
    let stage = TestHost::loading(HostLimits::new().send(Duration::from_millis(500))).await;
    let spec =
        ToolSpec::new("talk", "Talks.").with_hints(Hints::new().timeout(Duration::from_secs(60)));
    let model = ScriptedModel::new().call("talk", json!({})).reply("done");
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let agent = Agent::builder(model)
        .tool(ReportingTool(spec))
        .runtime(runtime)
        .build()
        .unwrap();
    stage.host.commander(Runs::new(agent)).await.unwrap();

    let mut crowd = JoinSet::new();
    let was_notified = Arc::new(AtomicUsize::new(0));
    for _ in 0..CLIENTS {
        let (mut raw, was_notified) = (stage.raw().await, was_notified.clone());
        crowd.spawn(async move {
            raw.request("ping", json!({})).await.unwrap();
            loop {
                let message = raw.next().await.unwrap();
                if message["params"]["path"] == "DONE_t" {
                    was_notified.fetch_add(1, Ordering::SeqCst);
                    return raw;
                }
            }
        });
    }
    // The client asks for the events, and reads nothing from then on.
    let mut deaf = stage.raw().await;
    let dispatch = json!({"prompt": "Talk.", "task": "t"});
    deaf.send(
        json!({"jsonrpc": "2.0", "id": 1, "method": "agent/dispatch", "params": dispatch})
            .to_string(),
    )
    .await;
    let client = stage.client();
    let found = within(client.request("fs/wait", json!({"path": "DONE_t", "timeout": 50})))
        .await
        .unwrap();
    assert_eq!(found["timed_out"], false, "the run was held up");
    within(async { while crowd.join_next().await.is_some() {} }).await;
    assert_eq!(was_notified.load(Ordering::SeqCst), CLIENTS);
    // The client that does not read is disconnected.
    stage.wait_for_notice("did not read its messages").await;
}
