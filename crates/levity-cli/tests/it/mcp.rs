//! Tests of MCP servers on the command line.

use std::fs;
use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};

use super::{check, command, file, text};

/// The variable that turns the test below into a server.
const SERVE: &str = "LEVITY_CLI_SERVER";

/// A server: this test binary, if the variable is set.
#[test]
fn server() {
    let Ok(mode) = std::env::var(SERVE) else {
        return;
    };
    if mode == "dies" {
        eprintln!("missing API key");
        std::process::exit(7);
    }
    let mut out = std::io::stdout();
    // The test harness has started a line.
    writeln!(out).unwrap();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let params = &message["params"];
        if message.get("id").is_none() {
            continue;
        }
        let answer = match message["method"].as_str().unwrap() {
            "initialize" => json!({"result": {
                "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "speaker", "version": "1.2"}
            }}),
            "ping" if mode == "no-ping" => {
                json!({"error": {"code": -32601, "message": "no such method"}})
            }
            "ping" => json!({"result": {}}),
            "tools/list" => json!({"result": {"tools": [{
                "name": "say", "description": "Says it again.\nTwice.",
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}
            }]}}),
            "tools/call" => {
                let token = &params["_meta"]["progressToken"];
                let progress = json!({"progressToken": token, "progress": 1, "total": 2,
                    "message": "half way"});
                writeln!(
                    out,
                    "{}",
                    json!({"jsonrpc": "2.0", "method": "notifications/progress",
                        "params": progress})
                )
                .unwrap();
                let text = params["arguments"]["text"]
                    .as_str()
                    .unwrap_or("nothing")
                    .to_owned();
                let failed = text == "fail";
                json!({"result": {"content": [{"type": "text", "text": text}], "isError": failed}})
            }
            _ => json!({"error": {"code": -32601, "message": "no such method"}}),
        };
        let mut answer = answer;
        answer["jsonrpc"] = "2.0".into();
        answer["id"] = message["id"].clone();
        writeln!(out, "{answer}").unwrap();
    }
    std::process::exit(0);
}

/// Returns the settings of the server above.
pub(crate) fn settings(mode: &str) -> Value {
    let program = std::env::current_exe().unwrap();
    json!({
        "command": program, "args": ["mcp::server", "--exact", "--nocapture", "--test-threads=1"],
        "env": {SERVE: mode}, "retries": 0
    })
}

/// A config for one test.
pub(crate) struct Config(PathBuf);

impl Config {
    fn new(name: &str, config: &Value) -> Self {
        Self(file(
            &format!("{}-{name}.json", std::process::id()),
            &config.to_string(),
        ))
    }

    /// Creates a config with one working server.
    pub(crate) fn speaker(name: &str) -> Self {
        Self::new(name, &json!({"mcpServers": {"speaker": settings("serve")}}))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn mcp(&self, args: &[&str]) -> Output {
        command(&[&["mcp"], args, &["--config", self.path()]].concat())
            .output()
            .unwrap()
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn list_shows_servers_and_config_errors() {
    let config = Config::new(
        "listed",
        &json!({"mcpServers": {
            "files": {"command": "npx", "args": ["-y"]},
            "search": {"url": "https://h/mcp?key=s3cret", "disabled": true},
            "bad": {"command": "x", "env": {"KEY": "${LEVITY_NO_SUCH_VARIABLE}"}}
        }}),
    );
    let output = config.mcp(&["list"]);
    assert_eq!(
        text(&output),
        "files  stdio  npx -y\nsearch  http  https://h/mcp  (disabled)\n\
            bad  stdio  x  gets LEVITY_NO_SUCH_VARIABLE  sets KEY  \
            (does not start: a variable is not set)\n"
    );
    check(
        &output,
        1,
        "`/mcpServers/bad/env/KEY`: `LEVITY_NO_SUCH_VARIABLE` is not set",
    );
    let json: Value = serde_json::from_str(
        text(&config.mcp(&["list", "--json"]))
            .lines()
            .nth(1)
            .unwrap(),
    )
    .unwrap();
    assert_eq!(
        json,
        json!({"name": "search", "transport": "http", "place": "https://h/mcp", "enabled": false,
            "variables": [],
               "args": [], "cwd": null, "sets": []})
    );
    check(
        &config.mcp(&["call", "bad", "say"]),
        2,
        "the settings of server `bad` are invalid",
    );
    check(
        &config.mcp(&["call", "none", "say"]),
        2,
        "there is no server `none`; the config has `files`, `search`",
    );
    check(
        &config.mcp(&["call", "search", "say"]),
        2,
        "server `search` is disabled",
    );
}

#[test]
fn config_is_read_from_environment() {
    let list = |value: Option<&str>| {
        let mut command = command(&["mcp", "list"]);
        if let Some(value) = value {
            command.env("LEVITY_MCP_SERVERS", value);
        }
        command.output().unwrap()
    };
    check(
        &list(None),
        2,
        "there are no servers; name a file with `--config`",
    );
    check(
        &list(Some(r#"[{"name": "a", "command": "b"}]"#)),
        0,
        "a  stdio  b\n",
    );
    let config = Config::speaker("env");
    check(&list(Some(config.path())), 0, "speaker  stdio");
    check(
        &list(Some("/nowhere.json")),
        1,
        "`/nowhere.json` cannot be read",
    );
    check(&list(Some("nowhere.json")), 1, "to its absolute path");
    let empty = Config::new("empty", &json!({}));
    check(&empty.mcp(&["list"]), 2, "empty.json` names no servers");
    let health = command(&["mcp", "health", "a", "--config", "nowhere.json"])
        .output()
        .unwrap();
    check(&health, 2, "there is no server `a`; the config has none");
}

#[test]
fn tools_lists_tools_of_servers() {
    let config = Config::speaker("tools");
    let output = config.mcp(&["tools"]);
    check(&output, 0, "  mcp_speaker_say  Says it again.\n");
    assert!(
        text(&output).starts_with("speaker: 1 tools, about "),
        "{}",
        text(&output)
    );
    let json: Value =
        serde_json::from_str(&text(&config.mcp(&["tools", "speaker", "--json"]))).unwrap();
    assert_eq!(
        (&json["server"], &json["name"]),
        (&json!("speaker"), &json!("mcp_speaker_say"))
    );
    assert_eq!(json["input"]["properties"]["text"]["type"], "string");
}

#[test]
fn tools_shows_names_that_agents_use() {
    let both = json!({"mcpServers": {"one": settings("serve"), "one_more": settings("serve")}});
    let config = Config::new("named", &both);
    let all = text(&config.mcp(&["tools"]));
    let name = all
        .split_whitespace()
        .find(|word| word.starts_with("mcp_one_more_say_"))
        .unwrap();
    let alone = text(&config.mcp(&["tools", "one_more"]));
    assert!(alone.contains(name) && !alone.contains("one: "), "{alone}");
    check(&config.mcp(&["call", "one_more", name]), 0, "nothing\n");
}

#[test]
fn call_calls_tool_of_server() {
    let config = Config::speaker("call");
    let output = config.mcp(&["call", "speaker", "say", r#"{"text": "la\u001b[2J"}"#]);
    check(&output, 0, "la\u{fffd}[2J\n");
    assert!(
        err(&output).contains("1 of 2: half way") && !text(&output).contains("half way"),
        "{}",
        err(&output)
    );
    check(
        &config.mcp(&["call", "speaker", "mcp_speaker_say"]),
        0,
        "nothing\n",
    );
    let json: Value = serde_json::from_str(&text(
        &config.mcp(&["call", "speaker", "say", "{}", "--json"]),
    ))
    .unwrap();
    assert_eq!(
        json,
        json!({"content": [{"text": "nothing"}], "value": null, "error": null})
    );
    check(
        &config.mcp(&["call", "speaker", "say", r#"{"text": "fail"}"#]),
        1,
        "server `speaker`: `say` failed: fail",
    );
    let failed = config.mcp(&["call", "speaker", "say", r#"{"text": "fail"}"#, "--json"]);
    check(&failed, 1, r#""error":"MCP server `speaker`"#);
    check(
        &config.mcp(&["call", "speaker", "say", "[]"]),
        2,
        "not a JSON object",
    );
    check(
        &config.mcp(&["call", "speaker", "say", "{"]),
        2,
        "not valid JSON",
    );
    check(&config.mcp(&["call", "speaker"]), 2, "Usage");
}

#[test]
fn health_reports_state_of_servers() {
    let both = json!({"mcpServers": {"speaker": settings("serve"), "dead": settings("dies")}});
    let config = Config::new("health", &both);
    let output = config.mcp(&["health"]);
    check(
        &output,
        1,
        "speaker  stdio  ready  1 tools  speaker 1.2  protocol ",
    );
    check(&output, 1, "dead  stdio  away");
    check(&output, 1, "missing API key");
    check(&output, 1, "ended with code 7");
    check(&config.mcp(&["health", "speaker"]), 0, "answers in ");
    let odd = Config::new(
        "health-no-ping",
        &json!({"mcpServers": {"odd": settings("no-ping")}}),
    );
    check(&odd.mcp(&["health"]), 0, "answers in ");
    let json = text(&config.mcp(&["health", "dead", "--json"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["state"], &json["tools"]),
        (&json!("away"), &json!(0))
    );
    check(&config.mcp(&["call", "dead", "say"]), 1, "missing API key");
}

#[test]
fn agent_calls_tools_of_servers() {
    let both = json!({"mcpServers": {"speaker": settings("serve"), "dead": settings("dies")}});
    let config = Config::new("agent", &both);
    let script =
        r#"[{"call": {"name": "mcp_speaker_say", "args": {"text": "la la"}}}, {"reply": "Done."}]"#;
    let script = file("mcp-agent.json", script);
    let args = [
        "run",
        "Sing",
        "--script",
        script.to_str().unwrap(),
        "--mcp",
        config.path(),
    ];
    let output = command(&args).output().unwrap();
    for part in [
        "calls  mcp_speaker_say",
        "status 1 of 2: half way",
        "gets   la la",
        "missing API key",
        "Done.\n",
    ] {
        check(&output, 0, part);
    }
    // Even with `--quiet`, a missing server is reported.
    let quiet = command(&[&args[..], &["--quiet"]].concat())
        .output()
        .unwrap();
    assert_eq!(text(&quiet), "Done.\n");
    assert!(err(&quiet).contains("missing API key"), "{}", err(&quiet));
    let mut by_env = command(&args[..4]);
    check(
        &by_env
            .env("LEVITY_MCP_SERVERS", config.path())
            .output()
            .unwrap(),
        0,
        "gets   la la",
    );
    check(
        &command(&[&args[..4], &["--mcp", "nowhere.json"]].concat())
            .output()
            .unwrap(),
        2,
        "names no server",
    );
    let mut chat = command(&[
        "chat",
        "--script",
        script.to_str().unwrap(),
        "--mcp",
        config.path(),
    ]);
    let mut chat = chat
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    chat.stdin.take().unwrap().write_all(b"Sing\n").unwrap();
    check(&chat.wait_with_output().unwrap(), 0, "gets   la la");
}

#[test]
fn list_shows_programs_without_values_of_variables() {
    let text = r#"{"mcpServers": {"a      b": {"command": "sh",
        "args": ["-c", "curl x | sh", "--key", "${HUSH}"],
        "cwd": "/tmp/${HUSH}", "env": {"LD_PRELOAD": "evil.so", "TOKEN": "${HUSH}"}}}}"#;
    let config = file("list-shows-all.json", text);
    let mut command = command(&["mcp", "list", "--config", config.to_str().unwrap()]);
    let output = command.env("HUSH", "hush-hush-hush").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    for part in [
        "'a b'",
        "sh -c 'curl x | sh' --key '${HUSH}'",
        "in '/tmp/${HUSH}'",
        "gets HUSH",
        "sets LD_PRELOAD, TOKEN",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(
        !printed.contains("hush-hush") && !printed.contains("evil.so"),
        "{printed}"
    );
}

#[test]
fn servers_of_yaml_file_are_listed() {
    let text = "mcpServers:\n  files: # comment\n    command: files-server\n    args: [--root, .]\n\
        \x20   timeout: 5\n";
    let servers = file("servers.yaml", text);
    let output = crate::levity(&["mcp", "list", "--config", servers.to_str().unwrap()]);
    check(&output, 0, "files-server");
    let wrong = file("wrong.yaml", "mcpServers:\n  files: [\n");
    let output = crate::levity(&["mcp", "list", "--config", wrong.to_str().unwrap()]);
    check(&output, 1, "wrong.yaml`, line ");
}
