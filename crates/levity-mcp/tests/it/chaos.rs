//! Tests with servers that misbehave: each causes a descriptive error in bounded time and leaves no
//! process behind.

mod host;
pub(crate) mod server;

use std::time::Duration;

use levity_mcp::{
    Error, ErrorKind, Server, ServerConfig, ServerEventKind, ServerState, Servers, WaitFor,
};
use serde_json::{Value, json};

use crate::fixture::world;

/// An ample time limit for short operations, even on a busy machine.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of a call without a response.
const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

/// Configures a server that starts in this mode; see the module `server`.
pub(crate) fn chaos(name: &str, mode: &str) -> ServerConfig {
    ServerConfig::stdio(name, server::program())
        .args(server::arguments())
        .env(server::MODE, mode)
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG_TIMEOUT, future)
        .await
        .expect("the operation timed out")
}

/// Starts one server and waits until it is ready.
async fn start_one(config: ServerConfig) -> (Servers, Server) {
    let name = config.name().to_owned();
    let servers = Servers::builder()
        .world(world())
        .server(config)
        .start()
        .unwrap();
    let status = within(servers.wait(WaitFor::All)).await;
    assert!(status[0].state.is_ready(), "{status:?}");
    let server = servers.get(&name).unwrap();
    (servers, server)
}

async fn call(server: &Server, tool: &str) -> Result<String, Error> {
    call_with_text(server, tool, "").await
}

async fn call_with_text(server: &Server, tool: &str, text: &str) -> Result<String, Error> {
    within(server.call(tool, json!({"text": text})))
        .await
        .map(|output| output.as_text().into_owned())
}

/// Waits until the server was started this often and is ready.
async fn wait_ready(servers: &Servers, server: &Server, starts: u32) {
    let mut events = servers.events();
    while server.status().starts < starts || !server.status().state.is_ready() {
        within(events.next()).await.unwrap();
    }
}

fn is_alive(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Waits until none of these processes is alive.
pub(crate) fn all_ended(ids: &[i32]) -> bool {
    (0..4_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        !ids.iter().any(|id| is_alive(*id))
    })
}

/// Returns the ids of a server's process and of the children that it started.
pub(crate) async fn family(server: &Server) -> Vec<i32> {
    let ids = format!(
        "{} {}",
        call(server, "pid").await.unwrap(),
        call(server, "children").await.unwrap()
    );
    let ids: Vec<i32> = ids.split(' ').map(|id| id.parse().unwrap()).collect();
    assert!(
        ids.len() == 4 && ids.iter().all(|id| is_alive(*id)),
        "{ids:?}"
    );
    ids
}

#[tokio::test]
async fn server_killed_during_call_is_reported_and_restarted() {
    let (servers, server) = start_one(chaos("files", "serve")).await;
    let error = call(&server, "kill").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.exit().unwrap().signal),
        (ErrorKind::Closed, Some(9)),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("MCP server `files`: the connection ended before"),
        "{error}"
    );
    // A call right after it was not sent, and its error states that.
    let error = call(&server, "echo").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        error
            .to_string()
            .contains("it is unavailable and restarts in"),
        "{error}"
    );
    wait_ready(&servers, &server, 2).await;
    assert_eq!(
        call_with_text(&server, "echo", "again").await.unwrap(),
        "again"
    );
    servers.stop().await;
}

#[tokio::test]
async fn error_has_exit_code_and_stderr() {
    let (servers, server) = start_one(chaos("files", "serve")).await;
    let error = call(&server, "die").await.unwrap_err().to_string();
    assert!(
        error.contains("`files`") && error.contains("code 9") && error.contains("out of cheese"),
        "{error}"
    );
    servers.stop().await;
}

#[tokio::test]
async fn server_that_stops_reading_times_out_and_restarts() {
    let limits = |config: ServerConfig| {
        config
            .call_timeout(SHORT_TIMEOUT)
            .idle_timeout(SHORT_TIMEOUT)
    };
    let (servers, server) = start_one(limits(chaos("files", "serve"))).await;
    assert_eq!(
        call(&server, "deaf").await.unwrap_err().kind(),
        ErrorKind::Timeout
    );
    // More data than the pipe can hold, so that a message remains partially written.
    let large = "x".repeat(1 << 20);
    for _ in 0..3 {
        let error = call_with_text(&server, "echo", &large).await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
    }
    wait_ready(&servers, &server, 2).await;
    assert_eq!(
        call_with_text(&server, "echo", "again").await.unwrap(),
        "again"
    );
    servers.stop().await;
}

#[tokio::test]
async fn server_that_sends_requests_without_end_times_out_and_restarts() {
    let (servers, server) = start_one(chaos("files", "serve").idle_timeout(SHORT_TIMEOUT)).await;
    let error = call(&server, "ask").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    wait_ready(&servers, &server, 2).await;
    assert_eq!(
        call_with_text(&server, "echo", "again").await.unwrap(),
        "again"
    );
    servers.stop().await;
}

#[tokio::test]
async fn endless_garbage_returns_protocol_error() {
    let (servers, server) = start_one(chaos("files", "serve")).await;
    let error = call(&server, "garbage").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(
        error.message().contains("a server must log to stderr"),
        "{error}"
    );
    assert!(
        error.to_string().contains("garbage, and no end of it"),
        "{error}"
    );
    servers.stop().await;
}

#[tokio::test]
async fn too_large_line_fails_only_its_call() {
    let (servers, server) = start_one(chaos("files", "serve")).await;
    let before = call(&server, "pid").await.unwrap();
    for tool in ["large", "large_end"] {
        let (error, other) = tokio::join!(
            call(&server, tool),
            call_with_text(&server, "echo", "beside")
        );
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert!(error.message().contains("raise `max_message`"), "{error}");
        assert_eq!(other.unwrap(), "beside");
    }
    assert_eq!(
        call(&server, "pid").await.unwrap(),
        before,
        "the server keeps running"
    );
    servers.stop().await;
}

#[tokio::test]
async fn late_and_duplicate_responses_do_not_affect_other_calls() {
    let (servers, server) = start_one(chaos("files", "serve").call_timeout(SHORT_TIMEOUT)).await;
    assert_eq!(
        call(&server, "late").await.unwrap_err().kind(),
        ErrorKind::Timeout
    );
    assert_eq!(
        call_with_text(&server, "echo", "mine").await.unwrap(),
        "mine"
    );
    assert_eq!(call(&server, "twice").await.unwrap(), "once");
    assert_eq!(
        call_with_text(&server, "echo", "mine").await.unwrap(),
        "mine"
    );
    servers.stop().await;
}

#[tokio::test]
async fn error_without_id_fails_call() {
    let (servers, server) = start_one(chaos("files", "serve")).await;
    for tool in ["no_id", "no_id_absent"] {
        let error = call(&server, tool).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected(-32700));
        assert!(error.to_string().contains("what was that?"), "{error}");
    }
    assert_eq!(call_with_text(&server, "echo", "on").await.unwrap(), "on");
    servers.stop().await;
}

#[tokio::test]
async fn unusual_results_are_preserved() {
    let (servers, server) = start_one(chaos("files", "serve")).await;
    let unknown = call(&server, "unknown").await.unwrap();
    assert!(
        unknown.contains("known") && unknown.contains("hologram"),
        "{unknown}"
    );
    assert_eq!(call(&server, "text").await.unwrap(), "just text");
    assert_eq!(call(&server, "string_id").await.unwrap(), "by a string");
    assert_eq!(call(&server, "noise").await.unwrap(), "after the noise");
    let error = call(&server, "broken").await.unwrap_err();
    assert!(error.message().contains("not valid JSON"), "{error}");
    // A null result may be a value or an error, but it ends the call.
    let _ = call(&server, "null").await;
    assert_eq!(
        call(&server, "fail").await.unwrap_err().kind(),
        ErrorKind::Rejected(-32000)
    );
    assert_eq!(call_with_text(&server, "echo", "on").await.unwrap(), "on");
    servers.stop().await;
}

/// Returns the reason why a server with this configuration is unavailable.
async fn unavailable_reason(config: ServerConfig) -> String {
    let servers = Servers::builder()
        .world(world())
        .server(config.retries(0))
        .start()
        .unwrap();
    let status = within(servers.wait(WaitFor::All)).await;
    let ServerState::Unavailable { error, .. } = &status[0].state else {
        panic!("{status:?}")
    };
    let tool = within(servers.get("files").unwrap().call("echo", Value::Null))
        .await
        .unwrap_err();
    assert!(tool.to_string().contains("`files`"), "{tool}");
    within(servers.stop()).await;
    error.to_string()
}

#[tokio::test]
async fn failed_start_names_reason() {
    let died = unavailable_reason(chaos("files", "die")).await;
    assert!(
        died.contains("code 7") && died.contains("missing API key: set WEATHER_KEY"),
        "{died}"
    );
    let ended = unavailable_reason(chaos("files", "exit")).await;
    assert!(ended.contains("its process ended with code 0"), "{ended}");
    let left = unavailable_reason(chaos("files", "fork")).await;
    assert!(left.contains("code 3"), "{left}");
    let absent = unavailable_reason(ServerConfig::stdio("files", "no-such-program-here")).await;
    assert!(
        absent.contains("`no-such-program-here` was not found in `PATH`"),
        "{absent}"
    );
    for mode in ["mute", "deaf"] {
        let limits = chaos("files", mode)
            .start_timeout(SHORT_TIMEOUT)
            .probe_timeout(SHORT_TIMEOUT);
        let silent = unavailable_reason(limits).await;
        assert!(
            silent.contains("not ready within") || silent.contains("does not respond"),
            "{silent}"
        );
    }
}

#[tokio::test]
async fn flood_on_stderr_becomes_events_without_blocking() {
    let servers = Servers::builder()
        .world(world())
        .server(chaos("files", "flood"))
        .start()
        .unwrap();
    let mut events = servers.events();
    let line = loop {
        if let ServerEventKind::Stderr(line) = within(events.next()).await.unwrap().kind
            && line.contains("noise")
        {
            break line;
        }
    };
    assert!(line.starts_with("noise noise"), "{line}");
    within(servers.wait(WaitFor::All)).await;
    assert_eq!(
        call_with_text(&servers.get("files").unwrap(), "echo", "on")
            .await
            .unwrap(),
        "on"
    );
    servers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_drop_and_restart_leave_no_processes() {
    let (servers, server) = start_one(chaos("files", "serve")).await;
    let first = family(&server).await;
    server.restart();
    assert!(all_ended(&first), "{first:?}");
    wait_ready(&servers, &server, 2).await;
    let second = family(&server).await;
    within(servers.stop()).await;
    assert!(
        !second.iter().any(|id| is_alive(*id)),
        "all have ended when `stop` returns"
    );

    let (servers, server) = start_one(chaos("files", "serve")).await;
    let third = family(&server).await;
    drop((servers, server));
    assert!(all_ended(&third), "{third:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_servers_run_concurrently() {
    let configs = (0..20).map(|n| chaos(&format!("s{n}"), "serve"));
    let servers = Servers::builder()
        .world(world())
        .servers(configs)
        .start()
        .unwrap();
    let status = within(servers.wait(WaitFor::All)).await;
    assert!(
        status.iter().all(|status| status.state.is_ready()),
        "{status:?}"
    );
    let mut ids = Vec::new();
    for server in servers.all() {
        assert_eq!(
            call_with_text(&server, "echo", server.name())
                .await
                .unwrap(),
            server.name()
        );
        ids.push(call(&server, "pid").await.unwrap().parse().unwrap());
    }
    within(servers.stop()).await;
    assert!(
        !ids.iter().any(|id| is_alive(*id)),
        "all have ended when `stop` returns"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_concurrent_calls_get_their_own_responses() {
    let (servers, server) = start_one(chaos("files", "serve").max_concurrent(1_000)).await;
    let calls = (0..1_000).map(|n| {
        let server = &server;
        async move {
            let text = format!("{n} {}", "x".repeat(n));
            assert_eq!(call_with_text(server, "echo", &text).await.unwrap(), text);
        }
    });
    futures_util::future::join_all(calls).await;
    servers.stop().await;
}
