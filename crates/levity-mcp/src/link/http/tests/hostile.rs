//! Servers that do what they should not: each an error in bounded time, and then the next call.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::raw::{Do, EVENTS, Raw, Request, answer, ok, start, start_all};
use super::{Dial, call, end, within};
use crate::{Error, ErrorKind};

/// The first call is done this to, the second answered.
async fn first_call(act: impl Fn(&Request) -> Do + Send + Sync + 'static) -> (Error, Raw) {
    let calls = AtomicUsize::new(0);
    let server = start(move |request| match request.rpc() {
        "tools/call" if calls.fetch_add(1, Ordering::Relaxed) > 0 => ok(&request.text("again")),
        "tools/call" => act(request),
        _ => Do::Say(answer("405 Method Not Allowed", "text/plain", "")),
    })
    .await;
    let client = Dial::to(server.url()).legacy().await;
    let error = call(&client, "x", json!({})).await.unwrap_err();
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "again");
    end(client).await;
    (error, server)
}

async fn check(act: impl Fn(&Request) -> Do + Send + Sync + 'static, kind: ErrorKind, words: &str) {
    let (error, _) = first_call(act).await;
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().contains(words), "{error}");
}

#[tokio::test]
async fn a_connection_that_ends_before_the_answer() {
    check(
        |_| Do::Last(String::new()),
        ErrorKind::Closed,
        "ended before",
    )
    .await;
    check(
        |_| Do::Last("HTTP/1.1 200 OK\r\ncontent-type: appli".into()),
        ErrorKind::Closed,
        "ended before",
    )
    .await;
    let torn = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: \
        900\r\n\r\n{\"jsonrpc\"";
    check(
        move |_| Do::Last(torn.into()),
        ErrorKind::Closed,
        "ended before",
    )
    .await;
    check(
        |_| Do::Last(EVENTS.into()),
        ErrorKind::Closed,
        "ended before",
    )
    .await;
    check(
        |_| Do::Last(format!("{EVENTS}data: {{\"jsonrpc\"")),
        ErrorKind::Closed,
        "ended before",
    )
    .await;
}

#[tokio::test]
async fn an_answer_that_is_too_large() {
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
        move |_| Do::Forever(chunked.into(), forever.clone()),
        ErrorKind::TooLarge,
        "max_message",
    )
    .await;
    check(
        move |_| Do::Forever(format!("{EVENTS}data: "), "x".repeat(1 << 16)),
        ErrorKind::TooLarge,
        "max_message",
    )
    .await;
    check(
        move |_| Do::Forever(EVENTS.into(), "data: x\n".repeat(1 << 12)),
        ErrorKind::TooLarge,
        "max_message",
    )
    .await;
    // Even where it could be asked for again.
    check(
        move |_| {
            Do::Forever(
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
async fn answers_that_are_none() {
    check(
        |_| Do::Say(answer("200 OK", "text/html", "<p>Hello")),
        ErrorKind::Protocol,
        "`text/html`",
    )
    .await;
    check(
        |_| Do::Say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".into()),
        ErrorKind::Protocol,
        "content type",
    )
    .await;
    check(|_| ok("<p>"), ErrorKind::Protocol, "no JSON-RPC").await;
    check(|_| ok(""), ErrorKind::Protocol, "no JSON-RPC").await;
    check(
        |_| ok(r#"{"jsonrpc":"2.0","id":"other","result":{}}"#),
        ErrorKind::Protocol,
        "another request",
    )
    .await;
    check(
        |_| Do::Say(answer("202 Accepted", "text/plain", "")),
        ErrorKind::Protocol,
        "no answer",
    )
    .await;
    check(
        |_| Do::Say(answer("204 No Content", "text/plain", "")),
        ErrorKind::Protocol,
        "no answer",
    )
    .await;
}

#[tokio::test]
async fn errors_by_status() {
    check(
        |_| Do::Say(answer("500 Oh", "text/plain", "secret")),
        ErrorKind::Protocol,
        "HTTP 500",
    )
    .await;
    check(
        |_| Do::Say(answer("502 Oh", "text/plain", "")),
        ErrorKind::Away,
        "HTTP 502",
    )
    .await;
    check(
        |_| Do::Say(answer("429 Oh", "text/plain", "")),
        ErrorKind::Away,
        "HTTP 429",
    )
    .await;
    check(
        |_| Do::Say(answer("404 Oh", "text/plain", "")),
        ErrorKind::Protocol,
        "HTTP 404",
    )
    .await;
    let later = "HTTP/1.1 503 Later\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n";
    check(
        move |_| Do::Say(later.into()),
        ErrorKind::Away,
        "wait 3600s",
    )
    .await;
    let (error, _) = first_call(|_| Do::Say(answer("500 Oh", "text/plain", "secret"))).await;
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[tokio::test]
async fn an_error_in_the_protocols_words_is_passed_on_whatever_its_status_and_id() {
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
            move |_| Do::Say(answer(status, "application/json; charset=utf-8", &body)),
            ErrorKind::Refused(-32042),
            "no such thing",
        )
        .await;
    }
    let event = r#"data: {"jsonrpc":"2.0","error":{"code":-32042,"message":"no such thing"}}"#;
    check(
        move |_| Do::Stall(format!("{EVENTS}{event}\n\n")),
        ErrorKind::Refused(-32042),
        "no such thing",
    )
    .await;
}

#[tokio::test]
async fn a_server_that_asks_for_a_moment_gets_it() {
    let times = AtomicUsize::new(0);
    let server = start(move |request| match times.fetch_add(1, Ordering::Relaxed) {
        0 => Do::Say("HTTP/1.1 429 Later\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n".into()),
        _ => ok(&request.text("now")),
    })
    .await;
    let client = Dial::to(server.url()).legacy().await;
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "now");
    assert_eq!(server.posted("tools/call"), 2);
    end(client).await;
}

#[tokio::test]
async fn a_redirect_is_followed_at_home_and_nowhere_else() {
    let elsewhere = start(|request| ok(&request.text("stolen"))).await;
    let target = elsewhere.url();
    for status in ["302 Found", "307 Temporary Redirect"] {
        let to = format!(
            "HTTP/1.1 {status}\r\nlocation: {target}?key=secret\r\ncontent-length: 0\r\n\r\n"
        );
        let (error, _) = first_call(move |_| Do::Say(to.clone())).await;
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(
            error.message().contains("redirects to `http://127.0.0.1:"),
            "{error}"
        );
        assert!(!error.message().contains("secret"), "{error}");
    }
    assert!(elsewhere.seen().is_empty());
    let server = start(|request| match request.path.as_str() {
        "/mcp" => {
            Do::Say("HTTP/1.1 307 There\r\nlocation: /mcp/\r\ncontent-length: 0\r\n\r\n".into())
        }
        _ => ok(&request.text("there")),
    })
    .await;
    let client = Dial::to(server.url())
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
async fn a_call_is_not_sent_twice_but_a_list_is() {
    let (error, server) = first_call(|_| Do::Last(String::new())).await;
    assert_eq!(
        (error.kind(), server.posted("tools/call")),
        (ErrorKind::Closed, 2)
    );
    let times = AtomicUsize::new(0);
    let server = start(move |request| match times.fetch_add(1, Ordering::Relaxed) {
        0 => Do::Last(String::new()),
        _ => ok(&request.result(&json!({"tools": []}))),
    })
    .await;
    let client = Dial::to(server.url()).legacy().await;
    assert!(
        within(client.peer().list_all_tools())
            .await
            .unwrap()
            .is_empty()
    );
    end(client).await;
}

/// Sessions: begins one, and answers in it by `act`.
async fn in_session(act: impl Fn(&Request) -> Do + Send + Sync + 'static) -> Raw {
    start_all(move |request| match (request.method.as_str(), request.rpc()) {
        (_, "initialize") => {
            let info = json!({"name": "raw", "version": "1"});
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info});
            let body = request.result(&result);
            let length = body.len();
            Do::Say(format!("HTTP/1.1 200 OK\r\nmcp-session-id: s1\r\ncontent-type: \
                application/json\r\ncontent-length: {length}\r\n\r\n{body}"))
        }
        ("POST", method) if method.starts_with("notifications/") => Do::Say(answer("202 Accepted", "text/plain", "")),
        ("DELETE", _) => Do::Say(answer("200 OK", "text/plain", "")),
        _ => act(request),
    })
    .await
}

#[tokio::test]
async fn a_session_that_is_forgotten_is_begun_again_once() {
    for gone in [
        answer("404 Not Found", "text/plain", ""),
        answer(
            "400 Bad",
            "application/json",
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#,
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
                    Do::Say(answer("405 No", "text/plain", ""))
                }
                (_, 0) => Do::Say(gone.clone()),
                _ => ok(&request.text("back")),
            }
        })
        .await;
        let client = Dial::to(server.url()).legacy().await;
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
async fn an_answer_is_picked_up_where_its_stream_was_closed_on_purpose() {
    let resumed = AtomicUsize::new(0);
    let id = std::sync::Mutex::new(json!(null));
    let server = in_session(move |request| {
        match (request.method.as_str(), request.header("last-event-id")) {
            ("POST", _) => {
                *id.lock().unwrap() = request.body["id"].clone();
                Do::Last(format!("{EVENTS}id: e1\nretry: 20\ndata: \n\n"))
            }
            (_, Some("e1")) => match resumed.fetch_add(1, Ordering::Relaxed) {
                // Once with nothing, once with the answer.
                0 => Do::Last(EVENTS.into()),
                _ => {
                    let result = json!({"content": [{"type": "text", "text": "late"}]});
                    let message =
                        json!({"jsonrpc": "2.0", "id": *id.lock().unwrap(), "result": result});
                    Do::Stall(format!("{EVENTS}id: e2\ndata: {message}\n\n"))
                }
            },
            _ => Do::Say(answer("405 No", "text/plain", "")),
        }
    })
    .await;
    let client = Dial::to(server.url()).legacy().await;
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "late");
    end(client).await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_picked_up_is_an_error() {
    for get in [
        || Do::Say(answer("404 Not Found", "text/plain", "")),
        || Do::Say(answer("500 Oh", "text/plain", "")),
        || Do::Last(EVENTS.into()),
        || Do::Last(String::new()),
    ] {
        let server = in_session(move |request| match request.method.as_str() {
            "POST" => Do::Last(format!("{EVENTS}id: e1\nretry: 10\ndata: \n\n")),
            _ => get(),
        })
        .await;
        let client = Dial::to(server.url()).legacy().await;
        let error = call(&client, "x", json!({})).await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Closed | ErrorKind::Protocol),
            "{error}"
        );
        end(client).await;
    }
}

#[tokio::test]
async fn answer_that_trickles_in_ends_with_its_time() {
    let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n";
    let refused =
        "HTTP/1.1 400 No\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n";
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    for (act, name) in [
        (Do::Stall(String::new()), "nothing at all"),
        (
            Do::Stall("HTTP/1.1 200 OK\r\nx-y: ".into()),
            "a part of the head",
        ),
        (Do::Stall(format!("{json}{{")), "a part of the body"),
        (Do::Stall(format!("{refused}{{")), "a part of an error"),
        (Do::Stall(EVENTS.into()), "a stream without events"),
        (Do::Stall(format!("{EVENTS}data: {{")), "a part of an event"),
        (
            Do::Stall(format!("{EVENTS}id: 1\ndata: \n\n")),
            "an event to go on from",
        ),
        (
            Do::Forever(EVENTS.into(), ":\n".into()),
            "comments for ever",
        ),
        (
            Do::Forever(EVENTS.into(), "data:\n\n".into()),
            "empty events for ever",
        ),
        (
            Do::Forever(EVENTS.into(), format!("data: {progress}\n\n")),
            "progress for ever",
        ),
    ] {
        let server = in_session(move |request| match request.method.as_str() {
            "GET" => Do::Say(answer("405 No", "text/plain", "")),
            _ => act.clone(),
        })
        .await;
        let mut dial = Dial::to(server.url());
        dial.answer = Some(std::time::Duration::from_millis(300));
        let client = dial.legacy().await;
        let error = call(&client, "x", json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{name}: {error}");
        assert!(error.message().contains("call_limit"), "{name}: {error}");
        within(server.left.clone().wait_for(|left| *left > 0))
            .await
            .unwrap();
        end(client).await;
    }
}

#[tokio::test]
async fn answer_that_is_picked_up_again_and_again_ends_with_its_time() {
    for get in [
        |n: usize| Do::Last(format!("{EVENTS}id: {n}\nretry: 1\ndata: \n\n")),
        |_: usize| Do::Stall(EVENTS.into()),
        |_: usize| Do::Stall(String::new()),
    ] {
        let events = AtomicUsize::new(0);
        let server = in_session(move |request| {
            match (request.method.as_str(), request.header("last-event-id")) {
                ("GET", None) => Do::Say(answer("405 No", "text/plain", "")),
                ("GET", _) => get(events.fetch_add(1, Ordering::Relaxed)),
                _ => Do::Last(format!("{EVENTS}id: first\nretry: 1\ndata: \n\n")),
            }
        })
        .await;
        let mut dial = Dial::to(server.url());
        dial.answer = Some(std::time::Duration::from_millis(300));
        let client = dial.legacy().await;
        let error = call(&client, "x", json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        end(client).await;
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_at_first_is_left_when_nobody_waits() {
    for start in [
        || Do::Stall(String::new()),
        || Do::Stall("HTTP/1.1 200 OK\r\ncontent-".into()),
        || Do::Stall(EVENTS.into()),
        || Do::Forever(EVENTS.into(), ": wait\n\n".repeat(1000)),
    ] {
        let server = start_all(move |_| start()).await;
        let dial = Dial::to(server.url());
        let asked = async {
            while server.seen().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = dial.try_legacy() => panic!("it does not answer"),
            () = within(asked) => {}
        }
        within(server.left.clone().wait_for(|left| *left > 0))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_or_is_none() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let error = Dial::to(format!("http://{free}/mcp?key=secret"))
        .try_legacy()
        .await
        .err()
        .unwrap();
    assert!(
        error.contains("cannot be reached: Connection refused"),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
    let server = start_all(|_| Do::Say(answer("404 Not Found", "text/plain", ""))).await;
    let error = Dial::to(server.url()).try_legacy().await.err().unwrap();
    assert!(error.contains("HTTP 404"), "{error}");
}

#[test]
fn headers_and_urls_that_cannot_be_are_refused() {
    let check = |dial: Dial, words: &str| {
        let error = dial.open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains(words), "{error}");
        assert!(!error.message().contains("secret"), "{error}");
    };
    check(
        Dial::to("http://h/").header("Mcp-Session-Id", "secret"),
        "`Mcp-Session-Id` is set by levity",
    );
    check(
        Dial::to("http://h/").header("Content-Type", "secret"),
        "`Content-Type` is set by levity",
    );
    check(
        Dial::to("http://h/").header("Mcp-Param-X", "secret"),
        "`Mcp-Param-X` is set by levity",
    );
    check(
        Dial::to("http://h/").header("a b", "secret"),
        "`a b` has a name",
    );
    check(
        Dial::to("http://h/").header("a", "secret\n"),
        "`a` has a value",
    );
    check(Dial::to("file:///secret"), "must begin");
    check(Dial::to("mcp"), "cannot be read");
}
