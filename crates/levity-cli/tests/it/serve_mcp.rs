//! Tests of `levity serve mcp` as a program that an MCP client starts, and as a listening server.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use levity::mcp::{ServerConfig, Servers, WaitFor};
use serde_json::{Value, json};

use super::{check, command, levity, text};

const TOKEN: &str = "0123456789abcdef-of-a-test";

/// Creates a folder for one test, with a file in it.
fn workspace(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("mcp-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("tides.md"), "High water is at six.").unwrap();
    folder
}

/// Returns the program as the settings of a client name it.
fn program(args: &[&str]) -> ServerConfig {
    ServerConfig::stdio("levity", env!("CARGO_BIN_EXE_levity"))
        .args(["serve", "mcp"])
        .env("HOME", crate::HOME)
        .args(args.iter().copied())
}

async fn connect(config: ServerConfig) -> Servers {
    let servers = Servers::builder().server(config).start().unwrap();
    let status = servers.wait(WaitFor::All).await;
    assert!(status[0].state.is_ready(), "{status:?}");
    servers
}

async fn value(servers: &Servers, tool: &str, args: Value) -> Value {
    servers
        .get("levity")
        .unwrap()
        .call(tool, args)
        .await
        .unwrap()
        .value
        .unwrap()
}

#[tokio::test]
async fn mcp_client_starts_server_and_queries_it() {
    let folder = workspace("stdio");
    let servers = connect(program(&[
        "--workspace",
        folder.to_str().unwrap(),
        "--read-only",
    ]))
    .await;
    let answer = value(&servers, "query", json!({"prompt": "What is 2 + 5?"})).await;
    assert!(
        answer["answer"]
            .as_str()
            .unwrap()
            .contains("scripted model")
    );
    assert_eq!(answer["statistics"]["tool_calls"], 1);
    let found = value(&servers, "search", json!({"query": "high water"})).await;
    assert_eq!(found["results"][0]["id"], "file:tides.md");
    servers.stop().await;
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn team_and_swarm_answer_queries_of_clients() {
    for kind in ["team", "swarm"] {
        let servers = connect(program(&["--offer", kind])).await;
        let answer = value(&servers, "query", json!({"prompt": "Compare two coasts"})).await;
        assert!(
            answer["answer"]
                .as_str()
                .unwrap()
                .contains("scripted model"),
            "{answer}"
        );
        assert!(
            answer["statistics"]["model_calls"].as_u64().unwrap() > 2,
            "{answer}"
        );
        // Their agents have no memory, so the server promises no session.
        assert!(answer["session_id"].is_null(), "{answer}");
        servers.stop().await;
    }
}

#[tokio::test]
async fn serve_mcp_over_http_requires_token() {
    let mut command = command(&["serve", "mcp", "--http", "127.0.0.1:0"]);
    let mut child = command
        .env("LEVITY_TOKEN", TOKEN)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let url = said
        .find_map(|line| line.split_once("MCP at ").map(|(_, url)| url.to_owned()))
        .unwrap();
    let with = |token: &str| {
        ServerConfig::http("levity", &url).header("Authorization", format!("Bearer {token}"))
    };
    let servers = connect(with(TOKEN)).await;
    let answer = value(&servers, "query", json!({"prompt": "What is 2 + 5?"})).await;
    assert_eq!(answer["complete"], true);
    servers.stop().await;
    let refused = Servers::builder()
        .server(with("another-token-altogether"))
        .start()
        .unwrap();
    let status = refused.wait(WaitFor::All).await;
    assert!(!status[0].state.is_ready(), "{status:?}");
    refused.stop().await;
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "another process is waited for")]
async fn runs_of_killed_server_are_cancelled() {
    let folder = workspace("killed");
    let journal = folder.join("runs");
    let script = folder.join("script.json");
    fs::write(
        &script,
        r#"[{"call": {"name": "wait", "args": {"seconds": 3600}}}]"#,
    )
    .unwrap();
    let args = [
        "--journal",
        journal.to_str().unwrap(),
        "--script",
        script.to_str().unwrap(),
    ];
    let mut child = command(&[&["serve", "mcp"], &args[..]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let info = json!({"name": "test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info});
    let call =
        json!({"name": "query", "arguments": {"prompt": "Wait"}, "_meta": {"progressToken": 1}});
    for message in [
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}),
    ] {
        std::io::Write::write_all(
            child.stdin.as_mut().unwrap(),
            format!("{message}\n").as_bytes(),
        )
        .unwrap();
    }
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(
        lines.any(|line| line.contains("turn 1")),
        "the run is in progress"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let list = || {
        text(&levity(&[
            "runs",
            "list",
            "--journal",
            journal.to_str().unwrap(),
        ]))
    };
    assert!(!list().contains("cancelled"), "{}", list());
    let server = connect(program(&args)).await;
    // The server already answers while it ends the cancelled run.
    let ended = || list().contains("cancelled: the server was restarted");
    for _ in 0..300 {
        if ended() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(ended(), "{}", list());
    server.stop().await;
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn runs_of_other_commands_are_not_cancelled() {
    let folder = workspace("parked");
    let journal = folder.join("runs.db");
    let script = folder.join("script.json");
    let call = json!({"name": "add", "args": {"a": 1, "b": 2}});
    fs::write(
        &script,
        json!([{"call": call}, {"reply": "Sum."}]).to_string(),
    )
    .unwrap();
    let args = [
        "--journal",
        journal.to_str().unwrap(),
        "--script",
        script.to_str().unwrap(),
        "--ask",
        "add",
    ];
    let parked = levity(&[&["run", "Add.", "--id", "parked", "--park"], &args[..]].concat());
    check(&parked, 3, "run parked is waiting");
    for trust in [&[][..], &["--trust-journal"]] {
        let all = [&args[..], trust].concat();
        connect(program(&all)).await.stop().await;
    }
    let list = levity(&["runs", "list", "--journal", journal.to_str().unwrap()]);
    assert!(!text(&list).contains("cancelled"), "{}", text(&list));
    let approve = [
        "runs",
        "approve",
        "parked",
        "--journal",
        journal.to_str().unwrap(),
    ];
    check(&levity(&approve), 0, "");
    let resume = [&["runs", "resume", "parked"], &args[..]].concat();
    check(&levity(&resume), 0, "Sum.");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn serve_mcp_reports_invalid_arguments() {
    check(&levity(&["serve", "mcp", "--token-file", "x"]), 2, "--http");
    check(&levity(&["serve", "mcp", "--facts", "x.db"]), 2, "--scope");
    check(
        &levity(&["serve", "mcp", "--facts", "x.db", "--scope", "me"]),
        2,
        "`user:ID`",
    );
    check(
        &levity(&["serve", "mcp", "--client-model", "--model", "openai:x"]),
        2,
        "cannot be used with",
    );
    check(
        &levity(&["serve", "mcp", "--prompts", "nowhere"]),
        2,
        "cannot read `nowhere`",
    );
}
