//! A client that sends exactly the given bytes.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

pub(crate) const TOKEN: &str = "0123456789abcdef-of-a-test";

/// The address of a server and the token for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client(pub(crate) SocketAddr);

/// A response of the server.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) json: Value,
}

impl HttpResponse {
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}\n{}", self.head, self.json);
        self.json
    }

    /// Checks that the response is an error with this status and code.
    #[track_caller]
    pub(crate) fn assert_error(self, status: u16, code: &str) {
        assert_eq!(
            (self.status, self.json["error"]["code"].as_str()),
            (status, Some(code)),
            "{self:?}"
        );
        let message = self.json["error"]["message"].as_str().unwrap();
        assert!(!message.is_empty() && message.len() < 500, "{message}");
        assert!(self.has("cache-control: no-store") && self.has("x-content-type-options: nosniff"));
    }

    pub(crate) fn has(&self, header: &str) -> bool {
        self.head
            .to_ascii_lowercase()
            .lines()
            .any(|line| line.starts_with(header))
    }
}

impl Client {
    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        self.ask("GET", path, &[], None).await
    }

    pub(crate) async fn delete(&self, path: &str) -> HttpResponse {
        self.ask("DELETE", path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> HttpResponse {
        self.ask("POST", path, &[], Some(&body.to_string())).await
    }

    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> HttpResponse {
        let mut all = vec![("Authorization", format!("Bearer {TOKEN}"))];
        all.extend(body.map(|_| ("Content-Type", "application/json".to_owned())));
        all.extend(
            headers
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned())),
        );
        self.ask_as(method, path, &all, body.unwrap_or_default())
            .await
    }

    /// Sends a request with only these headers.
    pub(crate) async fn ask_as(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: &str,
    ) -> HttpResponse {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"))
        {
            text.push_str(&format!("Host: {}\r\n", self.0));
        }
        if !body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        headers
            .iter()
            .for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
        self.raw(format!("{text}\r\n{body}").as_bytes()).await
    }

    /// Sends these bytes, and reads the whole response.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> HttpResponse {
        let mut stream = TcpStream::connect(self.0).await.unwrap();
        // A server that rejects a request may close the connection before it has received all of
        // it.
        let _ = stream.write_all(bytes).await;
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
        read(&String::from_utf8_lossy(&all))
    }

    /// Follows the events of a run.
    pub(crate) async fn events(&self, path: &str, last: Option<&str>) -> Events {
        let mut stream = TcpStream::connect(self.0).await.unwrap();
        let last = last
            .map(|id| format!("Last-Event-ID: {id}\r\n"))
            .unwrap_or_default();
        let host = self.0;
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n{last}\r\n"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).await.unwrap() > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        Events {
            lines,
            text: String::new(),
            over: false,
        }
    }
}

fn read(text: &str) -> HttpResponse {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    HttpResponse {
        status,
        head: head.to_owned(),
        json: serde_json::from_str(body).unwrap_or(Value::Null),
    }
}

/// A stream of events that arrives in chunks.
pub(crate) struct Events {
    lines: BufReader<TcpStream>,
    text: String,
    over: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sse {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl Events {
    /// Returns the next event; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Sse> {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let parsed = parse(event);
                self.text = rest.to_owned();
                if parsed.is_some() {
                    return parsed;
                }
            }
            if self.over || !self.chunk().await {
                return None;
            }
        }
    }

    /// Returns the next line without parsing events; chunk borders are among the lines.
    pub(crate) async fn line(&mut self) -> Option<String> {
        if let Some((line, rest)) = self.text.split_once('\n') {
            let line = line.to_owned();
            self.text = rest.to_owned();
            return Some(line);
        }
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).await.unwrap_or(0);
        (read > 0 && line != "0\r\n").then(|| line.trim_end().to_owned())
    }

    /// Reads up to and including an event of this name.
    pub(crate) async fn until(&mut self, name: &str) -> Vec<Sse> {
        let mut found = Vec::new();
        while let Some(event) = self.next().await {
            found.push(event);
            if found.last().is_some_and(|event| event.name == name) {
                return found;
            }
        }
        panic!("the stream ended before `{name}`: {found:?}");
    }

    /// Returns `true` if a heartbeat is next.
    pub(crate) async fn comment(&mut self) -> bool {
        while !self.text.contains("\n\n") {
            assert!(self.chunk().await);
        }
        self.text.starts_with(":\n\n")
    }

    /// Reads all remaining events.
    pub(crate) async fn rest(&mut self) -> Vec<Sse> {
        let mut found = Vec::new();
        while let Some(event) = self.next().await {
            found.push(event);
        }
        found
    }

    async fn chunk(&mut self) -> bool {
        let mut size = String::new();
        if self.lines.read_line(&mut size).await.unwrap_or(0) == 0 {
            return false;
        }
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let mut bytes = vec![0; size + 2];
        if self.lines.read_exact(&mut bytes).await.is_err() {
            return false;
        }
        self.over = size == 0;
        // A chunk ends at the end of an event or at a character border: events are JSON in UTF-8.
        self.text
            .push_str(std::str::from_utf8(&bytes[..size]).unwrap());
        true
    }
}

/// Parses an event of a stream; `None` for a comment or a setting.
fn parse(text: &str) -> Option<Sse> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    let name = field("event")?.to_owned();
    let data = serde_json::from_str(field("data")?).unwrap();
    Some(Sse {
        id: field("id").map(str::to_owned),
        name,
        data,
    })
}
