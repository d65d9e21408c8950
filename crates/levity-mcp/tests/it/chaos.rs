//! Servers that misbehave: each time an error in bounded time that says what happened, and nothing
//! left behind.

mod host;
pub(crate) mod server;

use std::time::Duration;

use levity_mcp::{
    Error, ErrorKind, Server, ServerConfig, ServerEventKind, ServerState, Servers, WaitFor,
};
use serde_json::{Value, json};

use crate::fixture::world;

/// What should be over in a moment is over in this time, on a busy machine too.
const LONG: Duration = Duration::from_secs(60);
/// How long a call may take that is not answered.
const SHORT: Duration = Duration::from_millis(300);

/// A server that starts in this mode; see the module `server`.
pub(crate) fn chaos(name: &str, mode: &str) -> ServerConfig {
    ServerConfig::stdio(name, server::program())
        .args(server::arguments())
        .env(server::MODE, mode)
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it hangs")
}

/// One server that is ready.
async fn one(config: ServerConfig) -> (Servers, Server) {
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
    say(server, tool, "").await
}

async fn say(server: &Server, tool: &str, text: &str) -> Result<String, Error> {
    within(server.call(tool, json!({"text": text})))
        .await
        .map(|output| output.as_text().into_owned())
}

/// Waits until the server was started this often and is ready.
async fn ready(servers: &Servers, server: &Server, starts: u32) {
    let mut events = servers.events();
    while server.status().starts < starts || !server.status().state.is_ready() {
        within(events.next()).await.unwrap();
    }
}

fn lives(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Waits until none of these processes lives.
pub(crate) fn gone(ids: &[i32]) -> bool {
    (0..4_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        !ids.iter().any(|id| lives(*id))
    })
}

/// The numbers of a server's process and of children that it started.
pub(crate) async fn family(server: &Server) -> Vec<i32> {
    let ids = format!(
        "{} {}",
        call(server, "pid").await.unwrap(),
        call(server, "children").await.unwrap()
    );
    let ids: Vec<i32> = ids.split(' ').map(|id| id.parse().unwrap()).collect();
    assert!(ids.len() == 4 && ids.iter().all(|id| lives(*id)), "{ids:?}");
    ids
}

#[tokio::test]
async fn a_server_that_is_killed_during_a_call_says_so_and_comes_back() {
    let (servers, server) = one(chaos("files", "serve")).await;
    let error = call(&server, "kill").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.death().unwrap().signal),
        (ErrorKind::Closed, Some(9)),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("MCP server `files`: the connection ended before"),
        "{error}"
    );
    // A call right behind it was not made, and says so.
    let error = call(&server, "echo").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Away, "{error}");
    assert!(
        error.to_string().contains("it is away and starts again in"),
        "{error}"
    );
    ready(&servers, &server, 2).await;
    assert_eq!(say(&server, "echo", "again").await.unwrap(), "again");
    servers.stop().await;
}

#[tokio::test]
async fn last_words_and_code_are_in_the_error() {
    let (servers, server) = one(chaos("files", "serve")).await;
    let error = call(&server, "die").await.unwrap_err().to_string();
    assert!(
        error.contains("`files`") && error.contains("code 9") && error.contains("out of cheese"),
        "{error}"
    );
    servers.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_reading_holds_up_nobody_for_ever() {
    let limits = |config: ServerConfig| config.call_limit(SHORT).idle_limit(SHORT);
    let (servers, server) = one(limits(chaos("files", "serve"))).await;
    assert_eq!(
        call(&server, "deaf").await.unwrap_err().kind(),
        ErrorKind::Timeout
    );
    // More than the pipe takes, so that a message stays in the middle.
    let large = "x".repeat(1 << 20);
    for _ in 0..3 {
        let error = say(&server, "echo", &large).await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
    }
    ready(&servers, &server, 2).await;
    assert_eq!(say(&server, "echo", "again").await.unwrap(), "again");
    servers.stop().await;
}

#[tokio::test]
async fn garbage_without_end_is_named() {
    let (servers, server) = one(chaos("files", "serve")).await;
    let error = call(&server, "garbage").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(
        error.message().contains("a server has to log to stderr"),
        "{error}"
    );
    assert!(
        error.to_string().contains("garbage, and no end of it"),
        "{error}"
    );
    servers.stop().await;
}

#[tokio::test]
async fn a_hundred_megabytes_on_one_line_fail_one_call_alone() {
    let (servers, server) = one(chaos("files", "serve")).await;
    let before = call(&server, "pid").await.unwrap();
    for tool in ["large", "large_end"] {
        let (error, other) = tokio::join!(call(&server, tool), say(&server, "echo", "beside"));
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert!(error.message().contains("raise `max_message`"), "{error}");
        assert_eq!(other.unwrap(), "beside");
    }
    assert_eq!(call(&server, "pid").await.unwrap(), before, "it goes on");
    servers.stop().await;
}

#[tokio::test]
async fn late_and_second_answers_reach_no_other_call() {
    let (servers, server) = one(chaos("files", "serve").call_limit(SHORT)).await;
    assert_eq!(
        call(&server, "late").await.unwrap_err().kind(),
        ErrorKind::Timeout
    );
    assert_eq!(say(&server, "echo", "mine").await.unwrap(), "mine");
    assert_eq!(call(&server, "twice").await.unwrap(), "once");
    assert_eq!(say(&server, "echo", "mine").await.unwrap(), "mine");
    servers.stop().await;
}

#[tokio::test]
async fn an_error_without_id_fails_the_call() {
    let (servers, server) = one(chaos("files", "serve")).await;
    for tool in ["no_id", "no_id_absent"] {
        let error = call(&server, tool).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused(-32700));
        assert!(error.to_string().contains("what was that?"), "{error}");
    }
    assert_eq!(say(&server, "echo", "on").await.unwrap(), "on");
    servers.stop().await;
}

#[tokio::test]
async fn odd_answers_lose_nothing() {
    let (servers, server) = one(chaos("files", "serve")).await;
    let unknown = call(&server, "unknown").await.unwrap();
    assert!(
        unknown.contains("known") && unknown.contains("hologram"),
        "{unknown}"
    );
    assert_eq!(call(&server, "text").await.unwrap(), "just text");
    assert_eq!(call(&server, "string_id").await.unwrap(), "by a string");
    assert_eq!(call(&server, "noise").await.unwrap(), "after the noise");
    let error = call(&server, "broken").await.unwrap_err();
    assert!(error.message().contains("no valid JSON"), "{error}");
    // Whatever a null is taken for, it ends the call.
    let _ = call(&server, "null").await;
    assert_eq!(
        call(&server, "fail").await.unwrap_err().kind(),
        ErrorKind::Refused(-32000)
    );
    assert_eq!(say(&server, "echo", "on").await.unwrap(), "on");
    servers.stop().await;
}

/// Why a server that starts like this is away.
async fn away(config: ServerConfig) -> String {
    let servers = Servers::builder()
        .world(world())
        .server(config.retries(0))
        .start()
        .unwrap();
    let status = within(servers.wait(WaitFor::All)).await;
    let ServerState::Away { error, .. } = &status[0].state else {
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
async fn a_server_that_does_not_start_says_why() {
    let died = away(chaos("files", "die")).await;
    assert!(
        died.contains("code 7") && died.contains("missing API key: set WEATHER_KEY"),
        "{died}"
    );
    let ended = away(chaos("files", "exit")).await;
    assert!(ended.contains("its process ended with code 0"), "{ended}");
    let left = away(chaos("files", "fork")).await;
    assert!(left.contains("code 3"), "{left}");
    let absent = away(ServerConfig::stdio("files", "no-such-program-here")).await;
    assert!(
        absent.contains("`no-such-program-here` was not found in `PATH`"),
        "{absent}"
    );
    for mode in ["mute", "deaf"] {
        let limits = chaos("files", mode).start_limit(SHORT).probe_limit(SHORT);
        let silent = away(limits).await;
        assert!(
            silent.contains("not ready within") || silent.contains("does not answer"),
            "{silent}"
        );
    }
}

#[tokio::test]
async fn a_flood_on_stderr_becomes_events_and_stops_nobody() {
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
        say(&servers.get("files").unwrap(), "echo", "on")
            .await
            .unwrap(),
        "on"
    );
    servers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_after_stop_drop_and_restart() {
    let (servers, server) = one(chaos("files", "serve")).await;
    let first = family(&server).await;
    server.restart();
    assert!(gone(&first), "{first:?}");
    ready(&servers, &server, 2).await;
    let second = family(&server).await;
    within(servers.stop()).await;
    assert!(
        !second.iter().any(|id| lives(*id)),
        "all are gone when `stop` returns"
    );

    let (servers, server) = one(chaos("files", "serve")).await;
    let third = family(&server).await;
    drop((servers, server));
    assert!(gone(&third), "{third:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_servers_at_once() {
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
            say(&server, "echo", server.name()).await.unwrap(),
            server.name()
        );
        ids.push(call(&server, "pid").await.unwrap().parse().unwrap());
    }
    within(servers.stop()).await;
    assert!(
        !ids.iter().any(|id| lives(*id)),
        "all are gone when `stop` returns"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_calls_at_once_each_gets_its_own_answer() {
    let (servers, server) = one(chaos("files", "serve").max_concurrent(1_000)).await;
    let calls = (0..1_000).map(|n| {
        let server = &server;
        async move {
            let text = format!("{n} {}", "x".repeat(n));
            assert_eq!(say(server, "echo", &text).await.unwrap(), text);
        }
    });
    futures_util::future::join_all(calls).await;
    servers.stop().await;
}
