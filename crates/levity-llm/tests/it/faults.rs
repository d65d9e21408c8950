//! Servers that fail in various ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use levity_core::{Delta, Message, Model, ModelError, ModelErrorKind, Request};
use levity_llm::{ChatModel, TimeLimits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::server::{Answer, Server};

const PIECE: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"aaaaaaaa\"}}]}\n\n";

fn request() -> Request {
    Request::new().with_message(Message::user("Well?"))
}

fn model(server: &Server) -> ChatModel {
    ChatModel::compatible(server.url(), "m")
}

/// Creates a model with short timeouts, in milliseconds.
fn impatient_model(server: &Server, change: impl FnOnce(&mut TimeLimits)) -> ChatModel {
    let mut limits = TimeLimits::default();
    change(&mut limits);
    model(server).with_endpoint(|endpoint| endpoint.with_limits(limits))
}

async fn error_of(answer: Answer) -> ModelError {
    let server = Server::with_answer(answer).await;
    let streamed = model(&server).complete(request()).await.unwrap_err();
    let whole = model(&server)
        .without_streaming()
        .complete(request())
        .await
        .unwrap_err();
    let kind = |error: &ModelError| std::mem::discriminant(&error.kind());
    assert_eq!(
        kind(&streamed),
        kind(&whole),
        "streamed or not, it is the same: {streamed} / {whole}"
    );
    streamed
}

#[tokio::test]
async fn status_maps_to_error_kind() {
    for (status, kind, retryable) in [
        (400, ModelErrorKind::BadRequest, false),
        (401, ModelErrorKind::Auth, false),
        (403, ModelErrorKind::Auth, false),
        (404, ModelErrorKind::BadRequest, false),
        (408, ModelErrorKind::Timeout, true),
        (413, ModelErrorKind::ContextTooLong, false),
        (429, ModelErrorKind::RateLimited { retry_after: None }, true),
        (500, ModelErrorKind::Server, true),
        (502, ModelErrorKind::Server, true),
        (503, ModelErrorKind::Overloaded, true),
        (504, ModelErrorKind::Timeout, true),
        (529, ModelErrorKind::Overloaded, true),
    ] {
        for body in [
            "",
            "{}",
            "<html><h1>Sorry</h1></html>",
            r#"{"error": {"message": "no"}}"#,
            "\u{0}\u{1}",
        ] {
            let error = error_of(Answer::json(status, body)).await;
            assert_eq!(
                (error.kind(), error.is_retryable(), error.status()),
                (kind, retryable, Some(status))
            );
            assert!(!error.to_string().contains('<'), "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let there = Server::with_answer(Answer::json(200, "{}")).await;
    let error = error_of(Answer::json(307, "").header("location", there.url())).await;
    assert_eq!(
        (error.kind(), error.status()),
        (ModelErrorKind::BadRequest, Some(307))
    );
    assert!(there.seen().is_empty(), "a key must not go elsewhere");
}

#[tokio::test]
async fn retry_after_is_read_in_every_format() {
    let asked = async |name: &str, value: &str, body: &str| match error_of(
        Answer::json(429, body).header(name, value),
    )
    .await
    .kind()
    {
        ModelErrorKind::RateLimited { retry_after } => retry_after.map(|time| time.as_secs_f64()),
        kind => panic!("{kind:?}"),
    };
    assert_eq!(asked("retry-after", "12", "").await, Some(12.0));
    assert_eq!(asked("Retry-After", "0.5", "").await, Some(0.5));
    assert_eq!(asked("retry-after-ms", "1500", "").await, Some(1.5));
    assert_eq!(
        asked("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", "").await,
        Some(0.0),
        "it has passed"
    );
    let far = asked("retry-after", "Fri, 21 Oct 2095 07:28:00 GMT", "")
        .await
        .unwrap();
    assert!(far > 1e9, "{far}");
    for nonsense in ["soon", "-1", "NaN", "inf", "1e300"] {
        assert_eq!(asked("retry-after", nonsense, "").await, None, "{nonsense}");
    }
    let google = r#"{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
        "details": [{"retryDelay": "34.4s"}]}}"#;
    assert_eq!(asked("x-none", "1", google).await, Some(34.4));
    let busy = error_of(Answer::json(503, "").header("retry-after", "7")).await;
    assert_eq!(
        (busy.kind(), busy.retry_after()),
        (ModelErrorKind::Overloaded, Some(Duration::from_secs(7)))
    );
}

#[tokio::test]
async fn interrupted_stream_is_an_error() {
    for answer in [
        Answer::sse(PIECE),
        Answer::sse(PIECE).then_reset(),
        Answer::sse(&PIECE[..30]),
        Answer::sse(""),
        Answer::sse(": nothing but comments\n\n"),
    ] {
        let server = Server::with_answer(answer.clone()).await;
        let error = model(&server).complete(request()).await.unwrap_err();
        let kind = error.kind();
        assert!(
            matches!(kind, ModelErrorKind::Transport | ModelErrorKind::Malformed),
            "{answer:?}: {kind:?}"
        );
    }
    let server = Server::with_answer(Answer::sse(PIECE).then_reset()).await;
    let error = model(&server).complete(request()).await.unwrap_err();
    assert!(error.is_retryable() && error.may_cost(), "{error:?}");
}

#[tokio::test]
async fn deltas_before_failure_are_delivered() {
    let server = Server::with_answer(Answer::sse(PIECE).then_reset()).await;
    let mut deltas = model(&server).stream(request()).await.unwrap();
    assert_eq!(
        deltas.next().await.unwrap().unwrap(),
        Delta::Text("aaaaaaaa".to_owned())
    );
    assert!(deltas.next().await.unwrap().is_err());
    assert!(
        deltas.next().await.is_none(),
        "after an error there is nothing"
    );
}

#[tokio::test]
async fn invalid_reply_is_malformed() {
    for answer in [
        Answer::json(200, "<html>hello</html>"),
        Answer::json(200, "{\"choices\": oops"),
        Answer::json(200, [0xff, 0xfe, 0x00]),
        Answer::json(200, "[]"),
        Answer::json(200, "null"),
    ] {
        let server = Server::with_answer(answer.clone()).await;
        let whole = model(&server)
            .without_streaming()
            .complete(request())
            .await
            .unwrap_err();
        assert_eq!(whole.kind(), ModelErrorKind::Malformed, "{answer:?}");
        assert!(
            model(&server).complete(request()).await.is_err(),
            "{answer:?}"
        );
    }
    let cut = Server::with_answer(Answer::json(200, "{\"choices\": [")).await;
    for model in [model(&cut), model(&cut).without_streaming()] {
        let error = model.complete(request()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_retryable()),
            (ModelErrorKind::Transport, true),
            "it broke off"
        );
    }
    let server = Server::with_answer(Answer::sse("data: {\"choices\": oops\n\n")).await;
    let error = model(&server).complete(request()).await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Malformed);
}

#[tokio::test]
async fn invalid_utf8_is_replaced() {
    let mut stream = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\xff\"}}]}\n\n".to_vec();
    stream.extend_from_slice(b"data: [DONE]\n\n");
    let server = Server::with_answer(Answer::sse(stream)).await;
    let reply = model(&server).complete(request()).await.unwrap();
    assert_eq!(reply.message.text(), "a\u{fffd}");
}

#[tokio::test]
async fn content_type_is_ignored() {
    let stream = format!("{PIECE}data: [DONE]\n\n");
    let whole = r#"{"choices": [{"message": {"content": "aaaaaaaa"}, "finish_reason": "stop"}]}"#;
    for (kind, body) in [
        ("application/json", &*stream),
        ("text/html", &stream),
        ("", &stream),
        ("text/event-stream", whole),
        ("text/plain", whole),
    ] {
        let server = Server::with_answer(Answer::new(200, kind, body)).await;
        let reply = model(&server).complete(request()).await.unwrap();
        assert_eq!(reply.message.text(), "aaaaaaaa", "{kind}");
    }
}

#[tokio::test]
async fn oversized_reply_is_rejected() {
    // 100 MB of text: rejected at 32 MiB, with the connection closed.
    let big = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
        "a".repeat(1 << 20)
    );
    let server = Server::with_answer(Answer::sse("").then_repeat(&big, 100)).await;
    let error = model(&server).complete(request()).await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Malformed);
    server.closed().await;
    // A line without an end.
    let server =
        Server::with_answer(Answer::sse("data: ").then_repeat(vec![b'a'; 1 << 20], 100)).await;
    let error = model(&server).complete(request()).await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Malformed);
    server.closed().await;
    // One piece of JSON.
    let server =
        Server::with_answer(Answer::json(200, "{\"a\": \"").then_repeat(vec![b'a'; 1 << 20], 100))
            .await;
    for model in [model(&server), model(&server).without_streaming()] {
        let error = model.complete(request()).await.unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Malformed, "{error}");
        server.closed().await;
    }
    // An error page.
    let server =
        Server::with_answer(Answer::json(500, "").then_repeat(vec![b'a'; 1 << 20], 100)).await;
    let error = model(&server).complete(request()).await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Server);
    assert!(error.message().len() <= 2_000);
    server.closed().await;
}

#[tokio::test]
async fn every_wait_times_out() {
    let milliseconds = Duration::from_millis;
    let stalled = Server::with_answer(Answer::sse(PIECE).then_stall()).await;
    let error = impatient_model(&stalled, |limits| limits.stall = milliseconds(60))
        .complete(request())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Timeout);
    assert!(error.to_string().contains("60ms"), "{error}");
    stalled.closed().await;
    let error = impatient_model(&stalled, |limits| limits.total = milliseconds(60))
        .complete(request())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Timeout);
    stalled.closed().await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut limits = TimeLimits::default();
    limits.first_byte = milliseconds(60);
    let model = ChatModel::compatible(format!("http://{}", silent.local_addr().unwrap()), "m");
    let model = model.with_endpoint(|endpoint| endpoint.with_limits(limits));
    assert_eq!(
        model.complete(request()).await.unwrap_err().kind(),
        ModelErrorKind::Timeout
    );
}

#[tokio::test]
async fn dropped_stream_closes_connection() {
    let server = Server::with_answer(Answer::sse(PIECE).then_stall()).await;
    let mut deltas = model(&server).stream(request()).await.unwrap();
    assert!(deltas.next().await.unwrap().is_ok());
    drop(deltas);
    server.closed().await;
    let server = Server::with_answer(Answer::sse("").then_stall()).await;
    let model = model(&server);
    tokio::select! {
        biased;
        _ = model.complete(request()) => panic!("there is no reply"),
        () = async { while server.seen().is_empty() { tokio::task::yield_now().await } } => {}
    }
    server.closed().await;
}

#[tokio::test]
async fn unpolled_future_sends_nothing() {
    let server = Server::with_answer(Answer::sse("")).await;
    drop(model(&server).stream(request()));
    tokio::task::yield_now().await;
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn unreachable_server_is_named_in_error() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let error = ChatModel::compatible(format!("http://{nobody}"), "m")
        .complete(request())
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ModelErrorKind::Transport, true)
    );
    for wrong in ["nonsense", "", "ftp://host"] {
        let error = ChatModel::compatible(wrong, "m")
            .complete(request())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::BadRequest, "{wrong}: {error}");
    }
}

#[tokio::test]
async fn errors_hide_secrets() {
    let server = Server::with_answer(Answer::json(
        400,
        r#"{"error": "bad key hush-hush-1 and hush-hush-2"}"#,
    ))
    .await;
    let model = model(&server)
        .with_key("hush-hush-1")
        .with_endpoint(|endpoint| endpoint.with_header("x-secret", "hush-hush-2"));
    let error = model.complete(request()).await.unwrap_err();
    assert!(
        !format!("{error} {error:?} {model:?}").contains("hush"),
        "{error:?}"
    );
    assert_eq!(server.last().header("x-secret"), "hush-hush-2");
    let said = Answer::sse("data: {\"error\": {\"message\": \"your hush-hush-1 is no good\"}}\n\n");
    let server = Server::with_answer(said).await;
    let error = self::model(&server)
        .with_key("hush-hush-1")
        .complete(request())
        .await
        .unwrap_err();
    assert_eq!(error.message(), "your *** is no good");
}

/// Answers the first request on a connection as given, and closes the connection at the second
/// request.
async fn closing_server(answers: bool) -> (String, Arc<AtomicUsize>, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    let task = tokio::spawn(async move {
        let body = r#"{"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}"#;
        let reply = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        while let Ok((mut stream, _)) = listener.accept().await {
            for turn in 0..2 {
                let mut piece = [0; 4096];
                if stream.read(&mut piece).await.unwrap_or(0) == 0 {
                    break;
                }
                count.fetch_add(1, Ordering::SeqCst);
                if turn == 1 || !answers {
                    break;
                }
                stream.write_all(reply.as_bytes()).await.unwrap();
            }
        }
    });
    (url, seen, task)
}

#[tokio::test]
async fn closed_keep_alive_connection_is_retried() {
    let (url, seen, task) = closing_server(true).await;
    let model = ChatModel::compatible(url, "m").without_streaming();
    for _ in 0..3 {
        assert_eq!(
            model.complete(request()).await.unwrap().message.text(),
            "yes"
        );
    }
    // One attempt for the first, and for each of the others one that reached no server.
    assert_eq!(seen.load(Ordering::SeqCst), 5);
    task.abort();
}

#[tokio::test]
async fn request_on_new_connection_is_sent_once() {
    let (url, seen, task) = closing_server(false).await;
    let error = ChatModel::compatible(url, "m")
        .complete(request())
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ModelErrorKind::Transport, true)
    );
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    task.abort();
}

#[tokio::test]
async fn maximum_time_limits_are_accepted() {
    let server = Server::with_answer(Answer::sse(format!("{PIECE}data: [DONE]\n\n"))).await;
    let endless = |limits: &mut TimeLimits| {
        let most = Duration::MAX;
        (
            limits.connect,
            limits.first_byte,
            limits.stall,
            limits.total,
        ) = (most, most, most, most);
    };
    assert_eq!(
        impatient_model(&server, endless)
            .complete(request())
            .await
            .unwrap()
            .message
            .text(),
        "aaaaaaaa"
    );
}
