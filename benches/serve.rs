//! Measures the latency of events of a run over HTTP, compared with a plain axum server that sends
//! the same bytes. It also measures the memory of idle clients.
//!
//! `cargo bench --bench serve`; use `-- --quick` to check that it runs. The servers are separate
//! processes; all of them use the same clock.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use levity::agent::Agent;
use levity::core::{Hints, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity::serve::http::HttpApi;
use levity::serve::{AccessControl, NewRun, Runs};
use levity::test::ScriptedModel;
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior, interval};

mod idle_clients;

/// Allowed latency of 99 % of the events, in milliseconds.
const GOAL_MILLIS: f64 = 5.0;
/// Number of idle clients.
const IDLE: usize = 1_000;
/// Number of text bytes in an event.
const WORDS: usize = 200;

fn main() {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("serve-levity") => runtime().block_on(levity_server()),
        Some("serve-bare") => runtime().block_on(bare_server()),
        Some("serve-bridge") => runtime().block_on(idle_clients::bridge()),
        Some("serve-mcp") => runtime().block_on(idle_clients::mcp()),
        _ => report(std::env::args().any(|arg| arg == "--quick")),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn report(quick: bool) {
    let (rounds, events) = if quick { (1, 100) } else { (3, 5_000) };
    println!(
        "1,000 events a second of {WORDS} bytes of words, read by one; {rounds} rounds of {events} \
            in turns.\n"
    );
    println!(
        "{:34} {:>10} {:>10} {:>10}",
        "", "median µs", "99 % µs", "most µs"
    );
    let (mut bare, mut levity) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        bare.extend(follow(&Server::start("serve-bare"), events));
        levity.extend(follow(&Server::start("serve-levity"), events));
    }
    show("a bare axum stream", &mut bare);
    let late = show("levity's events by HTTP", &mut levity);
    println!(
        "  99 % within {:.2} ms, {}\n",
        late / 1e3,
        verdict(late / 1e3 <= GOAL_MILLIS)
    );
    idle_clients::report(if quick { 50 } else { IDLE });
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// Prints percentiles, and returns the 99th.
fn show(name: &str, micros: &mut [f64]) -> f64 {
    micros.sort_by(f64::total_cmp);
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize];
    println!(
        "{name:34} {:>10.0} {:>10.0} {:>10.0}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    at(0.99)
}

/// Reads a number of events, and returns the latency of each in microseconds.
fn follow(server: &Server, count: usize) -> Vec<f64> {
    let (since, stream) = (now(), server.open());
    let mut micros = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line.expect("the stream stays open");
        let Some((_, rest)) = line.split_once("\"text\":\"") else {
            continue;
        };
        // The goal of the run has a text, too, and events from before the request do not count.
        let sent = rest
            .split(' ')
            .next()
            .and_then(|nanos| nanos.parse::<u64>().ok());
        let Some(sent) = sent.filter(|sent| *sent >= since) else {
            continue;
        };
        micros.push((now().saturating_sub(sent)) as f64 / 1e3);
        if micros.len() == count {
            break;
        }
    }
    micros
}

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(which: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        let mut child = command
            .arg(which)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe"))
            .read_line(&mut line)
            .expect("the server prints its address");
        Self {
            child,
            address: line.trim().to_owned(),
        }
    }

    /// Opens the event stream of the run that emits events.
    fn open(&self) -> TcpStream {
        self.send_request("GET", "/v1/runs/busy/events", "", "")
    }

    /// Returns the resident memory of the server.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap_or_default();
        line.trim()
            .trim_end_matches(" kB")
            .parse::<u64>()
            .unwrap_or(0)
            << 10
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the time of the clock that all processes share, in nanoseconds.
fn now() -> u64 {
    #[repr(C)]
    struct Timespec {
        seconds: i64,
        nanos: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
    }
    const MONOTONIC: i32 = 1;
    let mut time = Timespec {
        seconds: 0,
        nanos: 0,
    };
    // SAFETY: the struct has the layout of 64-bit Linux, and outlives the call.
    let status = unsafe { clock_gettime(MONOTONIC, &raw mut time) };
    assert_eq!(status, 0, "the clock is available");
    time.seconds as u64 * 1_000_000_000 + time.nanos as u64
}

fn filler_text() -> String {
    format!("{:<WORDS$}", now())
}

/// Creates an interval that fires a thousand times per second.
fn ticks() -> Interval {
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    ticks
}

/// A tool that reports progress forever, or waits forever.
struct EndlessTool(ToolSpec, bool);

#[async_trait]
impl Tool for EndlessTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        if !self.1 {
            return std::future::pending().await;
        }
        let mut ticks = ticks();
        loop {
            ticks.tick().await;
            cx.progress.report(filler_text());
        }
    }
}

async fn levity_server() {
    let tool = |name: &str, talks| {
        EndlessTool(
            ToolSpec::new(name, "Works.").with_hints(Hints::new().read_only()),
            talks,
        )
    };
    let model = ScriptedModel::new()
        .call("talk", json!({}))
        .call("wait", json!({}));
    let hour = Duration::from_secs(3_600);
    let agent = Agent::builder(model)
        .tool(tool("talk", true))
        .tool(tool("wait", false))
        .tool_timeout(hour);
    let runs = Runs::new(agent.build().expect("an agent"));
    for id in ["busy", "idle"] {
        let run = runs.start(NewRun::new("Work.").id(id)).expect("a run");
        // The scripted model serves its turns in the order of the calls.
        run.opened().await.expect("it begins");
        while run.status().stats.tool_calls == 0 {
            tokio::task::yield_now().await;
        }
    }
    HttpApi::new(runs)
        .serve(idle_clients::listener(AccessControl::open()).await)
        .await
        .expect("it serves");
}

async fn bare_server() {
    let stream = || async {
        let pieces = futures_util::stream::unfold(ticks(), |mut ticks| async {
            ticks.tick().await;
            let data = json!({"run": "busy", "seq": 5, "at": now() / 1_000_000,
                "kind": {"progress": {
                "effect": 1, "call": "call_0", "text": filler_text(),
            }}});
            Some((
                Ok::<_, Infallible>(format!("event: progress\ndata: {data}\n\n")),
                ticks,
            ))
        });
        (
            [("content-type", "text/event-stream")],
            Body::from_stream(pieces),
        )
    };
    let router = Router::new().route("/v1/runs/busy/events", get(stream));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("an address");
    println!("{}", listener.local_addr().expect("an address"));
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router).await.expect("it serves");
}
