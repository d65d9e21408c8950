//! Hostile and broken clients: each is rejected cleanly, and the host keeps running.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use levity_serve::bridge::{BridgeClient, ErrorKind, HostLimits};
use levity_serve::{Listener, Token};
use levity_test::ScriptedModel;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use super::{RawClient, TOKEN, TestHost, within};

/// Returns the peak memory of this process in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

async fn lives(stage: &TestHost) {
    within(stage.raw().await.request("ping", json!({})))
        .await
        .unwrap();
}

async fn status(address: &str, headers: &[(&'static str, &str)]) -> u16 {
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect();
    RawClient::with(address, &headers)
        .await
        .err()
        .unwrap_or(101)
}

#[tokio::test]
async fn client_without_token_or_from_foreign_origin_is_rejected() {
    let stage = TestHost::loading(HostLimits::new()).await;
    let good = format!("Bearer {TOKEN}");
    let at = &stage.address;
    assert_eq!(status(at, &[]).await, 401);
    assert_eq!(
        status(
            at,
            &[("authorization", "Bearer 0123456789abcdef0123456789abcdeF")]
        )
        .await,
        401
    );
    assert_eq!(status(at, &[("authorization", "Bearer ")]).await, 401);
    assert_eq!(status(at, &[("authorization", TOKEN)]).await, 401);
    assert_eq!(
        status(
            at,
            &[("authorization", &good), ("origin", "http://evil.example")]
        )
        .await,
        403
    );
    assert_eq!(
        status(at, &[("authorization", &good), ("origin", "null")]).await,
        403
    );
    assert_eq!(
        status(
            at,
            &[("authorization", &good), ("host", "evil.example:8888")]
        )
        .await,
        403
    );
    assert_eq!(
        status(
            at,
            &[
                ("authorization", &good),
                ("origin", "http://localhost:3000")
            ]
        )
        .await,
        101
    );
    let wrong = Token::new("another-token-of-some-length").unwrap();
    let error = BridgeClient::new(&format!("ws://{at}"), wrong)
        .unwrap()
        .request("ping", json!({}))
        .await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(
        error.to_string().contains("--token-file") && !error.to_string().contains("another-token"),
        "{error}"
    );
    assert_eq!(
        stage
            .notices
            .borrow()
            .iter()
            .filter(|notice| notice.ends_with(" connected"))
            .count(),
        1
    );
}

/// Returns everything that a client sends to a process that has taken the host's port and answers
/// `answer` to each request.
async fn bytes_sent_to(answer: &'static str) -> (levity_serve::bridge::Error, String) {
    let stranger = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", stranger.local_addr().unwrap());
    let client = BridgeClient::new(&url, Token::new(TOKEN).unwrap())
        .unwrap()
        .retry_time(Duration::ZERO);
    let listening = async {
        let (mut stream, _) = stranger.accept().await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") {
            heard.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        let _ = stream.read_to_end(&mut heard).await;
        String::from_utf8_lossy(&heard).into_owned()
    };
    let (error, heard) = tokio::join!(within(client.request("ping", json!({}))), listening);
    (error.unwrap_err(), heard)
}

#[tokio::test]
async fn impostor_on_the_port_does_not_learn_the_token() {
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: 25\r\n\r\n{\"server\":\"a\",\"proof\":\"\"}",
        "HTTP/1.1 200 OK\r\ncontent-length: 34\r\n\r\n{\"server\":\"a\",\"proof\":\"AAAAAAAAAA\"}",
        "HTTP/1.1 401 No\r\nwww-authenticate: Bearer\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 307 There\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n",
        "220 mail.example ESMTP\r\n\r\n",
    ] {
        let (error, heard) = bytes_sent_to(answer).await;
        assert!(
            !heard.contains(TOKEN) && !heard.to_lowercase().contains("authorization"),
            "{answer}: {heard}"
        );
        assert!(!error.to_string().contains(TOKEN), "{answer}: {error}");
    }
}

#[tokio::test]
async fn relaying_process_is_rejected() {
    let stage = TestHost::loading(HostLimits::new()).await;
    let between = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", between.local_addr().unwrap());
    let client = BridgeClient::new(&url, Token::new(TOKEN).unwrap())
        .unwrap()
        .retry_time(Duration::ZERO);
    let (mut passing, host) = (tokio::task::JoinSet::new(), stage.address.to_string());
    passing.spawn(async move {
        let (mut from, _) = between.accept().await.unwrap();
        let mut to = TcpStream::connect(host).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
    });
    let error = within(client.request("ping", json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    assert!(
        error.to_string().contains("nothing was sent to it"),
        "{error}"
    );
    assert!(!stage.was_notified("connected"));
    within(stage.client().request("ping", json!({})))
        .await
        .unwrap();
}

#[tokio::test]
async fn challenge_without_nonce_or_with_foreign_host_is_rejected() {
    let stage = TestHost::loading(HostLimits::new()).await;
    let host = stage.address.to_string();
    for (query, host, expected) in [
        ("?client=0123456789abcdef", &*host, "200"),
        ("", &host, "400"),
        ("?client=", &host, "400"),
        ("?client=short", &host, "400"),
        ("?client=0123456789abcde%0a", &host, "400"),
        ("?other=0123456789abcdef", &host, "400"),
        ("?client=0123456789abcdef", "evil.example", "403"),
    ] {
        let mut stream = TcpStream::connect(&stage.address).await.unwrap();
        let request =
            format!("GET /challenge{query} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        within(stream.read_to_string(&mut answer)).await.unwrap();
        assert_eq!(
            answer.split(' ').nth(1),
            Some(expected),
            "{query} {host}: {answer}"
        );
        assert!(!answer.contains(TOKEN));
    }
}

#[tokio::test]
async fn client_reports_absent_host() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let client = BridgeClient::new(&format!("ws://{free}"), Token::new(TOKEN).unwrap()).unwrap();
    let client = client.retry_time(Duration::from_millis(100));
    let error = client.request("ping", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Absent);
    assert!(error.to_string().contains("levity bridge host"), "{error}");
    // Another program that listens there is not a host.
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = other.local_addr().unwrap();
    let client = BridgeClient::new(&format!("ws://{at}"), Token::new(TOKEN).unwrap()).unwrap();
    let client = client.retry_time(Duration::ZERO);
    let (error, ()) = tokio::join!(client.request("ping", json!({})), async {
        let (mut stream, _) = other.accept().await.unwrap();
        stream
            .write_all(b"220 mail.example ready\r\n")
            .await
            .unwrap();
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Absent);
}

#[tokio::test]
async fn invalid_request_gets_error_and_invalid_frame_closes_connection() {
    let stage = TestHost::loading(HostLimits::new()).await;
    let mut raw = stage.raw().await;
    for (text, code) in [
        ("{", -32700),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"fs/format"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"fs/read"}"#, -32602),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"fs/read","params":{"path":1}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"fs/read","params":{"path":"a","mode":"rw"}}"#,
            -32602,
        ),
    ] {
        raw.send(text).await;
        assert_eq!(raw.next().await.unwrap()["error"]["code"], code, "{text}");
    }
    raw.send("[".repeat(500_000)).await;
    assert_eq!(raw.next().await.unwrap()["error"]["code"], -32700);
    // Notifications of methods with side effects do nothing.
    raw.send(r#"{"jsonrpc":"2.0","method":"fs/write","params":{"path":"a","content":"x"}}"#)
        .await;
    raw.request("ping", json!({})).await.unwrap();
    assert!(!stage.folder.path().join("a").exists());

    raw.socket
        .send(Message::Binary(vec![1, 2, 3].into()))
        .await
        .unwrap();
    assert_eq!(raw.next().await, Err(1003));
    // A text frame of three bytes that are not UTF-8.
    assert_eq!(
        bytes(&stage, b"\x81\x83\0\0\0\0\xff\xfe\xfd").await,
        Err(1007)
    );
    // A frame that is not masked.
    assert_eq!(bytes(&stage, b"\x81\x02{}").await, Err(1002));
    lives(&stage).await;
}

/// Sends these bytes on a connection without framing them, and returns how the connection ended.
async fn bytes(stage: &TestHost, bytes: &[u8]) -> Result<serde_json::Value, u16> {
    let mut raw = stage.raw().await;
    raw.socket.get_mut().write_all(bytes).await.unwrap();
    raw.next().await
}

#[tokio::test]
async fn huge_message_is_rejected_by_its_header() {
    if !crate::is_alone("bridge::hostile::huge_message_is_rejected_by_its_header") {
        return;
    }
    let stage = TestHost::loading(HostLimits::new()).await;
    lives(&stage).await;
    let before = peak();
    let gigabyte = 1u64 << 30;
    let mut head = b"\x81\xff".to_vec();
    head.extend_from_slice(&gigabyte.to_be_bytes());
    head.extend_from_slice(&[0; 4]);
    for _ in 0..20 {
        assert_eq!(bytes(&stage, &head).await, Err(1009));
    }
    // Any number of small pieces does not make a larger message.
    let mut raw = stage.raw().await;
    let mut piece = b"\x01\xfe\x80\x00\0\0\0\0".to_vec();
    piece.extend(std::iter::repeat_n(b'x', 0x8000));
    raw.socket.get_mut().write_all(&piece).await.unwrap();
    piece[0] = 0;
    for _ in 0..64 {
        if raw.socket.get_mut().write_all(&piece).await.is_err() {
            break;
        }
    }
    assert!(matches!(raw.next().await, Err(1009 | 1006)));
    assert!(peak() - before < 32, "{} MiB more", peak() - before);
    // A well-behaved client gets the error before it sends.
    let long = json!({"path": "a", "content": "\u{1}".repeat(300_000)});
    assert_eq!(
        stage
            .client()
            .request("fs/write", long)
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::TooLarge
    );
    lives(&stage).await;
}

#[tokio::test]
async fn client_that_never_finishes_its_head_is_disconnected() {
    let listen = |listener: Listener| listener.header_time(Duration::from_millis(300));
    let stage = TestHost::build(tempfile::tempdir().unwrap(), HostLimits::new(), listen).await;
    let mut slow = TcpStream::connect(&stage.address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let dripping = async {
        while slow.write_all(b"x: y\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let _ = slow.read_to_end(&mut rest).await;
    };
    within(dripping).await;
    lives(&stage).await;
}

#[tokio::test]
async fn silent_client_is_disconnected() {
    let stage = TestHost::loading(HostLimits::new().ping(Duration::from_millis(100))).await;
    // Nothing is read and nothing answered, as if the cable had been pulled.
    let raw = stage.raw().await;
    stage.wait_for_notice("silent for too long").await;
    drop(raw);
    // A client that only answers pings stays connected.
    let mut idle = stage.raw().await;
    let mut asked = 0;
    while asked < 8 {
        let message = within(idle.socket.next())
            .await
            .expect("the client was disconnected")
            .unwrap();
        assert!(!message.is_close(), "the client was disconnected");
        asked += usize::from(message.is_ping());
    }
}

#[tokio::test]
async fn requests_beyond_the_limits_are_rejected() {
    let stage = TestHost::loading(HostLimits::new().clients(3)).await;
    let mut raw = stage.raw().await;
    for id in 0..40 {
        let wait = json!({"jsonrpc": "2.0", "id": id, "method": "fs/wait",
            "params": {"path": "x", "timeout": 60}});
        raw.send(wait.to_string()).await;
    }
    for _ in 16..40 {
        assert_eq!(raw.next().await.unwrap()["error"]["data"]["kind"], "full");
    }
    let (_two, _three) = (stage.raw().await, stage.raw().await);
    assert_eq!(
        RawClient::connect(&stage.address, Some(TOKEN)).await.err(),
        Some(503)
    );
    let error = stage.client().request("ping", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    drop(raw);
    within(async {
        while RawClient::connect(&stage.address, Some(TOKEN))
            .await
            .is_err()
        {}
    })
    .await;
}

#[tokio::test]
async fn tasks_beyond_the_limit_are_rejected() {
    if !crate::is_alone("bridge::hostile::tasks_beyond_the_limit_are_rejected") {
        return;
    }
    let stage = TestHost::loading(HostLimits::new()).await;
    let model = (0..8).fold(ScriptedModel::new(), |model, _| model.hang());
    stage
        .host
        .commander(stage.runs(model).max_runs(8))
        .await
        .unwrap();
    let mut raw = stage.raw().await;
    raw.request("ping", json!({})).await.unwrap();
    let before = peak();
    let (mut taken, mut full) = (0, 0);
    for _ in 0..10_000 {
        match raw
            .request(
                "agent/dispatch",
                json!({"prompt": "x".repeat(1000), "events": false}),
            )
            .await
        {
            Ok(_) => taken += 1,
            Err(error) if error["data"]["kind"] == "full" => full += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((taken, full), (8, 9992));
    assert_eq!(
        raw.request("agent/list", json!({})).await.unwrap()["tasks"]
            .as_array()
            .unwrap()
            .len(),
        8
    );
    assert!(peak() - before < 64, "{} MiB more", peak() - before);
    lives(&stage).await;
}

#[tokio::test]
async fn invisible_prompt_is_rejected() {
    let stage = TestHost::scripted(ScriptedModel::new().reply("1")).await;
    let mut client = stage.raw().await;
    for blank in ["", " \n", "\u{200b}", "\0", "\u{feff}\u{2060}\u{3164}"] {
        let refused = within(client.request("agent/dispatch", json!({"prompt": blank}))).await;
        let words = refused.unwrap_err().to_string();
        assert!(words.contains("empty"), "{blank:?}: {words}");
    }
    lives(&stage).await;
}
