//! Real servers that are queried for their tools.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Tool, ToolCx, ToolError, ToolOutput, ToolSource, ToolSpec};
use serde_json::{Value, json};

const NODE: &str = "LEVITY_TEST_MCP_NODE";
const PYTHON: &str = "LEVITY_TEST_MCP_PYTHON";
const PYTHON1: &str = "LEVITY_TEST_MCP_PYTHON1";

/// Returns `true` if all servers are installed.
pub(super) fn has_all() -> bool {
    [NODE, PYTHON, PYTHON1]
        .iter()
        .all(|name| env::var_os(name).is_some())
}

/// Returns the list of tools of each installed server.
pub(super) fn lists() -> Vec<(&'static str, Vec<Value>)> {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name).into_os_string();
    let servers: [(&'static str, &'static str, &str, Vec<OsString>); 8] = [
        (
            NODE,
            "everything",
            "mcp-server-everything",
            vec!["stdio".into()],
        ),
        (
            NODE,
            "filesystem",
            "mcp-server-filesystem",
            vec![folder.path().into()],
        ),
        (NODE, "memory", "mcp-server-memory", Vec::new()),
        (
            NODE,
            "thinking",
            "mcp-server-sequential-thinking",
            Vec::new(),
        ),
        (
            PYTHON,
            "time",
            "mcp-server-time",
            vec!["--local-timezone".into(), "UTC".into()],
        ),
        (PYTHON, "git", "mcp-server-git", Vec::new()),
        (PYTHON, "fetch", "mcp-server-fetch", Vec::new()),
        (
            PYTHON1,
            "sqlite",
            "mcp-server-sqlite",
            vec!["--db-path".into(), inside("t.db")],
        ),
    ];
    let (installed, missing): (Vec<_>, Vec<_>) = servers
        .iter()
        .partition(|server| env::var_os(server.0).is_some());
    for (variable, name, ..) in missing {
        println!("skipped: `{variable}` is not set, so the server `{name}` does not run");
    }
    std::thread::scope(|scope| {
        let query = |(variable, name, program, args): &'_ (
            &'static str,
            &'static str,
            &str,
            Vec<OsString>,
        )| {
            let programs = programs(variable, Path::new(&env::var_os(variable).unwrap()));
            (*name, list(&programs, program, args, folder.path()))
        };
        let queries: Vec<_> = installed
            .into_iter()
            .map(|server| scope.spawn(move || query(server)))
            .collect();
        queries
            .into_iter()
            .map(|query| query.join().unwrap())
            .collect()
    })
}

/// Returns the folder with the programs of a server.
fn programs(variable: &str, at: &Path) -> PathBuf {
    match variable {
        NODE => at.join("node_modules/.bin"),
        _ => at.parent().unwrap().to_path_buf(),
    }
}

fn list(programs: &Path, program: &str, args: &[OsString], folder: &Path) -> Vec<Value> {
    // The programs of Node look for `node`, which is in the same folder.
    let path = env::join_paths(
        [programs.to_path_buf()]
            .into_iter()
            .chain(env::split_paths(&env::var_os("PATH").unwrap())),
    );
    let child = Command::new(programs.join(program))
        .args(args)
        .env("PATH", path.unwrap())
        .env("MEMORY_FILE_PATH", folder.join("memory.jsonl"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut server = Server(child);
    server.request(
        1,
        "initialize",
        &json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"roots": {}, "sampling": {}, "elicitation": {}},
            "clientInfo": {"name": "levity", "version": "0"},
        }),
    );
    server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let result = server.request(2, "tools/list", &json!({}));
    result["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{program}: {result}"))
        .clone()
}

struct Server(Child);

impl Server {
    fn send(&mut self, message: &Value) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn request(&mut self, id: u64, method: &str, params: &Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut lines = BufReader::with_capacity(1, self.0.stdout.take().unwrap());
        let mut line = String::new();
        let result = loop {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the server ended");
            let message: Value = serde_json::from_str(&line).unwrap_or_default();
            if message["id"] == id && message.get("result").is_some() {
                break message["result"].clone();
            }
            // The server may send requests in between.
            if message.get("method").is_some() && message.get("id").is_some() {
                self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": {"roots": []}}));
            }
        };
        self.0.stdout = Some(lines.into_inner());
        result
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A source of tools that are never called.
pub(super) struct Fixed(pub(super) Vec<Arc<ToolSpec>>);

impl ToolSource for Fixed {
    fn name(&self) -> &str {
        "fixed"
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0
            .iter()
            .map(|spec| Arc::new(SpecOnlyTool(spec.clone())) as Arc<dyn Tool>)
            .collect()
    }

    fn version(&self) -> u64 {
        0
    }
}

struct SpecOnlyTool(Arc<ToolSpec>);

#[async_trait]
impl Tool for SpecOnlyTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::default())
    }
}
