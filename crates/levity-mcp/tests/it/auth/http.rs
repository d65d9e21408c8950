//! A minimal HTTP server for the tests.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    query: String,
    body: Vec<u8>,
}

impl Request {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn form(&self) -> HashMap<String, String> {
        url::form_urlencoded::parse(&self.body)
            .into_owned()
            .collect()
    }

    pub(crate) fn query(&self) -> HashMap<String, String> {
        url::form_urlencoded::parse(self.query.as_bytes())
            .into_owned()
            .collect()
    }
}

pub(crate) struct Reply {
    status: u16,
    headers: String,
    body: String,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self {
            status,
            headers: String::new(),
            body: String::new(),
        }
    }

    pub(crate) fn json(value: &Value) -> Self {
        let reply = Self::status(200).header("Content-Type", "application/json");
        Self {
            body: value.to_string(),
            ..reply
        }
    }

    pub(crate) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers += &format!("{name}: {value}\r\n");
        self
    }
}

/// Serves requests until it is dropped, one per connection.
pub(crate) async fn serve(
    listener: TcpListener,
    answer: impl Fn(Request) -> Reply + Send + Sync + 'static,
) {
    let (answer, mut tasks) = (Arc::new(answer), JoinSet::new());
    while let Ok((stream, _)) = listener.accept().await {
        let answer = answer.clone();
        tasks.spawn(async move {
            let _ = serve_connection(stream, &*answer).await;
        });
        while tasks.try_join_next().is_some() {}
    }
}

async fn serve_connection(
    mut stream: TcpStream,
    answer: &(impl Fn(Request) -> Reply + Send + Sync),
) -> Option<()> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|end| end == b"\r\n\r\n") {
            break end + 4;
        }
        stream
            .read_buf(&mut read)
            .await
            .ok()
            .filter(|read| *read > 0)?;
    };
    let head = String::from_utf8(read[..end].to_vec()).ok()?;
    let mut lines = head.lines();
    let mut parts = lines.next()?.split(' ');
    let (method, target) = (parts.next()?.to_owned(), parts.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    while read.len() < end + length {
        stream
            .read_buf(&mut read)
            .await
            .ok()
            .filter(|read| *read > 0)?;
    }
    let (path, query, body) = (path.to_owned(), query.to_owned(), read[end..].to_vec());
    let reply = answer(Request {
        method,
        path,
        headers,
        query,
        body,
    });
    let text = format!(
        "HTTP/1.1 {} OK\r\n{}Content-Length: {}\r\nConnection: close\r\n\r\n{}",
        reply.status,
        reply.headers,
        reply.body.len(),
        reply.body
    );
    stream.write_all(text.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}
