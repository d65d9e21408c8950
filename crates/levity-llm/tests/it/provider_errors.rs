//! All providers at once: replies with invalid bytes, replies that are not from a model, failing
//! servers, and their error messages.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{Message, Model, ModelErrorKind, Request};
use levity_llm::{
    AnthropicModel, ChatModel, Endpoint, GeminiModel, ModelExt as _, OllamaModel, OpenAiModel,
    TimeLimits,
};
use levity_loop::Agent;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::layers::support::auto;
use crate::server::{Answer, Server};

/// The protocols by their providers' names.
const WIRES: [&str; 5] = ["compatible", "openai", "anthropic", "gemini", "ollama"];

fn request() -> Request {
    Request::new().with_message(Message::user("a private question"))
}

/// Creates a model of this protocol, with a key and a password in its address.
fn model(wire: &str, url: &str, stream: bool, limits: TimeLimits) -> Arc<dyn Model> {
    let at = |endpoint: Endpoint| {
        let base = url.replace("://", "://someone:s3cret-word@");
        endpoint
            .with_base(format!("{base}?key=hush-hush-1"))
            .with_limits(limits)
    };
    macro_rules! arc {
        ($model:expr) => {{
            let model = $model.with_endpoint(at);
            let model: Arc<dyn Model> = if stream {
                Arc::new(model)
            } else {
                Arc::new(model.without_streaming())
            };
            model
        }};
    }
    match wire {
        "compatible" => arc!(ChatModel::compatible("http://h", "m").with_key("hush-hush-2")),
        "openai" => arc!(OpenAiModel::new("hush-hush-2", "m")),
        "anthropic" => arc!(AnthropicModel::new("hush-hush-2", "m")),
        "gemini" => arc!(GeminiModel::new("hush-hush-2", "m")),
        _ => arc!(
            OllamaModel::new("m")
                .with_endpoint(|at| at.with_header("authorization", "Bearer hush-hush-2"))
        ),
    }
}

/// Creates a reply with the text `a?b`, where the question mark is replaced by these bytes.
fn reply(wire: &str, stream: bool, odd: &[u8]) -> Answer {
    let text = match (wire, stream) {
        ("compatible", true) => {
            "data: {\"choices\":[{\"delta\":{\"content\":\"a?b\"},\"finish_reason\":\"stop\"}]}\n\n\
             data: [DONE]\n\n"
        }
        ("compatible", false) => {
            "{\"choices\":[{\"message\":{\"content\":\"a?b\"},\"finish_reason\":\"stop\"}]}"
        }
        ("openai", true) => {
            "event: response.output_text.delta\n\
             data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\
             \"content_index\":0,\"delta\":\"a?b\"}\n\n\
             event: response.completed\n\
             data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\
             \"output\":[{\"type\":\"message\",\"role\":\"assistant\",\
             \"content\":[{\"type\":\"output_text\",\"text\":\"a?b\"}]}]}}\n\n"
        }
        ("openai", false) => {
            "{\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"role\":\"assistant\",\
             \"content\":[{\"type\":\"output_text\",\"text\":\"a?b\"}]}]}"
        }
        ("anthropic", true) => {
            "data: {\"type\":\"content_block_start\",\"index\":0,\
             \"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
             data: {\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{\"type\":\"text_delta\",\"text\":\"a?b\"}}\n\n\
             data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
             data: {\"type\":\"message_stop\"}\n\n"
        }
        ("anthropic", false) => {
            "{\"content\":[{\"type\":\"text\",\"text\":\"a?b\"}],\"stop_reason\":\"end_turn\"}"
        }
        ("gemini", true) => {
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a?b\"}]},\
             \"finishReason\":\"STOP\"}]}\n\n"
        }
        ("gemini", false) => {
            "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a?b\"}]},\
             \"finishReason\":\"STOP\"}]}"
        }
        (_, true) => {
            "{\"message\":{\"content\":\"a?b\"},\"done\":false}\n\
             {\"message\":{\"content\":\"\"},\"done\":true}\n"
        }
        (_, false) => "{\"message\":{\"content\":\"a?b\"},\"done\":true}",
    };
    let bytes = text.bytes().flat_map(|byte| {
        if byte == b'?' {
            odd.to_vec()
        } else {
            vec![byte]
        }
    });
    match (wire, stream) {
        ("ollama", true) => Answer::lines(bytes.collect::<Vec<_>>()),
        (_, true) => Answer::sse(bytes.collect::<Vec<_>>()),
        _ => Answer::json(200, bytes.collect::<Vec<_>>()),
    }
}

#[tokio::test]
async fn invalid_utf8_is_replaced_for_every_provider() {
    let cases: [(&[u8], &str); 7] = [
        (b"\xff", "a\u{fffd}b"),
        (b"\xc3", "a\u{fffd}b"),
        (b"\xe2\x82", "a\u{fffd}b"),
        (b"\xed\xa0\x80", "a\u{fffd}\u{fffd}\u{fffd}b"),
        (b"\x80\x80", "a\u{fffd}\u{fffd}b"),
        (b"\xf5ok\xfe", "a\u{fffd}ok\u{fffd}b"),
        ("ä€𝄞".as_bytes(), "aä€𝄞b"),
    ];
    for wire in WIRES {
        for stream in [true, false] {
            for (odd, expected) in cases {
                let server = Server::with_answer(reply(wire, stream, odd)).await;
                let model = model(wire, server.url(), stream, TimeLimits::default());
                let reply = model.complete(request()).await;
                let reply =
                    reply.unwrap_or_else(|error| panic!("{wire}, {stream}, {odd:?}: {error}"));
                assert_eq!(reply.message.text(), expected, "{wire}, {stream}");
            }
        }
    }
}

#[tokio::test]
async fn byte_order_mark_is_skipped_for_every_provider() {
    for wire in WIRES {
        for stream in [true, false] {
            let server = Server::with_answer(reply(wire, stream, b"-").with_mark()).await;
            let model = model(wire, server.url(), stream, TimeLimits::default());
            let reply = model.complete(request()).await;
            assert_eq!(
                reply
                    .unwrap_or_else(|error| panic!("{wire}, {stream}: {error}"))
                    .message
                    .text(),
                "a-b"
            );
        }
    }
}

#[tokio::test]
async fn invalid_utf8_outside_strings_is_an_error() {
    for answer in [
        Answer::sse(b"data: {\"choices\":\xff[]}\n\n"),
        Answer::json(200, b"{\xff}"),
    ] {
        let server = Server::with_answer(answer).await;
        for stream in [true, false] {
            let model = model("compatible", server.url(), stream, TimeLimits::default());
            assert_eq!(
                model.complete(request()).await.unwrap_err().kind(),
                ModelErrorKind::Malformed
            );
        }
    }
}

/// A page of a proxy or a captive portal.
const PAGE: &str = "<!DOCTYPE html>\n<html><head><title>Hotel Wi-Fi\n &amp; \
    Login</title></head><body>Pay</body></html>";

#[tokio::test]
async fn reply_not_from_model_is_reported_and_not_retried() {
    let long = format!("{PAGE}{}", " ".repeat(100_000));
    let cases = [
        (
            Answer::new(200, "text/html; charset=utf-8", PAGE),
            "a web page titled `Hotel Wi-Fi & Login` (text/html)",
        ),
        (
            Answer::new(200, "text/event-stream", &long),
            "a web page titled `Hotel Wi-Fi & Login` (text/event-stream)",
        ),
        (
            Answer::json(200, PAGE),
            "a web page titled `Hotel Wi-Fi & Login` (application/json)",
        ),
        (
            Answer::new(
                200,
                "application/xml",
                "<?xml version='1.0'?><Error><Message>Denied</Message></Error>",
            ),
            "XML with the text `Denied` (application/xml)",
        ),
        (
            Answer::new(200, "text/plain", "Ollama is running"),
            "text, `Ollama is running` (text/plain)",
        ),
        (
            Answer::new(200, "text/html", ""),
            "an empty body (text/html)",
        ),
        (
            Answer::new(200, "application/json", b"\x1f\x8b\x08\x00\x00"),
            "compressed data (gzip, application/json)",
        ),
        (
            Answer::json(200, "{\"status\":\"ok\",\"version\":\"1.2\"}"),
            "JSON of another API with `status`, `version` (application/json)",
        ),
        (
            Answer::json(200, "{\"message\":\"Welcome to the API\"}"),
            "JSON of another API with `message` (application/json)",
        ),
        (
            Answer::json(200, "{}"),
            "an empty JSON object (application/json)",
        ),
        (
            Answer::new(302, "text/html", "").header(
                "location",
                "http://u:p@portal.example/login?token=hush-hush-9",
            ),
            "redirects to `http://portal.example/login`",
        ),
    ];
    for wire in WIRES {
        for stream in [true, false] {
            for (answer, expected) in &cases {
                let (_, world) = auto();
                let server = Server::with_answer(answer.clone()).await;
                let model = model(wire, server.url(), stream, TimeLimits::default());
                let model = model.retry().with_world(world);
                let error = model.complete(request()).await.unwrap_err();
                let told = error.to_string();
                assert!(
                    told.contains(expected),
                    "{wire}, {stream}: {told}, not {expected}"
                );
                assert!(
                    told.contains(&format!(
                        "request to {} failed (model {wire}:m, status ",
                        server.url()
                    )),
                    "{told}"
                );
                assert!(!error.is_retryable(), "{wire}, {stream}: {told}");
                assert_eq!(server.seen().len(), 1, "{wire}, {stream}: {told}");
                check_clean(&format!("{error} {error:?}"));
            }
        }
    }
}

/// Checks that an error is one line without secrets and without parts of the request.
#[track_caller]
fn check_clean(text: &str) {
    for word in ["hush", "s3cret", "private", "\n", "<", "u:p@"] {
        assert!(!text.contains(word), "{text} has `{word}` in it");
    }
}

/// The behaviour of a listener for each connection.
#[derive(Clone, Copy)]
enum Behaviour {
    /// Sends these bytes, whatever the request.
    Say(&'static [u8]),
    /// Reads the request and resets the connection.
    Reset,
    /// Keeps the connection open, and sends nothing.
    Hold,
}

/// Starts a listener that is not an HTTP server, and returns its port.
async fn listener(behaviour: Behaviour) -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        let mut live = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            live.spawn(serve(stream, behaviour));
        }
    });
    (port, task)
}

async fn serve(mut stream: TcpStream, behaviour: Behaviour) -> std::io::Result<()> {
    match behaviour {
        Behaviour::Say(bytes) => {
            let _ = stream.read(&mut [0; 4096]).await?;
            stream.write_all(bytes).await?;
            while stream.read(&mut [0; 64]).await? > 0 {}
            Ok(())
        }
        Behaviour::Reset => {
            let _ = stream.read(&mut [0; 4096]).await?;
            stream.set_zero_linger()
        }
        Behaviour::Hold => std::future::pending().await,
    }
}

/// Runs an agent with each protocol, streamed or not, and checks its error message. `URL` and
/// `MODEL` in the expected text are replaced by the server's address and the model.
async fn check(url: &str, limits: TimeLimits, retryable: bool, expected: &str) {
    for wire in WIRES {
        for stream in [true, false] {
            let model = model(wire, url, stream, limits);
            let error = Agent::builder(model)
                .build()
                .unwrap()
                .run("a private question")
                .await
                .unwrap_err();
            let (shown, debug) = (error.to_string(), format!("{error:?}"));
            let expected = match wire {
                "ollama" => expected.replace("is the server running?", "run `ollama serve`"),
                _ => expected.to_owned(),
            };
            let expected = expected
                .replace("URL", url)
                .replace("MODEL", &format!("{wire}:m"));
            assert!(
                shown.starts_with(&expected),
                "{wire}, {stream}:\n{shown}\n{expected}"
            );
            assert_eq!(error.is_retryable(), retryable, "{shown}");
            assert!(debug.starts_with(&shown), "{debug}");
            assert_eq!(
                debug.matches("model ").count(),
                shown.matches("model ").count(),
                "{debug}"
            );
            assert!(
                !debug.contains("Error {") && !debug.contains("ModelError"),
                "{debug}"
            );
            let source = std::error::Error::source(&error)
                .unwrap()
                .downcast_ref::<levity_core::ModelError>();
            assert_eq!(
                source.and_then(|source| source.model()),
                Some(&*format!("{wire}:m")),
                "{debug}"
            );
            assert_eq!(
                source.and_then(|source| source.address()),
                Some(url),
                "{debug}"
            );
            check_clean(&format!("{shown} {debug}"));
        }
    }
}

#[tokio::test]
async fn run_error_names_model_address_status_and_cause() {
    let usual = TimeLimits::default();
    let nobody = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let refused = "cannot reach URL (model MODEL): connection refused; is the server running?";
    check(&format!("http://{nobody}/v1"), usual, true, refused).await;

    for (answer, retryable, expected) in [
        (
            Answer::json(
                401,
                r#"{"error": {"message": "Incorrect API key: hush-hush-2"}}"#,
            ),
            false,
            "request to URL failed (model MODEL, status 401): Incorrect API key: ***",
        ),
        (
            Answer::json(
                404,
                r#"{"error": {"message": "The model `m` does not exist",
                    "code": "model_not_found"}}"#,
            ),
            false,
            "request to URL failed (model MODEL, status 404): The model `m` does not exist",
        ),
        (
            Answer::new(
                404,
                "text/html",
                "<html><head><title>404 Not Found</title></head></html>",
            ),
            false,
            "request to URL failed (model MODEL, status 404): the server sent a web page titled \
                `404 Not Found`",
        ),
        (
            Answer::new(
                502,
                "text/html",
                "<html><center><h1>502 Bad Gateway</h1></center></html>",
            ),
            true,
            "request to URL failed (model MODEL, status 502): the server sent a web page titled \
                `502 Bad Gateway`",
        ),
        (
            Answer::json(400, r#"{"error": {"message": "image is not readable"}}"#),
            false,
            "request to URL failed (model MODEL, status 400): image is not readable",
        ),
        (
            Answer::new(200, "text/html", PAGE),
            false,
            "request to URL failed (model MODEL, status 200): the server sent a web page titled \
                `Hotel Wi-Fi & Login`",
        ),
    ] {
        let server = Server::with_answer(answer).await;
        check(server.url(), usual, retryable, expected).await;
    }
}

#[tokio::test]
async fn connection_error_names_model_address_and_cause() {
    let usual = TimeLimits::default();
    let (port, task) = listener(Behaviour::Reset).await;
    let broke = "request to URL failed (model MODEL): the connection broke: connection reset";
    check(&format!("http://127.0.0.1:{port}"), usual, true, broke).await;
    task.abort();

    let (port, task) = listener(Behaviour::Hold).await;
    let mut hasty = TimeLimits::default();
    hasty.first_byte = Duration::from_millis(40);
    let late = "request to URL failed (model MODEL): the reply did not start within 40ms";
    check(&format!("http://127.0.0.1:{port}"), hasty, true, late).await;
    task.abort();

    let (port, task) = listener(Behaviour::Say(b"HTTP/1.1 400 Bad Request\r\n\r\n")).await;
    let plain = "cannot reach URL (model MODEL): the server does not speak TLS on this port; write \
        `http://`";
    check(&format!("https://127.0.0.1:{port}"), usual, true, plain).await;
    task.abort();

    let (port, task) = listener(Behaviour::Say(b"\x15\x03\x01\x00\x02\x02\x16")).await;
    let tls = "request to URL failed (model MODEL): the server does not speak HTTP on this port; \
        write `https://`";
    check(&format!("http://127.0.0.1:{port}"), usual, true, tls).await;
    task.abort();
}

/// Creates a whole reply that repeats a word in every place where a server chooses the text: names,
/// ids, finish reasons and provider state.
fn reply_repeating(wire: &str, word: &str) -> String {
    let body = match wire {
        "compatible" => {
            r#"{"model":"?","choices":[{"message":{"content":"a","tool_calls":[
            {"id":"?","type":"function","function":{"name":"?","arguments":"{}"}}]},
            "finish_reason":"?"}]}"#
        }
        "openai" => {
            r#"{"id":"?","model":"?","status":"incomplete","incomplete_details":{"reason":"?"},
            "output":[
            {"type":"reasoning","id":"?1","summary":[],"encrypted_content":"?"},
            {"type":"message","id":"?2","role":"assistant","content":[
            {"type":"output_text","text":"a"}]},
            {"type":"function_call","id":"?3","call_id":"?","name":"?","arguments":"{}"}]}"#
        }
        "anthropic" => {
            r#"{"type":"message","model":"?","stop_reason":"?","content":[
            {"type":"thinking","thinking":"t","signature":"?"},{"type":"text","text":"a"},
            {"type":"tool_use","id":"?","name":"?","input":{}}]}"#
        }
        "gemini" => {
            r#"{"modelVersion":"?","candidates":[{"finishReason":"?",
            "content":{"role":"model","parts":[
            {"text":"a","thoughtSignature":"?"}]}}]}"#
        }
        _ => {
            r#"{"model":"?","message":{"role":"assistant","content":"a"},
            "done":true,"done_reason":"?"}"#
        }
    };
    body.replace('?', word).replace('\n', "")
}

#[tokio::test]
async fn key_repeated_in_reply_is_hidden_everywhere() {
    for wire in WIRES {
        for stream in [true, false] {
            for key in ["hush-hush-1", "hush-hush-2"] {
                let server = Server::with_answer(Answer::json(
                    200,
                    reply_repeating(wire, &format!("x{key}x")),
                ))
                .await;
                let model = model(wire, server.url(), stream, TimeLimits::default());
                let reply = model
                    .complete(request())
                    .await
                    .unwrap_or_else(|error| panic!("{wire}: {error}"));
                let told = format!("{reply:?} {}", serde_json::to_string(&reply).unwrap());
                assert!(!told.contains("hush"), "{wire} {stream}: {told}");
                assert!(
                    told.contains("x***x") && reply.message.text() == "a",
                    "{wire} {stream}: {told}"
                );
            }
        }
    }
}

#[tokio::test]
async fn finish_reason_length_is_bounded() {
    for wire in WIRES {
        let server =
            Server::with_answer(Answer::json(200, reply_repeating(wire, &"é".repeat(5_000)))).await;
        let model = model(wire, server.url(), true, TimeLimits::default());
        let reply = model
            .complete(request())
            .await
            .unwrap_or_else(|error| panic!("{wire}: {error}"));
        if let levity_core::Finish::Other(word) = &reply.finish {
            assert_eq!(word.chars().count(), 256, "{wire}");
        }
        assert!(
            reply
                .model
                .as_deref()
                .is_some_and(|model| model.chars().count() == 256),
            "{wire}"
        );
    }
}
