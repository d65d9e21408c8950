//! Tests of a new folder as its user sees it: `levity init`, a goal typed at the prompt, and files
//! in `artifacts/`; and of the settings of the folder in every command.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{check, command, text};

/// Creates a folder from a template, with the command that a user types.
fn new_folder(template: &str) -> (TempDir, PathBuf) {
    let above = tempfile::tempdir().unwrap();
    let inside = above.path().join("w");
    fs::create_dir(&inside).unwrap();
    let made = in_folder(&inside, &["init", "--template", template]).output();
    check(&made.unwrap(), 0, "created 2");
    (above, inside)
}

fn in_folder(folder: &Path, args: &[&str]) -> Command {
    let mut command = command(args);
    command.current_dir(folder);
    command
}

/// Adds lines to the top of `levity.toml`.
fn add_settings(folder: &Path, lines: &str) {
    let path = folder.join("levity.toml");
    let settings = fs::read_to_string(&path).unwrap();
    fs::write(path, format!("{lines}\n{settings}")).unwrap();
}

/// Sets a script, which needs trust again.
fn set_script(folder: &Path, replies: &Value) {
    fs::write(folder.join("script.json"), replies.to_string()).unwrap();
    add_settings(folder, "script = \"script.json\"");
    let refused = in_folder(folder, &["run", "hi"]).output().unwrap();
    check(&refused, 2, "levity trust");
    check(
        &in_folder(folder, &["trust", "--yes"]).output().unwrap(),
        0,
        "is trusted",
    );
}

fn write_call(name: &str, path: &str) -> Value {
    json!({"call": {"name": name, "args": {"path": path, "content": "# Tides\n"}}})
}

/// A repository does not contain the folders for data.
#[test]
fn clone_of_folder_needs_trust_and_creates_its_data_folders() {
    let (above, folder) = new_folder("team");
    let script = json!([write_call("write_file", "artifacts/a.md"), {"reply": "Done."}]);
    set_script(&folder, &script);
    let clone = above.path().join("clone");
    copy(&folder, &clone);
    for data in ["memory", "artifacts"] {
        fs::remove_dir_all(clone.join(data)).unwrap();
    }
    for args in [
        &["run", "hi"][..],
        &["chat"],
        &["plan", "hi"],
        &["plan", "hi", "--estimate"],
        &["swarm", "hi"],
        &["team"],
        &[],
        &["serve", "http"],
        &["serve", "mcp"],
        &["mcp", "list"],
    ] {
        let mut refused = in_folder(&clone, args);
        refused
            .env("OPENAI_API_KEY", "sk-0123456789")
            .stdin(Stdio::null());
        let output = refused.output().unwrap();
        check(
            &output,
            2,
            "`levity.toml` in this folder is not trusted and sets",
        );
        assert_eq!(text(&output), "", "{args:?}");
    }
    assert!(!clone.join("memory").exists());
    check(
        &in_folder(&clone, &["trust", "--yes"]).output().unwrap(),
        0,
        "is trusted",
    );
    check(
        &in_folder(&clone, &["run", "hi"]).output().unwrap(),
        0,
        "Done.",
    );
    assert!(clone.join("artifacts/a.md").exists());
    let team = in_folder(&clone, &["team"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    check(&team, 0, "");
    for data in ["conversations.db", "runs.db", "recall.db"] {
        assert!(clone.join("memory").join(data).exists(), "{data}");
    }
}

#[test]
fn mcp_server_of_new_folder_offers_its_prompts() {
    let (_above, folder) = new_folder("mcp-server");
    let mut child = in_folder(&folder, &["serve", "mcp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}}});
    writeln!(input, "{initialize}").unwrap();
    assert!(lines.next().unwrap().contains("serverInfo"));
    writeln!(
        input,
        "{}",
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
    )
    .unwrap();
    writeln!(
        input,
        "{}",
        json!({"jsonrpc": "2.0", "id": 2, "method": "prompts/list"})
    )
    .unwrap();
    let listed = lines.find(|line| line.contains("\"prompts\"")).unwrap();
    assert!(listed.contains("\"summary\""), "{listed}");
    drop(input);
    assert!(child.wait().unwrap().success());
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[cfg(target_os = "linux")]
mod terminal {
    use super::*;
    use crate::plan_terminal::Terminal;

    /// Types a goal at the prompt of `levity`, waits for the answer, and ends the session.
    fn type_goal(folder: &Path, variables: &[(&str, &str)], answer: &str) {
        let mut terminal = Terminal::with_variables(folder, &[], b"", variables);
        terminal.until("> ");
        terminal
            .ours
            .write_all(b"Write a report about the tides\n")
            .unwrap();
        terminal.until(answer);
        terminal.until("> ");
        terminal.ours.write_all(b"\x04").unwrap();
        assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    }

    fn artifact(folder: &Path, name: &str) -> String {
        fs::read_to_string(folder.join("artifacts").join(name)).unwrap()
    }

    #[test]
    fn agent_of_new_folder_writes_artifact_for_goal_at_prompt() {
        let (_above, folder) = new_folder("agent");
        let call = write_call("write_file", "artifacts/tides.md");
        set_script(&folder, &json!([call, {"reply": "The report is ready."}]));
        type_goal(&folder, &[], "The report is ready.");
        assert_eq!(artifact(&folder, "tides.md"), "# Tides\n");
        // The session is stored where the settings say.
        let listed = in_folder(&folder, &["conversations", "list"])
            .output()
            .unwrap();
        check(&listed, 0, "messages");
    }

    #[test]
    fn team_of_new_folder_writes_artifacts_for_goal_at_prompt() {
        let (_above, folder) = new_folder("team");
        let plan = json!({"steps": [
            {"id": "data", "agent": "Coder", "prompt": "Write the data.", "writes": ["data"]},
            {"id": "report", "agent": "Formatter", "prompt": "Write the report.",
                "reads": ["data"], "writes": ["answer"]},
        ]});
        set_script(
            &folder,
            &json!([
                {"reply": plan.to_string()},
                write_call("write_file", "artifacts/data.csv"),
                {"reply": "{\"data\": \"artifacts/data.csv\"}"},
                write_call("write_artifact", "tides.md"),
                {"reply": "{\"answer\": \"The report is ready.\"}"},
            ]),
        );
        type_goal(&folder, &[], "The report is ready.");
        for name in ["data.csv", "tides.md"] {
            assert_eq!(artifact(&folder, name), "# Tides\n", "{name}");
        }
        let listed = in_folder(&folder, &["sessions", "list"]).output().unwrap();
        check(&listed, 0, "Write a report about the tides");
    }

    /// The same with a real model, if one is there.
    #[test]
    fn agent_of_new_folder_writes_artifact_with_local_model() {
        let Ok(url) = std::env::var("LEVITY_TEST_BASE_URL") else {
            // Written directly to standard error, because the test harness captures `eprintln!`.
            let _ = std::io::stderr()
                .write_all(b"SKIPPED: no real model; LEVITY_TEST_BASE_URL names no server\n");
            return;
        };
        let name = std::env::var("LEVITY_TEST_MODEL").unwrap_or_else(|_| "qwen".to_owned());
        let (above, folder) = new_folder("agent");
        add_settings(
            &folder,
            "instructions = \"Call write_file once, then answer: READY\"",
        );
        // Without a temperature, the server picks the words of the model at random.
        let model = format!("compatible:{name}@{}/v1", url.trim_end_matches('/'));
        let options = json!({"temperature": 0, "max_tokens": 300});
        let profiles = json!({"profiles": {"small": {"model": model, "options": options}}});
        let list = above.path().join("models.json");
        fs::write(&list, profiles.to_string()).unwrap();
        check(
            &in_folder(&folder, &["trust", "--yes"]).output().unwrap(),
            0,
            "is trusted",
        );
        let variables = [
            ("LEVITY_MODELS", list.to_str().unwrap()),
            ("LEVITY_MODEL", "small"),
        ];
        let mut terminal = Terminal::with_variables(&folder, &[], b"", &variables);
        terminal.until("> ");
        let goal = b"Write the text `high water at six` to the file artifacts/tides.md\n";
        terminal.ours.write_all(goal).unwrap();
        // The prompt returns when the agent has answered. A model on a busy processor reads the
        // descriptions of all tools for a minute or longer.
        terminal.until_within("> ", 600);
        terminal.ours.write_all(b"\x04").unwrap();
        assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
        let written = artifact(&folder, "tides.md");
        assert!(written.to_lowercase().contains("high water"), "{written}");
    }
}

/// Starts a model server, and returns its address and the requests that it receives.
fn model_server() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let sender = sender.clone();
            // Workers call in parallel.
            thread::spawn(move || {
                if let Some(request) = answer_request(stream.unwrap()) {
                    let _ = sender.send(request);
                }
            });
        }
    });
    (url, requests)
}

fn answer_request(mut stream: TcpStream) -> Option<Value> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).ok()? > 0 && !line.trim().is_empty() {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        line.clear();
    }
    let mut sent = vec![0; length];
    reader.read_exact(&mut sent).ok()?;
    let request: Value = serde_json::from_slice(&sent).ok()?;
    let usage = json!({"prompt_tokens": 20, "completion_tokens": 3});
    let message = json!({"role": "assistant", "content": reply_to(&request.to_string())});
    let (kind, body) = match request["stream"].as_bool() {
        Some(true) => {
            let piece = json!({"choices": [{"delta": message, "finish_reason": "stop"}]});
            let counts = json!({"choices": [], "usage": usage});
            let body = format!("data: {piece}\n\ndata: {counts}\n\ndata: [DONE]\n\n");
            ("text/event-stream", body)
        }
        _ => {
            let choices = json!([{"message": message, "finish_reason": "stop"}]);
            (
                "application/json",
                json!({"choices": choices, "usage": usage}).to_string(),
            )
        }
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\
            content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    Some(request)
}

/// Plays the planner, the router and all agents.
fn reply_to(request: &str) -> String {
    let steps = json!({"steps": [
        {"id": "poem", "agent": "Poet", "prompt": "Write.", "writes": ["poem"]},
        {"id": "file", "agent": "Coder", "prompt": "Store.", "reads": ["poem"], "writes": ["x"]},
    ]});
    let delegations = json!({"delegations": [{"id": "a", "worker": "coder", "task": "Write it."}]});
    match () {
        () if request.contains("Answer with the plan alone") => steps.to_string(),
        () if request.contains("# Who can work") => delegations.to_string(),
        () => r#"{"poem": "Roses are red.", "x": "stored"}"#.to_owned(),
    }
}

/// A folder with a tool of each kind: example tools, an MCP server, context files and an agent of
/// its own.
fn complete_folder() -> (TempDir, PathBuf) {
    let (above, folder) = new_folder("team");
    let servers = json!({"mcpServers": {"speaker": crate::mcp::settings("serve")}});
    fs::write(folder.join("mcp.json"), servers.to_string()).unwrap();
    let config = folder.join("agents/agent_config.yaml");
    let agents = fs::read_to_string(&config).unwrap();
    fs::write(
        &config,
        agents + "\nPoet:\n  prompt: Write poems about the sea.\n",
    )
    .unwrap();
    check(
        &in_folder(&folder, &["trust", "--yes"]).output().unwrap(),
        0,
        "is trusted",
    );
    (above, folder)
}

/// Checks that some request offered the tools of the folder, and contained its context files.
#[track_caller]
fn check_requests(command: &str, requests: &[Value]) {
    let tools: Vec<&str> = requests
        .iter()
        .flat_map(|request| request["tools"].as_array().into_iter().flatten())
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    for tool in [
        "text_statistics",
        "reverse_words",
        "read_file",
        "write_file",
        "say",
    ] {
        let has_tool = tools.iter().any(|name| name.contains(tool));
        assert!(has_tool, "{command} offers no `{tool}`: {tools:?}");
    }
    let sent = Value::from(requests.to_vec()).to_string();
    for part in ["Rules for agents", "About this project"] {
        assert!(sent.contains(part), "{command} sends no `{part}`");
    }
}

#[test]
fn every_command_uses_tools_context_agents_and_servers_of_folder_without_option() {
    let (_above, folder) = complete_folder();
    let (url, received) = model_server();
    let model = format!("compatible:test@{url}");
    let with_model = |args: &[&str]| {
        let mut command = in_folder(&folder, args);
        command.env("LEVITY_MODEL", &model);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let cases: [(&[&str], &str); 6] = [
        (&["run", "Describe the sea"], ""),
        (&["chat"], "Describe the sea\n"),
        (&["plan", "Describe the sea"], ""),
        (&["swarm", "Describe the sea"], ""),
        (&["team"], "Describe the sea\n"),
        (&[], "Describe the sea\n"),
    ];
    for (args, typed) in cases {
        let mut child = with_model(args).spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(typed.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        check(&output, 0, "");
        let requests: Vec<Value> = received.try_iter().collect();
        check_requests(&format!("levity {args:?}"), &requests);
        let sent = Value::from(requests).to_string();
        let is_team = matches!(args.first(), None | Some(&"plan" | &"team"));
        assert_eq!(
            sent.contains("Write poems about the sea."),
            is_team,
            "{args:?}"
        );
        assert!(text(&output).contains("stored"), "{args:?}: {output:?}");
    }
}

#[test]
fn serve_http_uses_tools_context_agents_and_servers_of_folder_without_option() {
    let (_above, folder) = complete_folder();
    let (url, received) = model_server();
    for offer in ["agent", "team"] {
        let args = ["serve", "http", "--listen", "127.0.0.1:0", "--offer", offer];
        let mut command = in_folder(&folder, &args);
        command.env("LEVITY_MODEL", format!("compatible:test@{url}"));
        command.env("LEVITY_TOKEN", crate::serve::TOKEN);
        let server = crate::serve::Server::spawn(command);
        let (status, _) = server.ask(
            "POST",
            "/v1/runs",
            &json!({"goal": "Describe", "id": offer}),
        );
        assert!(status < 300, "{offer}: {status}");
        assert!(
            server.follow(offer, &mut Vec::new(), |_| false),
            "the run ends"
        );
        let requests: Vec<Value> = received.try_iter().collect();
        check_requests(&format!("serve http --offer {offer}"), &requests);
        let sent = Value::from(requests).to_string();
        assert_eq!(sent.contains("Write poems about the sea."), offer == "team");
    }
}
