//! Servers that do what they should.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::server::{Setup, start};
use super::{Client, Dial, call, end, within};
use crate::ErrorKind;

async fn works(client: &Client) {
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
async fn every_kind_of_server_answers_in_either_form_of_the_protocol() {
    for (sessions, json) in [(true, false), (false, true), (false, false)] {
        let server = start(Setup {
            sessions,
            json,
            ..Setup::default()
        })
        .await;
        for modern in [false, true] {
            let dial = Dial::to(server.url());
            let client = if modern {
                dial.modern().await
            } else {
                dial.legacy().await
            };
            works(&client).await;
            end(client).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_side_by_side_get_their_own_answers() {
    let server = start(Setup::default()).await;
    let client = Dial::to(server.url()).legacy().await;
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
async fn connections_are_used_again() {
    let server = start(Setup {
        sessions: false,
        json: true,
        ..Setup::default()
    })
    .await;
    let client = Dial::to(server.url()).legacy().await;
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
async fn a_server_that_stalls_on_used_connections_gets_new_ones() {
    let server = start(Setup {
        nodelay: false,
        ..Setup::default()
    })
    .await;
    let client = Dial::to(server.url()).legacy().await;
    for _ in 0..40 {
        call(&client, "echo", json!({"text": "x"})).await.unwrap();
    }
    let before = server.connections.load(Ordering::Relaxed);
    for _ in 0..20 {
        call(&client, "echo", json!({"text": "x"})).await.unwrap();
    }
    let more = server.connections.load(Ordering::Relaxed) - before;
    assert!(more >= 20, "{more} new connections");
    end(client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_started_again_between_calls_goes_on_being_used() {
    let server = start(Setup::default()).await;
    let client = Dial::to(server.url()).legacy().await;
    works(&client).await;
    let port = server.address.port();
    server.stop().await;
    let error = call(&client, "echo", json!({})).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Start | ErrorKind::Closed),
        "{error}"
    );
    let _again = start(Setup {
        port,
        ..Setup::default()
    })
    .await;
    works(&client).await;
    end(client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_during_a_call_gives_an_error_and_is_used_again() {
    for modern in [false, true] {
        let server = start(Setup::default()).await;
        let dial = Dial::to(server.url());
        let client = if modern {
            dial.modern().await
        } else {
            dial.legacy().await
        };
        works(&client).await;
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
        let _again = start(Setup {
            port,
            ..Setup::default()
        })
        .await;
        works(&client).await;
        end(client).await;
    }
}
