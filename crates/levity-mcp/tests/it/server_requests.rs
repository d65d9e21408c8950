//! Tests of requests that a server sends to its host.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use levity_mcp::{ElicitReply, ElicitRequest, Elicitor, ServerConfig, Servers, WaitFor};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use crate::fixture::world;

/// A person who never answers; counts the pending requests.
#[derive(Clone, Default)]
struct SilentPerson(Arc<AtomicUsize>);

struct PendingGuard(Arc<AtomicUsize>);

impl Drop for PendingGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl Elicitor for SilentPerson {
    async fn elicit(&self, _: &str, _: ElicitRequest) -> ElicitReply {
        self.0.fetch_add(1, Ordering::SeqCst);
        let _pending = PendingGuard(self.0.clone());
        std::future::pending().await
    }
}

/// The server's end of the connection, whose messages the test writes.
struct ServerEnd {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
}

impl ServerEnd {
    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(60), self.lines.next_line()).await;
        serde_json::from_str(&line.expect("the wait timed out").unwrap().unwrap()).unwrap()
    }

    async fn send(&mut self, message: Value) {
        self.write
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn send_request(&mut self, id: usize) {
        let params =
            json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
        self.send(
            json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}),
        )
        .await;
    }

    /// Performs the handshake and offers no tools.
    async fn handshake(&mut self) {
        loop {
            let request = self.next().await;
            let Some(id) = request.get("id") else {
                continue;
            };
            let info = json!({"name": "raw", "version": "1"});
            let answer = match request["method"].as_str().unwrap() {
                "initialize" => json!({"result": {
                    "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": info,
                }}),
                "tools/list" => json!({"result": {"tools": []}}),
                _ => json!({"error": {"code": -32601, "message": "unknown"}}),
            };
            let mut answer = answer;
            (answer["jsonrpc"], answer["id"]) = (json!("2.0"), id.clone());
            self.send(answer).await;
            if request["method"] == "tools/list" {
                return;
            }
        }
    }
}

async fn start(person: SilentPerson) -> (Servers, ServerEnd) {
    let (server_end_sender, mut server_ends) = mpsc::unbounded_channel();
    let config = ServerConfig::in_process("raw", move || {
        let (client, server) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(server);
        // The pipe of a second start is unused.
        let _ = server_end_sender.send(ServerEnd {
            lines: BufReader::new(read).lines(),
            write,
        });
        client
    });
    let servers = Servers::builder()
        .world(world())
        .server(config)
        .elicitor(person)
        .start()
        .unwrap();
    let mut server_end = server_ends.recv().await.unwrap();
    server_end.handshake().await;
    servers.wait(WaitFor::All).await;
    (servers, server_end)
}

async fn wait_until(count: &AtomicUsize, expected: usize) {
    let reached = async {
        while count.load(Ordering::SeqCst) != expected {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached)
        .await
        .expect("the wait timed out");
}

#[tokio::test]
async fn cancelled_server_request_is_withdrawn() {
    let person = SilentPerson::default();
    let (servers, mut server_end) = start(person.clone()).await;
    server_end.send_request(1).await;
    server_end.send_request(2).await;
    wait_until(&person.0, 2).await;
    let params = json!({"requestId": 1});
    server_end
        .send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
        .await;
    wait_until(&person.0, 1).await;
    drop(server_end);
    wait_until(&person.0, 0).await;
    servers.stop().await;
}

#[tokio::test]
async fn server_requests_beyond_limit_are_rejected() {
    let person = SilentPerson::default();
    let (servers, mut server_end) = start(person.clone()).await;
    for id in 0..20 {
        server_end.send_request(id).await;
    }
    for _ in 16..20 {
        let refused = server_end.next().await;
        assert!(
            refused["error"]["message"]
                .as_str()
                .unwrap()
                .contains("16 requests"),
            "{refused}"
        );
    }
    wait_until(&person.0, 16).await;
    servers.stop().await;
    wait_until(&person.0, 0).await;
}

#[tokio::test]
async fn thousand_server_requests_are_answered() {
    let (servers, server_end) = start(SilentPerson::default()).await;
    let ServerEnd {
        mut lines,
        mut write,
    } = server_end;
    let send = async {
        for id in 0..1_000 {
            let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
            write
                .write_all(format!("{ping}\n").as_bytes())
                .await
                .unwrap();
        }
    };
    let read = async {
        let mut ids = BTreeSet::new();
        while ids.len() < 1_000 {
            let line = lines.next_line().await.unwrap().unwrap();
            let answer: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(answer["result"], json!({}), "{answer}");
            ids.insert(answer["id"].as_u64().unwrap());
        }
    };
    tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(send, read) })
        .await
        .expect("the wait timed out");
    servers.stop().await;
}
