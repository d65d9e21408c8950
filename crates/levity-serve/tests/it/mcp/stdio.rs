//! A server in a separate process, over its standard input and output.

use std::process::Stdio;
use std::time::Duration;

use levity_core::ToolOutput;
use levity_test::RecordingTool;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::fixture::builder;

/// Set for the process that is the server.
const CHILD: &str = "LEVITY_TEST_MCP_CHILD";

/// Runs the server in the process that `child` starts.
#[test]
fn stdio_server_process() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let echo = RecordingTool::new("echo", |args| Ok(ToolOutput::text(args.to_string())));
    let server = builder().tool(echo).build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(server.stdio()).unwrap();
    // The output of the test harness is not the server's.
    std::process::exit(0);
}

fn child() -> tokio::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "mcp::stdio::stdio_server_process",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn stdio_server_answers_until_its_input_ends() {
    let mut child = child();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines();
    let asks: Vec<String> = (0..200)
        .map(|id| {
            let params = json!({"name": "echo", "arguments": {"at": id}});
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
                .to_string()
                + "\n"
        })
        .collect();
    input.write_all(asks.concat().as_bytes()).await.unwrap();
    input.write_all(b"{ no json\n").await.unwrap();
    let mut answered = std::collections::BTreeSet::new();
    let mut refused = 0;
    while answered.len() < 200 || refused == 0 {
        let line = lines
            .next_line()
            .await
            .unwrap()
            .expect("the server keeps running");
        // The output of the test harness precedes the server's first message.
        let words = if answered.is_empty() {
            line.find("{\"jsonrpc\"").unwrap_or(line.len())
        } else {
            0
        };
        let line = &line[words..];
        if line.is_empty() {
            continue;
        }
        let answer: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        match answer["id"].as_i64() {
            Some(id) => assert!(answered.insert(id)),
            None => refused += 1,
        }
    }
    drop(input);
    let ended = tokio::time::timeout(Duration::from_secs(20), child.wait()).await;
    assert!(ended.expect("it ends with its input").unwrap().success());
    assert_eq!(
        lines.next_line().await.unwrap(),
        None,
        "nothing else is written"
    );
}
