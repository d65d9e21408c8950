//! Tests of `levity models check`, and of the use of its result in later commands.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::{fs, thread};

use serde_json::{Value, json};

use super::{check, command, text};

/// Starts a server that rejects tools and enforces JSON Schemas, and returns its requests.
fn server_without_tools() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (sender, asked) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut length, mut line) = (0, String::new());
            while reader.read_line(&mut line).unwrap() > 0 && !line.trim().is_empty() {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut sent = vec![0; length];
            reader.read_exact(&mut sent).unwrap();
            let request: Value = serde_json::from_slice(&sent).unwrap();
            let (status, body) = reply(&request);
            let kind = if body.starts_with("data:") {
                "text/event-stream"
            } else {
                "application/json"
            };
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: \
                    close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            if sender.send(request).is_err() {
                return;
            }
            stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(body.as_bytes()))
                .unwrap();
        }
    });
    (url, asked)
}

fn reply(request: &Value) -> (u16, String) {
    if request.get("tools").is_some() {
        let message = "this model does not support tools";
        return (
            400,
            json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string(),
        );
    }
    let schema = request["response_format"]["json_schema"]["schema"].to_string();
    let text = match () {
        () if schema.contains("seat_letter") => r#"{"seat_letter": "B", "row_number": 7}"#,
        () if schema.contains("\"reply\"") => r#"{"reply": {"answer": "It is seven."}}"#,
        () => "ready",
    };
    let usage = json!({"prompt_tokens": 20, "completion_tokens": 3});
    let body = match request["stream"].as_bool() {
        Some(true) => {
            let piece = json!({"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]});
            let counts = json!({"choices": [], "usage": usage});
            format!("data: {piece}\n\ndata: {counts}\n\ndata: [DONE]\n\n")
        }
        _ => {
            let message = json!({"role": "assistant", "content": text});
            json!({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})
                .to_string()
        }
    };
    (200, body)
}

fn home(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("models-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn check_reports_mode_and_later_runs_use_it() {
    let (url, asked) = server_without_tools();
    let (home, model) = (home("check"), format!("compatible:small@{url}"));
    let output = command(&["models", "check", &model])
        .env("HOME", &home)
        .output()
        .unwrap();
    check(&output, 0, "structured: the prompt describes the tools");
    check(&output, 0, "rejects them");
    assert_eq!(asked.try_iter().count(), 3);

    let run = ["run", "What is 2 + 5?", "--model", &model];
    let output = command(&run).env("HOME", &home).output().unwrap();
    check(&output, 0, "It is seven.");
    let requests: Vec<Value> = asked.try_iter().collect();
    assert_eq!(requests.len(), 1, "it was known: {requests:?}");

    let output = command(&["models", "check", &model, "--json"])
        .env("HOME", &home)
        .output()
        .unwrap();
    let found: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(
        (&found["check"]["mode"], &found["check"]["schema"]),
        (&json!("structured"), &json!("holds"))
    );
    assert_eq!(found["server"], json!(model));
}

#[test]
fn run_detects_mode_and_reports_it() {
    let (url, asked) = server_without_tools();
    let (home, model) = (home("learn"), format!("compatible:small@{url}"));
    let run = ["run", "What is 2 + 5?", "--model", &model];
    let output = command(&run).env("HOME", &home).output().unwrap();
    check(&output, 0, "It is seven.");
    check(&output, 0, "the server does not accept tools");
    assert_eq!(
        asked.try_iter().count(),
        2,
        "the refused request, and the adapted one"
    );
    let output = command(&run).env("HOME", &home).output().unwrap();
    check(&output, 0, "It is seven.");
    assert_eq!(asked.try_iter().count(), 1);
}

#[test]
fn check_of_missing_server_reports_error() {
    let home = home("dead");
    let check_of = |model: &str| {
        command(&["models", "check", model])
            .env("HOME", &home)
            .output()
            .unwrap()
    };
    check(
        &check_of("compatible:small@http://127.0.0.1:9/v1"),
        1,
        "127.0.0.1:9",
    );
    check(&check_of("small"), 2, "provider:model");
}
