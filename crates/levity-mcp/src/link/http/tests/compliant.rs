//! Tests with servers that follow the protocol.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::server::{Setup, start};
use super::{Client, TestConnection, call, end, within};
use crate::ErrorKind;

async fn check_calls(client: &Client) {
    let tools = within(client.peer().list_all_tools()).await.unwrap();
    assert_eq!(tools.len(), 3);
    for tool in ["echo", "slow", "progress"] {
        assert_eq!(
            call(client, tool, json!({"text": tool})).await.unwrap(),
            tool
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_work_with_every_server_kind_and_protocol_version() {
    for (sessions, json) in [(true, false), (false, true), (false, false)] {
        let server = start(Setup {
            sessions,
            json,
            ..Setup::default()
        })
        .await;
        for modern in [false, true] {
            let connection = TestConnection::to(server.url());
            let client = if modern {
                connection.modern().await
            } else {
                connection.legacy().await
            };
            check_calls(&client).await;
            end(client).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_get_their_own_responses() {
    let server = start(Setup::default()).await;
    let client = TestConnection::to(server.url()).legacy().await;
    let calls = (0..200).map(|n| {
        let client = &client;
        async move {
            let tool = ["echo", "progress"][n % 2];
            assert_eq!(
                call(client, tool, json!({"text": n.to_string()}))
                    .await
                    .unwrap(),
                n.to_string()
            );
        }
    });
    within(futures_util::future::join_all(calls)).await;
    end(client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_reused() {
    let server = start(Setup {
        sessions: false,
        json: true,
        ..Setup::default()
    })
    .await;
    let client = TestConnection::to(server.url()).legacy().await;
    for _ in 0..50 {
        call(&client, "echo", json!({"text": "x"})).await.unwrap();
    }
    assert!(
        server.connections.load(Ordering::Relaxed) < 10,
        "{:?}",
        server.connections
    );
    end(client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_delayed_responses_gets_new_connections() {
    let server = start(Setup {
        nodelay: false,
        ..Setup::default()
    })
    .await;
    let client = TestConnection::to(server.url()).legacy().await;
    for _ in 0..40 {
        call(&client, "echo", json!({"text": "x"})).await.unwrap();
    }
    let before = server.connections.load(Ordering::Relaxed);
    for _ in 0..20 {
        call(&client, "echo", json!({"text": "x"})).await.unwrap();
    }
    let new_connections = server.connections.load(Ordering::Relaxed) - before;
    assert!(new_connections >= 20, "{new_connections} new connections");
    end(client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_work_after_server_restart() {
    let server = start(Setup::default()).await;
    let client = TestConnection::to(server.url()).legacy().await;
    check_calls(&client).await;
    let port = server.address.port();
    server.stop().await;
    let error = call(&client, "echo", json!({})).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Start | ErrorKind::Closed),
        "{error}"
    );
    let _restarted = start(Setup {
        port,
        ..Setup::default()
    })
    .await;
    check_calls(&client).await;
    end(client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_of_server_during_call_fails_only_that_call() {
    for modern in [false, true] {
        let server = start(Setup::default()).await;
        let connection = TestConnection::to(server.url());
        let client = if modern {
            connection.modern().await
        } else {
            connection.legacy().await
        };
        check_calls(&client).await;
        let port = server.address.port();
        let (error, ()) = tokio::join!(call(&client, "never", json!({})), async {
            tokio::time::sleep(std::time::Duration::from_millis(150)).await;
            server.stop().await;
        });
        let error = error.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Start | ErrorKind::Closed),
            "{error:?}"
        );
        let _restarted = start(Setup {
            port,
            ..Setup::default()
        })
        .await;
        check_calls(&client).await;
        end(client).await;
    }
}
