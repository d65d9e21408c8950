//! The MCP server over HTTP.

use std::sync::Arc;
use std::time::Duration;

use levity_core::ToolOutput;
use levity_serve::mcp::{
    ClientLogLevel, ElicitForm, ElicitReply, HandlerReply, McpLimits, McpServer,
};
use levity_serve::{AccessControl, Token};
use levity_test::{ManualWorld, RecordingTool};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::fixture::{TestHandler, builder};
use super::raw_http::{Site, modern_meta};

fn echo() -> RecordingTool {
    RecordingTool::new("echo", |args| Ok(ToolOutput::text(args.to_string())))
}

fn plain() -> McpServer {
    builder().tool(echo()).build().unwrap()
}

fn call(id: i64, tool: &str, args: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": tool, "arguments": args}})
}

/// A tool that waits: it signals its start, and the test signals its end.
fn waiting() -> (TestHandler, Arc<Notify>, Arc<Notify>) {
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes) = (started.clone(), go.clone());
    let talk = TestHandler::new("wait", move |_| {
        let (begins, goes) = (begins.clone(), goes.clone());
        async move {
            begins.notify_one();
            goes.notified().await;
            Ok(HandlerReply::text("done"))
        }
    });
    (talk, started, go)
}

#[tokio::test]
async fn both_protocol_eras_are_served() {
    let site = Site::open(&plain()).await;
    let session = site.session().await.unwrap();
    let headers = [
        ("mcp-session-id", &*session),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let answer = site.post(&headers, &call(7, "echo", json!({"a": 1}))).await;
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("text/event-stream"))
    );
    assert_eq!(
        answer.message()["result"]["content"][0]["text"],
        r#"{"a":1}"#
    );
    let answer = site
        .modern("tools/call", json!({"name": "echo", "arguments": {"b": 2}}))
        .await;
    assert_eq!(
        answer.message()["result"]["content"][0]["text"],
        r#"{"b":2}"#
    );
    assert_eq!(site.modern("no/such", json!({})).await.status, 404);
    let answer = site.send("DELETE", &headers, "").await;
    assert!((200..300).contains(&answer.status), "{answer:?}");
    assert_eq!(
        site.post(&headers, &call(8, "echo", json!({})))
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn request_without_valid_token_is_rejected() {
    let site = Site::behind(
        &plain(),
        AccessControl::new(Token::new("0123456789abcdef").unwrap()),
    )
    .await;
    let good = ("authorization", "Bearer 0123456789abcdef");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover",
        "params": {"_meta": modern_meta()}});
    let version = ("mcp-protocol-version", "2026-07-28");
    let method = ("mcp-method", "server/discover");
    for (headers, status) in [
        (vec![good], 200),
        (vec![], 401),
        (vec![("authorization", "Bearer 0123456789abcdeX")], 401),
        (vec![good, ("host", "evil.example")], 403),
        (vec![good, ("origin", "http://evil.example")], 403),
        (vec![good, ("origin", "null")], 403),
        (vec![good, ("origin", "http://localhost:5173")], 200),
    ] {
        let headers: Vec<_> = headers.into_iter().chain([version, method]).collect();
        let answer = site.post(&headers, &ping).await;
        assert_eq!(answer.status, status, "{headers:?}: {answer:?}");
    }
}

#[tokio::test]
async fn invalid_requests_are_rejected() {
    let server = builder()
        .tool(echo())
        .limits(McpLimits::default().body(64 << 10))
        .build()
        .unwrap();
    let site = Site::open(&server).await;
    for (method, headers, body, status) in [
        ("POST", vec![], "{", 400),
        ("POST", vec![], "5", 400),
        ("POST", vec![], "[]", 400),
        ("POST", vec![], "", 400),
        ("POST", vec![("content-type", "text/plain")], "{}", 415),
        ("POST", vec![("accept", "text/html")], "{}", 406),
        ("GET", vec![("accept", "text/event-stream")], "", 400),
        ("GET", vec![("mcp-session-id", "nonsense")], "", 404),
        ("PUT", vec![], "", 405),
        (
            "POST",
            vec![("mcp-session-id", "nonsense")],
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            404,
        ),
        (
            "POST",
            vec![],
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
            400,
        ),
    ] {
        let answer = site.send(method, &headers, body).await;
        assert_eq!(
            answer.status, status,
            "{method} {headers:?} {body}: {answer:?}"
        );
    }
    let bad = site.send("POST", &[], "{").await;
    assert_eq!(bad.message()["error"]["code"], -32700, "{bad:?}");
    let large = "x".repeat(1 << 20);
    let answer = site
        .modern(
            "tools/call",
            json!({"name": "echo", "arguments": {"x": large}}),
        )
        .await;
    assert_eq!(answer.status, 413);
    assert_eq!(
        site.modern("tools/call", json!({"name": "echo"}))
            .await
            .status,
        200,
        "it lives"
    );
}

#[tokio::test]
async fn sessions_are_limited_and_can_be_closed() {
    let world = Arc::new(ManualWorld::new());
    let limits = McpLimits::default()
        .sessions(3)
        .idle(Duration::from_secs(600));
    let server = builder()
        .tool(echo())
        .limits(limits)
        .world(world.clone())
        .build()
        .unwrap();
    let site = Site::open(&server).await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(site.session().await.unwrap());
    }
    let full = site.session().await.unwrap_err();
    assert_eq!(
        (full.status, full.header("retry-after")),
        (503, Some("30")),
        "{full:?}"
    );
    assert_eq!(
        site.modern("tools/list", json!({})).await.status,
        200,
        "a client without a session is served"
    );
    let alive = |session: String| {
        let site = &site;
        async move {
            site.post(&[("mcp-session-id", &session)], &call(1, "echo", json!({})))
                .await
                .status
                == 200
        }
    };
    // An idle session makes room for the next, and the least recently used one goes first.
    world.advance(Duration::from_secs(30));
    assert!(alive(sessions[0].clone()).await);
    world.advance(Duration::from_secs(31));
    assert!(alive(sessions[2].clone()).await);
    let fourth = site.session().await.unwrap();
    assert!(!alive(sessions[1].clone()).await && alive(sessions[2].clone()).await);
    assert!(
        site.session().await.is_err(),
        "all others were used within the minute"
    );
    world.advance(Duration::from_secs(601));
    assert!(site.session().await.is_ok());
    assert!(
        !alive(sessions[0].clone()).await && !alive(fourth).await,
        "the sessions are idle"
    );
}

#[tokio::test]
async fn idle_sessions_end_without_new_requests() {
    let world = Arc::new(ManualWorld::new());
    let limits = McpLimits::default().idle(Duration::from_secs(60));
    let server = builder()
        .tool(echo())
        .limits(limits)
        .world(world.clone())
        .build()
        .unwrap();
    let site = Site::open(&server).await;
    let session = site.session().await.unwrap();
    let headers = [("mcp-session-id", &*session)];
    assert_eq!(
        site.post(&headers, &call(1, "echo", json!({})))
            .await
            .status,
        200
    );
    let sleeping = async || {
        tokio::time::timeout(Duration::from_secs(30), world.until_sleeping(1))
            .await
            .expect("the sweeper did not run");
    };
    sleeping().await;
    // Asking for the session counts as use, so the test asks only once: after the sweeper has slept
    // and sleeps again.
    world.advance(Duration::from_secs(61));
    sleeping().await;
    assert_eq!(
        site.post(&headers, &call(2, "echo", json!({})))
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn session_with_call_in_progress_is_not_idle() {
    let world = Arc::new(ManualWorld::new());
    let (talk, started, go) = waiting();
    let limits = McpLimits::default()
        .sessions(1)
        .idle(Duration::from_secs(60));
    let server = builder()
        .handler(talk)
        .limits(limits)
        .world(world.clone())
        .build()
        .unwrap();
    let site = Site::open(&server).await;
    let session = site.session().await.unwrap();
    let (headers, wait) = ([("mcp-session-id", &*session)], call(1, "wait", json!({})));
    let waiting = site.post(&headers, &wait);
    let meanwhile = async {
        started.notified().await;
        world.advance(Duration::from_secs(3600));
        assert_eq!(site.session().await.unwrap_err().status, 503);
        go.notify_one();
    };
    let (answer, ()) = tokio::join!(waiting, meanwhile);
    assert_eq!(answer.message()["result"]["content"][0]["text"], "done");
}

/// In a session, a call continues when its client is disconnected, and the response waits for the
/// client.
#[tokio::test]
async fn disconnected_client_resumes_and_gets_its_response() {
    let (talk, started, go) = waiting();
    let site = Site::open(&builder().handler(talk).build().unwrap()).await;
    let session = site.session().await.unwrap();
    let headers = [
        ("mcp-session-id", &*session),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    let body = call(1, "wait", json!({})).to_string();
    stream
        .write_all((site.head("POST", &headers, body.len()) + &body).as_bytes())
        .await
        .unwrap();
    let mut lines = BufReader::new(stream).lines();
    let last = loop {
        let line = lines
            .next_line()
            .await
            .unwrap()
            .expect("the stream stays open");
        if let Some(id) = line.strip_prefix("id:") {
            break id.trim().to_owned();
        }
    };
    started.notified().await;
    drop(lines);
    go.notify_one();
    let again = [headers[0], headers[1], ("last-event-id", &*last)];
    let answer = site.send("GET", &again, "").await;
    assert_eq!(
        answer.message()["result"]["content"][0]["text"],
        "done",
        "{answer:?}"
    );
}

/// Old clients reconnect to cancelled and failed requests until they learn that there is nothing.
#[tokio::test]
async fn resuming_a_finished_stream_returns_no_content() {
    let site = Site::open(&plain()).await;
    let session = site.session().await.unwrap();
    let headers = [
        ("mcp-session-id", &*session),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let answer = site.post(&headers, &call(1, "echo", json!({}))).await;
    assert!(answer.message()["result"].is_object(), "{answer:?}");
    let again = |event: &'static str| [headers[0], headers[1], ("last-event-id", event)];
    assert!(site.send("GET", &again("0/0"), "").await.message()["result"].is_object());
    for event in ["1/0", "0/99", "nonsense"] {
        assert_eq!(
            site.send("GET", &again(event), "").await.status,
            204,
            "{event}"
        );
    }
}

/// Questions of the old era go out on the stream of their call, whichever task asks them.
#[tokio::test]
async fn questions_are_sent_on_the_stream_of_their_call() {
    let talk = TestHandler::new("who", |call| async move {
        call.client.log(ClientLogLevel::Info, "asking");
        let form = ElicitForm::new(
            "Who?",
            json!({"type": "object", "properties": {"name": {"type": "string"}}}),
        );
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { call.client.elicit(form).await });
        let said = tasks.join_next().await.unwrap().unwrap()?;
        Ok(HandlerReply::text(format!(
            "{}",
            matches!(said, ElicitReply::Accept(_))
        )))
    });
    let site = Site::open(&builder().handler(talk).build().unwrap()).await;
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "t", "version": "0"}});
    let init = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let session = site
        .post(&[], &init)
        .await
        .header("mcp-session-id")
        .unwrap()
        .to_owned();
    let headers = [
        ("mcp-session-id", &*session),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    let body = call(5, "who", json!({})).to_string();
    stream
        .write_all((site.head("POST", &headers, body.len()) + &body).as_bytes())
        .await
        .unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut next = async || loop {
        let line = lines
            .next_line()
            .await
            .unwrap()
            .expect("the stream stays open");
        if let Some(message) = line
            .strip_prefix("data:")
            .and_then(|data| serde_json::from_str::<Value>(data.trim()).ok())
        {
            return message;
        }
    };
    let ask = next().await;
    assert_eq!(ask["method"], "elicitation/create", "{ask}");
    let said = json!({"jsonrpc": "2.0", "id": ask["id"],
        "result": {"action": "accept", "content": {"name": "Ada"}}});
    assert_eq!(site.post(&headers, &said).await.status, 202);
    let answer = next().await;
    assert_eq!(answer["result"]["content"][0]["text"], "true", "{answer}");
}

#[tokio::test]
async fn questions_are_sent_as_results_since_2026_07_28() {
    let talk = TestHandler::new("who", |call| async move {
        let form = ElicitForm::new(
            "Who?",
            json!({"type": "object", "properties": {"name": {"type": "string"}}}),
        );
        Ok(HandlerReply::text(format!(
            "{:?}",
            call.client.named("who").elicit(form).await?
        )))
    });
    let site = Site::open(&builder().handler(talk).build().unwrap()).await;
    let asked = site
        .modern("tools/call", json!({"name": "who", "arguments": {}}))
        .await
        .message();
    assert_eq!(
        asked["result"]["inputRequests"]["who"]["method"], "elicitation/create",
        "{asked}"
    );
    let answers = json!({"who": {"action": "decline"}});
    let state = &asked["result"]["requestState"];
    let again =
        json!({"name": "who", "arguments": {}, "inputResponses": answers, "requestState": state});
    let answer = site.modern("tools/call", again).await.message();
    assert_eq!(
        answer["result"]["content"][0]["text"], "Decline",
        "{answer}"
    );
}

/// Without sessions, a client that hangs up has cancelled the call.
#[tokio::test]
async fn hanging_up_cancels_the_call() {
    struct NotifyOnDrop(Arc<Notify>);

    impl Drop for NotifyOnDrop {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    let (started, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes) = (started.clone(), gone.clone());
    let talk = TestHandler::new("wait", move |_| {
        let (begins, gone) = (begins.clone(), NotifyOnDrop(goes.clone()));
        async move {
            let _gone = gone;
            begins.notify_one();
            std::future::pending().await
        }
    });
    let site = Site::open(&builder().handler(talk).build().unwrap()).await;
    let mut wait = call(1, "wait", json!({}));
    wait["params"]["_meta"] = modern_meta();
    let body = wait.to_string();
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "wait"),
    ];
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    stream
        .write_all((site.head("POST", &headers, body.len()) + &body).as_bytes())
        .await
        .unwrap();
    started.notified().await;
    drop(stream);
    gone.notified().await;
}

/// When the listener ends, so does everything that it served: no session remains.
#[tokio::test]
async fn stopping_the_listener_ends_all_sessions() {
    struct NotifyOnDrop(Arc<Notify>);

    impl Drop for NotifyOnDrop {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    let (started, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes) = (started.clone(), gone.clone());
    let talk = TestHandler::new("wait", move |_| {
        let (begins, gone) = (begins.clone(), NotifyOnDrop(goes.clone()));
        async move {
            let _gone = gone;
            begins.notify_one();
            std::future::pending().await
        }
    });
    let mut site = Site::open(&builder().handler(talk).build().unwrap()).await;
    let session = site.session().await.unwrap();
    let body = call(1, "wait", json!({})).to_string();
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    let head = site.head("POST", &[("mcp-session-id", &session)], body.len());
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    started.notified().await;
    site.stop.cancel();
    while site.tasks.join_next().await.is_some() {}
    gone.notified().await;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(TcpStream::connect(site.address).await.is_err());
}
