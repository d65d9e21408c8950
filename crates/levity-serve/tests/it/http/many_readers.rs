//! Many readers of one run, one of which does not read.

use std::fs;

use levity_core::RunId;
use levity_runtime::MemoryJournal;
use levity_serve::Runs;
use levity_test::ScriptedModel;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::client::{Client, TOKEN};
use super::support::{HeldTool, Server, agent};

const READERS: usize = 500;

/// Returns the resident memory of this process in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Requests events, and never reads any.
async fn never_reading(client: Client, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(client.0).await.unwrap();
    let host = client.0;
    let text =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// A run that waits at first, and then calls tools many times with large results.
fn runs(calls: usize, bytes: usize) -> (Runs, std::sync::Arc<tokio::sync::Semaphore>) {
    let (held, permits) = HeldTool::new();
    let hold = ScriptedModel::new().call("hold", json!({}));
    let look = |model: ScriptedModel, n: usize| {
        model.call("look", json!({"n": n, "path": "x".repeat(bytes)}))
    };
    let model = (0..calls).fold(hold, look).reply("Done.");
    let agent = agent(model, &MemoryJournal::new())
        .to_builder()
        .tool(held)
        .build()
        .unwrap();
    (Runs::new(agent), permits)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_that_never_reads_does_not_delay_500_others() {
    if !crate::is_alone("http::many_readers::reader_that_never_reads_does_not_delay_500_others") {
        return;
    }
    let calls = 130;
    let (runs, permits) = runs(calls, 100);
    let server = Server::new(runs).await;
    let client = server.client;
    client
        .post("/v1/runs", json!({"goal": "Go.", "id": "r"}))
        .await
        .is(201);
    let path = "/v1/runs/r/events?transient=0";
    let _deaf = never_reading(client, path).await;
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let mut events = client.events(path, None).await;
        // All readers are connected before the run continues.
        assert_eq!(events.next().await.unwrap().name, "run_started");
        readers.spawn(async move {
            let (mut next, mut last) = (2, String::new());
            while let Some(line) = events.line().await {
                if let Some(id) = line.strip_prefix("id: ") {
                    assert_eq!(id, next.to_string());
                    next += 1;
                }
                if let Some(name) = line.strip_prefix("event: ") {
                    name.clone_into(&mut last);
                }
            }
            (next - 1, last)
        });
    }
    let before = resident();
    permits.add_permits(1);
    let run = server.runs.get(&RunId::from("r")).unwrap();
    run.outcome().await;
    let whole = run.status();
    assert_eq!(whole.stats.tool_calls as usize, calls + 1);
    let told = readers.join_all().await;
    let events = told[0].0;
    assert!(events > 1000, "{events}");
    assert!(
        told.iter()
            .all(|(count, last)| *count == events && last == "end")
    );
    // Events that wait for readers are stored once; each reader has its own buffer.
    let grown = resident().saturating_sub(before);
    assert!(grown < 160 << 10, "{grown} KiB");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_page_streams_share_one_snapshot() {
    if !crate::is_alone("http::many_readers::unread_page_streams_share_one_snapshot") {
        return;
    }
    const STREAMS: u64 = 150;
    let (runs, permits) = runs(60, 50_000);
    let server = Server::new(runs).await;
    let client = server.client;
    let order = json!({"goal": "Go.", "id": "r"});
    client.post("/v1/runs", order).await.is(201);
    permits.add_permits(1);
    let run = server.runs.get(&RunId::from("r")).unwrap();
    run.outcome().await;
    let snapshot = client.get("/v1/runs/r/view").await.is(200).to_string();
    let size = snapshot.len() as u64 >> 10;
    assert!(size > 3 << 10, "{size} KiB");
    drop(snapshot);

    let before = resident();
    let mut unread = Vec::new();
    for _ in 0..STREAMS {
        let mut stream = never_reading(client, "/v1/stream?run=r").await;
        // The response begins when the snapshot is ready.
        stream.read_u8().await.unwrap();
        unread.push(stream);
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < STREAMS * size / 5, "{grown} KiB for {size} KiB");

    // A client that reads gets the whole snapshot.
    let mut events = client.events("/v1/stream?run=r", None).await;
    let view = events.until("view").await.pop().unwrap();
    assert_eq!(view.data["view"]["state"], "ended");
    server.stop().await;
}

#[tokio::test]
async fn run_takes_the_same_steps_with_a_stuck_reader() {
    let mut polls = Vec::new();
    for deaf_readers in [0, 20] {
        let (runs, permits) = runs(60, 60_000);
        let server = Server::new(runs).await;
        server
            .client
            .post("/v1/runs", json!({"goal": "Go.", "id": "r"}))
            .await
            .is(201);
        let mut deaf_ones = Vec::new();
        for _ in 0..deaf_readers {
            deaf_ones.push(never_reading(server.client, "/v1/runs/r/events").await);
        }
        permits.add_permits(1);
        let run = server.runs.get(&RunId::from("r")).unwrap();
        // The unread data exceeds every buffer, and the run has ended nevertheless.
        run.outcome().await;
        let mut standing = run.status();
        assert_eq!(standing.stats.tool_calls, 61, "{standing:?}");
        (standing.opened, standing.updated) = (None, None);
        polls.push(standing);
        server.stop().await;
    }
    assert_eq!(polls[0], polls[1]);
}

#[tokio::test]
async fn reader_that_reads_nothing_is_closed() {
    use levity_core::CancelToken;
    use levity_serve::{AccessControl, Listener, Token};

    let (runs, permits) = runs(100, 60_000);
    let stop = CancelToken::new();
    let listener = Listener::bind(
        "127.0.0.1:0",
        AccessControl::new(Token::new(TOKEN).unwrap()),
    )
    .await
    .unwrap();
    let listener = listener
        .send_time(std::time::Duration::from_millis(100))
        .stop_on(stop.clone());
    let server = Server::on(listener, stop, runs, |api| api.readers(1));
    let client = server.client;
    client
        .post("/v1/runs", json!({"goal": "Go.", "id": "r"}))
        .await
        .is(201);
    let _deaf = never_reading(client, "/v1/runs/r/events").await;
    while client.get("/v1/runs/r/events").await.status != 503 {}
    permits.add_permits(1);
    let run = server.runs.get(&RunId::from("r")).unwrap();
    run.outcome().await;
    assert_eq!(run.status().stats.tool_calls, 101);
    // Its permit is free again once it is closed.
    while client
        .ask("HEAD", "/v1/runs/r/events", &[], None)
        .await
        .status
        == 503
    {}
    server.stop().await;
}
