//! A server in this process, made with rmcp, whose tools a test can change while it runs.

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

/// What a test sets of the server.
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

    /// Answers with the name of the tool and its arguments.
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

    /// Changes the tools and tells the clients.
    pub(crate) async fn change(&self, change: impl FnOnce(&mut Vec<Tool>)) {
        change(&mut self.0.tools.lock().unwrap());
        let peers = self.0.peers.lock().unwrap().clone();
        for peer in peers {
            let _ = peer.notify_tool_list_changed().await;
        }
    }

    /// Our end of a pipe, at whose other end the server runs.
    pub(crate) fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = self.clone();
        tokio::spawn(async move {
            if let Ok(running) = server.serve(theirs).await {
                let _ = running.waiting().await;
            }
        });
        ours
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

/// A server in this process that is written line by line, for what no library would do.
pub(crate) struct Raw {
    /// What it was sent, in order.
    pub(crate) heard: mpsc::UnboundedReceiver<Value>,
    /// Has the connection that was opened last say something; `null` ends it.
    pub(crate) say: mpsc::UnboundedSender<Value>,
    pub(crate) config: ServerConfig,
}

/// What a server says to a message; none to leave it to the usual.
type Say = dyn Fn(&Value) -> Option<Vec<Value>> + Send + Sync;

pub(crate) fn raw(
    name: &str,
    say: impl Fn(&Value) -> Option<Vec<Value>> + Send + Sync + 'static,
) -> Raw {
    let (tell, heard) = mpsc::unbounded_channel();
    let (to, from) = mpsc::unbounded_channel();
    let (say, from) = (
        Arc::<Say>::from(Box::new(say) as Box<Say>),
        Arc::new(tokio::sync::Mutex::new(from)),
    );
    let config = ServerConfig::in_process(name.to_owned(), move || {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(serve(theirs, say.clone(), tell.clone(), from.clone()));
        ours
    });
    Raw {
        heard,
        say: to,
        config,
    }
}

async fn serve(
    pipe: DuplexStream,
    say: Arc<Say>,
    tell: mpsc::UnboundedSender<Value>,
    from: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Value>>>,
) {
    let (read, mut write) = tokio::io::split(pipe);
    let mut lines = tokio::io::BufReader::new(read).lines();
    let mut from = from.lock().await;
    loop {
        let said = tokio::select! {
            line = lines.next_line() => {
                let Ok(Some(line)) = line else { return };
                let message: Value = serde_json::from_str(&line).unwrap();
                let said = say(&message).unwrap_or_else(|| usual(&message));
                let _ = tell.send(message);
                said
            }
            said = from.recv() => said.into_iter().collect(),
        };
        for said in said {
            if said.is_null()
                || write
                    .write_all(format!("{said}\n").as_bytes())
                    .await
                    .is_err()
            {
                return;
            }
        }
    }
}

/// The answer to a request.
pub(crate) fn answer(request: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "result": result})
}

fn usual(message: &Value) -> Vec<Value> {
    let tools = json!([{"name": "say", "inputSchema": {"type": "object"}}]);
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": true}, "resources": {}, "prompts": {}, "completions": {}},
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
