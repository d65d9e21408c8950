//! Hosts that end without ending their servers, and what they need of memory: each a child process
//! of its test.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use levity_mcp::{Servers, WaitFor};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{chaos, family, gone, one, server, within};
use crate::fixture::world;

const HOST: &str = "LEVITY_TEST_HOST";

/// The host: a test that is none unless it is told how to end.
#[test]
fn host() {
    let Ok(way) = std::env::var(HOST) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let servers = runtime.block_on(async {
        if way == "memory" {
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
            "\ntold {}",
            ids.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        );
        match way.as_str() {
            "exit" => std::process::exit(0),
            "abort" => std::process::abort(),
            "panic" => panic!("the host panics"),
            // The rest is ended from outside.
            _ => std::future::pending().await,
        }
    });
    drop(servers);
}

async fn memory() -> Servers {
    let (servers, server) = one(chaos("files", "serve")).await;
    for tool in ["large", "large_end", "large"] {
        within(server.call(tool, json!({}))).await.unwrap_err();
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    println!("\ntold {}", most.trim().trim_end_matches(" kB"));
    within(servers.stop()).await;
    servers
}

/// What a host still writes is read, so that it is not ended by a closed pipe.
type Rest = std::io::Lines<BufReader<ChildStdout>>;

/// Starts a host and waits for the numbers that it tells.
fn start(way: &str) -> (Child, Vec<i32>, Rest) {
    let mut host = Command::new(server::program());
    host.args(["chaos::host::host", "--exact", "--nocapture"])
        .env(HOST, way);
    let mut host = host
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let told = lines
        .find_map(|line| line.ok()?.strip_prefix("told ").map(str::to_owned))
        .unwrap();
    (
        host,
        told.split(' ')
            .map(|number| number.parse().unwrap())
            .collect(),
        lines,
    )
}

#[test]
fn a_host_that_is_gone_takes_all_with_it() {
    let ways = [
        ("exit", None),
        ("abort", None),
        ("panic", None),
        ("killed", Some(Signal::KILL)),
        ("told", Some(Signal::TERM)),
    ];
    for (way, signal) in ways {
        let (mut host, ids, _rest) = start(way);
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
            ["exit", "panic"].contains(&way),
            "{way}: {exit}"
        );
        assert!(gone(&ids), "{way}: {ids:?}");
    }
}

#[test]
fn a_hundred_megabytes_are_never_in_memory() {
    let (mut host, most, rest) = start("memory");
    assert!(
        rest.map_while(Result::ok)
            .any(|line| line.contains("1 passed"))
    );
    assert!(host.wait().unwrap().success());
    assert!(most[0] < 90_000, "{} kB", most[0]);
}
