//! A server in this process, made with rmcp, whose tools a test can change while it runs.

use std::sync::{Arc, Mutex};

use levity_core::World;
use levity_mcp::ServerConfig;
use levity_runtime::SystemWorld;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig as ServerInfo, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{Peer, ServerHandler, ServiceExt};
use serde_json::{Map, Value, json};
use tokio::io::DuplexStream;

pub fn world() -> Arc<dyn World> {
    Arc::new(SystemWorld)
}

type Answer = dyn Fn(&str, Map<String, Value>) -> CallToolResult + Send + Sync;

/// What a test sets of the server.
#[derive(Clone)]
pub struct Fixture(Arc<Inner>);

struct Inner {
    tools: Mutex<Vec<Tool>>,
    answer: Box<Answer>,
    peers: Mutex<Vec<Peer<RoleServer>>>,
    pub starts: std::sync::atomic::AtomicUsize,
}

impl Fixture {
    pub fn new(answer: impl Fn(&str, Map<String, Value>) -> CallToolResult + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            tools: Mutex::default(),
            answer: Box::new(answer),
            peers: Mutex::default(),
            starts: Default::default(),
        }))
    }

    /// Answers with the name of the tool and its arguments.
    pub fn echo() -> Self {
        Self::new(|name, args| {
            CallToolResult::success(vec![ContentBlock::text(format!("{name} {}", json!(args)))])
        })
    }

    pub fn tool(self, name: &str) -> Self {
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let Value::Object(schema) = schema else { unreachable!() };
        self.0.tools.lock().unwrap().push(Tool::new(
            name.to_owned(),
            format!("Does {name}."),
            Arc::new(schema),
        ));
        self
    }

    /// Changes the tools and tells the clients.
    pub async fn change(&self, change: impl FnOnce(&mut Vec<Tool>)) {
        change(&mut self.0.tools.lock().unwrap());
        let peers = self.0.peers.lock().unwrap().clone();
        for peer in peers {
            let _ = peer.notify_tool_list_changed().await;
        }
    }

    pub fn starts(&self) -> usize {
        self.0.starts.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Our end of a pipe, at whose other end the server runs.
    pub fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = self.clone();
        self.0.starts.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        tokio::spawn(async move {
            if let Ok(running) = server.serve(theirs).await {
                let _ = running.waiting().await;
            }
        });
        ours
    }

    pub fn config(&self, name: &str) -> ServerConfig {
        let fixture = self.clone();
        ServerConfig::in_process(name.to_owned(), move || fixture.connect())
    }
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerInfo {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerInfo::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        cx: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.peers.lock().unwrap().push(cx.peer);
        Ok(ListToolsResult::with_all_items(self.0.tools.lock().unwrap().clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok((self.0.answer)(&request.name, request.arguments.unwrap_or_default()).into())
    }
}
