//! What becomes of a server's questions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use levity_mcp::{ElicitAsk, ElicitReply, Elicitor, ServerConfig, Servers, WaitFor};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use crate::fixture::world;

/// A person who never answers; it counts the questions that lie before them.
#[derive(Clone, Default)]
struct Silent(Arc<AtomicUsize>);

struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl Elicitor for Silent {
    async fn elicit(&self, _: &str, _: ElicitAsk) -> ElicitReply {
        self.0.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(self.0.clone());
        std::future::pending().await
    }
}

/// The server's end: what it says is written by the test, word for word.
struct Wire {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
}

impl Wire {
    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(60), self.lines.next_line()).await;
        serde_json::from_str(&line.expect("it hangs").unwrap().unwrap()).unwrap()
    }

    async fn say(&mut self, message: Value) {
        self.write
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn ask(&mut self, id: usize) {
        let params =
            json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
        self.say(
            json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}),
        )
        .await;
    }

    /// Greets the client and says that there are no tools.
    async fn greet(&mut self) {
        loop {
            let asked = self.next().await;
            let Some(id) = asked.get("id") else { continue };
            let info = json!({"name": "raw", "version": "1"});
            let answer = match asked["method"].as_str().unwrap() {
                "initialize" => json!({"result": {
                    "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info,
                }}),
                "tools/list" => json!({"result": {"tools": []}}),
                _ => json!({"error": {"code": -32601, "message": "unknown"}}),
            };
            let mut answer = answer;
            (answer["jsonrpc"], answer["id"]) = (json!("2.0"), id.clone());
            self.say(answer).await;
            if asked["method"] == "tools/list" {
                return;
            }
        }
    }
}

async fn start(person: Silent) -> (Servers, Wire) {
    let (give, mut wires) = mpsc::unbounded_channel();
    let config = ServerConfig::in_process("raw", move || {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(theirs);
        // Nobody wants the pipe of a second start.
        let _ = give.send(Wire {
            lines: BufReader::new(read).lines(),
            write,
        });
        ours
    });
    let servers = Servers::builder()
        .world(world())
        .server(config)
        .elicitor(person)
        .start()
        .unwrap();
    let mut wire = wires.recv().await.unwrap();
    wire.greet().await;
    servers.wait(WaitFor::All).await;
    (servers, wire)
}

async fn until(count: &AtomicUsize, wanted: usize) {
    let reached = async {
        while count.load(Ordering::SeqCst) != wanted {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached)
        .await
        .expect("it hangs");
}

#[tokio::test]
async fn a_question_that_is_taken_back_is_no_longer_asked() {
    let person = Silent::default();
    let (servers, mut wire) = start(person.clone()).await;
    wire.ask(1).await;
    wire.ask(2).await;
    until(&person.0, 2).await;
    let params = json!({"requestId": 1});
    wire.say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
        .await;
    until(&person.0, 1).await;
    drop(wire);
    until(&person.0, 0).await;
    servers.stop().await;
}

#[tokio::test]
async fn a_server_cannot_bury_a_person_in_questions() {
    let person = Silent::default();
    let (servers, mut wire) = start(person.clone()).await;
    for id in 0..20 {
        wire.ask(id).await;
    }
    for _ in 16..20 {
        let refused = wire.next().await;
        assert!(
            refused["error"]["message"]
                .as_str()
                .unwrap()
                .contains("16 questions"),
            "{refused}"
        );
    }
    until(&person.0, 16).await;
    servers.stop().await;
    until(&person.0, 0).await;
}
