//! Tests with servers that violate the protocol: each causes an error in bounded time, and the next
//! call works.

use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::service::ClientLifecycleMode;
use serde_json::json;
use tokio::sync::watch;

use super::raw_server::{Action, EVENTS, RawServer, Request, answer, ok, start, start_all};
use super::{TestConnection, call, connect, end, within};
use crate::link::unanswered::MAX_UNANSWERED;
use crate::{Error, ErrorKind};

/// Runs `action` for the first call and responds normally to the second one.
async fn first_call(
    action: impl Fn(&Request) -> Action + Send + Sync + 'static,
) -> (Error, RawServer) {
    let calls = AtomicUsize::new(0);
    let server = start(move |request| match request.rpc() {
        "tools/call" if calls.fetch_add(1, Ordering::Relaxed) > 0 => ok(&request.text("again")),
        "tools/call" => action(request),
        _ => Action::Send(answer("405 Method Not Allowed", "text/plain", "")),
    })
    .await;
    let client = TestConnection::to(server.url()).legacy().await;
    let error = call(&client, "x", json!({})).await.unwrap_err();
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "again");
    end(client).await;
    (error, server)
}

async fn check(
    action: impl Fn(&Request) -> Action + Send + Sync + 'static,
    kind: ErrorKind,
    expected: &str,
) {
    let (error, _) = first_call(action).await;
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().contains(expected), "{error}");
}

#[tokio::test]
async fn connection_end_before_response_returns_closed_error() {
    check(
        |_| Action::SendAndClose(String::new()),
        ErrorKind::Closed,
        "ended before",
    )
    .await;
    check(
        |_| Action::SendAndClose("HTTP/1.1 200 OK\r\ncontent-type: appli".into()),
        ErrorKind::Closed,
        "ended before",
    )
    .await;
    let torn = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: \
        900\r\n\r\n{\"jsonrpc\"";
    check(
        move |_| Action::SendAndClose(torn.into()),
        ErrorKind::Closed,
        "ended before",
    )
    .await;
    check(
        |_| Action::SendAndClose(EVENTS.into()),
        ErrorKind::Closed,
        "ended before",
    )
    .await;
    check(
        |_| Action::SendAndClose(format!("{EVENTS}data: {{\"jsonrpc\"")),
        ErrorKind::Closed,
        "ended before",
    )
    .await;
}

#[tokio::test]
async fn too_large_response_returns_error() {
    let large = "x".repeat(17 << 20);
    check(
        move |request| ok(&request.text(&large)),
        ErrorKind::TooLarge,
        "max_message",
    )
    .await;
    let chunked =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let forever = chunk.clone();
    check(
        move |_| Action::SendForever(chunked.into(), forever.clone()),
        ErrorKind::TooLarge,
        "max_message",
    )
    .await;
    check(
        move |_| Action::SendForever(format!("{EVENTS}data: "), "x".repeat(1 << 16)),
        ErrorKind::TooLarge,
        "max_message",
    )
    .await;
    check(
        move |_| Action::SendForever(EVENTS.into(), "data: x\n".repeat(1 << 12)),
        ErrorKind::TooLarge,
        "max_message",
    )
    .await;
    // This holds even for responses that could be resumed.
    check(
        move |_| {
            Action::SendForever(
                format!("{EVENTS}id: 1\ndata: \n\ndata: "),
                "x".repeat(1 << 16),
            )
        },
        ErrorKind::TooLarge,
        "",
    )
    .await;
}

#[tokio::test]
async fn invalid_responses_return_protocol_error() {
    check(
        |_| Action::Send(answer("200 OK", "text/html", "<p>Hello")),
        ErrorKind::Protocol,
        "`text/html`",
    )
    .await;
    check(
        |_| Action::Send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".into()),
        ErrorKind::Protocol,
        "content type",
    )
    .await;
    check(|_| ok("<p>"), ErrorKind::Protocol, "not a JSON-RPC").await;
    check(|_| ok(""), ErrorKind::Protocol, "not a JSON-RPC").await;
    check(
        |_| ok(r#"{"jsonrpc":"2.0","id":"other","result":{}}"#),
        ErrorKind::Protocol,
        "another request",
    )
    .await;
    check(
        |_| Action::Send(answer("202 Accepted", "text/plain", "")),
        ErrorKind::Protocol,
        "no response",
    )
    .await;
    check(
        |_| Action::Send(answer("204 No Content", "text/plain", "")),
        ErrorKind::Protocol,
        "no response",
    )
    .await;
}

#[tokio::test]
async fn error_status_maps_to_error_kind() {
    check(
        |_| Action::Send(answer("500 Oh", "text/plain", "secret")),
        ErrorKind::Protocol,
        "HTTP 500",
    )
    .await;
    check(
        |_| Action::Send(answer("502 Oh", "text/plain", "")),
        ErrorKind::Unavailable,
        "HTTP 502",
    )
    .await;
    check(
        |_| Action::Send(answer("429 Oh", "text/plain", "")),
        ErrorKind::Unavailable,
        "HTTP 429",
    )
    .await;
    check(
        |_| Action::Send(answer("404 Oh", "text/plain", "")),
        ErrorKind::Protocol,
        "HTTP 404",
    )
    .await;
    let later = "HTTP/1.1 503 Later\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n";
    check(
        move |_| Action::Send(later.into()),
        ErrorKind::Unavailable,
        "delay of 3600s",
    )
    .await;
    let (error, _) = first_call(|_| Action::Send(answer("500 Oh", "text/plain", "secret"))).await;
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[tokio::test]
async fn json_rpc_error_is_returned_for_any_status_and_id() {
    for (status, id) in [
        ("400 Bad", "null"),
        ("200 OK", "null"),
        ("500 Oh", "\"server-error\""),
        ("404 Not", "7"),
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32042,"message":"no such thing"}}}}"#
        );
        check(
            move |_| Action::Send(answer(status, "application/json; charset=utf-8", &body)),
            ErrorKind::Rejected(-32042),
            "no such thing",
        )
        .await;
    }
    let event = r#"data: {"jsonrpc":"2.0","error":{"code":-32042,"message":"no such thing"}}"#;
    check(
        move |_| Action::SendAndStall(format!("{EVENTS}{event}\n\n")),
        ErrorKind::Rejected(-32042),
        "no such thing",
    )
    .await;
}

#[tokio::test]
async fn retry_after_delays_and_repeats_request() {
    let times = AtomicUsize::new(0);
    let server = start(move |request| match times.fetch_add(1, Ordering::Relaxed) {
        0 => {
            Action::Send("HTTP/1.1 429 Later\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n".into())
        }
        _ => ok(&request.text("now")),
    })
    .await;
    let client = TestConnection::to(server.url()).legacy().await;
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "now");
    assert_eq!(server.posted("tools/call"), 2);
    end(client).await;
}

#[tokio::test]
async fn redirect_is_followed_only_within_origin() {
    let elsewhere = start(|request| ok(&request.text("stolen"))).await;
    let target = elsewhere.url();
    for status in ["302 Found", "307 Temporary Redirect"] {
        let to = format!(
            "HTTP/1.1 {status}\r\nlocation: {target}?key=secret\r\ncontent-length: 0\r\n\r\n"
        );
        let (error, _) = first_call(move |_| Action::Send(to.clone())).await;
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(
            error.message().contains("redirects to `http://127.0.0.1:"),
            "{error}"
        );
        assert!(!error.message().contains("secret"), "{error}");
    }
    assert!(elsewhere.seen().is_empty());
    let server = start(|request| match request.path.as_str() {
        "/mcp" => Action::Send(
            "HTTP/1.1 307 There\r\nlocation: /mcp/\r\ncontent-length: 0\r\n\r\n".into(),
        ),
        _ => ok(&request.text("there")),
    })
    .await;
    let client = TestConnection::to(server.url())
        .header("x-key", "secret")
        .legacy()
        .await;
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "there");
    assert_eq!(
        server.seen().last().unwrap().header("x-key"),
        Some("secret")
    );
    end(client).await;
}

#[tokio::test]
async fn only_repeatable_requests_are_sent_again() {
    let (error, server) = first_call(|_| Action::SendAndClose(String::new())).await;
    assert_eq!(
        (error.kind(), server.posted("tools/call")),
        (ErrorKind::Closed, 2)
    );
    let times = AtomicUsize::new(0);
    let server = start(move |request| match times.fetch_add(1, Ordering::Relaxed) {
        0 => Action::SendAndClose(String::new()),
        _ => ok(&request.result(&json!({"tools": []}))),
    })
    .await;
    let client = TestConnection::to(server.url()).legacy().await;
    assert!(
        within(client.peer().list_all_tools())
            .await
            .unwrap()
            .is_empty()
    );
    end(client).await;
}

/// Starts a server with a session, in which `action` handles requests.
async fn in_session(action: impl Fn(&Request) -> Action + Send + Sync + 'static) -> RawServer {
    start_all(move |request| match (request.method.as_str(), request.rpc()) {
        (_, "initialize") => {
            let info = json!({"name": "raw", "version": "1"});
            let result =
                json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info});
            let body = request.result(&result);
            let length = body.len();
            Action::Send(format!("HTTP/1.1 200 OK\r\nmcp-session-id: s1\r\ncontent-type: \
                application/json\r\ncontent-length: {length}\r\n\r\n{body}"))
        }
        ("POST", method) if method.starts_with("notifications/") => {
            Action::Send(answer("202 Accepted", "text/plain", ""))
        }
        ("DELETE", _) => Action::Send(answer("200 OK", "text/plain", "")),
        _ => action(request),
    })
    .await
}

#[tokio::test]
async fn expired_session_is_restarted_once() {
    for expired in [
        answer("404 Not Found", "text/plain", ""),
        answer(
            "400 Bad",
            "application/json",
            concat!(
                r#"{"jsonrpc":"2.0","error":{"code":-32000,"#,
                r#""message":"Bad Request: No valid session ID provided"},"id":null}"#,
            ),
        ),
    ] {
        let calls = AtomicUsize::new(0);
        let server = in_session(move |request| {
            match (
                request.method.as_str(),
                calls.fetch_add(1, Ordering::Relaxed),
            ) {
                ("GET", _) => {
                    calls.fetch_sub(1, Ordering::Relaxed);
                    Action::Send(answer("405 No", "text/plain", ""))
                }
                (_, 0) => Action::Send(expired.clone()),
                _ => ok(&request.text("back")),
            }
        })
        .await;
        let client = TestConnection::to(server.url()).legacy().await;
        assert_eq!(call(&client, "x", json!({})).await.unwrap(), "back");
        assert_eq!(server.posted("initialize"), 2);
        end(client).await;
        assert!(
            server
                .seen()
                .iter()
                .any(|request| request.method == "DELETE")
        );
    }
}

#[tokio::test]
async fn closed_stream_is_resumed() {
    let resumed = AtomicUsize::new(0);
    let id = std::sync::Mutex::new(json!(null));
    let server = in_session(move |request| {
        match (request.method.as_str(), request.header("last-event-id")) {
            ("POST", _) => {
                *id.lock().unwrap() = request.body["id"].clone();
                Action::SendAndClose(format!("{EVENTS}id: e1\nretry: 20\ndata: \n\n"))
            }
            (_, Some("e1")) => match resumed.fetch_add(1, Ordering::Relaxed) {
                // The first resumption gets no event, the second one the response.
                0 => Action::SendAndClose(EVENTS.into()),
                _ => {
                    let result = json!({"content": [{"type": "text", "text": "late"}]});
                    let message =
                        json!({"jsonrpc": "2.0", "id": *id.lock().unwrap(), "result": result});
                    Action::SendAndStall(format!("{EVENTS}id: e2\ndata: {message}\n\n"))
                }
            },
            _ => Action::Send(answer("405 No", "text/plain", "")),
        }
    })
    .await;
    let client = TestConnection::to(server.url()).legacy().await;
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "late");
    end(client).await;
}

#[tokio::test]
async fn failed_resumption_returns_error() {
    for get in [
        || Action::Send(answer("404 Not Found", "text/plain", "")),
        || Action::Send(answer("500 Oh", "text/plain", "")),
        || Action::SendAndClose(EVENTS.into()),
        || Action::SendAndClose(String::new()),
    ] {
        let server = in_session(move |request| match request.method.as_str() {
            "POST" => Action::SendAndClose(format!("{EVENTS}id: e1\nretry: 10\ndata: \n\n")),
            _ => get(),
        })
        .await;
        let client = TestConnection::to(server.url()).legacy().await;
        let error = call(&client, "x", json!({})).await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Closed | ErrorKind::Protocol),
            "{error}"
        );
        end(client).await;
    }
}

#[tokio::test]
async fn slow_response_times_out() {
    let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n";
    let refused =
        "HTTP/1.1 400 No\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n";
    let progress = concat!(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","#,
        r#""params":{"progressToken":1,"progress":1}}"#,
    );
    for (action, name) in [
        (Action::SendAndStall(String::new()), "nothing at all"),
        (
            Action::SendAndStall("HTTP/1.1 200 OK\r\nx-y: ".into()),
            "a part of the head",
        ),
        (
            Action::SendAndStall(format!("{json}{{")),
            "a part of the body",
        ),
        (
            Action::SendAndStall(format!("{refused}{{")),
            "a part of an error",
        ),
        (
            Action::SendAndStall(EVENTS.into()),
            "a stream without events",
        ),
        (
            Action::SendAndStall(format!("{EVENTS}data: {{")),
            "a part of an event",
        ),
        (
            Action::SendAndStall(format!("{EVENTS}id: 1\ndata: \n\n")),
            "an event to resume from",
        ),
        (
            Action::SendForever(EVENTS.into(), ":\n".into()),
            "endless comments",
        ),
        (
            Action::SendForever(EVENTS.into(), "data:\n\n".into()),
            "endless empty events",
        ),
        (
            Action::SendForever(EVENTS.into(), format!("data: {progress}\n\n")),
            "endless progress",
        ),
    ] {
        let server = in_session(move |request| match request.method.as_str() {
            "GET" => Action::Send(answer("405 No", "text/plain", "")),
            _ => action.clone(),
        })
        .await;
        let mut connection = TestConnection::to(server.url());
        connection.answer = Some(std::time::Duration::from_millis(300));
        let client = connection.legacy().await;
        let error = call(&client, "x", json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{name}: {error}");
        assert!(error.message().contains("call_timeout"), "{name}: {error}");
        within(
            server
                .abandoned
                .clone()
                .wait_for(|abandoned| *abandoned > 0),
        )
        .await
        .unwrap();
        end(client).await;
    }
}

#[tokio::test]
async fn endless_resumption_times_out() {
    for get in [
        |n: usize| Action::SendAndClose(format!("{EVENTS}id: {n}\nretry: 1\ndata: \n\n")),
        |_: usize| Action::SendAndStall(EVENTS.into()),
        |_: usize| Action::SendAndStall(String::new()),
    ] {
        let events = AtomicUsize::new(0);
        let server = in_session(move |request| {
            match (request.method.as_str(), request.header("last-event-id")) {
                ("GET", None) => Action::Send(answer("405 No", "text/plain", "")),
                ("GET", _) => get(events.fetch_add(1, Ordering::Relaxed)),
                _ => Action::SendAndClose(format!("{EVENTS}id: first\nretry: 1\ndata: \n\n")),
            }
        })
        .await;
        let mut connection = TestConnection::to(server.url());
        connection.answer = Some(std::time::Duration::from_millis(300));
        let client = connection.legacy().await;
        let error = call(&client, "x", json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        end(client).await;
    }
}

#[tokio::test]
async fn dropped_handshake_closes_connection() {
    for behave in [
        || Action::SendAndStall(String::new()),
        || Action::SendAndStall("HTTP/1.1 200 OK\r\ncontent-".into()),
        || Action::SendAndStall(EVENTS.into()),
        || Action::SendForever(EVENTS.into(), ": wait\n\n".repeat(1000)),
    ] {
        let server = start_all(move |_| behave()).await;
        let connection = TestConnection::to(server.url());
        let is_requested = async {
            while server.seen().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = connection.try_legacy() => panic!("the server does not respond"),
            () = within(is_requested) => {}
        }
        within(
            server
                .abandoned
                .clone()
                .wait_for(|abandoned| *abandoned > 0),
        )
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn unreachable_server_returns_error() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let error = TestConnection::to(format!("http://{free}/mcp?key=secret"))
        .try_legacy()
        .await
        .err()
        .unwrap();
    assert!(
        error.contains("cannot be reached: Connection refused"),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
    let server = start_all(|_| Action::Send(answer("404 Not Found", "text/plain", ""))).await;
    let error = TestConnection::to(server.url())
        .try_legacy()
        .await
        .err()
        .unwrap();
    assert!(error.contains("HTTP 404"), "{error}");
}

/// Returns the events of 1,000 requests of the server.
fn thousand_requests() -> String {
    let event = |id| format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n\n");
    (0..1_000).map(event).collect()
}

#[tokio::test]
async fn endless_requests_without_accepted_answers_time_out() {
    let calls = AtomicUsize::new(0);
    let server = start(move |request| match request.rpc() {
        "tools/call" if calls.fetch_add(1, Ordering::Relaxed) > 0 => ok(&request.text("again")),
        "tools/call" => Action::SendForever(EVENTS.into(), thousand_requests()),
        _ => Action::SendAndStall(String::new()),
    })
    .await;
    let mut connection = TestConnection::to(server.url());
    connection.answer = Some(std::time::Duration::from_secs(1));
    let link = connection.open().unwrap();
    let unanswered = link.caller.unanswered.clone();
    let client = within(connect(link, ClientLifecycleMode::Initialize))
        .await
        .unwrap();
    let error = call(&client, "x", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    // The channels of rmcp's worker hold a few more.
    let count = unanswered.count();
    assert!(
        (1..2 * MAX_UNANSWERED).contains(&count),
        "{count} requests are unanswered"
    );
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "again");
    end(client).await;
}

#[tokio::test]
async fn thousand_requests_with_accepted_answers_do_not_block_call() {
    let (answers, mut answered) = watch::channel(0);
    let server = start(move |request| match request.rpc() {
        "tools/call" => {
            let (requests, result) = (thousand_requests(), request.text("done"));
            Action::SendAndClose(format!("{EVENTS}{requests}data: {result}\n\n"))
        }
        _ => {
            let is_answer = request.body.get("result").is_some();
            answers.send_modify(|count| *count += usize::from(is_answer));
            Action::Send(answer("202 Accepted", "text/plain", ""))
        }
    })
    .await;
    let client = TestConnection::to(server.url()).legacy().await;
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "done");
    within(answered.wait_for(|count| *count == 1_000))
        .await
        .unwrap();
    end(client).await;
}

#[test]
fn open_rejects_invalid_headers_and_urls() {
    let check = |connection: TestConnection, expected: &str| {
        let error = connection.open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains(expected), "{error}");
        assert!(!error.message().contains("secret"), "{error}");
    };
    check(
        TestConnection::to("http://h/").header("Mcp-Session-Id", "secret"),
        "`Mcp-Session-Id` is set by levity",
    );
    check(
        TestConnection::to("http://h/").header("Content-Type", "secret"),
        "`Content-Type` is set by levity",
    );
    check(
        TestConnection::to("http://h/").header("Mcp-Param-X", "secret"),
        "`Mcp-Param-X` is set by levity",
    );
    check(
        TestConnection::to("http://h/").header("a b", "secret"),
        "`a b` has an invalid name",
    );
    check(
        TestConnection::to("http://h/").header("a", "secret\n"),
        "`a` has an invalid value",
    );
    check(TestConnection::to("file:///secret"), "must begin");
    check(TestConnection::to("mcp"), "is invalid");
}
