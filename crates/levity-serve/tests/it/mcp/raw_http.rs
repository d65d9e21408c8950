//! HTTP by hand, so that a client can do what no library allows.

use std::net::SocketAddr;

use levity_core::CancelToken;
use levity_serve::mcp::McpServer;
use levity_serve::{AccessControl, Listener};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A server that listens for as long as this value lives.
pub(super) struct Site {
    pub(super) address: SocketAddr,
    pub(super) stop: CancelToken,
    pub(super) tasks: JoinSet<()>,
}

impl Site {
    pub(super) async fn open(server: &McpServer) -> Self {
        Self::behind(server, AccessControl::open()).await
    }

    pub(super) async fn behind(server: &McpServer, gate: AccessControl) -> Self {
        let stop = CancelToken::new();
        let listener = Listener::bind("127.0.0.1:0", gate)
            .await
            .unwrap()
            .stop_on(stop.clone());
        let (address, server, mut tasks) = (listener.address(), server.clone(), JoinSet::new());
        tasks.spawn(async move { server.listen(listener).await.unwrap() });
        Self {
            address,
            stop,
            tasks,
        }
    }

    /// Sends a request with these additional headers, and waits for the whole response.
    pub(super) async fn send(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpResponse {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream
            .write_all(self.head(method, headers, body.len()).as_bytes())
            .await
            .unwrap();
        let _ = stream.write_all(body.as_bytes()).await;
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
        HttpResponse::parse(&bytes)
    }

    pub(super) fn head(&self, method: &str, headers: &[(&str, &str)], length: usize) -> String {
        let mut head =
            format!("{method} /mcp HTTP/1.1\r\ncontent-length: {length}\r\nconnection: close\r\n");
        let usual = [
            ("host", self.address.to_string()),
            ("content-type", "application/json".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
        ];
        for (name, value) in usual {
            if !headers
                .iter()
                .any(|(known, _)| known.eq_ignore_ascii_case(name))
            {
                head += &format!("{name}: {value}\r\n");
            }
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head + "\r\n"
    }

    pub(super) async fn post(&self, headers: &[(&str, &str)], message: &Value) -> HttpResponse {
        self.send("POST", headers, &message.to_string()).await
    }

    /// A request of 2026-07-28.
    pub(super) async fn modern(&self, method: &str, mut params: Value) -> HttpResponse {
        params["_meta"] = modern_meta();
        let name = params
            .get("name")
            .or(params.get("uri"))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let mut headers = vec![
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
        ];
        if !name.is_empty() {
            headers.push(("mcp-name", &name));
        }
        self.post(
            &headers,
            &json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}),
        )
        .await
    }

    /// Opens a session of 2025-11-25; returns the response if there is none.
    pub(super) async fn session(&self) -> Result<String, HttpResponse> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "t", "version": "0"}});
        let answer = self
            .post(
                &[],
                &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}),
            )
            .await;
        answer
            .header("mcp-session-id")
            .map(str::to_owned)
            .ok_or(answer)
    }
}

pub(super) fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    })
}

#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl HttpResponse {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .and_then(|code| code.parse().ok());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let chunked = headers
            .iter()
            .any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let body = if chunked {
            dechunked(body)
        } else {
            body.to_owned()
        };
        Self {
            status: status.unwrap_or(0),
            headers,
            body,
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| &**value)
    }

    /// Returns the messages in the response, in either format.
    pub(super) fn messages(&self) -> Vec<Value> {
        if let Ok(value) = serde_json::from_str(&self.body) {
            return vec![value];
        }
        let data = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data:"));
        data.filter_map(|data| serde_json::from_str(data.trim()).ok())
            .collect()
    }

    /// Returns the last message.
    pub(super) fn message(&self) -> Value {
        self.messages().pop().unwrap_or_else(|| panic!("{self:?}"))
    }
}

fn dechunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        whole += &rest[..size];
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}
