//! Servers from elsewhere, where they are installed.
//!
//! `LEVITY_TEST_MCP_NODE` names a folder whose `node_modules/.bin` has `node` and `mcp-server-everything`, and
//! `LEVITY_TEST_MCP_PYTHON` a Python that has the package `mcp`.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use rmcp::service::ClientLifecycleMode;
use serde_json::json;
use tokio::process::{Child, Command};

use super::{Client, Dial, auto, call, connect, end, within};
use crate::ErrorKind;
use crate::link::sse;

fn from_env(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name);
    if value.is_none() {
        eprintln!("skipped: `{name}` is not set");
    }
    value.map(PathBuf::from)
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn everything(folder: &std::path::Path, kind: &str, port: u16) -> Command {
    let bin = folder.join("node_modules/.bin");
    let mut command = Command::new(bin.join("node"));
    command.arg(bin.join("mcp-server-everything")).arg(kind).env("PORT", port.to_string());
    command
}

fn python(python: &std::path::Path, kind: &str, port: u16) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/server.py");
    let mut command = Command::new(python);
    command.arg(script).arg(kind).arg(port.to_string());
    command
}

/// Starts a server and waits until it listens.
async fn start(mut command: Command, port: u16) -> Child {
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    let mut child = command.stderr(std::process::Stdio::null()).kill_on_drop(true).spawn().unwrap();
    for _ in 0..600 {
        if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return child;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it does not listen");
}

async fn stop(mut child: Child) {
    child.kill().await.unwrap();
}

async fn older(url: String) -> Client {
    let (config, limits, world) = Dial::to(url).parts();
    let link = within(sse::open("test".into(), &config, limits, None, world)).await.unwrap();
    within(connect(link, ClientLifecycleMode::Initialize)).await.unwrap()
}

async fn everything_works(client: Client) {
    let tools = within(client.peer().list_all_tools()).await.unwrap();
    assert!(tools.len() >= 13, "{}", tools.len());
    assert_eq!(call(&client, "echo", json!({"message": "hi"})).await.unwrap(), "Echo: hi");
    let long = json!({"duration": 0.3, "steps": 3});
    assert!(call(&client, "trigger-long-running-operation", long).await.unwrap().contains("completed"));
    end(client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_by_streamable_http() {
    let Some(folder) = from_env("LEVITY_TEST_MCP_NODE") else { return };
    let port = free_port();
    let dial = Dial::to(format!("http://127.0.0.1:{port}/mcp"));
    let server = start(everything(&folder, "streamableHttp", port), port).await;
    everything_works(dial.legacy().await).await;
    everything_works(dial.either().await).await;
    // Ended during a call, and started again.
    let client = dial.legacy().await;
    let long = json!({"duration": 30, "steps": 30});
    let (error, ()) = tokio::join!(call(&client, "trigger-long-running-operation", long), async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        stop(server).await;
    });
    let error = error.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Start | ErrorKind::Closed), "{error}");
    let server = start(everything(&folder, "streamableHttp", port), port).await;
    everything_works(client).await;
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_by_the_older_way() {
    let Some(folder) = from_env("LEVITY_TEST_MCP_NODE") else { return };
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/sse");
    let server = start(everything(&folder, "sse", port), port).await;
    everything_works(older(url.clone()).await).await;
    everything_works(Dial::to(&url).legacy().await).await;
    let client = Dial::to(&url).either().await;
    let long = json!({"duration": 30, "steps": 30});
    let (error, ()) = tokio::join!(call(&client, "trigger-long-running-operation", long), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        stop(server).await;
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Closed);
}

async fn python_works(client: Client) {
    assert_eq!(within(client.peer().list_all_tools()).await.unwrap().len(), 2);
    assert_eq!(call(&client, "add", json!({"a": 20, "b": 22})).await.unwrap(), "42");
    assert_eq!(call(&client, "count", json!({"to": 3})).await.unwrap(), "counted to 3");
    end(client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_by_streamable_http() {
    let Some(interpreter) = from_env("LEVITY_TEST_MCP_PYTHON") else { return };
    let port = free_port();
    let server = start(python(&interpreter, "streamable-http", port), port).await;
    let dial = Dial::to(format!("http://127.0.0.1:{port}/mcp"));
    python_works(dial.legacy().await).await;
    python_works(dial.modern().await).await;
    python_works(dial.either().await).await;
    // Ended between calls, and started again.
    let client = dial.legacy().await;
    assert_eq!(call(&client, "add", json!({"a": 1, "b": 1})).await.unwrap(), "2");
    stop(server).await;
    let server = start(python(&interpreter, "streamable-http", port), port).await;
    python_works(client).await;
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_by_the_older_way() {
    let Some(interpreter) = from_env("LEVITY_TEST_MCP_PYTHON") else { return };
    let port = free_port();
    let server = start(python(&interpreter, "sse", port), port).await;
    let url = format!("http://127.0.0.1:{port}/sse");
    python_works(older(url.clone()).await).await;
    python_works(Dial::to(&url).legacy().await).await;
    let (config, limits, world) = Dial::to(&url).parts();
    let link = within(sse::open("test".into(), &config, limits, None, world)).await.unwrap();
    python_works(within(connect(link, auto())).await.unwrap()).await;
    stop(server).await;
}
