//! Measures the overhead of levity for a tool call to an MCP server, compared with a plain rmcp
//! client, over pipes and HTTP. It also measures the start of ten servers.
//!
//! `cargo bench --bench mcp`; use `-- --quick` to check that it runs.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{ToolCx, ToolSource, World};
use levity_mcp::{ServerConfig, Servers, WaitFor};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientConfig, ContentBlock, ErrorData,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
    ServerConfig as About, Tool,
};
use rmcp::service::{RequestContext, RoleServer, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleClient, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;
use tokio::process::Command;

#[allow(dead_code, reason = "other benchmarks use the rest")]
mod clock;

/// Allowed overhead of a call over pipes, in microseconds of CPU time and in percent of the median.
const GOAL_CPU: f64 = 10.0;
const GOAL_MEDIAN: f64 = 5.0;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("serve-pipes") => runtime.block_on(serve_pipes(args.next())),
        Some("serve-http") => runtime.block_on(serve_http()),
        _ => {
            // The rmcp client lets the program choose the crypto provider.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let quick = std::env::args().any(|arg| arg == "--quick");
            runtime.block_on(measure(if quick { 20 } else { 2_000 }));
        }
    }
}

async fn measure(calls: usize) {
    println!("{calls} calls of a tool that echoes 16 bytes, in turns; client side only.\n");
    println!(
        "{:44} {:>10} {:>10} {:>10}",
        "", "median µs", "least µs", "CPU µs"
    );
    let plain = plain_pipes().await;
    let levity_servers = Servers::builder()
        .world(world())
        .server(own_server_config("pipes"))
        .start()
        .expect("servers start");
    levity_servers.wait(WaitFor::All).await;
    let pipes = compare("pipes", calls, &plain, &levity_servers).await;
    levity_servers.stop().await;
    drop(plain);
    let verdict = |met| if met { "met" } else { "MISSED" };
    println!(
        "  {:+.1} µs CPU, {}; {:+.1} % of the median, {}\n",
        pipes.cpu,
        verdict(pipes.cpu <= GOAL_CPU),
        pipes.median,
        verdict(pipes.median <= GOAL_MEDIAN)
    );

    let (mut child, url) = http_server().await;
    let plain = client_config()
        .serve(StreamableHttpClientTransport::from_uri(url.clone()))
        .await
        .expect("rmcp connects");
    let levity_servers = Servers::builder()
        .world(world())
        .server(ServerConfig::http("it", url))
        .start()
        .expect("servers start");
    levity_servers.wait(WaitFor::All).await;
    let http = compare("HTTP", calls, &plain, &levity_servers).await;
    println!(
        "  {:+.1} % of the median, {}\n",
        http.median,
        verdict(http.median <= 0.0)
    );
    levity_servers.stop().await;
    drop(plain);
    child.kill().await.expect("the server ends");
    starts().await;
}

struct Overhead {
    cpu: f64,
    median: f64,
}

/// Calls alternate, so that the load of the machine affects both equally.
async fn compare(
    transport: &str,
    calls: usize,
    plain: &RunningService<RoleClient, ClientConfig>,
    levity_servers: &Servers,
) -> Overhead {
    let tool = levity_servers
        .tools()
        .first()
        .cloned()
        .expect("the server has a tool");
    let args = json!({"text": "sixteen bytes .."});
    let (mut floor, mut levity) = (Samples::default(), Samples::default());
    for call in 0..calls + calls / 10 {
        let counts = call >= calls / 10;
        let Value::Object(map) = args.clone() else {
            unreachable!()
        };
        let start = Moment::now();
        let result = plain
            .call_tool(CallToolRequestParams::new("echo").with_arguments(map))
            .await;
        floor.add(&start, counts);
        assert!(result.is_ok());
        let start = Moment::now();
        let result = tool.call(args.clone(), &ToolCx::detached()).await;
        levity.add(&start, counts);
        assert!(result.is_ok(), "{result:?}");
    }
    let (a, b) = (
        floor.show(&format!("a plain rmcp client, {transport}")),
        levity.show(&format!("levity-mcp, {transport}")),
    );
    Overhead {
        cpu: b.1 - a.1,
        median: (b.0 / a.0 - 1.0) * 100.0,
    }
}

#[derive(Default)]
struct Samples {
    real: Vec<f64>,
    cpu: f64,
}

struct Moment(std::time::Instant, Duration);

impl Moment {
    #[allow(
        clippy::disallowed_methods,
        reason = "the benchmark measures real time"
    )]
    fn now() -> Self {
        Self(std::time::Instant::now(), clock::cpu())
    }
}

impl Samples {
    fn add(&mut self, start: &Moment, counts: bool) {
        if counts {
            self.real.push(start.0.elapsed().as_secs_f64() * 1e6);
            self.cpu += (clock::cpu() - start.1).as_secs_f64() * 1e6;
        }
    }

    fn show(&mut self, name: &str) -> (f64, f64) {
        self.real.sort_by(f64::total_cmp);
        let (median, least) = (self.real[self.real.len() / 2], self.real[0]);
        let cpu = self.cpu / self.real.len() as f64;
        println!("{name:44} {median:>10.1} {least:>10.1} {cpu:>10.1}");
        (median, cpu)
    }
}

fn world() -> Arc<dyn World> {
    Arc::new(levity::runtime::SystemWorld)
}

fn own_server_config(name: &str) -> ServerConfig {
    let program = std::env::current_exe()
        .expect("this program has a path")
        .to_string_lossy()
        .into_owned();
    ServerConfig::stdio(name, program).arg("serve-pipes")
}

fn client_config() -> ClientConfig {
    ClientConfig::default().with_protocol_version(ProtocolVersion::V_2025_11_25)
}

async fn plain_pipes() -> RunningService<RoleClient, ClientConfig> {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command
        .arg("serve-pipes")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().expect("the server starts");
    let (read, write) = (
        child.stdout.take().expect("a pipe"),
        child.stdin.take().expect("a pipe"),
    );
    let client = client_config()
        .serve((read, write))
        .await
        .expect("rmcp connects");
    // The server ends when its standard input closes.
    std::mem::forget(child);
    client
}

/// Measures the start of ten servers that need half a second each.
async fn starts() {
    for count in [1, 10] {
        let slow = |number: usize| own_server_config(&format!("s{number}")).arg("500");
        let start = Moment::now();
        let servers = Servers::builder()
            .world(world())
            .servers((0..count).map(slow))
            .start()
            .expect("servers start");
        let status = servers.wait(WaitFor::All).await;
        assert!(
            status.iter().all(|status| status.state.is_ready()),
            "{status:?}"
        );
        println!(
            "{count:>2} servers that take 500 ms: ready after {:.0} ms",
            start.0.elapsed().as_secs_f64() * 1e3
        );
        servers.stop().await;
    }
}

async fn http_server() -> (tokio::process::Child, String) {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command
        .arg("serve-http")
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().expect("the server starts");
    let stdout = child.stdout.take().expect("a pipe");
    let mut line = String::new();
    tokio::io::BufReader::new(stdout)
        .read_line(&mut line)
        .await
        .expect("the server prints its address");
    (child, line.trim().to_owned())
}

#[derive(Clone)]
struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> About {
        About::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let Value::Object(schema) =
            json!({"type": "object", "properties": {"text": {"type": "string"}}})
        else {
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

#[allow(
    clippy::disallowed_methods,
    reason = "the slow server waits in real time"
)]
async fn serve_pipes(slow: Option<String>) {
    if let Some(time) = slow.and_then(|time| time.parse().ok()) {
        tokio::time::sleep(Duration::from_millis(time)).await;
    }
    if let Ok(running) = Echo.serve((tokio::io::stdin(), tokio::io::stdout())).await {
        let _ = running.waiting().await;
    }
}

async fn serve_http() {
    let settings = StreamableHttpServerConfig::default();
    let service: StreamableHttpService<Echo, LocalSessionManager> =
        StreamableHttpService::new(|| Ok(Echo), Default::default(), settings);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    println!("http://{}/mcp", listener.local_addr().expect("an address"));
    let service = hyper_util::service::TowerToHyperService::new(service);
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let _ = socket.set_nodelay(true);
        let service = service.clone();
        connections.spawn(async move {
            let io = hyper_util::rt::TokioIo::new(socket);
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(io, service)
                .await;
        });
    }
}
