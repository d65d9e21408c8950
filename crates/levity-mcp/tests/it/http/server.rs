//! An rmcp server in this process.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Map;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The tools of the server.
#[derive(Clone, Default)]
pub(crate) struct Tools;

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("test", "1"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools =
            ["echo", "slow", "progress"].map(|name| Tool::new(name, name, Arc::new(Map::new())));
        Ok(ListToolsResult::with_all_items(tools.into()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = call.arguments.unwrap_or_default();
        let text = arguments
            .get("text")
            .and_then(|text| text.as_str())
            .unwrap_or_default()
            .to_owned();
        match &*call.name {
            "slow" => tokio::time::sleep(Duration::from_millis(120)).await,
            "never" => std::future::pending().await,
            "progress" => {
                let token = context
                    .meta
                    .get_progress_token()
                    .expect("the request has a progress token");
                let progress = ProgressNotificationParam::new(token, 1.0);
                context.peer.notify_progress(progress).await.unwrap();
            }
            _ => {}
        }
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// The settings of a server.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) sessions: bool,
    pub(crate) json: bool,
    pub(crate) nodelay: bool,
    pub(crate) port: u16,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            sessions: true,
            json: false,
            nodelay: true,
            port: 0,
        }
    }
}

/// A running server; dropping it closes the server and its connections.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    accept_task: JoinSet<()>,
    open: Arc<Mutex<JoinSet<()>>>,
}

impl Server {
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Stops the server, which then sends no further responses.
    pub(crate) async fn stop(mut self) {
        self.accept_task.shutdown().await;
        let mut open = std::mem::take(&mut *self.open.lock().unwrap());
        open.shutdown().await;
    }
}

pub(crate) async fn start(setup: Setup) -> Server {
    let mut config = StreamableHttpServerConfig::default();
    config.legacy_session_mode = setup.sessions;
    config.json_response = setup.json;
    let service = StreamableHttpService::new(
        || Ok(Tools),
        Arc::new(LocalSessionManager::default()),
        config,
    );
    let listener = TcpListener::bind(("127.0.0.1", setup.port)).await.unwrap();
    let (address, connections) = (
        listener.local_addr().unwrap(),
        Arc::new(AtomicUsize::new(0)),
    );
    let (mut accept_task, counter) = (JoinSet::new(), connections.clone());
    let open = Arc::new(Mutex::new(JoinSet::new()));
    let connection_tasks = open.clone();
    accept_task.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(setup.nodelay).unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
            let service = service.clone();
            connection_tasks.lock().unwrap().spawn(async move {
                let answer = service_fn(|request| {
                    let service = service.clone();
                    async move { Ok::<_, Infallible>(service.handle(request).await) }
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    });
    Server {
        address,
        connections,
        accept_task,
        open,
    }
}
