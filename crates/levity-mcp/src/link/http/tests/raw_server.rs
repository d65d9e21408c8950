//! A handwritten server with full control over its connections.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A request as it was received.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    /// The lines of the head, in lower case.
    pub(super) head: String,
    pub(super) body: Value,
}

impl Request {
    pub(super) fn rpc(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}: ")))
    }

    /// Returns the response to this request.
    pub(super) fn result(&self, result: &Value) -> String {
        json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}).to_string()
    }

    pub(super) fn text(&self, text: &str) -> String {
        self.result(&json!({"content": [{"type": "text", "text": text}]}))
    }
}

/// The reaction to a request: the bytes to write, and the state of the connection afterwards.
#[derive(Clone)]
pub(super) enum Action {
    Send(String),
    /// Writes this and closes the connection.
    SendAndClose(String),
    /// Writes the first text, and then the second one endlessly.
    SendForever(String, String),
    /// Writes this and then nothing more.
    SendAndStall(String),
}

pub(super) struct RawServer {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Mutex<Vec<Request>>>,
    /// The number of connections that the client closed before the response was complete.
    pub(super) abandoned: watch::Receiver<usize>,
    _task: JoinSet<()>,
}

impl RawServer {
    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(super) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns how often this method was posted.
    pub(super) fn posted(&self, rpc: &str) -> usize {
        self.seen()
            .iter()
            .filter(|request| request.rpc() == rpc)
            .count()
    }
}

pub(super) fn answer(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
}

pub(super) fn ok(body: &str) -> Action {
    Action::Send(answer("200 OK", "application/json", body))
}

/// The head of a response whose events continue until the connection is closed.
pub(super) const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// Starts a server that handles the handshake; `action` handles all other requests.
pub(super) async fn start(
    action: impl Fn(&Request) -> Action + Send + Sync + 'static,
) -> RawServer {
    start_all(move |request| match request.rpc() {
        "initialize" => {
            let info = json!({"name": "raw", "version": "1"});
            let result = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            });
            ok(&request.result(&result))
        }
        method if method.starts_with("notifications/") => {
            Action::Send(answer("202 Accepted", "text/plain", ""))
        }
        _ => action(request),
    })
    .await
}

/// Starts a server whose requests are all handled by `action`.
pub(super) async fn start_all(
    action: impl Fn(&Request) -> Action + Send + Sync + 'static,
) -> RawServer {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (address, seen) = (
        listener.local_addr().unwrap(),
        Arc::new(Mutex::new(Vec::new())),
    );
    let (mut task, log, action) = (JoinSet::new(), seen.clone(), Arc::new(action));
    let (abandoned_sender, abandoned) = watch::channel(0);
    task.spawn(async move {
        let mut open = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            open.spawn(serve(
                stream,
                log.clone(),
                action.clone(),
                abandoned_sender.clone(),
            ));
        }
    });
    RawServer {
        address,
        seen,
        abandoned,
        _task: task,
    }
}

async fn serve(
    mut stream: TcpStream,
    log: Arc<Mutex<Vec<Request>>>,
    action: Arc<impl Fn(&Request) -> Action + Send + Sync + 'static>,
    abandoned_sender: watch::Sender<usize>,
) -> Option<()> {
    loop {
        let request = read(&mut stream).await?;
        log.lock().unwrap().push(request.clone());
        match action(&request) {
            Action::Send(text) => stream.write_all(text.as_bytes()).await.ok()?,
            Action::SendAndClose(text) => {
                stream.write_all(text.as_bytes()).await.ok()?;
                stream.shutdown().await.ok()?;
                return None;
            }
            Action::SendForever(first, text) => {
                stream.write_all(first.as_bytes()).await.ok()?;
                while stream.write_all(text.as_bytes()).await.is_ok() {}
                abandoned_sender.send_modify(|count| *count += 1);
                return None;
            }
            Action::SendAndStall(text) => {
                stream.write_all(text.as_bytes()).await.ok()?;
                while read(&mut stream).await.is_some() {}
                abandoned_sender.send_modify(|count| *count += 1);
                return None;
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let mut parts = text.split(' ');
    let (method, path) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let head_text = text.to_lowercase();
    let length = head_text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let end = head + 4 + length.unwrap_or(0);
    while bytes.len() < end {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&bytes[head + 4..end]).unwrap_or(Value::Null);
    Some(Request {
        method,
        path,
        head: head_text,
        body,
    })
}
