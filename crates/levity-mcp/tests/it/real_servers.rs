//! Tests with third-party servers that run as programs, if they are installed.
//!
//! `LEVITY_TEST_MCP_NODE` names a folder whose `node_modules/.bin` has `node` and the reference
//! servers. `LEVITY_TEST_MCP_PYTHON` names a Python in the same folder as the other servers, and
//! `LEVITY_TEST_MCP_PYTHON1` one with the older library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use levity_core::{Progress, Tool as _, ToolCx, ToolReport, ToolSource};
use levity_mcp::{
    AcceptDefaults, Config, ElicitReply, ElicitRequest, Elicitor, ServerConfig, ServerEventKind,
    Servers, WaitFor,
};
use serde_json::{Map, Value, json};

use crate::fixture::world;

fn from_env(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name);
    if value.is_none() {
        eprintln!("SKIPPED: `{name}` is not set, so no real server is started");
    }
    value.map(PathBuf::from)
}

fn node(name: &str, program: &str) -> Option<ServerConfig> {
    let bin = from_env("LEVITY_TEST_MCP_NODE")?.join("node_modules/.bin");
    let program = bin.join(program).to_string_lossy().into_owned();
    Some(ServerConfig::stdio(name, bin.join("node").to_string_lossy()).arg(program))
}

fn python(name: &str, variable: &str, program: &str) -> Option<ServerConfig> {
    let python = from_env(variable)?;
    Some(ServerConfig::stdio(
        name,
        python.with_file_name(program).to_string_lossy(),
    ))
}

async fn open(config: ServerConfig) -> Servers {
    let servers = Servers::builder()
        .world(world())
        .server(config)
        .start()
        .unwrap();
    ready(servers).await
}

async fn ready(servers: Servers) -> Servers {
    for status in servers.wait(WaitFor::All).await {
        assert!(status.state.is_ready(), "{status:?}");
        assert!(status.problems.is_empty(), "{:?}", status.problems);
    }
    servers
}

#[track_caller]
fn check_tool_count(servers: &Servers, tools: usize) {
    let names: Vec<_> = servers
        .tools()
        .iter()
        .map(|tool| tool.spec().name.clone())
        .collect();
    assert_eq!(names.len(), tools, "{names:?}");
}

/// Calls a tool like an agent, by the name that models see.
async fn call(servers: &Servers, name: &str, args: Value) -> String {
    let tools = servers.tools();
    let tool = tools
        .iter()
        .find(|tool| tool.spec().name == name)
        .unwrap_or_else(|| panic!("there is no tool `{name}`"));
    match tool.call(args, &ToolCx::detached()).await {
        Ok(output) => output.as_text().into_owned(),
        Err(error) => panic!("{name}: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_server_works_over_stdio() {
    let Some(config) = node("all", "mcp-server-everything") else {
        return;
    };
    let servers = Servers::builder()
        .world(world())
        .server(config.arg("stdio"))
        .roots(["file:///srv/project"])
        .elicitor(AcceptDefaults)
        .start()
        .unwrap();
    let servers = ready(servers).await;
    let server = servers.get("all").unwrap();
    let mut events = servers.events();
    assert_eq!(
        call(&servers, "mcp_all_echo", json!({"message": "hi"})).await,
        "Echo: hi"
    );
    let sum = call(&servers, "mcp_all_get-sum", json!({"a": 2, "b": 5})).await;
    assert!(sum.contains('7'), "{sum}");
    let image = server.call("get-tiny-image", json!({})).await.unwrap();
    assert!(
        image
            .content
            .iter()
            .any(|part| matches!(part, levity_core::Content::Media(_))),
        "{image:?}"
    );
    let weather = server
        .call("get-structured-content", json!({"location": "Chicago"}))
        .await
        .unwrap();
    assert!(
        weather
            .value
            .as_ref()
            .is_some_and(|value| value["temperature"].is_number()),
        "{weather:?}"
    );
    assert!(!server.resources().await.unwrap().is_empty());
    let templates = server.resource_templates().await.unwrap();
    assert!(!templates.is_empty());
    let uri = &server.resources().await.unwrap()[0].uri;
    assert!(!server.read_resource(uri).await.unwrap().is_empty());
    server.subscribe(uri).await.unwrap();
    assert!(!server.prompts().await.unwrap().is_empty());
    let prompt = server
        .prompt("args-prompt", json!({"city": "Brest"}))
        .await
        .unwrap();
    assert!(prompt.messages[0].text().contains("Brest"), "{prompt:?}");
    let found = server
        .complete_prompt("completable-prompt", "department", "E")
        .await
        .unwrap();
    assert_eq!(found, ["Engineering"]);
    server.set_log_level("debug").await.unwrap();
    server.ping().await.unwrap();
    server
        .call("toggle-simulated-logging", json!({}))
        .await
        .unwrap();
    let logged = async {
        while !matches!(
            events.next().await.unwrap().kind,
            ServerEventKind::Log { .. }
        ) {}
    };
    tokio::time::timeout(Duration::from_secs(30), logged)
        .await
        .expect("the server logs");
    servers.stop().await;
}

/// An elicitor that answers every request with a name.
struct Name;

#[async_trait::async_trait]
impl Elicitor for Name {
    async fn elicit(&self, _: &str, _: ElicitRequest) -> ElicitReply {
        ElicitReply::Accept(Map::from_iter([("name".to_owned(), json!("levity"))]))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_server_sends_requests_and_runs_tasks() {
    let Some(config) = node("all", "mcp-server-everything") else {
        return;
    };
    let builder = Servers::builder()
        .world(world())
        .server(config.arg("stdio"))
        .roots(["file:///srv/project"]);
    let servers = ready(builder.elicitor(Name).start().unwrap()).await;
    let server = servers.get("all").unwrap();
    // The server offers more tools after it has received the client's capabilities.
    let roots = async {
        loop {
            match server.call("get-roots-list", json!({})).await {
                Ok(output) => return output.as_text().into_owned(),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let roots = tokio::time::timeout(Duration::from_secs(30), roots)
        .await
        .expect("the server requests the roots");
    assert!(roots.contains("file:///srv/project"), "{roots}");
    let output = server
        .call("trigger-elicitation-request", json!({}))
        .await
        .unwrap();
    assert!(output.as_text().contains("levity"), "{output:?}");

    let (report_sender, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let mut cx = ToolCx::detached();
    cx.progress = Progress::listen(move |report| {
        if let ToolReport::Text(text) = report {
            let _ = report_sender.send(text.to_owned());
        }
    });
    let tools = servers.tools();
    let slow = tools
        .iter()
        .find(|tool| tool.spec().name.ends_with("trigger-long-running-operation"))
        .unwrap();
    slow.call(json!({"duration": 0.4, "steps": 2}), &cx)
        .await
        .unwrap();
    assert!(reports.recv().await.unwrap().contains("of 2"));

    // This tool supports only tasks, which are polled.
    let report = server
        .call(
            "simulate-research-query",
            json!({"topic": "tides", "ambiguous": false}),
        )
        .await
        .unwrap();
    assert!(report.as_text().contains("tides"), "{report:?}");
    // This tool requests input, but only from a client that waits for its result.
    let args = json!({"topic": "python", "ambiguous": true});
    let report = tokio::time::timeout(
        Duration::from_secs(60),
        server.call("simulate-research-query", args),
    )
    .await;
    let report = report.expect("the call does not time out").unwrap();
    assert!(report.as_text().contains("python"), "{report:?}");
    servers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filesystem_memory_and_thinking_servers_work() {
    let Some(files) = node("files", "mcp-server-filesystem") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "alpha").unwrap();
    let root = folder
        .path()
        .canonicalize()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let memory = node("memory", "mcp-server-memory").unwrap();
    let memory = memory.env("MEMORY_FILE_PATH", format!("{root}/memory.jsonl"));
    let thoughts = node("think", "mcp-server-sequential-thinking").unwrap();
    let builder = Servers::builder()
        .world(world())
        .server(files.arg(&root))
        .server(memory)
        .server(thoughts);
    let servers = ready(builder.start().unwrap()).await;
    check_tool_count(&servers, 14 + 9 + 1);
    let path = format!("{root}/a.txt");
    assert!(
        call(&servers, "mcp_files_read_text_file", json!({"path": path}))
            .await
            .contains("alpha")
    );
    let outside = servers
        .get("files")
        .unwrap()
        .call("read_text_file", json!({"path": "/etc/hostname"}))
        .await;
    assert!(outside.unwrap_err().to_string().contains("denied"));
    let entities = json!({"entities": [{"name": "tide", "entityType": "thing",
        "observations": ["it is high"]}]});
    call(&servers, "mcp_memory_create_entities", entities).await;
    assert!(
        call(&servers, "mcp_memory_read_graph", json!({}))
            .await
            .contains("it is high")
    );
    let thought = json!({"thought": "first", "nextThoughtNeeded": false, "thoughtNumber": 1,
        "totalThoughts": 1});
    assert!(
        call(&servers, "mcp_think_sequentialthinking", thought)
            .await
            .contains("thoughtNumber")
    );
    servers.stop().await;
}

fn repository(folder: &Path) {
    let git = |args: &[&str]| {
        let done = Command::new("git")
            .args(args)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    };
    git(&["init", "--quiet"]);
    std::fs::write(folder.join("a.txt"), "alpha").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_git_and_fetch_servers_work() {
    let Some(time) = python("time", "LEVITY_TEST_MCP_PYTHON", "mcp-server-time") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    let root = folder.path().to_string_lossy().into_owned();
    let git = python("git", "LEVITY_TEST_MCP_PYTHON", "mcp-server-git").unwrap();
    let fetch = python("fetch", "LEVITY_TEST_MCP_PYTHON", "mcp-server-fetch").unwrap();
    let servers = Servers::builder()
        .world(world())
        .server(time.args(["--local-timezone", "UTC"]))
        .server(git.args(["--repository", &root]))
        .server(fetch.args(["--ignore-robots-txt", "--allow-private-ips"]))
        .start()
        .unwrap();
    let servers = ready(servers).await;
    check_tool_count(&servers, 2 + 12 + 1);
    let protocols: Vec<_> = servers
        .status()
        .into_iter()
        .filter_map(|status| status.protocol)
        .collect();
    assert_eq!(
        protocols, ["2026-07-28"; 3],
        "the servers use the newer protocol"
    );
    assert!(
        call(
            &servers,
            "mcp_time_get_current_time",
            json!({"timezone": "UTC"})
        )
        .await
        .contains("UTC")
    );
    assert!(
        call(&servers, "mcp_git_git_status", json!({"repo_path": root}))
            .await
            .contains("a.txt")
    );
    let (address, page) = page("<html><body><p>spring tide</p></body></html>").await;
    let text = call(
        &servers,
        "mcp_fetch_fetch",
        json!({"url": format!("http://{address}/"), "raw": true}),
    )
    .await;
    assert!(text.contains("spring tide"), "{text}");
    page.abort();
    servers.stop().await;
}

/// Serves a page on the loopback interface.
async fn page(body: &'static str) -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4096]).await;
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length";
            let _ = socket
                .write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes())
                .await;
        }
    });
    (address, serve)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_server_of_older_library_works() {
    let Some(config) = python("db", "LEVITY_TEST_MCP_PYTHON1", "mcp-server-sqlite") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.db").to_string_lossy().into_owned();
    let servers = open(config.args(["--db-path", &file])).await;
    check_tool_count(&servers, 6);
    assert_eq!(servers.status()[0].protocol.as_deref(), Some("2025-11-25"));
    call(
        &servers,
        "mcp_db_create_table",
        json!({"query": "CREATE TABLE tides (height INTEGER)"}),
    )
    .await;
    call(
        &servers,
        "mcp_db_write_query",
        json!({"query": "INSERT INTO tides VALUES (7)"}),
    )
    .await;
    assert!(
        call(
            &servers,
            "mcp_db_read_query",
            json!({"query": "SELECT height FROM tides"})
        )
        .await
        .contains('7')
    );
    servers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_server_from_config_works_over_stdio() {
    let Some(python) = from_env("LEVITY_TEST_MCP_PYTHON") else {
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/server.py");
    let text = json!({"mcpServers": {"py": {"command": "${PY}", "args": [script, "stdio"]},
        "bad": {"args": []}}});
    let vars = |name: &str| (name == "PY").then(|| python.to_string_lossy().into_owned());
    let config = Config::parse(&text.to_string(), vars);
    assert!(
        !config.problems().is_empty(),
        "the invalid server is reported"
    );
    let servers = ready(
        Servers::builder()
            .world(world())
            .servers(config.into_servers())
            .start()
            .unwrap(),
    )
    .await;
    check_tool_count(&servers, 2);
    assert_eq!(
        call(&servers, "mcp_py_add", json!({"a": 20, "b": 22})).await,
        "42"
    );
    assert_eq!(
        call(&servers, "mcp_py_count", json!({"to": 3})).await,
        "counted to 3"
    );
    servers.stop().await;
}
