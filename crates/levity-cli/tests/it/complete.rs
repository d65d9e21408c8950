//! `levity complete`, against a server on loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};

use crate::{check, command, file, levity};

/// Answers one request with this, and hands on what was asked.
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

const WHOLE: &str = r#"{"choices": [{"message": {"content": "Seven.", "reasoning_content": "Hm.", "tool_calls":
    [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 2}"}}]}, "finish_reason": "tool_calls"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}}"#;

#[test]
fn a_prompt_gets_a_reply() {
    let (url, asked) = server(200, "application/json", WHOLE);
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
fn the_reply_is_one_json_object() {
    let (url, _asked) = server(200, "application/json", WHOLE);
    let output = levity(&[
        "complete",
        "--model",
        "compatible:m",
        "--base-url",
        &url,
        "--json",
        "Well?",
    ]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!({
        "text": "Seven.", "thinking": "Hm.", "finish_reason": "tool_calls",
        "tool_calls": [{"id": "c1", "name": "add", "args": {"a": 2}}],
        "usage": {"input": 9, "output": 7, "cached": 4, "cache_written": null, "reasoning": null, "cost": null},
        "error": null,
    });
    assert_eq!(told, expected);
}

#[test]
fn a_stream_is_printed_as_it_comes() {
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
fn a_request_comes_from_a_file_or_a_pipe() {
    let request = json!({
        "system": "Be brief.",
        "history": [{"role": "user", "parts": [{"type": "text", "text": "Well?"}]}],
        "options": {"max_tokens": 5},
    });
    let path = file("request.json", &request.to_string());
    let (url, asked) = server(200, "application/json", WHOLE);
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
    let (url, asked) = server(200, "application/json", WHOLE);
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
fn what_goes_wrong_is_in_the_object_and_in_the_exit_code() {
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
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = &told["error"];
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
        "is no address",
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
        "cannot be read",
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
        "is no request",
    );
}

#[test]
fn what_would_be_sent_otherwise_than_meant_is_refused() {
    let at = |path: &str| {
        levity(&[
            "complete",
            "--model",
            "compatible:m@http://127.0.0.1:9",
            "--request",
            path,
        ])
    };
    let refused = |name: &str, text: &str, part: &str| {
        check(&at(file(name, text).to_str().unwrap()), 2, part);
    };
    refused("empty-request.txt", " \n", "nothing to ask");
    let message = r#"{"role": "user", "parts": [{"type": "text", "text": "Well?"}]}"#;
    let misspelt = format!(r#"{{"history": [{message}], "options": {{"temprature": 0}}}}"#);
    refused(
        "misspelt-request.json",
        &misspelt,
        "there is no option `temprature`",
    );
    refused(
        "long-request.txt",
        &"x".repeat((64 << 20) + 1),
        "more than 64 MiB",
    );
    check(
        &levity(&["complete", "--model", "compatible:m@http://127.0.0.1:9", ""]),
        2,
        "nothing to ask",
    );
    let twice = [
        "complete",
        "--model",
        "compatible:m@http://127.0.0.1:9",
        "--base-url",
        "http://127.0.0.1:9",
        "?",
    ];
    check(&levity(&twice), 2, "has an address already");

    let (url, asked) = server(200, "application/json", WHOLE);
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

/// The object that is printed for a reply with this finish and these arguments of a call, if it has
/// one.
fn told(finish: &Value, args: Option<&str>) -> Value {
    let call = |args: &str| json!([{"id": "c1", "type": "function", "function": {"name": "add", "arguments": args}}]);
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
fn object_has_the_words_and_fields_that_the_page_names() {
    for finish in ["stop", "length", "content_filter", "odd_word"] {
        assert_eq!(told(&json!(finish), None)["finish_reason"], finish);
    }
    let calls = told(&json!("tool_calls"), Some("three and four"));
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
