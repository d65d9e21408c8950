//! A server in this process, built with rmcp, whose tools a test can change at run time.

use std::sync::{Arc, Mutex};

use levity_core::World;
use levity_mcp::ServerConfig;
use levity_runtime::SystemWorld;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig as ServerInfo, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{Peer, ServerHandler, ServiceExt};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;

pub(crate) fn world() -> Arc<dyn World> {
    Arc::new(SystemWorld)
}

type Answer = dyn Fn(&str, Map<String, Value>) -> CallToolResult + Send + Sync;

/// A server whose tools and results a test determines.
#[derive(Clone)]
pub(crate) struct Fixture(Arc<Inner>);

struct Inner {
    tools: Mutex<Vec<Tool>>,
    answer: Box<Answer>,
    peers: Mutex<Vec<Peer<RoleServer>>>,
}

impl Fixture {
    pub(crate) fn new(
        answer: impl Fn(&str, Map<String, Value>) -> CallToolResult + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            tools: Mutex::default(),
            answer: Box::new(answer),
            peers: Mutex::default(),
        }))
    }

    /// Creates a server that returns the name of the tool and its arguments.
    pub(crate) fn echo() -> Self {
        Self::new(|name, args| {
            CallToolResult::success(vec![ContentBlock::text(format!("{name} {}", json!(args)))])
        })
    }

    pub(crate) fn tool(self, name: &str) -> Self {
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let Value::Object(schema) = schema else {
            unreachable!()
        };
        self.0.tools.lock().unwrap().push(Tool::new(
            name.to_owned(),
            format!("Does {name}."),
            Arc::new(schema),
        ));
        self
    }

    /// Changes the tools and notifies the clients.
    pub(crate) async fn change(&self, change: impl FnOnce(&mut Vec<Tool>)) {
        change(&mut self.0.tools.lock().unwrap());
        let peers = self.0.peers.lock().unwrap().clone();
        for peer in peers {
            let _ = peer.notify_tool_list_changed().await;
        }
    }

    /// Returns the client's end of a pipe; the server runs at the other end.
    pub(crate) fn connect(&self) -> DuplexStream {
        let (client, server_end) = tokio::io::duplex(1 << 16);
        let server = self.clone();
        tokio::spawn(async move {
            if let Ok(running) = server.serve(server_end).await {
                let _ = running.waiting().await;
            }
        });
        client
    }

    pub(crate) fn config(&self, name: &str) -> ServerConfig {
        let fixture = self.clone();
        ServerConfig::in_process(name.to_owned(), move || fixture.connect())
    }
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerInfo {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerInfo::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        cx: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.peers.lock().unwrap().push(cx.peer);
        Ok(ListToolsResult::with_all_items(
            self.0.tools.lock().unwrap().clone(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok((self.0.answer)(&request.name, request.arguments.unwrap_or_default()).into())
    }
}

/// A server in this process that is written line by line, for behaviour that no library supports.
pub(crate) struct RawServer {
    /// The received messages, in order.
    pub(crate) received: mpsc::UnboundedReceiver<Value>,
    /// Sends a message through the connection that was opened last; `null` closes it.
    pub(crate) outgoing: mpsc::UnboundedSender<Value>,
    pub(crate) config: ServerConfig,
}

/// Returns the response to a message, or `None` for the default one.
type Respond = dyn Fn(&Value) -> Option<Vec<Value>> + Send + Sync;

pub(crate) fn raw(
    name: &str,
    respond: impl Fn(&Value) -> Option<Vec<Value>> + Send + Sync + 'static,
) -> RawServer {
    let (received_sender, received) = mpsc::unbounded_channel();
    let (to, from) = mpsc::unbounded_channel();
    let (respond, from) = (
        Arc::<Respond>::from(Box::new(respond) as Box<Respond>),
        Arc::new(tokio::sync::Mutex::new(from)),
    );
    let config = ServerConfig::in_process(name.to_owned(), move || {
        let (client, server_end) = tokio::io::duplex(1 << 16);
        tokio::spawn(serve(
            server_end,
            respond.clone(),
            received_sender.clone(),
            from.clone(),
        ));
        client
    });
    RawServer {
        received,
        outgoing: to,
        config,
    }
}

async fn serve(
    pipe: DuplexStream,
    respond: Arc<Respond>,
    received_sender: mpsc::UnboundedSender<Value>,
    from: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Value>>>,
) {
    let (read, mut write) = tokio::io::split(pipe);
    let mut lines = tokio::io::BufReader::new(read).lines();
    let mut from = from.lock().await;
    loop {
        let responses = tokio::select! {
            line = lines.next_line() => {
                let Ok(Some(line)) = line else { return };
                let message: Value = serde_json::from_str(&line).unwrap();
                let responses = respond(&message).unwrap_or_else(|| default_response(&message));
                let _ = received_sender.send(message);
                responses
            }
            responses = from.recv() => responses.into_iter().collect(),
        };
        for response in responses {
            if response.is_null()
                || write
                    .write_all(format!("{response}\n").as_bytes())
                    .await
                    .is_err()
            {
                return;
            }
        }
    }
}

/// Creates the response to a request.
pub(crate) fn answer(request: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "result": result})
}

fn default_response(message: &Value) -> Vec<Value> {
    let tools = json!([{"name": "say", "inputSchema": {"type": "object"}}]);
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": true}, "resources": {}, "prompts": {},
                "completions": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        }),
        "ping" => json!({}),
        "tools/list" => json!({"tools": tools}),
        "tools/call" => json!({"content": [{"type": "text", "text": message["params"]["name"]}]}),
        _ if message.get("method").is_none() || message.get("id").is_none() => return Vec::new(),
        _ => {
            let error = json!({"code": -32601, "message": "no such method"});
            return vec![json!({"jsonrpc": "2.0", "id": message["id"], "error": error})];
        }
    };
    vec![answer(message, &result)]
}
