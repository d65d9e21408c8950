//! Real processes: how they are started, what they say, and that none of them stays.

#[path = "../../../tests/it/chaos/server.rs"]
mod server;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command as StdCommand, Stdio as Io};

use futures_util::FutureExt;
use levity_rpc::mcp::{
    CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, Request, RequestId, Transport as _,
};
use levity_runtime::SystemWorld;
use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::broadcast;

use super::*;
use crate::config::Transport;

/// Far more than a server takes that goes by itself.
const GRACE: Duration = Duration::from_secs(30);

fn world() -> Arc<dyn World> {
    Arc::new(SystemWorld)
}

fn chaos(mode: &str) -> ServerConfig {
    ServerConfig::stdio("chaos", server::program())
        .args(server::arguments())
        .env(server::MODE, mode)
}

fn start(config: &ServerConfig) -> Result<(Process, Pipes)> {
    let Transport::Stdio(stdio) = &config.transport else {
        panic!("not stdio")
    };
    let (to, _) = broadcast::channel(64);
    Process::start(
        config,
        stdio,
        Events::new(
            config.name.clone(),
            to,
            crate::redact::Redactor::new(config.secrets()),
        ),
        world(),
    )
}

async fn call(pipes: &mut Pipes, id: i64, tool: &'static str) -> Option<Value> {
    let request = ClientRequest::CallToolRequest(Request::new(CallToolRequestParams::new(tool)));
    pipes
        .send(ClientJsonRpcMessage::request(
            request,
            RequestId::Number(id),
        ))
        .await
        .unwrap();
    pipes
        .receive()
        .await
        .map(|message| serde_json::to_value(message).unwrap())
}

fn text(message: &Value) -> &str {
    message["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
}

/// The server's number and those of its children, one of which left its group and one of which
/// ignores SIGTERM.
async fn family(pipes: &mut Pipes) -> Vec<i32> {
    let own = call(pipes, 1, "pid").await.unwrap();
    let children = call(pipes, 2, "children").await.unwrap();
    let ids: Vec<i32> = format!("{} {}", text(&own), text(&children))
        .split(' ')
        .map(|id| id.parse().unwrap())
        .collect();
    assert_eq!(ids.len(), 4);
    assert!(ids.iter().all(|id| lives(*id)), "{ids:?}");
    ids
}

fn lives(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn exists(id: i32) -> bool {
    std::path::Path::new(&format!("/proc/{id}")).exists()
}

/// Waits, within a time that is far more than enough, until none of them lives.
fn gone(ids: &[i32]) -> bool {
    (0..2_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        !ids.iter().any(|id| lives(*id))
    })
}

#[tokio::test]
async fn a_server_answers_and_ends_with_all_its_children() {
    let (process, mut pipes) = start(&chaos("serve")).unwrap();
    let ids = family(&mut pipes).await;
    process.end(GRACE).await;
    assert!(
        !ids.iter().any(|id| lives(*id)),
        "all are gone when `end` returns"
    );
    assert!(!exists(ids[0]), "the server was reaped");
    assert_eq!(
        process.death().await.unwrap().code,
        Some(0),
        "it ended by itself"
    );
    assert_eq!(pipes.receive().await.map(|_| ()), None);
}

#[tokio::test]
async fn a_server_that_does_not_go_is_killed() {
    for (mode, signal) in [("deaf", 15), ("stubborn", 9)] {
        let (process, mut pipes) = start(&chaos(mode)).unwrap();
        // Its first line says that it is up.
        assert!(pipes.receive().now_or_never().is_none());
        up(&process).await;
        process.end(Duration::from_millis(10)).await;
        assert_eq!(
            process.death().await.unwrap().signal,
            Some(signal),
            "{mode}"
        );
    }
}

/// Waits until the server has said that it is up.
async fn up(process: &Process) {
    while !process.shared.tail.text().contains("is up") {
        process.world.sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn dropping_it_kills_all() {
    let (process, mut pipes) = start(&chaos("serve")).unwrap();
    let ids = family(&mut pipes).await;
    drop(process);
    assert!(gone(&ids));
    assert!((0..2_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        !exists(ids[0])
    }));
}

#[test]
fn the_end_of_the_runtime_kills_all_and_leaves_no_zombie() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (process, ids) = runtime.block_on(async {
        let (process, mut pipes) = start(&chaos("serve")).unwrap();
        let ids = family(&mut pipes).await;
        (process, ids)
    });
    drop(runtime);
    drop(process);
    assert!(gone(&ids));
    assert!((0..2_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        !exists(ids[0])
    }));
}

#[test]
fn a_panic_kills_all() {
    let (tell, ids) = std::sync::mpsc::channel();
    let host = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (_process, mut pipes) = start(&chaos("serve")).unwrap();
            tell.send(family(&mut pipes).await).unwrap();
            std::panic::resume_unwind(Box::new("a panic"));
        })
    });
    assert!(host.join().is_err());
    assert!(gone(&ids.recv().unwrap()));
}

#[tokio::test]
async fn a_server_that_dies_leaves_nobody_behind_and_its_pipes_close() {
    let (process, mut pipes) = start(&chaos("fork")).unwrap();
    assert_eq!(
        pipes.receive().await.map(|_| ()),
        None,
        "though its child holds them"
    );
    let death = process.death().await.unwrap();
    assert_eq!(death.code, Some(3));
    let (_, words) = death.stderr.split_once("left ").unwrap();
    let child: i32 = words.split(' ').next().unwrap().parse().unwrap();
    assert!(gone(&[child]));
}

#[tokio::test]
async fn last_words_and_code_are_told() {
    let (process, mut pipes) = start(&chaos("die")).unwrap();
    assert_eq!(pipes.receive().await.map(|_| ()), None);
    let death = process.death().await.unwrap();
    assert_eq!(death.code, Some(7));
    assert!(
        death.stderr.contains("missing API key: set WEATHER_KEY"),
        "{death}"
    );

    let (process, mut pipes) = start(&chaos("serve")).unwrap();
    assert_eq!(call(&mut pipes, 1, "kill").await, None);
    assert_eq!(process.death().await.unwrap().signal, Some(9));
}

#[tokio::test]
async fn a_flood_on_stderr_stops_nobody() {
    let (process, mut pipes) = start(&chaos("flood")).unwrap();
    assert!(call(&mut pipes, 1, "pid").await.is_some());
    assert!(process.last_words().stderr.len() <= 2 << 10);
    process.end(GRACE).await;
}

#[track_caller]
fn check_refused(config: &ServerConfig, expected: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let error = start(config).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Start);
    assert!(error.message().contains(expected), "{error}");
}

#[test]
fn what_cannot_be_started_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    check_refused(
        &ServerConfig::stdio("s", "no-such-program-here"),
        "not found in `PATH`; install it",
    );
    check_refused(
        &ServerConfig::stdio("s", "/no/such/program"),
        "does not exist; check `command`",
    );
    check_refused(&ServerConfig::stdio("s", path(&plain)), "is it executable?");
    check_refused(
        &ServerConfig::stdio("s", path(&script)),
        "names an interpreter",
    );
    check_refused(
        &ServerConfig::stdio("s", "cat").cwd("/no/such/folder"),
        "check `cwd`",
    );
    check_refused(&ServerConfig::stdio("s", "cat").arg("a\0b"), "a zero byte");
}

#[tokio::test]
async fn only_what_is_meant_for_it_is_in_its_environment() {
    // Only the end of stderr is kept, so no more is written than what is asked.
    let script = "echo mine=$MINE path=${PATH:+set} cargo=$CARGO_MANIFEST_DIR. >&2";
    let config = ServerConfig::stdio("s", "/bin/sh")
        .args(["-c", script])
        .env("MINE", "1");
    let (process, mut pipes) = start(&config).unwrap();
    assert_eq!(pipes.receive().await.map(|_| ()), None);
    let text = process.death().await.unwrap().stderr;
    assert!(
        std::env::var_os("CARGO_MANIFEST_DIR").is_some(),
        "the host has it"
    );
    assert_eq!(text.trim(), "mine=1 path=set cargo=.");
}

const HOST: &str = "LEVITY_TEST_HOST";

/// A host that starts a server and ends without ending it: the entry of a child process of the test
/// below.
#[test]
fn host() {
    let Ok(way) = std::env::var(HOST) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (process, mut pipes) = start(&chaos("serve")).unwrap();
        let ids = family(&mut pipes).await;
        println!(
            "\nids {}",
            ids.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        );
        match way.as_str() {
            "exit" => std::process::exit(0),
            "abort" => std::process::abort(),
            // The rest is ended from outside.
            _ => std::future::pending::<()>().await,
        }
        drop(process);
    });
}

#[test]
fn a_host_that_is_gone_takes_all_its_servers_with_it() {
    for (way, signal) in [
        ("exit", None),
        ("abort", None),
        ("killed", Some(Signal::KILL)),
        ("told", Some(Signal::TERM)),
    ] {
        let mut host = StdCommand::new(server::program());
        host.args(["link::process::tests::host", "--exact", "--nocapture"])
            .env(HOST, way);
        let mut host = host.stdout(Io::piped()).stderr(Io::null()).spawn().unwrap();
        let lines = BufReader::new(host.stdout.take().unwrap())
            .lines()
            .map_while(std::result::Result::ok);
        let mut lines = lines.filter_map(|line| line.strip_prefix("ids ").map(str::to_owned));
        let ids: Vec<i32> = lines
            .next()
            .unwrap()
            .split(' ')
            .map(|id| id.parse().unwrap())
            .collect();
        if let Some(signal) = signal {
            let id = rustix::process::Pid::from_raw(i32::try_from(host.id()).unwrap()).unwrap();
            rustix::process::kill_process(id, signal).unwrap();
        }
        let exit = host.wait().unwrap();
        assert_eq!(exit.signal().is_none(), way == "exit");
        assert!(gone(&ids), "{way}: {ids:?}");
    }
}

#[tokio::test]
async fn a_watcher_that_was_killed_is_replaced() {
    let (first, _pipes) = start(&chaos("sleep")).unwrap();
    let watcher = watch::shell().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(watcher).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    assert!(gone(&[watcher]));
    let (second, _pipes) = start(&chaos("sleep")).unwrap();
    let next = watch::shell().unwrap();
    assert_ne!(watcher, next);
    assert!(lives(next));
    first.end(Duration::ZERO).await;
    second.end(Duration::ZERO).await;
}
