//! Tests with servers that are reached through HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr
)]
#![allow(clippy::disallowed_methods, reason = "the servers run in real time")]

mod real_servers;
mod server;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use levity_core::{Tool, ToolCx, ToolError, ToolSource};
use levity_mcp::{ServerConfig, ServerEventKind, Servers, WaitFor};
use serde_json::{Value, json};

use self::server::{Setup, start};
use crate::fixture::world;

/// Fails in place of hanging.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("the operation timed out")
}

async fn open(config: ServerConfig) -> Servers {
    let servers = Servers::builder()
        .world(world())
        .server(config)
        .start()
        .unwrap();
    let status = within(servers.wait(WaitFor::All)).await;
    assert!(status[0].state.is_ready(), "{status:?}");
    servers
}

fn tool(servers: &Servers, name: &str) -> Arc<dyn Tool> {
    let tools = servers.tools();
    tools
        .iter()
        .find(|tool| tool.spec().name == format!("mcp_it_{name}"))
        .expect("the tool exists")
        .clone()
}

async fn call(servers: &Servers, name: &str, args: Value) -> Result<String, ToolError> {
    let out = within(tool(servers, name).call(args, &ToolCx::detached())).await?;
    Ok(out.as_text().to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_of_http_server_are_called() {
    for sessions in [true, false] {
        let server = start(Setup {
            sessions,
            json: !sessions,
            ..Setup::default()
        })
        .await;
        let servers = open(ServerConfig::http("it", server.url())).await;
        for name in ["echo", "slow", "progress"] {
            assert_eq!(
                call(&servers, name, json!({"text": name})).await.unwrap(),
                name
            );
        }
        let connections = server.connections.load(Ordering::Relaxed);
        assert!(connections < 8, "{connections} connections");
        within(servers.stop()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_server_is_used_again() {
    let server = start(Setup::default()).await;
    let servers = open(ServerConfig::http("it", server.url())).await;
    let port = server.address.port();
    let mut events = servers.events();
    server.stop().await;
    let error = call(&servers, "echo", json!({"text": "x"}))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("server `it`: "), "{error}");
    within(async {
        while !matches!(
            events.next().await.unwrap().kind,
            ServerEventKind::Unavailable { .. }
        ) {}
    })
    .await;
    let _restarted = start(Setup {
        port,
        ..Setup::default()
    })
    .await;
    within(async {
        while call(&servers, "echo", json!({"text": "x"})).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    within(servers.stop()).await;
}

#[tokio::test]
async fn unreachable_server_is_reported() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let config = ServerConfig::http("it", format!("http://{free}/mcp?key=secret"));
    let servers = Servers::builder()
        .world(world())
        .server(config)
        .start()
        .unwrap();
    let status = within(servers.wait(WaitFor::All)).await;
    let text = format!("{status:?}");
    assert!(
        text.contains("cannot be reached: Connection refused"),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
    within(servers.stop()).await;
}

/// Starts a server that sends these bytes in response to every request.
async fn respond_with(answer: &'static str) -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, task)
}

#[tokio::test]
async fn errors_contain_no_key_of_url() {
    let answers = [
        "HTTP/1.1 404 No\r\ncontent-length: 21\r\n\r\n<p>/mcp?key=secret</p>",
        "HTTP/1.1 401 No\r\ncontent-length: 0\r\nwww-authenticate: Bearer \
            realm=\"/mcp?key=secret\"\r\n\r\n",
        "HTTP/1.1 302 Go\r\ncontent-length: 0\r\nlocation: http://h/?key=secret\r\n\r\n",
        "HTTP/1.1 500 No\r\ncontent-length: 6\r\n\r\nsecret",
        "nonsense",
        "",
    ];
    for answer in answers {
        let (address, task) = respond_with(answer).await;
        for url in [
            format!("http://{address}/mcp?key=secret"),
            format!("http://someone:secret@{address}/mcp"),
            format!("http://{address}/mcp#secret"),
        ] {
            let config = ServerConfig::http("it", url).retries(1);
            let servers = Servers::builder()
                .world(world())
                .server(config)
                .start()
                .unwrap();
            let status = within(servers.wait(WaitFor::All)).await;
            let text = format!("{status:?}");
            assert!(!text.contains("secret"), "{answer}: {text}");
            within(servers.stop()).await;
        }
        task.abort();
    }
}
