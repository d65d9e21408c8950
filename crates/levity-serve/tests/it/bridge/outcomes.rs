//! Responses state what was done, also if a request is cancelled or the connection breaks.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use levity_loop::Agent;
use levity_sandbox::Workspace;
use levity_serve::bridge::{BridgeClient, BridgeHost, ErrorKind};
use levity_serve::{AccessControl, Listener, Runs, Token, TokenScope, Tokens};
use levity_test::ScriptedModel;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::{RawClient, TOKEN, within};

/// A request that is cancelled while it runs is completed, and its response says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn running_write_completes_despite_cancellation() {
    let folder = tempfile::tempdir().unwrap();
    let (started, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let goes = Mutex::new(goes);
    // The host is held up half-way: the file exists, and the response is not sent yet.
    let host =
        BridgeHost::builder(Workspace::open(folder.path()).unwrap()).on_notice(move |notice| {
            let words = notice.to_string();
            if words.contains("created a") || words.contains("dispatched task t") {
                started.send(words).unwrap();
                goes.lock().unwrap().recv().unwrap();
            }
        });
    let host = host.build().unwrap();
    let agent = Agent::builder(ScriptedModel::new().hang()).build().unwrap();
    host.commander(Runs::new(agent)).await.unwrap();
    let listener = Listener::bind(
        "127.0.0.1:0",
        AccessControl::new(Token::new(TOKEN).unwrap()),
    )
    .await
    .unwrap();
    let (address, mut served) = (listener.address().to_string(), JoinSet::new());
    served.spawn(async move { host.serve(listener).await.unwrap() });
    let mut raw = RawClient::connect(&address, Some(TOKEN)).await.unwrap();
    let begins = Arc::new(Mutex::new(begins));
    for (method, params, result) in [
        ("fs/write", json!({"path": "a", "content": "x"}), "/path"),
        (
            "agent/dispatch",
            json!({"prompt": "p", "task": "t"}),
            "/task",
        ),
    ] {
        raw.send(
            json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params}).to_string(),
        )
        .await;
        let begins = begins.clone();
        tokio::task::spawn_blocking(move || begins.lock().unwrap().recv().unwrap())
            .await
            .unwrap();
        let back = json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": method}});
        raw.send(back.to_string()).await;
        raw.request("ping", json!({})).await.unwrap();
        assert!(
            raw.was_notified
                .iter()
                .all(|was_notified| was_notified["id"] != method),
            "{:?}",
            raw.was_notified
        );
        go.send(()).unwrap();
        let answer = within(async {
            loop {
                let message = raw.next().await.unwrap();
                if message["id"] == method {
                    return message;
                }
            }
        });
        let answer = answer.await;
        assert!(answer["result"].pointer(result).is_some(), "{answer}");
    }
    assert!(folder.path().join("a").exists());
}

/// Answers a client's challenge as `docs/bridge.md` describes.
async fn prove(stream: &mut TcpStream) {
    use base64::Engine as _;
    let to = stream.local_addr().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let client = head
        .strip_prefix("GET /challenge?client=")
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, TOKEN.as_bytes());
    let text = format!("levity proof 1\nserver\n{to}\n{client}\nnonce");
    let proof = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .encode(ring::hmac::sign(&key, text.as_bytes()));
    let body = json!({"server": "nonce", "proof": proof}).to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
}

/// A fake host: it answers the first request, and then follows the test's instructions.
async fn fake_host(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (mut stream, _) = listener.accept().await.unwrap();
    prove(&mut stream).await;
    tokio_tungstenite::accept_async(stream).await.unwrap()
}

async fn receive(host: &mut WebSocketStream<TcpStream>) -> Value {
    loop {
        if let Message::Text(text) = host.next().await.unwrap().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

async fn answer(host: &mut WebSocketStream<TcpStream>, result: Value) {
    let asked = receive(host).await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    host.send(Message::Text(answer.to_string().into()))
        .await
        .unwrap();
}

#[tokio::test]
async fn unsent_write_is_reported_as_not_done() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let client = BridgeClient::new(&url, Token::new(TOKEN).unwrap())
        .unwrap()
        .retry_time(Duration::ZERO);
    let write = || client.request("fs/write", json!({"path": "a", "content": "x"}));
    // The host disconnects when it is asked for its info.
    let (written, ()) = tokio::join!(write(), async {
        let mut host = fake_host(&listener).await;
        assert_eq!(receive(&mut host).await["method"], "host/info");
    });
    let error = written.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Absent, "{error}");
    assert!(error.to_string().contains("nothing was done"), "{error}");
    // The host disconnects when it has received the write.
    let (written, ()) = tokio::join!(write(), async {
        let mut host = fake_host(&listener).await;
        answer(&mut host, json!({})).await;
        assert_eq!(receive(&mut host).await["method"], "fs/write");
    });
    let error = written.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(
        error
            .to_string()
            .contains("may or may not have been written"),
        "{error}"
    );
    // An unsent write is sent to the next host.
    let client = client.clone().retry_time(Duration::from_secs(20));
    let write = client.request("fs/write", json!({"path": "a", "content": "x"}));
    let (written, ()) = tokio::join!(within(write), async {
        drop(fake_host(&listener).await);
        let mut host = fake_host(&listener).await;
        answer(&mut host, json!({})).await;
        answer(&mut host, json!({"path": "a"})).await;
    });
    assert_eq!(written.unwrap()["path"], "a");
}

/// While a write is being sent to a host that does not read, the next one waits, and nothing of it
/// is sent.
#[tokio::test]
async fn write_behind_a_stuck_one_is_reported_as_not_done() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let client = BridgeClient::new(&url, Token::new(TOKEN).unwrap())
        .unwrap()
        .retry_time(Duration::ZERO);
    let write =
        |content: String| client.request("fs/write", json!({"path": "a", "content": content}));
    let (first, second, ()) = tokio::join!(
        // The content exceeds the system's buffers for a peer that does not read.
        write("x".repeat(32 << 20)),
        async {
            // The second write starts when the first is being sent, so it queues behind it.
            tokio::task::yield_now().await;
            write("y".to_owned()).await
        },
        async {
            let mut host = fake_host(&listener).await;
            answer(&mut host, json!({})).await;
            let mut part = [0; 1 << 10];
            host.get_mut().readable().await.unwrap();
            let _ = host.get_mut().try_read(&mut part);
        }
    );
    let first = first.unwrap_err();
    assert_eq!(first.kind(), ErrorKind::Lost, "{first}");
    let second = second.unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Absent, "{second}");
}

#[tokio::test]
async fn missing_host_is_absent_with_and_without_token() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let client = BridgeClient::new(&url, Token::new(TOKEN).unwrap())
        .unwrap()
        .retry_time(Duration::ZERO);
    let client = client.token_file(folder.path().join("token"));
    // A host is running, so the token is what is missing.
    let error = client.request("ping", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(error.to_string().contains("--token-file"), "{error}");
    drop(listener);
    let error = client.request("ping", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Absent);
    assert!(error.to_string().contains("levity bridge host"), "{error}");
}

#[tokio::test]
async fn proven_host_gets_a_proof_instead_of_the_token() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let client = BridgeClient::new(&url, Token::new(TOKEN).unwrap())
        .unwrap()
        .retry_time(Duration::ZERO);
    let hearing = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        prove(&mut stream).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap()
    };
    let (answer, head) = tokio::join!(within(client.request("ping", json!({}))), within(hearing));
    assert!(answer.is_err(), "no host answers");
    assert!(
        head.to_lowercase()
            .contains("\r\nauthorization: levity-proof "),
        "{head}"
    );
    assert!(!head.contains(TOKEN), "{head}");
}

#[tokio::test]
async fn named_token_needs_admin_to_reach_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let host = BridgeHost::builder(Workspace::open(folder.path()).unwrap())
        .build()
        .unwrap();
    let mut tokens = Tokens::new();
    let run = tokens
        .add("ci", [TokenScope::Run, TokenScope::Approve])
        .unwrap();
    let admin = tokens.add("top", [TokenScope::Admin]).unwrap();
    let listener = Listener::bind("127.0.0.1:0", AccessControl::named(tokens))
        .await
        .unwrap();
    let (address, mut served) = (listener.address().to_string(), JoinSet::new());
    served.spawn(async move { host.serve(listener).await.unwrap() });
    assert_eq!(
        RawClient::connect(&address, Some(run.reveal())).await.err(),
        Some(403)
    );
    let mut raw = RawClient::connect(&address, Some(admin.reveal()))
        .await
        .unwrap();
    raw.request("ping", json!({})).await.unwrap();
}
