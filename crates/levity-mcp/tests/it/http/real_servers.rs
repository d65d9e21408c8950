//! Tests with third-party servers, if they are installed.
//!
//! `LEVITY_TEST_MCP_NODE` names a folder whose `node_modules/.bin` has `node` and
//! `mcp-server-everything`, and `LEVITY_TEST_MCP_PYTHON` a Python installation with the package
//! `mcp`.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use levity_core::ToolSource;
use levity_mcp::{ServerConfig, Servers};
use serde_json::json;
use tokio::process::{Child, Command};

use super::{call, open, within};

fn from_env(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name);
    if value.is_none() {
        eprintln!("skipped: `{name}` is not set");
    }
    value.map(PathBuf::from)
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn everything(folder: &std::path::Path, kind: &str, port: u16) -> Command {
    let bin = folder.join("node_modules/.bin");
    let mut command = Command::new(bin.join("node"));
    command
        .arg(bin.join("mcp-server-everything"))
        .arg(kind)
        .env("PORT", port.to_string());
    command
}

fn python(python: &std::path::Path, kind: &str, port: u16) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/server.py");
    let mut command = Command::new(python);
    command.arg(script).arg(kind).arg(port.to_string());
    command
}

/// Starts a server and waits until it accepts connections.
async fn start(mut command: Command, port: u16) -> Child {
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null());
    let mut child = command
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    for _ in 0..600 {
        if tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_ok()
        {
            return child;
        }
        assert!(child.try_wait().unwrap().is_none(), "the server ended");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the server does not accept connections");
}

async fn stop(mut child: Child) {
    child.kill().await.unwrap();
}

async fn check_everything(servers: &Servers) {
    assert!(servers.tools().len() >= 13, "{}", servers.tools().len());
    assert_eq!(
        call(servers, "echo", json!({"message": "hi"}))
            .await
            .unwrap(),
        "Echo: hi"
    );
    let long = json!({"duration": 0.3, "steps": 3});
    assert!(
        call(servers, "trigger-long-running-operation", long)
            .await
            .unwrap()
            .contains("completed")
    );
}

/// Stops the server during a call, restarts it, and calls again.
async fn check_restart(
    servers: &Servers,
    server: Child,
    restart_command: impl Fn() -> Command,
    port: u16,
) -> Child {
    let long = json!({"duration": 60, "steps": 120});
    let (error, ()) = tokio::join!(
        call(servers, "trigger-long-running-operation", long),
        async {
            tokio::time::sleep(Duration::from_millis(1200)).await;
            stop(server).await;
        }
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("ended before") || error.contains("cannot be reached"),
        "{error}"
    );
    let server = start(restart_command(), port).await;
    within(async {
        while call(servers, "echo", json!({"message": "hi"}))
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_server_works_over_streamable_http() {
    let Some(folder) = from_env("LEVITY_TEST_MCP_NODE") else {
        return;
    };
    let port = free_port();
    let command = || everything(&folder, "streamableHttp", port);
    let server = start(command(), port).await;
    let servers = open(ServerConfig::http(
        "it",
        format!("http://127.0.0.1:{port}/mcp"),
    ))
    .await;
    check_everything(&servers).await;
    let server = check_restart(&servers, server, command, port).await;
    check_everything(&servers).await;
    within(servers.stop()).await;
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_server_works_over_sse() {
    let Some(folder) = from_env("LEVITY_TEST_MCP_NODE") else {
        return;
    };
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/sse");
    let command = || everything(&folder, "sse", port);
    let mut server = start(command(), port).await;
    // The server is configured with its real transport, and as a newer server.
    for config in [
        ServerConfig::sse("it", &url),
        ServerConfig::http("it", &url),
    ] {
        let servers = open(config).await;
        check_everything(&servers).await;
        server = check_restart(&servers, server, command, port).await;
        within(servers.stop()).await;
    }
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_server_works_over_every_http_transport() {
    let Some(interpreter) = from_env("LEVITY_TEST_MCP_PYTHON") else {
        return;
    };
    for (kind, path) in [("streamable-http", "mcp"), ("sse", "sse")] {
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}/{path}");
        let server = start(python(&interpreter, kind, port), port).await;
        for config in [
            ServerConfig::http("it", &url),
            ServerConfig::sse("it", &url),
        ] {
            if kind != "sse" && format!("{config:?}").contains("Sse(") {
                continue;
            }
            let servers = open(config).await;
            assert_eq!(servers.tools().len(), 2);
            assert_eq!(
                call(&servers, "add", json!({"a": 20, "b": 22}))
                    .await
                    .unwrap(),
                "42"
            );
            assert_eq!(
                call(&servers, "count", json!({"to": 3})).await.unwrap(),
                "counted to 3"
            );
            within(servers.stop()).await;
        }
        stop(server).await;
    }
}
