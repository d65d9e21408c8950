//! Limits of connections and timeouts, and the responses beyond them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_core::CancelToken;
use levity_runtime::MemoryJournal;
use levity_serve::{
    AccessControl, AccessLog, ConnectionLimits, ListenNotice, Listener, Runs, Token, TokenScope,
    Tokens,
};
use levity_test::ScriptedModel;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::{Client, TOKEN};
use super::support::{Server, agent};

type Notices = Arc<Mutex<Vec<ListenNotice>>>;

async fn limited(
    limits: ConnectionLimits,
    set: impl FnOnce(Listener) -> Listener,
) -> (Server, Notices) {
    let access = AccessControl::new(Token::new(TOKEN).unwrap());
    behind(access, limits, set).await
}

async fn behind(
    access: AccessControl,
    limits: ConnectionLimits,
    set: impl FnOnce(Listener) -> Listener,
) -> (Server, Notices) {
    let stop = CancelToken::new();
    let notices = Notices::default();
    let sink = notices.clone();
    let listener = Listener::bind("127.0.0.1:0", access).await.unwrap();
    let listener = listener.limits(limits).stop_on(stop.clone());
    let listener = listener.on_notice(move |notice| sink.lock().unwrap().push(notice.clone()));
    let runs = Runs::new(agent(
        ScriptedModel::new().reply("1"),
        &MemoryJournal::new(),
    ));
    (Server::on(set(listener), stop, runs, |api| api), notices)
}

fn small() -> ConnectionLimits {
    ConnectionLimits {
        unauthenticated: 8,
        per_address: 4,
        authenticated: 3,
        ..ConnectionLimits::default()
    }
}

fn bearer(token: &str) -> (&'static str, String) {
    ("Authorization", format!("Bearer {token}"))
}

async fn connect(client: Client) -> TcpStream {
    TcpStream::connect(client.0).await.unwrap()
}

/// Sends a request on a connection that stays open, and returns the status and the head.
async fn keep(stream: &mut TcpStream, client: Client, token: &str) -> String {
    let host = client.0;
    let text =
        format!("GET /v1/runs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = vec![0; 8192];
    let read = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test]
async fn idle_connections_without_token_do_not_lock_out_others() {
    let (server, notices) = limited(small(), |listener| listener).await;
    let client = server.client;
    let mut known = connect(client).await;
    assert!(
        keep(&mut known, client, TOKEN)
            .await
            .starts_with("HTTP/1.1 200")
    );
    let mut idle = Vec::new();
    for round in 0..60 {
        let mut stream = connect(client).await;
        if round % 2 == 0 {
            stream
                .write_all(b"GET /v1/runs HTTP/1.1\r\nHost: ")
                .await
                .unwrap();
        }
        idle.push(stream);
        if round % 10 == 9 {
            client.get("/v1/runs").await.is(200);
            assert!(
                keep(&mut known, client, TOKEN)
                    .await
                    .starts_with("HTTP/1.1 200"),
                "the connection stays open"
            );
        }
    }
    let response = rest(&mut idle[0]).await;
    assert!(
        response.starts_with("HTTP/1.1 503") && response.contains("retry-after: 1"),
        "{response}"
    );
    assert!(
        response.contains("too_many_connections") && response.contains("connection: close"),
        "{response}"
    );
    assert!(
        notices
            .lock()
            .unwrap()
            .iter()
            .any(|notice| matches!(notice, ListenNotice::ConnectionsClosed { .. }))
    );
    server.stop().await;
}

#[tokio::test]
async fn idle_connections_beyond_the_limit_do_not_lock_out_others() {
    let (server, _) = limited(small(), |listener| listener.connections(64)).await;
    let client = server.client;
    let mut idle = Vec::new();
    for count in 0..200 {
        idle.push(connect(client).await);
        if count % 40 == 39 {
            client.get("/v1/runs").await.is(200);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn connections_above_the_limit_get_retry_after() {
    let (server, _) = limited(small(), |listener| listener).await;
    let client = server.client;
    let mut known = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(client).await;
        assert!(
            keep(&mut stream, client, TOKEN)
                .await
                .starts_with("HTTP/1.1 200")
        );
        known.push(stream);
    }
    let refused = client.get("/v1/runs").await;
    assert!(
        refused.has("retry-after: 1") && refused.has("connection: close"),
        "{refused:?}"
    );
    refused.assert_error(503, "too_many_connections");
    // Every client may check the health of the server.
    client.ask_as("GET", "/v1/health", &[], "").await.is(200);
    drop(known.pop());
    while client.get("/v1/runs").await.status != 200 {
        tokio::task::yield_now().await;
    }
    server.stop().await;
}

#[tokio::test]
async fn named_token_cannot_use_all_connections() {
    let mut tokens = Tokens::new();
    let (ci, bob) = (
        tokens.add("ci", [TokenScope::Run]).unwrap(),
        tokens.add("bob", [TokenScope::Read]).unwrap(),
    );
    let boss = tokens.add("ci.boss", [TokenScope::Approve]).unwrap();
    let limits = ConnectionLimits {
        per_token: 2,
        authenticated: 8,
        ..small()
    };
    let (server, _) = behind(AccessControl::named(tokens), limits, |listener| listener).await;
    let client = server.client;
    let mut known = Vec::new();
    for _ in 0..2 {
        let mut stream = connect(client).await;
        assert!(
            keep(&mut stream, client, ci.reveal())
                .await
                .starts_with("HTTP/1.1 200")
        );
        known.push(stream);
    }
    client
        .ask_as("GET", "/v1/runs", &[bearer(ci.reveal())], "")
        .await
        .assert_error(503, "too_many_connections");
    // The users of a tenant share its connections.
    client
        .ask_as("GET", "/v1/runs", &[bearer(boss.reveal())], "")
        .await
        .assert_error(503, "too_many_connections");
    client
        .ask_as("GET", "/v1/runs", &[bearer(bob.reveal())], "")
        .await
        .is(200);
    server.stop().await;
}

#[tokio::test]
async fn connection_without_token_is_closed_after_timeout() {
    let limits = ConnectionLimits {
        unauthenticated_time: Duration::from_secs(1),
        ..small()
    };
    let (server, _) = limited(limits, |listener| listener).await;
    let client = server.client;
    let mut known = connect(client).await;
    assert!(
        keep(&mut known, client, TOKEN)
            .await
            .starts_with("HTTP/1.1 200")
    );
    let mut silent = connect(client).await;
    assert_eq!(rest(&mut silent).await, "");
    let mut slow = connect(client).await;
    slow.write_all(b"GET /v1/runs HTTP/1.1\r\n").await.unwrap();
    assert_eq!(rest(&mut slow).await, "");
    // Repeated health checks do not replace a token.
    let mut health = connect(client).await;
    let ask = format!("GET /v1/health HTTP/1.1\r\nHost: {}\r\n\r\n", client.0);
    let mut asked = 0;
    let asking = async {
        while health.write_all(ask.as_bytes()).await.is_ok() {
            let mut answer = [0; 1024];
            match health.read(&mut answer).await {
                Ok(read) if read > 0 => asked += 1,
                _ => break,
            }
            tokio::task::yield_now().await;
        }
    };
    // Without the timeout, this loop would never end.
    tokio::time::timeout(Duration::from_secs(60), asking)
        .await
        .expect("it is closed");
    assert!(asked > 0);
    assert!(
        keep(&mut known, client, TOKEN)
            .await
            .starts_with("HTTP/1.1 200"),
        "it has shown one"
    );
    server.stop().await;
}

#[tokio::test]
async fn wrong_tokens_are_throttled_and_valid_ones_pass() {
    let delay = Duration::from_millis(300);
    let limits = ConnectionLimits {
        wrong_tokens: 3,
        wrong_token_delay: delay,
        ..ConnectionLimits::default()
    };
    let (server, notices) = limited(limits, |listener| listener).await;
    let client = server.client;
    let guess = async |token: String| {
        client
            .ask_as("GET", "/v1/runs", &[bearer(&token)], "")
            .await
    };
    for number in 0..3 {
        guess(format!("a-wrong-token-no-{number}"))
            .await
            .assert_error(401, "token_wrong");
    }
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..8 {
        waiting.spawn(async move {
            client
                .ask_as(
                    "GET",
                    "/v1/runs",
                    &[bearer(&format!("another-wrong-token-{number}"))],
                    "",
                )
                .await
        });
    }
    // While those wait, a valid token is admitted from the same address, also on a new connection.
    for _ in 0..5 {
        client.get("/v1/runs").await.is(200);
    }
    for refused in waiting.join_all().await {
        assert!(refused.has("retry-after: 60"), "{refused:?}");
        refused.assert_error(429, "too_many_wrong_tokens");
    }
    client.get("/v1/runs").await.is(200);
    let notices = std::mem::take(&mut *notices.lock().unwrap());
    let counts: Vec<_> = notices
        .iter()
        .filter_map(|notice| match notice {
            ListenNotice::WrongTokens { count, address } if address.is_loopback() => Some(*count),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [1, 10], "{notices:?}");
    assert!(!format!("{notices:?}").contains("wrong-token"));
    server.stop().await;
}

#[tokio::test]
async fn wrong_token_closes_its_connection() {
    let (server, _) = limited(ConnectionLimits::default(), |listener| listener).await;
    let client = server.client;
    let mut stream = connect(client).await;
    let response = keep(&mut stream, client, "a-wrong-token-of-a-test").await;
    assert!(
        response.starts_with("HTTP/1.1 401") && response.contains("\r\nconnection: close\r\n"),
        "{response}"
    );
    let mut stream = connect(client).await;
    let response = keep(&mut stream, client, TOKEN).await;
    assert!(
        response.starts_with("HTTP/1.1 200") && !response.contains("connection: close"),
        "{response}"
    );
    server.stop().await;
}

#[tokio::test]
async fn access_log_that_cannot_rotate_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    std::fs::create_dir(folder.path().join("access.log.1")).unwrap();
    let log = AccessLog::file_with_limit(&path, 300).unwrap();
    let (server, notices) = limited(ConnectionLimits::default(), |listener| {
        listener.access_log(log)
    })
    .await;
    for _ in 0..10 {
        server.client.get("/v1/runs").await;
    }
    server.client.get("/v1/last").await;
    server.stop().await;
    assert!(std::fs::read_to_string(&path).unwrap().contains("/v1/last"));
    let notices = notices.lock().unwrap();
    assert!(
        matches!(&notices[..], [ListenNotice::AccessLog { problem }] if problem.contains("rename")),
        "{notices:?}"
    );
}

#[tokio::test]
async fn access_log_names_client_and_request_without_secrets() {
    let mut tokens = Tokens::new();
    let ci = tokens.add("ci", [TokenScope::Run]).unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let noted = lines.clone();
    let access = AccessControl::new(Token::new(TOKEN).unwrap()).tokens(tokens);
    let log = AccessLog::new(move |record| noted.lock().unwrap().push(record.line()));
    let (server, _) = behind(access, ConnectionLimits::default(), |listener| {
        listener.access_log(log)
    })
    .await;
    let client = server.client;
    client.get("/v1/runs?cursor=1~secret-in-query").await;
    client
        .ask_as("GET", "/v1/tools", &[bearer(ci.reveal())], "")
        .await;
    client
        .ask_as("GET", "/v1/runs", &[bearer("a-wrong-secret-token")], "")
        .await;
    client
        .ask_as("GET", &format!("/v1/{}", "x".repeat(5_000)), &[], "")
        .await;
    let lines = lines.lock().unwrap().clone();
    let read: Vec<serde_json::Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let who: Vec<_> = read
        .iter()
        .map(|line| (&line["token"], &line["authenticated"], &line["status"]))
        .collect();
    let (null, yes, no) = (json!(null), json!(true), json!(false));
    assert_eq!(
        who,
        [
            (&null, &yes, &json!(200)),
            (&json!("ci"), &yes, &json!(404)),
            (&null, &no, &json!(401)),
            (&null, &no, &json!(401))
        ]
    );
    assert_eq!(
        (&read[0]["method"], &read[0]["path"]),
        (&json!("GET"), &json!("/v1/runs"))
    );
    assert!(
        read[0]["address"] == "127.0.0.1" && read[0]["ms"].is_u64() && read[0]["at"].is_string()
    );
    let all = lines.join("\n");
    assert!(
        !all.contains("secret") && !all.contains(TOKEN) && !all.contains(ci.reveal()),
        "{all}"
    );
    assert!(all.lines().all(|line| line.len() < 600));
    server.stop().await;
}
