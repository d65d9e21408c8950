//! A server written by hand, which does to a connection what it likes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A request as it came.
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

    /// The answer to this request.
    pub(super) fn result(&self, result: &Value) -> String {
        json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}).to_string()
    }

    pub(super) fn text(&self, text: &str) -> String {
        self.result(&json!({"content": [{"type": "text", "text": text}]}))
    }
}

/// What is done with a request, and with its connection: written bytes, and whether it stays open.
#[derive(Clone)]
pub(super) enum Do {
    Say(String),
    /// Says this and closes the connection.
    Last(String),
    /// Says this, and this again for ever.
    Forever(String, String),
    /// Says this and then nothing, for ever.
    Stall(String),
}

pub(super) struct Raw {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Mutex<Vec<Request>>>,
    /// Counts connections that we left while an answer was due.
    pub(super) left: watch::Receiver<usize>,
    _task: JoinSet<()>,
}

impl Raw {
    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(super) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// How often this method was posted.
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

pub(super) fn ok(body: &str) -> Do {
    Do::Say(answer("200 OK", "application/json", body))
}

/// The head of an answer whose events go on until the connection is closed.
pub(super) const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// Answers what every server has to; the rest is up to `act`.
pub(super) async fn start(act: impl Fn(&Request) -> Do + Send + Sync + 'static) -> Raw {
    start_all(move |request| match request.rpc() {
        "initialize" => {
            let info = json!({"name": "raw", "version": "1"});
            let result =
                json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info});
            ok(&request.result(&result))
        }
        method if method.starts_with("notifications/") => Do::Say(answer("202 Accepted", "text/plain", "")),
        _ => act(request),
    })
    .await
}

/// All is up to `act`.
pub(super) async fn start_all(act: impl Fn(&Request) -> Do + Send + Sync + 'static) -> Raw {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (address, seen) = (
        listener.local_addr().unwrap(),
        Arc::new(Mutex::new(Vec::new())),
    );
    let (mut task, log, act) = (JoinSet::new(), seen.clone(), Arc::new(act));
    let (leaves, left) = watch::channel(0);
    task.spawn(async move {
        let mut open = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            open.spawn(talk(stream, log.clone(), act.clone(), leaves.clone()));
        }
    });
    Raw {
        address,
        seen,
        left,
        _task: task,
    }
}

async fn talk(
    mut stream: TcpStream,
    log: Arc<Mutex<Vec<Request>>>,
    act: Arc<impl Fn(&Request) -> Do + Send + Sync + 'static>,
    leaves: watch::Sender<usize>,
) -> Option<()> {
    loop {
        let request = read(&mut stream).await?;
        log.lock().unwrap().push(request.clone());
        match act(&request) {
            Do::Say(text) => stream.write_all(text.as_bytes()).await.ok()?,
            Do::Last(text) => {
                stream.write_all(text.as_bytes()).await.ok()?;
                stream.shutdown().await.ok()?;
                return None;
            }
            Do::Forever(first, text) => {
                stream.write_all(first.as_bytes()).await.ok()?;
                while stream.write_all(text.as_bytes()).await.is_ok() {}
                leaves.send_modify(|count| *count += 1);
                return None;
            }
            Do::Stall(text) => {
                stream.write_all(text.as_bytes()).await.ok()?;
                while read(&mut stream).await.is_some() {}
                leaves.send_modify(|count| *count += 1);
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
    let mut words = text.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
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
