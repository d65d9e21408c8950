//! Measures the memory of idle clients: readers of a run's events, clients of a bridge, sessions of
//! an MCP server.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use levity::sandbox::Workspace;
use levity::serve::bridge::BridgeHost;
use levity::serve::mcp::McpServer;
use levity::serve::{AccessControl, Listener, Runs, Token};
use levity::test::ScriptedModel;
use serde_json::{Value, json};

use super::Server;

/// Allowed memory of all idle clients, in MiB.
const GOAL_MIB: f64 = 64.0;
/// The token that the bridge requires.
const TOKEN: &str = "a-token-that-is-long-enough-for-a-bench";

/// Prints the memory of `count` clients of each kind.
pub fn report(count: usize) {
    println!("{count} clients that are connected and wait; what the server's memory grew by.\n");
    println!("{:34} {:>10} {:>10}", "", "MiB in all", "KiB each");
    measure_clients("readers of a run's events", "serve-levity", count, reader);
    measure_clients("clients of a bridge", "serve-bridge", count, bridge_client);
    measure_clients("sessions of an MCP server", "serve-mcp", count, session);
}

fn measure_clients(name: &str, which: &str, count: usize, connect: fn(&Server) -> TcpStream) {
    let server = Server::start(which);
    // The first client initializes shared state.
    let first = connect(&server);
    let before = server.resident();
    let others: Vec<TcpStream> = (0..count).map(|_| connect(&server)).collect();
    let grown = server.resident().saturating_sub(before) as f64 / 1024.0;
    let met = super::verdict(grown / 1024.0 <= GOAL_MIB);
    println!(
        "{name:34} {:>10.1} {:>10.1}  {met}",
        grown / 1024.0,
        grown / count as f64
    );
    drop((first, others));
}

/// Opens the event stream of the run that emits no events.
fn reader(server: &Server) -> TcpStream {
    let mut stream = server.send_request("GET", "/v1/runs/idle/events?after=1", "", "");
    head(&mut stream);
    stream
}

fn bridge_client(server: &Server) -> TcpStream {
    let upgrade = format!(
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {TOKEN}\r\n"
    );
    let mut stream = server.send_request("GET", "/", &upgrade, "");
    assert!(
        head(&mut stream).starts_with("HTTP/1.1 101 "),
        "the bridge accepts its client"
    );
    stream
}

/// Opens a session, and the stream on which its client receives notifications.
fn session(server: &Server) -> TcpStream {
    const TYPES: &str =
        "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n";
    let post = |headers: &str, body: Value| {
        let headers = format!("{TYPES}{headers}Connection: close\r\n");
        let mut answer = String::new();
        let mut stream = server.send_request("POST", "/mcp", &headers, &body.to_string());
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    let initialized = post(
        "",
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }}),
    );
    let id = initialized
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "))
        .expect("a session");
    let session = format!("{TYPES}mcp-session-id: {id}\r\nmcp-protocol-version: 2025-11-25\r\n");
    post(
        &session,
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    );
    let mut stream = server.send_request("GET", "/mcp", &session, "");
    assert!(
        head(&mut stream).starts_with("HTTP/1.1 200 "),
        "the stream opens"
    );
    stream
}

/// Reads only the head of an answer.
fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("it answers");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("a head is text")
}

impl Server {
    pub fn send_request(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("the server is there");
        stream.set_nodelay(true).expect("it can be set");
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{headers}{length}\r\n{body}",
            self.address
        );
        stream.write_all(text.as_bytes()).expect("it is asked");
        stream
    }
}

pub async fn bridge() {
    let folder = tempfile::tempdir().expect("a folder");
    let space = Workspace::open(folder.path()).expect("a workspace");
    let host = BridgeHost::builder(space).build().expect("a host");
    let agent = levity::agent::Agent::builder(ScriptedModel::new())
        .build()
        .expect("an agent");
    host.commander(Runs::new(agent)).await.expect("a commander");
    let access = AccessControl::new(Token::new(TOKEN).expect("a token"));
    host.serve(listener(access).await).await.expect("it serves");
}

pub async fn mcp() {
    let server = McpServer::builder("idle", "1").build().expect("a server");
    server
        .listen(listener(AccessControl::open()).await)
        .await
        .expect("it serves");
}

/// Binds a listener and prints its address.
pub async fn listener(access: AccessControl) -> Listener {
    let listener = Listener::bind("127.0.0.1:0", access)
        .await
        .expect("an address");
    println!("{}", listener.address());
    listener
}
