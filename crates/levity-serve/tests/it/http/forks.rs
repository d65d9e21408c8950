//! Forks by tokens of different scopes, and of runs that may not be resumed.

use levity_core::{EventKind, JournalError, JournalErrorKind, RunId};
use levity_runtime::MemoryJournal;
use levity_serve::Runs;
use levity_test::ScriptedModel;
use serde_json::json;

use super::support::{Server, agent};
use super::tenants::Site;

fn model() -> ScriptedModel {
    ScriptedModel::new()
        .call("delete", json!({"path": "a"}))
        .reply("Done.")
}

/// Returns the numbers of the records of a question, its decision and the end of its call.
async fn records_of_approval(runs: &Runs, run: &str) -> (u64, u64, u64) {
    let events = runs.history(&RunId::new(run)).await.unwrap();
    let seq = |is_wanted: fn(&EventKind) -> bool| {
        let found = events.iter().find(|event| is_wanted(&event.kind));
        found.expect("the event is in the history").seq
    };
    (
        seq(|kind| matches!(kind, EventKind::Asked(_))),
        seq(|kind| matches!(kind, EventKind::Decided { .. })),
        seq(|kind| matches!(kind, EventKind::ToolFinished { .. })),
    )
}

#[tokio::test]
async fn fork_that_repeats_approved_call_needs_scope_approve() {
    let site = Site::new(model()).await;
    let (ann, boss) = (site.as_("ann"), site.as_("ann.boss"));
    let (bob, runs) = (site.as_("bob"), &site.server.runs);
    let order = json!({"goal": "Tidy up.", "id": "r1"});
    for (who, judge, id) in [(&ann, &boss, "ann-r1"), (&bob, &bob, "bob-r1")] {
        who.post("/v1/runs", order.clone()).await.is(201);
        let run = runs.get(&RunId::new(id)).unwrap();
        let ask = loop {
            match run.asks().await.first() {
                Some(_) => break who.get("/v1/runs/r1/asks").await.is(200),
                None => tokio::task::yield_now().await,
            }
        };
        let ask = ask["asks"][0]["id"].as_str().unwrap();
        let path = format!("/v1/runs/r1/asks/{ask}");
        let allow = json!({"decision": "allow"});
        judge.post(&path, allow).await.is(200);
        run.outcome().await;
    }

    let (asked, decided, finished) = records_of_approval(runs, "ann-r1").await;
    for after in decided..finished {
        let order = json!({"after": after, "id": format!("f{after}")});
        let refused = ann.post("/v1/runs/r1/fork", order).await;
        let message = refused.json["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        refused.assert_error(403, "scope_missing");
        assert!(
            message.contains("`approve`") && message.contains("ann-r1"),
            "{message}"
        );
        let status = ann.get(&format!("/v1/runs/f{after}")).await.status;
        assert_eq!(status, 404, "no fork has started");
    }
    // The fork asks again, or the call has ended.
    for after in [asked, finished] {
        let order = json!({"after": after, "id": format!("f{after}")});
        ann.post("/v1/runs/r1/fork", order).await.is(201);
    }
    ann.post("/v1/runs/r1/fork", json!({"id": "f"}))
        .await
        .is(201);
    let asks = ann.get(&format!("/v1/runs/f{asked}/asks")).await.is(200);
    assert_eq!(asks["asks"][0]["call"]["name"], "delete");
    boss.post("/v1/runs/r1/fork", json!({}))
        .await
        .assert_error(403, "scope_missing");

    let (_, decided, _) = records_of_approval(runs, "bob-r1").await;
    let order = json!({"after": decided, "id": "f1"});
    bob.post("/v1/runs/r1/fork", order).await.is(201);
    let fork = runs.get(&RunId::new("bob-f1")).unwrap();
    assert_eq!(fork.outcome().await.ending().unwrap().text, "Done.");
    site.server.stop().await;
}

#[tokio::test]
async fn run_that_may_not_be_resumed_cannot_be_forked() {
    let runs = Runs::new(agent(model(), &MemoryJournal::new())).resume_if(|run| {
        match run.as_str().starts_with("mine") {
            true => Ok(()),
            false => Err(JournalError::new(
                JournalErrorKind::Refused,
                "it is not your run",
            )),
        }
    });
    let server = Server::new(runs).await;
    for id in ["mine", "other"] {
        let order = json!({"goal": "Tidy up.", "id": id});
        server.client.post("/v1/runs", order).await.is(201);
    }
    let refused = server
        .client
        .post("/v1/runs/other/fork", json!({"id": "f"}))
        .await;
    refused.assert_error(422, "refused");
    server
        .client
        .get("/v1/runs/f")
        .await
        .assert_error(404, "no_run");
    server
        .client
        .post("/v1/runs/none/fork", json!({}))
        .await
        .assert_error(404, "no_run");
    server
        .client
        .post("/v1/runs/mine/fork", json!({}))
        .await
        .is(201);
    server.stop().await;
}
