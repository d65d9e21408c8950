//! Measures the overhead of levity's MCP server for a tool call, compared with a plain rmcp server:
//! CPU time of the server process, over pipes.
//!
//! `cargo bench --bench mcp_server`; use `-- --quick` to check that it runs. It reads `/proc`, so
//! it works on Linux only.

use std::process::Stdio;
use std::sync::Arc;

use levity_core::{ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_serve::mcp::McpServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientConfig, ContentBlock, ErrorData,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
    ServerConfig as About, Tool,
};
use rmcp::service::{RequestContext, RoleServer, RunningService};
use rmcp::{RoleClient, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

/// Allowed overhead of a call, in microseconds of CPU time.
const GOAL: f64 = 10.0;
/// Number of calls to one server before the benchmark switches to the other.
const BATCH: usize = 100;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    match std::env::args().nth(1).as_deref() {
        Some("serve-bare") => runtime.block_on(serve_bare()),
        Some("serve-levity") => runtime.block_on(serve_levity()),
        _ => {
            let quick = std::env::args().any(|arg| arg == "--quick");
            runtime.block_on(measure(if quick { 1 } else { 50 }));
        }
    }
}

async fn measure(batches: usize) {
    println!(
        "{} calls of a tool that echoes 16 bytes, in turns of {BATCH}; server side only.\n",
        batches * BATCH
    );
    let (mut bare, mut levity) = (
        Server::start("serve-bare").await,
        Server::start("serve-levity").await,
    );
    for server in [&mut bare, &mut levity] {
        server.batch().await;
        server.spent.clear();
    }
    for _ in 0..batches {
        bare.batch().await;
        levity.batch().await;
    }
    println!("{:24} {:>12} {:>12}", "", "mean CPU µs", "least CPU µs");
    let (a, b) = (
        bare.show("a bare rmcp server"),
        levity.show("levity's server"),
    );
    let met = if b - a <= GOAL { "met" } else { "MISSED" };
    println!(
        "  {:+.1} µs CPU a call; the goal of {GOAL} µs is {met}",
        b - a
    );
}

struct Server {
    child: Child,
    client: RunningService<RoleClient, ClientConfig>,
    /// CPU microseconds per call, one value for each batch.
    spent: Vec<f64>,
}

impl Server {
    async fn start(which: &str) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command
            .arg(which)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().expect("the server starts");
        let (read, write) = (
            child.stdout.take().expect("a pipe"),
            child.stdin.take().expect("a pipe"),
        );
        let about = ClientConfig::default().with_protocol_version(ProtocolVersion::V_2025_11_25);
        let client = about.serve((read, write)).await.expect("rmcp connects");
        Self {
            child,
            client,
            spent: Vec::new(),
        }
    }

    async fn batch(&mut self) {
        let before = self.cpu();
        for _ in 0..BATCH {
            let Value::Object(args) = json!({"text": "sixteen bytes .."}) else {
                unreachable!()
            };
            let result = self
                .client
                .call_tool(CallToolRequestParams::new("echo").with_arguments(args))
                .await;
            assert!(result.is_ok_and(|result| result.is_error != Some(true)));
        }
        self.spent.push((self.cpu() - before) / BATCH as f64);
    }

    /// Returns the CPU time of all threads of the server, in microseconds.
    fn cpu(&self) -> f64 {
        let pid = self.child.id().expect("it runs");
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let nanos = |path: std::path::PathBuf| -> Option<f64> {
            let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        threads
            .filter_map(|thread| nanos(thread.path()))
            .sum::<f64>()
            / 1e3
    }

    fn show(&mut self, name: &str) -> f64 {
        let mean = self.spent.iter().sum::<f64>() / self.spent.len() as f64;
        let least = self.spent.iter().copied().fold(f64::INFINITY, f64::min);
        println!("{name:24} {mean:>12.1} {least:>12.1}");
        mean
    }
}

#[derive(Clone)]
struct Echo;

fn schema() -> Value {
    json!({"type": "object", "properties": {"text": {"type": "string"}}})
}

impl ServerHandler for Echo {
    fn get_info(&self) -> About {
        About::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let Value::Object(schema) = schema() else {
            unreachable!()
        };
        Ok(ListToolsResult::with_all_items(vec![Tool::new(
            "echo",
            "Says it again.",
            Arc::new(schema),
        )]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = request
            .arguments
            .as_ref()
            .and_then(|args| args.get("text")?.as_str())
            .unwrap_or_default();
        Ok(CallToolResult::success(vec![ContentBlock::text(text.to_owned())]).into())
    }
}

async fn serve_bare() {
    if let Ok(running) = Echo.serve(rmcp::transport::io::stdio_pipes()).await {
        let _ = running.waiting().await;
    }
}

struct Levity(ToolSpec);

#[async_trait::async_trait]
impl levity_core::Tool for Levity {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(args["text"].as_str().unwrap_or_default()))
    }
}

async fn serve_levity() {
    let echo = Levity(ToolSpec::new("echo", "Says it again.").with_input(schema()));
    let server = McpServer::builder("echo", "1")
        .tool(echo)
        .build()
        .expect("a server");
    let _ = server.stdio().await;
}
