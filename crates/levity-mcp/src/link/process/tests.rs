//! Tests with real processes: their start, their output, and their complete cleanup.

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

/// Far more time than a cooperative server needs to exit.
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

/// Returns the process ids of the server and its children, one of which left its group and one of
/// which ignores SIGTERM.
async fn family(pipes: &mut Pipes) -> Vec<i32> {
    let own = call(pipes, 1, "pid").await.unwrap();
    let children = call(pipes, 2, "children").await.unwrap();
    let ids: Vec<i32> = format!("{} {}", text(&own), text(&children))
        .split(' ')
        .map(|id| id.parse().unwrap())
        .collect();
    assert_eq!(ids.len(), 4);
    assert!(ids.iter().all(|id| is_alive(*id)), "{ids:?}");
    ids
}

fn is_alive(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn exists(id: i32) -> bool {
    std::path::Path::new(&format!("/proc/{id}")).exists()
}

/// Waits, with an ample limit, until none of the processes is alive.
fn all_ended(ids: &[i32]) -> bool {
    (0..2_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        !ids.iter().any(|id| is_alive(*id))
    })
}

#[tokio::test]
async fn stop_ends_server_with_all_children() {
    let (process, mut pipes) = start(&chaos("serve")).unwrap();
    let ids = family(&mut pipes).await;
    process.stop(GRACE).await;
    assert!(
        !ids.iter().any(|id| is_alive(*id)),
        "all have ended when `stop` returns"
    );
    assert!(!exists(ids[0]), "the server was reaped");
    assert_eq!(
        process.exit_status().await.unwrap().code,
        Some(0),
        "it exited voluntarily"
    );
    assert_eq!(pipes.receive().await.map(|_| ()), None);
}

#[tokio::test]
async fn stop_kills_server_that_does_not_exit() {
    for (mode, signal) in [("deaf", 15), ("stubborn", 9)] {
        let (process, mut pipes) = start(&chaos(mode)).unwrap();
        // The first line of the server reports that it is up.
        assert!(pipes.receive().now_or_never().is_none());
        wait_until_up(&process).await;
        process.stop(Duration::from_millis(10)).await;
        assert_eq!(
            process.exit_status().await.unwrap().signal,
            Some(signal),
            "{mode}"
        );
    }
}

/// Waits until the server has reported that it is up.
async fn wait_until_up(process: &Process) {
    while !process.shared.tail.text().contains("is up") {
        process.world.sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn drop_kills_process_tree() {
    let (process, mut pipes) = start(&chaos("serve")).unwrap();
    let ids = family(&mut pipes).await;
    drop(process);
    assert!(all_ended(&ids));
    assert!((0..2_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        !exists(ids[0])
    }));
}

#[test]
fn runtime_shutdown_kills_process_tree_without_zombie() {
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
    assert!(all_ended(&ids));
    assert!((0..2_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        !exists(ids[0])
    }));
}

#[test]
fn panic_kills_process_tree() {
    let (sender, ids) = std::sync::mpsc::channel();
    let host = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (_process, mut pipes) = start(&chaos("serve")).unwrap();
            sender.send(family(&mut pipes).await).unwrap();
            std::panic::resume_unwind(Box::new("a panic"));
        })
    });
    assert!(host.join().is_err());
    assert!(all_ended(&ids.recv().unwrap()));
}

#[tokio::test]
async fn exit_of_server_kills_children_and_closes_pipes() {
    let (process, mut pipes) = start(&chaos("fork")).unwrap();
    assert_eq!(
        pipes.receive().await.map(|_| ()),
        None,
        "although its child holds them open"
    );
    let death = process.exit_status().await.unwrap();
    assert_eq!(death.code, Some(3));
    let (_, words) = death.stderr.split_once("left ").unwrap();
    let child: i32 = words.split(' ').next().unwrap().parse().unwrap();
    assert!(all_ended(&[child]));
}

#[tokio::test]
async fn exit_status_has_code_signal_and_stderr() {
    let (process, mut pipes) = start(&chaos("die")).unwrap();
    assert_eq!(pipes.receive().await.map(|_| ()), None);
    let death = process.exit_status().await.unwrap();
    assert_eq!(death.code, Some(7));
    assert!(
        death.stderr.contains("missing API key: set WEATHER_KEY"),
        "{death}"
    );

    let (process, mut pipes) = start(&chaos("serve")).unwrap();
    assert_eq!(call(&mut pipes, 1, "kill").await, None);
    assert_eq!(process.exit_status().await.unwrap().signal, Some(9));
}

#[tokio::test]
async fn flood_on_stderr_does_not_block_calls() {
    let (process, mut pipes) = start(&chaos("flood")).unwrap();
    assert!(call(&mut pipes, 1, "pid").await.is_some());
    assert!(process.exit_info().stderr.len() <= 2 << 10);
    process.stop(GRACE).await;
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
fn start_failure_names_reason() {
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
async fn environment_has_only_set_and_inherited_variables() {
    // Only the end of stderr is retained, so the script writes no more than necessary.
    let script = "echo mine=$MINE path=${PATH:+set} cargo=$CARGO_MANIFEST_DIR. >&2";
    let config = ServerConfig::stdio("s", "/bin/sh")
        .args(["-c", script])
        .env("MINE", "1");
    let (process, mut pipes) = start(&config).unwrap();
    assert_eq!(pipes.receive().await.map(|_| ()), None);
    let text = process.exit_status().await.unwrap().stderr;
    assert!(
        std::env::var_os("CARGO_MANIFEST_DIR").is_some(),
        "the host has it"
    );
    assert_eq!(text.trim(), "mine=1 path=set cargo=.");
}

const HOST: &str = "LEVITY_TEST_HOST";

/// Runs a host that starts a server and ends without stopping it: the entry point of a child
/// process of the test below.
#[test]
fn host_process_entry() {
    let Ok(exit_mode) = std::env::var(HOST) else {
        return;
    };
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
        match exit_mode.as_str() {
            "exit" => std::process::exit(0),
            "abort" => std::process::abort(),
            // The test ends the host from outside.
            _ => std::future::pending::<()>().await,
        }
        drop(process);
    });
}

#[test]
fn end_of_host_ends_all_servers() {
    for (exit_mode, signal) in [
        ("exit", None),
        ("abort", None),
        ("killed", Some(Signal::KILL)),
        ("terminated", Some(Signal::TERM)),
    ] {
        let mut host = StdCommand::new(server::program());
        host.args([
            "link::process::tests::host_process_entry",
            "--exact",
            "--nocapture",
        ])
        .env(HOST, exit_mode);
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
        assert_eq!(exit.signal().is_none(), exit_mode == "exit");
        assert!(all_ended(&ids), "{exit_mode}: {ids:?}");
    }
}

#[tokio::test]
async fn killed_watchdog_is_replaced() {
    let (first, _pipes) = start(&chaos("sleep")).unwrap();
    let watchdog_id = watchdog::shell().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(watchdog_id).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    assert!(all_ended(&[watchdog_id]));
    let (second, _pipes) = start(&chaos("sleep")).unwrap();
    let next = watchdog::shell().unwrap();
    assert_ne!(watchdog_id, next);
    assert!(is_alive(next));
    first.stop(Duration::ZERO).await;
    second.stop(Duration::ZERO).await;
}
