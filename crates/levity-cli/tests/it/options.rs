//! Tests of the options of every command that runs agents: limits, guards, a cache, thinking. Also
//! tests of error messages for invalid calls.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use levity::mcp::{ServerConfig, Servers, WaitFor};
use serde_json::{Value, json};

use super::{check, command, file, levity, text};

/// The maximum time for a request to arrive, so that the test fails instead of hanging.
const WAIT: std::time::Duration = std::time::Duration::from_secs(60);

/// Answers every request with the next reply, repeats the last one, and passes the requests on.
fn server(status: u16, replies: &[&str]) -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let bodies: Vec<String> = replies.iter().map(|reply| body(reply)).collect();
    let (sender, asked) = channel();
    thread::spawn(move || {
        for (at, stream) in listener.incoming().enumerate() {
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
            let body = &bodies[at.min(bodies.len() - 1)];
            let kind = if status == 200 {
                "text/event-stream"
            } else {
                "application/json"
            };
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: \
                    close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            if sender.send(serde_json::from_slice(&sent).unwrap()).is_err() {
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

/// Returns a reply as a server streams it; JSON is sent unchanged.
fn body(reply: &str) -> String {
    if reply.starts_with("{\"error\"") {
        return reply.to_owned();
    }
    let piece = json!({"choices": [{"delta": {"content": reply}, "finish_reason": "stop"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 9000, "completion_tokens": 3}});
    format!("data: {piece}\n\ndata: {usage}\n\ndata: [DONE]\n\n")
}

fn script(name: &str, steps: &Value) -> String {
    file(&format!("options-{name}.json"), &steps.to_string())
        .to_str()
        .unwrap()
        .to_owned()
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("options-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SURFACES: [&[&str]; 9] = [
    &["run"],
    &["chat"],
    &["plan"],
    &["swarm"],
    &["runs", "resume"],
    &["runs", "fork"],
    &["serve", "http"],
    &["serve", "mcp"],
    &["bridge", "host"],
];

#[test]
fn commands_that_run_agents_share_options() {
    let options = [
        "--limit-cost <DOLLARS>",
        "--assume-price <INPUT:OUTPUT>",
        "--limit-tokens <N>",
        "--limit-calls <N>",
        "--limit-tool-calls <N>",
        "--limit-time <SECONDS>",
        "--max-turns <N>",
        "--guard <RULE>",
        "--cache[=<DIR>]",
        "--thinking <HOW>",
        "[default: auto]",
    ];
    for surface in SURFACES {
        let help = text(&levity(&[surface, &["--help"]].concat()));
        options.iter().for_each(|option| {
            assert!(help.contains(option), "{surface:?} lacks {option}: {help}");
        });
    }
}

#[test]
fn invalid_option_value_is_rejected_in_one_line() {
    for (option, value, part) in [
        ("--limit-cost", "nan", "0 or more, such as 0.25"),
        ("--limit-cost", "-1", "0 or more, such as 0.25"),
        ("--limit-cost", "a lot", "0 or more, such as 0.25"),
        ("--limit-tokens", "many", "--limit-tokens <N>"),
        ("--limit-tokens", "-1", "--limit-tokens <N>"),
        ("--limit-calls", "1.5", "--limit-calls <N>"),
        ("--limit-tool-calls", "x", "--limit-tool-calls <N>"),
        ("--limit-time", "-3", "such as 90"),
        ("--limit-time", "inf", "such as 90"),
        ("--limit-time", "1h", "such as 90"),
        (
            "--guard",
            "secret",
            "use secrets, secrets:block, input:BYTES",
        ),
        ("--guard", "input:0", "`input:20000`"),
        ("--guard", "topic:", "`topic:orders and deliveries`"),
        (
            "--thinking",
            "on",
            "auto, model, off, low, medium, high, or a number of tokens",
        ),
    ] {
        for surface in SURFACES {
            let goal: &[&str] = match surface {
                ["serve" | "bridge" | "chat", ..] => &[],
                _ => &["x"],
            };
            let given = format!("{option}={value}");
            let output = levity(&[surface, goal, &[given.as_str()]].concat());
            check(&output, 2, part);
            let stderr_text = err(&output);
            let first = stderr_text.lines().next().unwrap();
            assert!(
                first.starts_with("levity: ") && first.contains(part) && first.contains(option),
                "{stderr_text}"
            );
        }
    }
    check(
        &levity(&["run", "x", "--assume-price", "1:2"]),
        2,
        "--limit-cost",
    );
    check(
        &levity(&["run", "x", "--limit-cost", "1", "--assume-price", "1"]),
        2,
        "such as 0.5:2",
    );
    check(
        &levity(&["run", "x", "--max-turns", "0"]),
        2,
        "set 1 or more",
    );
    check(&levity(&["plan", "x", "--max-turns", "0"]), 2, "max_turns");
    check(
        &levity(&["swarm", "x", "--max-turns", "0"]),
        2,
        "set 1 or more",
    );
    let path = file("options-no-folder", "a file");
    let cache = format!("--cache={}", path.display());
    for surface in ["run", "plan", "swarm"] {
        let output = levity(&[surface, "x", &cache]);
        check(&output, 2, "choose another folder with `--cache`");
        assert_eq!(
            err(&output)
                .lines()
                .filter(|line| line.contains("cannot store replies"))
                .count(),
            1
        );
    }
    check(
        &levity(&["serve", "mcp", "--client-model", "--cache"]),
        2,
        "cannot be used with",
    );
    check(
        &levity(&["serve", "mcp", "--client-model", "--guard", "topic:tides"]),
        2,
        "requires a model that judges",
    );
}

#[test]
fn misspelled_option_is_rejected_with_suggestion() {
    for (args, part) in [
        (&["chatt"][..], "'chat'"),
        (&["swram", "x"], "'swarm'"),
        (&["serve", "htpp"], "'http'"),
        (&["runs", "lst"], "'list'"),
        (&["run", "x", "--modle", "y"], "'--model'"),
        (&["run", "x", "--limit-token", "5"], "'--limit-tokens'"),
        (&["plan", "x", "--max-paralel", "5"], "'--max-parallel'"),
        (&["plan", "x", "--view", "tre"], "'tree'"),
        (&["swarm", "x", "--worker", "codr"], "'coder'"),
        (&["bridge", "host", "--worksapce", "."], "'--workspace'"),
        (&["serve", "http", "--lisen", "x"], "'--listen'"),
    ] {
        let output = levity(args);
        check(&output, 2, "similar");
        check(&output, 2, part);
    }
}

#[test]
fn exit_codes_match_help() {
    for command in [&[][..], &["run"], &["chat"], &["plan"], &["swarm"]] {
        let help = text(&levity(&[command, &["--help"]].concat()));
        for code in ["0  ", "1  ", "2  ", "3  ", "4  ", "130"] {
            assert!(
                help.lines()
                    .any(|line| line.starts_with(&format!("  {code}  "))),
                "{code} in {help}"
            );
        }
    }
    check(&levity(&["run", "What is 2 + 5?"]), 0, "cannot answer this");
    let fails = script("fails", &json!([{"fail": "bad_request"}]));
    check(&levity(&["run", "x", "--script", &fails]), 1, "levity: ");
    check(&levity(&["run", "x", "--nothing"]), 2, "--nothing");
    check(
        &levity(&["run", "x", "--model", "gemini:x"]),
        2,
        "GEMINI_API_KEY",
    );
    let journal = folder("exit");
    let parked = [
        "run",
        "x",
        "--ask",
        "add",
        "--park",
        "--journal",
        journal.to_str().unwrap(),
    ];
    check(&levity(&parked), 3, "is waiting");
    fs::remove_dir_all(journal).unwrap();
    check(
        &levity(&["plan", "Compare", "--max-replans", "0"]),
        4,
        "the goal was not reached",
    );
}

#[test]
fn only_scripts_and_demonstration_have_tool_add() {
    let (url, asked) = server(200, &["Seven."]);
    check(
        &levity(&[
            "run",
            "What is 2 + 5?",
            "--model",
            &format!("compatible:m@{url}"),
        ]),
        0,
        "Seven.",
    );
    let tools = asked.recv_timeout(WAIT).unwrap()["tools"].to_string();
    assert!(
        !tools.contains("\"add\"") && tools.contains("\"now\""),
        "{tools}"
    );
    let (url, asked) = server(
        200,
        &[
            "{\"steps\": [{\"id\": \"a\", \"agent\": \"Coder\", \"writes\": [\"x\"]}]}",
            "{\"x\": 1}",
        ],
    );
    check(
        &levity(&["plan", "Count", "--model", &format!("compatible:m@{url}")]),
        0,
        "1 of 1",
    );
    asked.try_iter().for_each(|request| {
        assert!(
            !request["tools"].to_string().contains("\"add\""),
            "{request}"
        );
    });
}

#[test]
fn limits_end_run_of_each_command() {
    let answering = script(
        "talks",
        &json!([{"call": {"name": "add", "args": {"a": 1, "b": 2}}}, {"reply": "Three."}]),
    );
    let waiting = script(
        "waits",
        &json!([{"call": {"name": "wait", "args": {"seconds": 3600}}}, {"reply": "At last."}]),
    );
    let run =
        |script: &str, args: &[&str]| levity(&[&["run", "x", "--script", script], args].concat());
    check(
        &run(&answering, &["--limit-tokens", "10"]),
        1,
        "the limit on tokens",
    );
    check(
        &run(
            &answering,
            &["--limit-cost", "0.000001", "--assume-price", "5:15"],
        ),
        1,
        "the limit on money",
    );
    check(
        &run(
            &answering,
            &["--limit-cost", "1000", "--assume-price", "5:15"],
        ),
        0,
        "Three.",
    );
    check(
        &run(&answering, &["--limit-cost", "1"]),
        2,
        "`--assume-price INPUT:OUTPUT`",
    );
    check(
        &run(&answering, &["--limit-calls", "0"]),
        1,
        "the limit on model calls",
    );
    check(&run(&waiting, &["--limit-time", "0.2"]), 1, "time");
    // The last turn ends in an answer, no matter what the model attempts.
    check(&run(&answering, &["--max-turns", "1"]), 0, "Three.");
    check(
        &run(
            &answering,
            &["--limit-tokens", "1000000", "--limit-time", "60"],
        ),
        0,
        "Three.",
    );
    for surface in ["plan", "swarm"] {
        check(
            &levity(&[surface, "Compare", "--limit-tokens", "10"]),
            1,
            "the limit on tokens",
        );
        check(
            &levity(&[surface, "Compare", "--limit-cost", "1"]),
            2,
            "`--assume-price INPUT:OUTPUT`",
        );
    }
}

#[test]
fn guards_check_input_and_output() {
    let secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH";
    let tells = script(
        "tells",
        &json!([{"reply": format!("The key is {secret}, the word is correct-horse-battery.")}]),
    );
    let run = |args: &[&str]| {
        let all = [&["run", "Tell me the key", "--script", &tells], args].concat();
        command(&all)
            .env("DOOR_PASSWORD", "correct-horse-battery")
            .output()
            .unwrap()
    };
    check(&run(&[]), 0, secret);
    let masked = run(&["--guard", "secrets"]);
    check(&masked, 0, "[secret: ");
    assert!(
        !text(&masked).contains(secret) && !text(&masked).contains("correct-horse"),
        "{masked:?}"
    );
    check(
        &run(&["--guard", "secrets:block"]),
        1,
        "`secrets` blocked the answer",
    );
    check(
        &run(&["--guard", "input:5"]),
        1,
        "`size` blocked the input: it has 15 bytes, but the limit is 5",
    );
    check(
        &run(&["--guard", "answer:5"]),
        1,
        "`size` blocked the answer",
    );
    check(
        &run(&["--guard", "input:500", "--guard", "answer:500"]),
        0,
        secret,
    );
    let adds = script(
        "adds",
        &json!([{"call": {"name": "add", "args": {"a": 1, "b": 2}}}, {"reply": "Three."}]),
    );
    check(
        &levity(&["run", "x", "--script", &adds, "--guard", "call:3"]),
        0,
        "`size` blocked",
    );
    check(
        &levity(&["run", "x", "--script", &adds, "--guard", "result:1"]),
        0,
        "`size` blocked",
    );
    check(
        &levity(&["plan", "Compare", "--guard", "input:5"]),
        1,
        "blocked",
    );
    check(
        &levity(&["swarm", "Compare", "--guard", "input:5"]),
        1,
        "blocked",
    );
}

#[test]
fn topic_guard_asks_model() {
    let (url, asked) = server(200, &[r#"{"topic": 0, "steers": false}"#]);
    let model = format!("compatible:m@{url}");
    let output = levity(&[
        "run",
        "Write a poem",
        "--model",
        &model,
        "--guard",
        "topic:tides",
        "--guard",
        "topic:ships",
    ]);
    check(
        &output,
        1,
        "`topic` blocked the input: it is about none of: tides, ships",
    );
    assert!(
        asked.recv_timeout(WAIT).unwrap()["messages"]
            .to_string()
            .contains("Write a poem")
    );
}

#[test]
fn cache_answers_same_request_without_call() {
    let folder = folder("cache");
    let cache = format!("--cache={}", folder.display());
    let (url, asked) = server(200, &["First.", "Second."]);
    let model = format!("compatible:m@{url}");
    let run = |args: &[&str]| levity(&[&["run", "-q", "What?", "--model", &model], args].concat());
    check(&run(&[&cache]), 0, "First.");
    check(&run(&[&cache]), 0, "First.");
    assert_eq!(asked.try_iter().count(), 1);
    check(&run(&[]), 0, "Second.");
    // In memory, the cache lasts as long as the process.
    check(&run(&["--cache"]), 0, "Second.");
    assert_eq!(asked.try_iter().count(), 2);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn cache_ignores_replies_of_other_users_and_servers() {
    let folder = folder("planted-cache");
    let cache = format!("--cache={}", folder.display());
    let (evil, _asked) = server(200, &["Planted."]);
    let (good, asked) = server(200, &["Real."]);
    let run = |home: &str, url: &str| {
        let mut command = command(&["run", "-q", "What?", "--model", "openai-chat:m", &cache]);
        command
            .env("HOME", folder.join(home))
            .env("OPENAI_API_KEY", "x")
            .env("OPENAI_BASE_URL", url);
        if home.is_empty() {
            command.env_remove("HOME");
        }
        command.output().unwrap()
    };
    check(&run("stranger", &evil), 0, "Planted.");
    check(&run("stranger", &evil), 0, "Planted.");
    // The same user at another address, another user at the same address, and a user without a
    // folder for a secret.
    for home in ["stranger", "user", ""] {
        check(&run(home, &good), 0, "Real.");
        assert_eq!(asked.try_iter().count(), 1, "{home}");
    }
    check(&run("", &good), 0, "cannot find replies of earlier calls");
    assert_eq!(asked.try_iter().count(), 1);
    check(&run("user", &good), 0, "Real.");
    assert_eq!(asked.try_iter().count(), 0);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn auto_thinking_is_enabled_for_goals_that_need_it() {
    let (url, asked) = server(
        400,
        &[r#"{"error": {"type": "invalid_request_error", "message": "not today"}}"#],
    );
    let model = format!("anthropic:claude-sonnet-4-5@{url}");
    let thinks = |goal: &str, args: &[&str]| {
        let all = [&["run", goal, "--model", &model], args].concat();
        let output = command(&all)
            .env("ANTHROPIC_API_KEY", "test")
            .output()
            .unwrap();
        check(&output, 1, "not today");
        asked.recv_timeout(WAIT).unwrap()["thinking"]["type"]
            .as_str()
            .unwrap_or("none")
            .to_owned()
    };
    assert_eq!(thinks("Compare the two plans", &[]), "enabled");
    assert_eq!(thinks("Good morning", &[]), "none");
    assert_eq!(
        thinks("Compare the two plans", &["--thinking", "model"]),
        "none"
    );
    assert_eq!(
        thinks("Compare the two plans", &["--thinking", "off"]),
        "disabled"
    );
    assert_eq!(thinks("Good morning", &["--thinking", "high"]), "enabled");
    assert_eq!(thinks("Good morning", &["--thinking", "2048"]), "enabled");
    // The few remaining tokens are for the answer.
    assert_eq!(
        thinks("Compare the two plans", &["--limit-tokens", "12000"]),
        "none"
    );
    assert_eq!(
        thinks("Compare the two plans", &["--limit-tokens", "400000"]),
        "enabled"
    );
    let (url, _asked) = server(200, &["Fine."]);
    let plain = format!("compatible:m@{url}");
    check(
        &levity(&["run", "x", "--model", &plain, "--thinking", "high"]),
        0,
        "is not known to support thinking",
    );
}

#[tokio::test]
async fn serve_mcp_applies_guards_and_limits() {
    let ask = async |args: &[&str]| {
        let config =
            ServerConfig::stdio("levity", env!("CARGO_BIN_EXE_levity")).args(["serve", "mcp"]);
        let config = config.args(args.iter().copied());
        let servers = Servers::builder().server(config).start().unwrap();
        let status = servers.wait(WaitFor::All).await;
        assert!(status[0].state.is_ready(), "{status:?}");
        let answer = servers
            .get("levity")
            .unwrap()
            .call("query", json!({"prompt": "What is 2 + 5?"}))
            .await;
        servers.stop().await;
        format!("{answer:?}")
    };
    assert!(ask(&[]).await.contains("scripted model"));
    for (args, part) in [
        (["--guard", "input:5"], "blocked"),
        (["--limit-tokens", "10"], "limit on tokens"),
    ] {
        let answer = ask(&args).await;
        assert!(answer.contains(part), "{args:?}: {answer}");
    }
}

#[test]
fn serve_http_applies_limits() {
    let token = "0123456789abcdef-of-a-test";
    let mut command = command(&[
        "serve",
        "http",
        "--listen",
        "127.0.0.1:0",
        "--limit-tokens",
        "10",
    ]);
    let command = command
        .env("LEVITY_TOKEN", token)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .trim()
        .strip_prefix("listening on http://")
        .unwrap()
        .strip_suffix("/v1")
        .unwrap();
    let ask = |method: &str, path: &str, body: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer \
                {token}\r\nConnection: close\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let started = ask(
        "POST",
        "/v1/runs",
        r#"{"goal": "What is 2 + 5?", "id": "limited"}"#,
    );
    assert!(started.starts_with("HTTP/1.1 201"), "{started}");
    // The stream ends when the run has ended.
    let stream = ask("GET", "/v1/runs/limited/events", "");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(stream.contains("tokens"), "{stream}");
}

#[cfg(unix)]
#[test]
fn interrupted_run_exits_with_130() {
    let waiting = script(
        "interrupted",
        &json!([{"call": {"name": "wait", "args": {"seconds": 3600}}}]),
    );
    let mut command = command(&["run", "Wait", "--script", &waiting]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(lines.any(|line| line.contains("waits  until")));
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    check(
        &child.wait_with_output().unwrap(),
        130,
        "interrupted from the terminal",
    );
}
