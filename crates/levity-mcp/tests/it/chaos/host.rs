//! Hosts that end without stopping their servers, and their use of memory; each runs as a child
//! process of its test.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use levity_mcp::{Servers, WaitFor};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{all_ended, chaos, family, server, start_one, within};
use crate::fixture::world;

const HOST: &str = "LEVITY_TEST_HOST";
/// The time for which a server sends requests and reads no answers.
const ASK_TIME: Duration = Duration::from_secs(2);

/// Runs the host; does nothing unless the environment variable sets its mode.
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
    let servers = runtime.block_on(async {
        if exit_mode == "memory" {
            return memory().await;
        }
        let configs = ["a", "b"].map(|name| chaos(name, "serve"));
        let servers = Servers::builder()
            .world(world())
            .servers(configs)
            .start()
            .unwrap();
        within(servers.wait(WaitFor::All)).await;
        let mut ids = Vec::new();
        for server in servers.all() {
            ids.extend(family(&server).await);
        }
        println!(
            "\nnumbers {}",
            ids.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        );
        match exit_mode.as_str() {
            "exit" => std::process::exit(0),
            "abort" => std::process::abort(),
            "panic" => panic!("the host panics"),
            // The test ends the host from outside.
            _ => std::future::pending().await,
        }
    });
    drop(servers);
}

async fn memory() -> Servers {
    let (servers, server) = start_one(chaos("files", "serve")).await;
    for tool in ["large", "large_end", "large"] {
        within(server.call(tool, json!({}))).await.unwrap_err();
    }
    let (asking, server) = start_one(chaos("asking", "serve").idle_timeout(ASK_TIME)).await;
    within(server.call("ask", json!({}))).await.unwrap_err();
    within(asking.stop()).await;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let max_memory = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    println!("\nnumbers {}", max_memory.trim().trim_end_matches(" kB"));
    within(servers.stop()).await;
    servers
}

/// The rest of the host's output is read, so that a closed pipe does not end the host.
type RemainingOutput = std::io::Lines<BufReader<ChildStdout>>;

/// Starts a host and waits for the numbers that it prints.
fn start(exit_mode: &str) -> (Child, Vec<i32>, RemainingOutput) {
    let mut host = Command::new(server::program());
    host.args(["chaos::host::host_process_entry", "--exact", "--nocapture"])
        .env(HOST, exit_mode);
    let mut host = host
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let numbers = lines
        .find_map(|line| line.ok()?.strip_prefix("numbers ").map(str::to_owned))
        .unwrap();
    (
        host,
        numbers
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect(),
        lines,
    )
}

#[test]
fn end_of_host_ends_all_servers() {
    let exit_modes = [
        ("exit", None),
        ("abort", None),
        ("panic", None),
        ("killed", Some(Signal::KILL)),
        ("terminated", Some(Signal::TERM)),
    ];
    for (exit_mode, signal) in exit_modes {
        let (mut host, ids, _rest) = start(exit_mode);
        assert_eq!(ids.len(), 8);
        if let Some(signal) = signal {
            kill_process(
                Pid::from_raw(i32::try_from(host.id()).unwrap()).unwrap(),
                signal,
            )
            .unwrap();
        }
        let exit = host.wait().unwrap();
        assert_eq!(
            exit.signal().is_none(),
            ["exit", "panic"].contains(&exit_mode),
            "{exit_mode}: {exit}"
        );
        assert!(all_ended(&ids), "{exit_mode}: {ids:?}");
    }
}

#[test]
fn large_messages_and_unread_answers_are_not_held_in_memory() {
    let (mut host, max_memory, rest) = start("memory");
    assert!(
        rest.map_while(Result::ok)
            .any(|line| line.contains("1 passed"))
    );
    assert!(host.wait().unwrap().success());
    assert!(max_memory[0] < 90_000, "{} kB", max_memory[0]);
}
