//! Third-party clients, if they are installed, against the server of the conformance suite.
//!
//! `LEVITY_TEST_MCP_NODE` names a folder whose `node_modules` has the TypeScript libraries, the
//! inspector and `node`. `LEVITY_TEST_MCP_PYTHON` names a Python with the current library, and
//! `LEVITY_TEST_MCP_PYTHON1` one with the older line. `LEVITY_TEST_MCP_SERVER` names the example
//! `mcp_conformance_server`, which is also searched beside this program.

use std::path::PathBuf;
use std::process::Stdio;

use levity_core::{Hints, ToolOutput};
use levity_test::RecordingTool;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::fixture::builder;
use super::raw_http::Site;

fn from_env(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name);
    if value.is_none() {
        eprintln!("SKIPPED: `{name}` is not set, so no client of others is started");
    }
    value.map(PathBuf::from)
}

fn server() -> Option<PathBuf> {
    let beside = || {
        let built = std::env::current_exe()
            .ok()?
            .parent()?
            .parent()?
            .join("examples/mcp_conformance_server");
        built.is_file().then_some(built)
    };
    let server = std::env::var_os("LEVITY_TEST_MCP_SERVER")
        .map(PathBuf::from)
        .or_else(beside);
    if server.is_none() {
        eprintln!(
            "SKIPPED: there is no `mcp_conformance_server`; build it: cargo build -p \
                levity-examples --examples"
        );
    }
    server
}

/// The server in a process that ends with this value.
struct Running {
    url: String,
    _process: Child,
}

async fn running(server: &PathBuf) -> Running {
    let mut command = Command::new(server);
    command
        .arg("127.0.0.1:0")
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let url = lines
        .next_line()
        .await
        .unwrap()
        .expect("it prints its address");
    Running {
        url,
        _process: process,
    }
}

async fn seen(mut command: Command) -> Value {
    let output = command.kill_on_drop(true).output().await.unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    serde_json::from_str(out.lines().last().unwrap_or_default())
        .unwrap_or_else(|_| panic!("{out}\n{err}"))
}

/// Checks the results that every client sees, in either era.
#[track_caller]
fn check(seen: &Value, version: Option<&str>) {
    if let Some(version) = version {
        assert_eq!(seen["version"], version);
    }
    assert_eq!(seen["text"], "This is a simple text response for testing.");
    assert_eq!(seen["error"], true);
    assert_eq!(seen["wrong"][0], true);
    for (what, word) in [
        (&seen["wrong"][1], "5 is not of type"),
        (&seen["elicited"], r#"{"username":"ada","email":"a@b.c"}"#),
        (&seen["sampled"], "from the client's model"),
        (&seen["roots"], "file:///srv/project"),
        (&seen["read"], "static text resource"),
        (&seen["prompt"], "arg1='a', arg2='b'"),
    ] {
        assert!(
            what.as_str().is_some_and(|text| text.contains(word)),
            "{word}: {seen}"
        );
    }
    let told: Vec<f64> = seen["progress"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_f64)
        .collect();
    assert_eq!(told, [0.0, 50.0, 100.0]);
    assert_eq!(
        (&seen["tools"], &seen["resources"], &seen["prompts"]),
        (&json!(35), &json!(3), &json!(5))
    );
}

async fn python(variable: &str, ways: &[(&str, &str)]) {
    let (Some(python), Some(server)) = (from_env(variable), server()) else {
        return;
    };
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/fixtures/mcp_client.py"
    );
    let site = running(&server).await;
    for target in [&*server.to_string_lossy(), &site.url] {
        for (mode, version) in ways {
            let mut command = Command::new(&python);
            command.args([script, target, mode]);
            check(&seen(command).await, Some(version));
        }
    }
}

#[tokio::test]
async fn current_python_client_works() {
    python(
        "LEVITY_TEST_MCP_PYTHON",
        &[("auto", "2026-07-28"), ("legacy", "2025-11-25")],
    )
    .await;
}

#[tokio::test]
async fn older_python_client_works() {
    python("LEVITY_TEST_MCP_PYTHON1", &[("legacy", "2025-11-25")]).await;
}

#[tokio::test]
async fn typescript_clients_of_both_lines_work() {
    let (Some(node), Some(server)) = (from_env("LEVITY_TEST_MCP_NODE"), server()) else {
        return;
    };
    // A module finds its libraries in its own folder.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("client.mjs");
    std::fs::copy(
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/it/fixtures/mcp_client.mjs"
        ),
        &script,
    )
    .unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(
        node.join("node_modules"),
        folder.path().join("node_modules"),
    )
    .unwrap();
    let site = running(&server).await;
    for target in [&*server.to_string_lossy(), &site.url] {
        for (line, version) in [("1", None), ("2", Some("2026-07-28"))] {
            let mut command = Command::new(node.join("node_modules/.bin/node"));
            command.arg(&script).args([line, target]);
            let seen = seen(command).await;
            assert_eq!(seen["server"], "levity-conformance");
            check(&seen, version);
        }
    }
}

fn inspector(node: &std::path::Path, era: &str, target: &[&str], rest: &[&str]) -> Command {
    let bin = node.join("node_modules/.bin");
    let mut command = Command::new(bin.join("node"));
    command.arg(bin.join("mcp-inspector")).args([
        "--cli",
        "-q",
        "--format",
        "json",
        "--protocol-era",
        era,
    ]);
    command.args(target).args(rest);
    command
}

#[tokio::test]
async fn inspector_works_over_stdio_and_http() {
    let (Some(node), Some(server)) = (from_env("LEVITY_TEST_MCP_NODE"), server()) else {
        return;
    };
    let (path, site) = (server.to_string_lossy(), running(&server).await);
    for target in [
        vec![&*path, "stdio"],
        vec![&*site.url, "--transport", "http"],
    ] {
        for era in ["legacy", "modern", "auto"] {
            let listed = seen(inspector(&node, era, &target, &["--method", "tools/list"])).await;
            assert_eq!(
                listed["result"]["tools"].as_array().unwrap().len(),
                35,
                "{era} {target:?}"
            );
            let call = ["--method", "tools/call", "--tool-name", "test_simple_text"];
            let called = seen(inspector(&node, era, &target, &call)).await;
            assert!(
                called.to_string().contains("simple text response"),
                "{called}"
            );
        }
    }
}

/// Our tools pass the inspector's check for model providers, and work under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspector_reports_no_problems_under_load() {
    let Some(node) = from_env("LEVITY_TEST_MCP_NODE") else {
        return;
    };
    let add = RecordingTool::new("add", |args| {
        Ok(ToolOutput::value(json!({"sum": args["a"]})))
    })
    .with_input(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"a": {"type": "number", "format": "double"},
            "b": {"type": "integer", "format": "uint64"}},
        "required": ["a"],
        "additionalProperties": false,
    }))
    .with_hints(Hints::new().read_only());
    let site = Site::open(&builder().tool(add).build().unwrap()).await;
    let url = format!("http://{}/mcp", site.address);
    for era in ["legacy", "modern"] {
        let target = [&*url, "--transport", "http"];
        let listed = seen(inspector(
            &node,
            era,
            &target,
            &["--method", "tools/list", "--strict"],
        ))
        .await;
        assert_eq!(listed["result"]["tools"][0]["name"], "add");
        let load = [
            "--method",
            "tools/call",
            "--tool-name",
            "add",
            "--tool-arg",
            "a=1",
            "--load",
            "--load-concurrency",
            "16",
            "--load-requests",
            "300",
        ];
        let loaded = seen(inspector(&node, era, &target, &load)).await;
        assert_eq!(
            (&loaded["result"]["ok"], &loaded["result"]["errors"]),
            (&json!(300), &json!(0)),
            "{loaded}"
        );
    }
}
