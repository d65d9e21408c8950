//! Tests of `levity complete` against a server on the loopback interface.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};

use crate::{check, command, file, levity};

/// Answers one request with this reply, and passes the request on.
pub(crate) fn server(
    status: u16,
    kind: &'static str,
    body: impl Into<String>,
) -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (body, (sender, asked)) = (body.into(), channel());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut sent = vec![0; length];
        reader.read_exact(&mut sent).unwrap();
        sender.send(serde_json::from_slice(&sent).unwrap()).unwrap();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
    });
    (url, asked)
}

const FULL_REPLY: &str = r#"{"choices": [{"message": {"content": "Seven.",
    "reasoning_content": "Hm.", "tool_calls":
    [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 2}"}}]},
        "finish_reason": "tool_calls"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 4}}}"#;

#[test]
fn complete_prints_reply_to_prompt() {
    let (url, asked) = server(200, "application/json", FULL_REPLY);
    let output = levity(&[
        "complete",
        "--model",
        "compatible:m",
        "--base-url",
        &url,
        "What is 2 + 5?",
    ]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "Seven.\ncalls add {\"a\":2}\n"
    );
    let asked = asked.recv().unwrap();
    assert_eq!(
        asked["messages"],
        json!([{"role": "user", "content": "What is 2 + 5?"}])
    );
    assert!(asked["stream"].is_null(), "{asked}");
}

#[test]
fn complete_with_json_prints_one_object() {
    let (url, _asked) = server(200, "application/json", FULL_REPLY);
    let output = levity(&[
        "complete",
        "--model",
        "compatible:m",
        "--base-url",
        &url,
        "--json",
        "Well?",
    ]);
    let reply_object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!({
        "text": "Seven.", "thinking": "Hm.", "finish_reason": "tool_calls",
        "tool_calls": [{"id": "c1", "name": "add", "args": {"a": 2}}],
        "usage": {"input": 9, "output": 7, "cached": 4, "cache_written": null, "reasoning": null,
            "cost": null},
        "error": null,
    });
    assert_eq!(reply_object, expected);
}

#[test]
fn complete_with_stream_prints_text_as_it_arrives() {
    let pieces = "data: {\"choices\":[{\"delta\":{\"content\":\"Se\"}}]}\n\ndata: \
        {\"choices\":[{\"delta\":{\"content\":\"ven\"},\
        \"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let (url, asked) = server(200, "text/event-stream", pieces);
    let output = levity(&[
        "complete",
        "--model",
        "compatible:m",
        "--base-url",
        &url,
        "--stream",
        "Well?",
    ]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Seven\n");
    assert_eq!(asked.recv().unwrap()["stream"], true);
}

#[test]
fn complete_reads_request_from_file_or_pipe() {
    let request = json!({
        "system": "Be brief.",
        "history": [{"role": "user", "parts": [{"type": "text", "text": "Well?"}]}],
        "options": {"max_tokens": 5},
    });
    let path = file("request.json", &request.to_string());
    let (url, asked) = server(200, "application/json", FULL_REPLY);
    check(
        &levity(&[
            "complete",
            "--model",
            "compatible:m",
            "--base-url",
            &url,
            "--request",
            path.to_str().unwrap(),
        ]),
        0,
        "Seven.",
    );
    let sent = asked.recv().unwrap();
    assert_eq!(
        (
            &sent["max_tokens"],
            sent["messages"].as_array().unwrap().len()
        ),
        (&json!(5), 2)
    );
    let (url, asked) = server(200, "application/json", FULL_REPLY);
    let mut child = command(&[
        "complete",
        "--model",
        "compatible:m",
        "--base-url",
        &url,
        "--request",
        "-",
    ])
    .stdin(Stdio::piped())
    .stdout(Stdio::null())
    .spawn()
    .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"Just words\n")
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(
        asked.recv().unwrap()["messages"][0]["content"],
        "Just words"
    );
}

#[test]
fn complete_reports_errors_in_object_and_exit_code() {
    let (url, _asked) = server(
        429,
        "application/json",
        r#"{"error": {"message": "slow down"}}"#,
    );
    let output = levity(&[
        "complete",
        "--model",
        "compatible:m",
        "--base-url",
        &url,
        "--json",
        "Well?",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let reply_object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = &reply_object["error"];
    assert_eq!(
        (&error["kind"], &error["retryable"], &error["status"]),
        (&json!("rate_limited"), &json!(true), &json!(429))
    );
    let (url, _asked) = server(
        401,
        "application/json",
        r#"{"error": {"message": "who are you"}}"#,
    );
    check(
        &levity(&[
            "complete",
            "--model",
            "compatible:m",
            "--base-url",
            &url,
            "Well?",
        ]),
        1,
        "who are you",
    );
    check(&levity(&["complete", "Well?"]), 2, "LEVITY_MODEL");
    check(
        &levity(&["complete", "--model", "gpt-4o", "Well?"]),
        2,
        "provider:model",
    );
    check(
        &levity(&["complete", "--model", "gemini:x", "Well?"]),
        2,
        "GEMINI_API_KEY",
    );
    check(
        &levity(&[
            "complete",
            "--model",
            "gemini:x",
            "--base-url",
            "nowhere",
            "Well?",
        ]),
        2,
        "is not a valid address",
    );
    check(
        &levity(&[
            "complete",
            "--model",
            "compatible:m@http://127.0.0.1:9",
            "--request",
            "nowhere.json",
        ]),
        2,
        "cannot read",
    );
    let path = file("odd-request.json", r#"{"histories": []}"#);
    check(
        &levity(&[
            "complete",
            "--model",
            "compatible:m@http://127.0.0.1:9",
            "--request",
            path.to_str().unwrap(),
        ]),
        2,
        "is not a valid request",
    );
}

#[test]
fn complete_rejects_ambiguous_requests() {
    let at = |path: &str| {
        levity(&[
            "complete",
            "--model",
            "compatible:m@http://127.0.0.1:9",
            "--request",
            path,
        ])
    };
    let check_rejected = |name: &str, text: &str, part: &str| {
        check(&at(file(name, text).to_str().unwrap()), 2, part);
    };
    check_rejected("empty-request.txt", " \n", "the prompt is empty");
    let message = r#"{"role": "user", "parts": [{"type": "text", "text": "Well?"}]}"#;
    let misspelt = format!(r#"{{"history": [{message}], "options": {{"temprature": 0}}}}"#);
    check_rejected(
        "misspelt-request.json",
        &misspelt,
        "unknown option `temprature`",
    );
    check_rejected(
        "long-request.txt",
        &"x".repeat((64 << 20) + 1),
        "more than 64 MiB",
    );
    check(
        &levity(&["complete", "--model", "compatible:m@http://127.0.0.1:9", ""]),
        2,
        "the prompt is empty",
    );
    let twice = [
        "complete",
        "--model",
        "compatible:m@http://127.0.0.1:9",
        "--base-url",
        "http://127.0.0.1:9",
        "?",
    ];
    check(&levity(&twice), 2, "already has an address");

    let (url, asked) = server(200, "application/json", FULL_REPLY);
    let marked = file(
        "marked-request.json",
        &format!("\u{feff}{{\"history\": [{message}]}}"),
    );
    let model = format!("compatible:m@{url}");
    check(
        &levity(&[
            "complete",
            "--model",
            &model,
            "--request",
            marked.to_str().unwrap(),
        ]),
        0,
        "Seven.",
    );
    assert_eq!(
        asked.recv().unwrap()["messages"][0]["content"],
        "Well?",
        "a byte-order mark is no word"
    );
}

/// Returns the object that is printed for a reply with this finish reason and these arguments of a
/// call, if it has one.
fn reply_object(finish: &Value, args: Option<&str>) -> Value {
    let call = |args: &str| {
        json!([{"id": "c1", "type": "function",
        "function": {"name": "add", "arguments": args}}])
    };
    let message = json!({"content": "Well.", "tool_calls": args.map(call)});
    let reply = json!({"choices": [{"message": message, "finish_reason": finish}]}).to_string();
    let (url, _asked) = server(200, "application/json", reply);
    let output = levity(&[
        "complete",
        "--model",
        "compatible:m",
        "--base-url",
        &url,
        "--json",
        "Well?",
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn json_object_has_documented_fields_and_values() {
    for finish in ["stop", "length", "content_filter", "odd_word"] {
        assert_eq!(reply_object(&json!(finish), None)["finish_reason"], finish);
    }
    let calls = reply_object(&json!("tool_calls"), Some("three and four"));
    assert_eq!(
        calls["tool_calls"],
        json!([{"id": "c1", "name": "add", "args": null, "raw": "three and four"}])
    );
    assert_eq!(calls["finish_reason"], "tool_calls");
    let (url, _asked) = server(
        503,
        "application/json",
        r#"{"error": {"message": "come again"}}"#,
    );
    let output = levity(&[
        "complete",
        "--model",
        "compatible:m",
        "--base-url",
        &url,
        "--json",
        "Well?",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let failed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = failed["error"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        names,
        [
            "kind",
            "retryable",
            "status",
            "message",
            "request_id",
            "retry_after"
        ]
    );
    assert_eq!(
        (&failed["finish_reason"], &failed["text"]),
        (&Value::Null, &json!(""))
    );
}
