//! What is answered is what was done: where a request is taken back, and where the connection
//! breaks.

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

use super::{Raw, TOKEN, within};

/// What is taken back when it is being done is done, and said to be.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_begun_is_not_said_to_be_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let goes = Mutex::new(goes);
    // Whoever does it is held up half-way: the file is there, and the answer is not sent yet.
    let host =
        BridgeHost::builder(Workspace::open(folder.path()).unwrap()).on_notice(move |notice| {
            let words = notice.to_string();
            if words.contains("made a") || words.contains("dispatched task t") {
                begun.send(words).unwrap();
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
    let mut raw = Raw::connect(&address, Some(TOKEN)).await.unwrap();
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
            raw.told.iter().all(|told| told["id"] != method),
            "{:?}",
            raw.told
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

/// Answers a client's challenge as the page of the bridge says.
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

/// Something that says it is a host: it answers what it is asked first, and then does as it is
/// told.
async fn pretend(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (mut stream, _) = listener.accept().await.unwrap();
    prove(&mut stream).await;
    tokio_tungstenite::accept_async(stream).await.unwrap()
}

async fn hear(host: &mut WebSocketStream<TcpStream>) -> Value {
    loop {
        if let Message::Text(text) = host.next().await.unwrap().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

async fn answer(host: &mut WebSocketStream<TcpStream>, result: Value) {
    let asked = hear(host).await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    host.send(Message::Text(answer.to_string().into()))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_write_that_was_never_sent_is_known_to_be_undone() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let client = BridgeClient::new(&url, Token::new(TOKEN).unwrap())
        .unwrap()
        .patience(Duration::ZERO);
    let write = || client.request("fs/write", json!({"path": "a", "content": "x"}));
    // The host goes away when it is asked who it is.
    let (written, ()) = tokio::join!(write(), async {
        let mut host = pretend(&listener).await;
        assert_eq!(hear(&mut host).await["method"], "host/info");
    });
    let error = written.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Absent, "{error}");
    assert!(error.to_string().contains("nothing was done"), "{error}");
    // It goes away when it has the write.
    let (written, ()) = tokio::join!(write(), async {
        let mut host = pretend(&listener).await;
        answer(&mut host, json!({})).await;
        assert_eq!(hear(&mut host).await["method"], "fs/write");
    });
    let error = written.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("nobody knows"), "{error}");
    // One that was not sent is sent to the host that comes next.
    let client = client.clone().patience(Duration::from_secs(20));
    let write = client.request("fs/write", json!({"path": "a", "content": "x"}));
    let (written, ()) = tokio::join!(within(write), async {
        drop(pretend(&listener).await);
        let mut host = pretend(&listener).await;
        answer(&mut host, json!({})).await;
        answer(&mut host, json!({"path": "a"})).await;
    });
    assert_eq!(written.unwrap()["path"], "a");
}

/// While a write is being sent to a host that does not read, the next one waits, and nothing of it
/// is sent.
#[tokio::test]
async fn a_write_behind_another_that_is_stuck_is_known_to_be_undone() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let client = BridgeClient::new(&url, Token::new(TOKEN).unwrap())
        .unwrap()
        .patience(Duration::ZERO);
    let write =
        |content: String| client.request("fs/write", json!({"path": "a", "content": content}));
    let (first, second, ()) = tokio::join!(
        // More than the system holds for one that does not read.
        write("x".repeat(32 << 20)),
        async {
            // It is asked for when the first is on its way, for it is asked for behind it.
            tokio::task::yield_now().await;
            write("y".to_owned()).await
        },
        async {
            let mut host = pretend(&listener).await;
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
async fn a_host_that_is_not_there_is_absent_whether_or_not_there_is_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let client = BridgeClient::new(&url, Token::new(TOKEN).unwrap())
        .unwrap()
        .patience(Duration::ZERO);
    let client = client.token_file(folder.path().join("token"));
    // Somebody is there, so it is the token that is missing.
    let error = client.request("ping", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(error.to_string().contains("--token-file"), "{error}");
    drop(listener);
    let error = client.request("ping", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Absent);
    assert!(error.to_string().contains("levity bridge host"), "{error}");
}

#[tokio::test]
async fn host_that_proves_itself_is_shown_a_proof_and_not_the_token() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let client = BridgeClient::new(&url, Token::new(TOKEN).unwrap())
        .unwrap()
        .patience(Duration::ZERO);
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
    assert!(answer.is_err(), "nobody answers");
    assert!(
        head.to_lowercase()
            .contains("\r\nauthorization: levity-proof "),
        "{head}"
    );
    assert!(!head.contains(TOKEN), "{head}");
}

#[tokio::test]
async fn named_token_reaches_the_host_only_as_its_owner() {
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
        Raw::connect(&address, Some(run.reveal())).await.err(),
        Some(403)
    );
    let mut raw = Raw::connect(&address, Some(admin.reveal())).await.unwrap();
    raw.request("ping", json!({})).await.unwrap();
}
