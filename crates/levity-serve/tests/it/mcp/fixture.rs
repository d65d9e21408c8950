//! A server with all features, and a client that the test controls.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use levity_core::{Tool, ToolSource, ToolSpec};
use levity_serve::mcp::{
    Completer, Completion, CompletionRequest, Handler, HandlerCall, HandlerReply, McpServer,
    McpServerBuilder, Page, Prompt, PromptArgument, PromptReply, PromptRequest, Prompts,
    RequestError, Resource, ResourceContent, ResourceRequest, ResourceTemplate, Resources,
    TaskSupport,
};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines, ReadHalf, WriteHalf};
use tokio::task::JoinSet;

/// The era of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// With `initialize`; questions to clients are requests.
    Old,
    /// Without `initialize`; each request is self-contained, and questions to clients are results.
    New,
}

pub(super) const ERAS: [Era; 2] = [Era::Old, Era::New];

type Work = Pin<Box<dyn Future<Output = Result<HandlerReply, RequestError>> + Send>>;

/// A handler made of a function.
pub(super) struct TestHandler {
    spec: ToolSpec,
    tasks: TaskSupport,
    work: Box<dyn Fn(HandlerCall) -> Work + Send + Sync>,
}

impl TestHandler {
    pub(super) fn new<F>(
        name: &str,
        work: impl Fn(HandlerCall) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<HandlerReply, RequestError>> + Send + 'static,
    {
        let spec = ToolSpec::new(name, "For tests.").with_input(json!({"type": "object"}));
        let tasks = TaskSupport::Forbidden;
        Self {
            spec,
            tasks,
            work: Box::new(move |call| Box::pin(work(call))),
        }
    }

    pub(super) fn tasks(mut self, tasks: TaskSupport) -> Self {
        self.tasks = tasks;
        self
    }

    pub(super) fn spec(mut self, change: impl FnOnce(ToolSpec) -> ToolSpec) -> Self {
        self.spec = change(self.spec);
        self
    }
}

#[async_trait]
impl Handler for TestHandler {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn task_support(&self) -> TaskSupport {
        self.tasks
    }

    async fn call(&self, call: HandlerCall) -> Result<HandlerReply, RequestError> {
        (self.work)(call).await
    }
}

/// `count` pages of text, a few at a time.
pub(super) struct NumberedResources(pub(super) usize);

#[async_trait]
impl Resources for NumberedResources {
    async fn list(&self, cursor: Option<&str>) -> Result<Page<Resource>, RequestError> {
        let from: usize = cursor
            .unwrap_or("0")
            .parse()
            .map_err(|_| RequestError::invalid("`cursor` is no number"))?;
        let to = (from + 2).min(self.0);
        let items = (from..to).map(|at| {
            Resource::new(format!("page://{at}"), format!("page {at}")).with_mime("text/plain")
        });
        Ok(if to < self.0 {
            Page::part(items, to.to_string())
        } else {
            Page::all(items)
        })
    }

    async fn templates(&self, _: Option<&str>) -> Result<Page<ResourceTemplate>, RequestError> {
        Ok(Page::all([ResourceTemplate::new(
            "page://{number}",
            "page",
        )]))
    }

    async fn read(&self, ask: ResourceRequest) -> Result<Vec<ResourceContent>, RequestError> {
        let at = ask
            .uri
            .strip_prefix("page://")
            .and_then(|at| at.parse::<usize>().ok());
        match at.filter(|at| *at < self.0) {
            Some(13) => panic!("of all pages, this one"),
            Some(at) => Ok(vec![ResourceContent::text(
                ask.uri,
                format!("This is page {at}."),
            )]),
            None => Err(RequestError::not_found("there is no such page")),
        }
    }

    fn reports_updates(&self) -> bool {
        true
    }
}

pub(super) struct Greetings;

#[async_trait]
impl Prompts for Greetings {
    async fn list(&self, _: Option<&str>) -> Result<Page<Prompt>, RequestError> {
        Ok(Page::all([Prompt::new("greet")
            .with_description("Greets.")
            .with_argument(PromptArgument::required("name"))]))
    }

    async fn get(&self, ask: PromptRequest) -> Result<PromptReply, RequestError> {
        match (&*ask.name, ask.args.get("name")) {
            ("greet", Some(name)) => Ok(PromptReply::user(format!("Greet {name}."))),
            ("greet", None) => Err(RequestError::invalid("`name` is missing")),
            _ => Err(RequestError::not_found("there is no such prompt")),
        }
    }
}

#[async_trait]
impl Completer for Greetings {
    async fn complete(&self, completing: CompletionRequest) -> Result<Completion, RequestError> {
        let all = (0..150).map(|at| format!("{}{at}", completing.value));
        Ok(Completion::new(all).with_total(150))
    }
}

/// A tool source that changes.
#[derive(Clone, Default)]
pub(super) struct Changing(Arc<ChangingTools>);

#[derive(Default)]
struct ChangingTools {
    tools: std::sync::Mutex<Vec<Arc<dyn Tool>>>,
    version: AtomicU64,
}

impl Changing {
    pub(super) fn add(&self, tool: impl Tool + 'static) {
        self.0.tools.lock().unwrap().push(Arc::new(tool));
        self.0.version.fetch_add(1, Ordering::SeqCst);
    }
}

impl ToolSource for Changing {
    fn name(&self) -> &str {
        "changing"
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0.tools.lock().unwrap().clone()
    }

    fn version(&self) -> u64 {
        self.0.version.load(Ordering::SeqCst)
    }
}

pub(super) fn builder() -> McpServerBuilder {
    McpServer::builder("fixture", "1.2.3").title("A fixture")
}

/// A client of a server that lives as long as this value.
pub(super) struct Peer {
    era: Era,
    able: Value,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: Option<WriteHalf<DuplexStream>>,
    next: i64,
    /// The messages that arrived while the client waited for something else.
    pub(super) heard: Vec<Value>,
    server: JoinSet<()>,
}

impl Peer {
    /// Connects, and performs the handshake if there is one.
    pub(super) async fn connect(server: &McpServer, era: Era, able: Value) -> Self {
        let (here, there) = tokio::io::duplex(1 << 20);
        let mut peer = Self::raw(server, there, here, era, able);
        if era == Era::Old {
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": peer.able,
                "clientInfo": {"name": "test", "version": "0"}});
            let result = peer.ask("initialize", params).await;
            assert_eq!(result["result"]["protocolVersion"], "2025-11-25");
            peer.tell(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
                .await;
        }
        peer
    }

    pub(super) fn raw(
        server: &McpServer,
        there: DuplexStream,
        here: DuplexStream,
        era: Era,
        able: Value,
    ) -> Self {
        let (read, write) = tokio::io::split(there);
        let server = server.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { server.serve(read, write).await.unwrap() });
        let (read, write) = tokio::io::split(here);
        let lines = BufReader::new(read).lines();
        Self {
            era,
            able,
            lines,
            writer: Some(write),
            next: 1,
            heard: Vec::new(),
            server: tasks,
        }
    }

    pub(super) fn meta(&self) -> Value {
        match self.era {
            Era::Old => json!({}),
            Era::New => json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
                "io.modelcontextprotocol/clientCapabilities": self.able,
            }),
        }
    }

    pub(super) async fn tell(&mut self, message: Value) {
        self.line(&message.to_string()).await;
    }

    pub(super) async fn line(&mut self, line: &str) {
        let writer = self.writer.as_mut().unwrap();
        writer.write_all(line.as_bytes()).await.unwrap();
        writer.write_all(b"\n").await.unwrap();
    }

    /// Sends a request, and returns its id.
    pub(super) async fn send(&mut self, method: &str, mut params: Value) -> i64 {
        let id = self.next;
        self.next += 1;
        let mut meta = self.meta();
        for (key, value) in params["_meta"].as_object().cloned().unwrap_or_default() {
            meta[key] = value;
        }
        params["_meta"] = meta;
        self.tell(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        id
    }

    /// Returns the next message of any kind.
    pub(super) async fn next(&mut self) -> Value {
        let line = self
            .lines
            .next_line()
            .await
            .unwrap()
            .expect("the server keeps running");
        serde_json::from_str(&line).expect("nothing but messages is written")
    }

    /// Waits for the response to a request; other messages go to `heard`.
    pub(super) async fn answer(&mut self, id: i64) -> Value {
        loop {
            let message = self.next().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    pub(super) async fn call(&mut self, tool: &str, args: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": args}))
            .await
    }

    /// Returns the text of a tool's result.
    pub(super) async fn text(&mut self, tool: &str, args: Value) -> String {
        let answer = self.call(tool, args).await;
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }

    /// Waits for a notification.
    pub(super) async fn notified(&mut self, method: &str) -> Value {
        if let Some(at) = self
            .heard
            .iter()
            .position(|message| message["method"] == method)
        {
            return self.heard.remove(at);
        }
        loop {
            let message = self.next().await;
            if message["method"] == method {
                return message;
            }
            self.heard.push(message);
        }
    }

    /// Closes its side, and waits until the server has ended.
    pub(super) async fn close(mut self) -> Vec<Value> {
        if let Some(mut writer) = self.writer.take() {
            writer.shutdown().await.unwrap();
        }
        let mut rest = self.heard;
        while self.server.join_next().await.is_some() {}
        while let Ok(Some(line)) = self.lines.next_line().await {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        rest
    }
}
