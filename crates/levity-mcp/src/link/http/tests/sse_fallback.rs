//! Tests with servers that support only the older HTTP with server-sent events.

use std::sync::{Arc, Mutex};

use rmcp::service::ClientLifecycleMode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::task::JoinSet;

use super::raw_server::{Action, EVENTS, answer, start_all};
use super::{Client, TestConnection, auto, call, connect, end, within};
use crate::ErrorKind;
use crate::link::sse;

/// A server of the older kind: responses to posted messages arrive on the stream.
struct OlderServer {
    url: String,
    _task: JoinSet<()>,
}

/// Returns the response to a call as lines of the stream; the stream ends at `None`.
type Respond = fn(&Value) -> Option<String>;

async fn start_older(respond: Respond) -> OlderServer {
    start_older_with(respond, answer("202 Accepted", "text/plain", "Accepted")).await
}

/// Starts a server with this response to each posted message.
async fn start_older_with(respond: Respond, accepted: String) -> OlderServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/sse", listener.local_addr().unwrap());
    let (mut task, (to, _)) = (JoinSet::new(), broadcast::channel::<Option<String>>(64));
    task.spawn(async move {
        let mut open = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            open.spawn(serve(stream, to.clone(), respond, accepted.clone()));
        }
    });
    OlderServer { url, _task: task }
}

async fn serve(
    mut stream: TcpStream,
    to: broadcast::Sender<Option<String>>,
    respond: Respond,
    accepted: String,
) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        if head.starts_with("GET /sse ") {
            let mut from = to.subscribe();
            stream
                .write_all(format!("{EVENTS}event: endpoint\ndata: /post?id=1\n\n").as_bytes())
                .await
                .ok()?;
            while let Some(event) = from.recv().await.ok()? {
                stream.write_all(event.as_bytes()).await.ok()?;
            }
            return None;
        }
        if !head.starts_with("POST /post?id=1 ") {
            stream
                .write_all(answer("404 Not Found", "text/plain", "").as_bytes())
                .await
                .ok()?;
            return None;
        }
        let Ok(message) = serde_json::from_str::<Value>(body) else {
            continue;
        };
        stream.write_all(accepted.as_bytes()).await.ok()?;
        bytes.clear();
        let event = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                let info = json!({"name": "older", "version": "1"});
                let result = json!({
                    "protocolVersion": "2024-11-05",
                    "capabilities": {},
                    "serverInfo": info,
                });
                Some(event(
                    &json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
                ))
            }
            "tools/call" => respond(&message),
            _ => continue,
        };
        to.send(event).ok()?;
    }
}

fn event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}

fn echo(call: &Value) -> Option<String> {
    let text = call["params"]["arguments"]["text"].clone();
    let result = json!({"content": [{"type": "text", "text": text}]});
    Some(event(
        &json!({"jsonrpc": "2.0", "id": call["id"], "result": result}),
    ))
}

async fn connect_sse(url: &str) -> Client {
    let (config, limits, world) = TestConnection::to(url).parts();
    let link = within(sse::open("test".into(), &config, limits, None, world))
        .await
        .unwrap();
    within(connect(link, ClientLifecycleMode::Initialize))
        .await
        .unwrap()
}

#[tokio::test]
async fn responses_arrive_on_stream() {
    let server = start_older(echo).await;
    let client = connect_sse(&server.url).await;
    let calls = (0..50).map(|n| call(&client, "x", json!({"text": n.to_string()})));
    for (n, answer) in futures_util::future::join_all(calls)
        .await
        .into_iter()
        .enumerate()
    {
        assert_eq!(answer.unwrap(), n.to_string());
    }
    end(client).await;
}

#[tokio::test]
async fn thousand_requests_on_stream_do_not_block_call() {
    let server = start_older(|call| {
        let request = |id| event(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
        Some((0..1_000).map(request).chain(echo(call)).collect())
    })
    .await;
    let client = connect_sse(&server.url).await;
    assert_eq!(call(&client, "x", json!({"text": "a"})).await.unwrap(), "a");
    end(client).await;
}

#[tokio::test]
async fn endless_post_response_does_not_block_call() {
    let accepted = "HTTP/1.1 202 Accepted\r\ncontent-length: 900\r\n\r\nAcc";
    let server = start_older_with(echo, accepted.to_owned()).await;
    let client = connect_sse(&server.url).await;
    assert_eq!(call(&client, "x", json!({"text": "a"})).await.unwrap(), "a");
    end(client).await;
}

#[tokio::test]
async fn transport_falls_back_to_older_protocol() {
    for mode in [ClientLifecycleMode::Initialize, auto()] {
        let server = start_older(echo).await;
        let link = TestConnection::to(&server.url).open().unwrap();
        let client = within(connect(link, mode)).await.unwrap();
        assert_eq!(
            call(&client, "x", json!({"text": "old"})).await.unwrap(),
            "old"
        );
        end(client).await;
    }
}

#[tokio::test]
async fn end_of_stream_fails_every_call() {
    for respond in [
        (|_| None) as Respond,
        |_| Some(format!("data: {}", "x".repeat(2 << 20))),
        |_| {
            Some(
                "data: {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-1,\"message\":\"whose?\"}}\n\n"
                    .into(),
            )
        },
    ] {
        let server = start_older(respond).await;
        let client = connect_sse(&server.url).await;
        let (one, two) = tokio::join!(call(&client, "x", json!({})), call(&client, "x", json!({})));
        for error in [one.unwrap_err(), two.unwrap_err()] {
            let expected = matches!(
                error.kind(),
                ErrorKind::Closed | ErrorKind::TooLarge | ErrorKind::Rejected(-1)
            );
            assert!(expected, "{error}");
        }
        drop(client);
    }
}

#[tokio::test]
async fn error_without_id_fails_only_pending_call() {
    let server = start_older(|_| {
        Some("data: {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-1,\"message\":\"no\"}}\n\n".into())
    })
    .await;
    let client = connect_sse(&server.url).await;
    assert_eq!(
        call(&client, "x", json!({})).await.unwrap_err().kind(),
        ErrorKind::Rejected(-1)
    );
    assert_eq!(
        call(&client, "x", json!({})).await.unwrap_err().kind(),
        ErrorKind::Rejected(-1)
    );
    end(client).await;
}

#[tokio::test]
async fn endpoint_of_another_origin_is_rejected() {
    let request_count = Arc::new(Mutex::new(0));
    let count = request_count.clone();
    let elsewhere = start_all(move |_| {
        *count.lock().unwrap() += 1;
        Action::Send(answer("202 Accepted", "text/plain", ""))
    })
    .await;
    for target in [
        elsewhere.url(),
        format!("//{}/mcp", elsewhere.address),
        "https://127.0.0.1/x".into(),
    ] {
        let data = format!("{EVENTS}event: endpoint\ndata: {target}\n\n");
        let server = start_all(move |_| Action::SendAndStall(data.clone())).await;
        let (config, limits, world) = TestConnection::to(server.url())
            .header("x-key", "secret")
            .parts();
        let error = within(sse::open("test".into(), &config, limits, None, world))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.message().contains("has another origin"), "{error}");
    }
    assert_eq!(*request_count.lock().unwrap(), 0);
}

#[tokio::test]
async fn open_of_invalid_server_returns_error() {
    for (action, kind) in [
        (
            (|| Action::SendAndClose(EVENTS.into())) as fn() -> Action,
            ErrorKind::Closed,
        ),
        (
            || Action::SendForever(EVENTS.into(), "data: x\n".repeat(4096)),
            ErrorKind::TooLarge,
        ),
        (
            || Action::Send(answer("200 OK", "text/html", "")),
            ErrorKind::Protocol,
        ),
        (
            || Action::Send(answer("404 No", "text/html", "")),
            ErrorKind::Protocol,
        ),
        (
            || Action::Send(answer("401 No", "text/html", "")),
            ErrorKind::Auth,
        ),
    ] {
        let server = start_all(move |_| action()).await;
        let (config, limits, world) = TestConnection::to(server.url()).parts();
        let error = within(sse::open("test".into(), &config, limits, None, world))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}
