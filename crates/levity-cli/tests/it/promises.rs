//! Tests of statements in the help and in `docs/models.md`, one case each.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use serde_json::{Value, json};

use crate::{check, command, levity};

/// Answers one request, and returns its first line and its body.
fn asked(
    args: &[&str],
    files: &[(&str, &str)],
    variables: &[(&str, &str)],
) -> (String, Value, std::process::Output) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut first, mut length) = (String::new(), 0);
        reader.read_line(&mut first).unwrap();
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
        let body = r#"{"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]}"#;
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .unwrap();
        (
            first.trim_end_matches(" HTTP/1.1\r\n").to_owned(),
            serde_json::from_slice(&sent).unwrap(),
        )
    });
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text.replace("{url}", &url)).unwrap();
    }
    let args: Vec<String> = args.iter().map(|arg| arg.replace("{url}", &url)).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let variables = variables.iter().map(|(name, value)| {
        let folder = folder.path().to_str().unwrap();
        (
            *name,
            value.replace("{url}", &url).replace("{folder}", folder),
        )
    });
    let output = command(&args)
        .current_dir(folder.path())
        .envs(variables)
        .output()
        .unwrap();
    let (line, body) = server.join().unwrap();
    (line, body, output)
}

#[test]
fn documented_request_works_with_every_documented_value() {
    let page = include_str!("../fixtures/models.md");
    let mut blocks = page
        .split("```json\n")
        .map(|rest| rest.split("\n```").next().unwrap());
    let request = blocks.find(|block| block.contains("\"history\"")).unwrap();
    let request: Value = serde_json::from_str(request).unwrap();
    let cases = [
        ("/tool_choice", json!("none"), "/tool_choice", json!("none")),
        (
            "/tool_choice",
            json!("required"),
            "/tool_choice",
            json!("required"),
        ),
        (
            "/tool_choice",
            json!({"tool": "add"}),
            "/tool_choice/function/name",
            json!("add"),
        ),
        (
            "/options/thinking",
            json!("medium"),
            "/reasoning_effort",
            json!("medium"),
        ),
        (
            "/options/thinking",
            json!("high"),
            "/reasoning_effort",
            json!("high"),
        ),
        (
            "/options/thinking",
            json!("auto"),
            "/reasoning_effort",
            Value::Null,
        ),
        (
            "/options/thinking",
            json!("off"),
            "/reasoning_effort",
            Value::Null,
        ),
        (
            "/options/thinking",
            json!({"budget": 5000}),
            "/reasoning_effort",
            json!("medium"),
        ),
        (
            "/tool_choice",
            json!("auto"),
            "/tools/0/function/name",
            json!("add"),
        ),
        ("/options/stop", json!(["STOP"]), "/stop", json!(["STOP"])),
        ("/options/seed", json!(7), "/seed", json!(7)),
        ("/options/extra", json!({"top_k": 7}), "/top_k", json!(7)),
        ("/options/max_tokens", json!(3), "/max_tokens", json!(3)),
        (
            "/system",
            json!("Be long."),
            "/messages/0/content",
            json!("Be long."),
        ),
        (
            "/history",
            json!([{"role": "user", "parts": [{"type": "media", "mime": "image/png",
                "source": {"bytes": "AAAA"}}]}]),
            "/messages/1/content/0/image_url/url",
            json!("data:image/png;base64,AAAA"),
        ),
        (
            "/history",
            json!([{"role": "user", "parts": [{"type": "media", "mime": "image/png",
                "source": {"url": "https://h/x.png"}}]}]),
            "/messages/1/content/0/image_url/url",
            json!("https://h/x.png"),
        ),
    ];
    for (field, value, place, expected) in cases {
        let mut request = request.clone();
        *request.pointer_mut(field).unwrap() = value;
        let files = [("request.json", &*request.to_string())];
        let args = [
            "complete",
            "--model",
            "compatible:m",
            "--base-url",
            "{url}",
            "--request",
            "request.json",
        ];
        let (line, sent, output) = asked(&args, &files, &[]);
        check(&output, 0, "Yes.");
        assert_eq!(line, "POST /v1/chat/completions");
        assert_eq!(
            sent.pointer(place).unwrap_or(&Value::Null),
            &expected,
            "{field}: {sent}"
        );
    }
}

#[test]
fn models_are_found_in_documented_places() {
    let list = r#"{"servers": {"house": {"base_url": "{url}/v1", "key": "HOUSE_API_KEY",
        "default": "big"}},
        "profiles": {"fast": {"model": "house:big", "options": {"temperature": 0.25}}}}"#;
    let listed = ("LEVITY_MODELS", "{folder}/models.json");
    let key = ("HOUSE_API_KEY", "k");
    let files = [("models.json", list)];
    let (_, sent, output) = asked(
        &["complete", "--model", "fast", "Hi"],
        &files,
        &[listed, key],
    );
    check(&output, 0, "Yes.");
    assert_eq!(
        (&sent["model"], &sent["temperature"]),
        (&json!("big"), &json!(0.25))
    );
    let (_, sent, output) = asked(&["complete", "Hi"], &files, &[listed, key]);
    check(&output, 0, "house:big, since `HOUSE_API_KEY` is set");
    assert_eq!(sent["model"], "big");
    let (line, _, output) = asked(
        &["complete", "Hi"],
        &[],
        &[("LEVITY_MODEL", "compatible:m@{url}?key=abcd")],
    );
    check(&output, 0, "since `LEVITY_MODEL` names it");
    assert_eq!(line, "POST /v1/chat/completions?key=abcd");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("abcd"));
    let env = [(".env", "LEVITY_MODEL=compatible:m@{url}/v1")];
    let (_, _, output) = asked(&["complete", "Hi"], &env, &[]);
    check(&output, 0, "`LEVITY_MODEL` in `.env` names it");
}

#[test]
fn invalid_calls_report_next_step() {
    for (args, said) in [
        (
            &["complete", "--model", "opnai:m", "Hi"][..],
            "did you mean `openai`?",
        ),
        (
            &["complete", "--model", "gpt-4o", "Hi"],
            "did you mean `openai:gpt-4o`?",
        ),
        (
            &["complete", "--model", "compatible:m", "Hi"],
            "`compatible` needs an address",
        ),
        (
            &["complete", "--model", "openai:m", "Hi"],
            "set `OPENAI_API_KEY`",
        ),
        (&["complete", "Hi"], "`ANTHROPIC_API_KEY` for anthropic"),
        (
            &[
                "complete",
                "--model",
                "a:b",
                "--base-url",
                "ftp://me:hush@h",
                "Hi",
            ],
            "is not a valid server address",
        ),
        (
            &[
                "complete",
                "--model",
                "a:b@http://h?k=hush",
                "--base-url",
                "http://h",
                "Hi",
            ],
            "`a:b` already has an address",
        ),
        (&["run", "Hi", "--conversation", "c"], "--memory <PATH>"),
        (&["run", "Hi", "--max-turns", "0"], "set 1 or more"),
        (&["run", "Hi", "--read-only"], "--workspace <DIR>"),
        (&["run", "Hi", "--json", "--quiet"], "cannot be used with"),
        (
            &["run", "Hi", "--model", "a:b", "--script", "x"],
            "cannot be used with",
        ),
        (
            &["mcp", "list"],
            "name a file with `--config` or in `LEVITY_MCP_SERVERS`",
        ),
    ] {
        let output = levity(args);
        check(&output, 2, said);
        assert!(
            !String::from_utf8_lossy(&output.stderr).contains("hush"),
            "{args:?}"
        );
    }
    check(
        &levity(&["runs", "list", "--journal", "nowhere"]),
        1,
        "name one with `--journal`",
    );
}

#[test]
fn help_states_conditions_of_options() {
    for (args, parts) in [
        (
            &["run", "--help"][..],
            &["of `--memory`", "`provider:model@URL`", "if a model thinks"][..],
        ),
        (
            &["complete", "--help"],
            &["`provider:model@URL`", "`-` for the standard input"],
        ),
        (
            &["mcp", "list", "--help"],
            &["absolute path", "the variables that each would get"],
        ),
    ] {
        let output = levity(args);
        let text = String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(
            parts.iter().all(|part| text.contains(part)),
            "{args:?}: {text}"
        );
    }
}

#[test]
fn run_with_existing_id_resumes_in_every_journal_kind() {
    let folder = tempfile::tempdir().unwrap();
    for journal in ["runs", "runs.db"] {
        let path = folder.path().join(journal);
        let args = [
            "run",
            "Hi",
            "--journal",
            path.to_str().unwrap(),
            "--id",
            "a",
        ];
        check(&levity(&args), 0, "calls  add");
        let again = levity(&args);
        check(&again, 0, "stored as run a");
        assert!(
            !String::from_utf8_lossy(&again.stdout).contains("calls  add"),
            "nothing is done twice"
        );
    }
    for memory in ["talks", "talks.db", "talk.json"] {
        let path = folder.path().join(memory);
        let memory = ["--memory", path.to_str().unwrap()];
        check(
            &levity(&[&["run", "Hi", "--conversation", "c"][..], &memory].concat()),
            0,
            "calls  add",
        );
        check(
            &levity(&[&["conversations", "list"][..], &memory].concat()),
            0,
            "c  4 messages",
        );
        check(
            &levity(&[&["conversations", "show", "c"][..], &memory].concat()),
            0,
            "user   Hi",
        );
    }
}
