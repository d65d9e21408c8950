//! Tests of the bridge with a host and a bridge, each in a separate process.

mod kills;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use levity::core::{Progress, Tool as _, ToolCx, ToolReport, ToolSource as _};
use levity::mcp::{ServerConfig, Servers, WaitFor};
use levity::serve::Token;
use levity::serve::bridge::{BridgeClient, ErrorKind};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::{check, command, levity};

/// A folder for one test, with a workspace in it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("bridge-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("work")).unwrap();
        Self(folder)
    }

    fn work(&self, name: &str) -> PathBuf {
        self.0.join("work").join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.work(name)).unwrap()
    }

    fn script(&self, steps: &Value) -> String {
        let path = self.0.join("script.json");
        fs::write(&path, steps.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("HOME", &self.0).stdin(Stdio::null());
        command
    }

    /// Starts a host, waits until it is ready, and reads its output in the background.
    fn host(&self, args: &[&str]) -> Host {
        let (host, lines) = self.silent_host(args);
        let saying = host.has_printed.clone();
        std::thread::spawn(move || {
            lines.for_each(|line| saying.send_modify(|has_printed| has_printed.push(line)));
        });
        host
    }

    /// Starts a host whose output is not read after it is ready.
    fn silent_host(&self, args: &[&str]) -> (Host, HostLines) {
        let work = self.work("");
        let mut all = vec!["bridge", "host", "--workspace", work.to_str().unwrap()];
        if !args.contains(&"--listen") {
            all.extend(["--listen", "127.0.0.1:0"]);
        }
        all.extend(args);
        let stderr_text = fs::File::create(self.0.join("noted")).unwrap();
        let mut child = self
            .command(&all)
            .stdout(Stdio::piped())
            .stderr(stderr_text)
            .spawn()
            .unwrap();
        let mut lines: HostLines = Box::new(
            BufReader::new(child.stdout.take().unwrap())
                .lines()
                .map(Result::unwrap),
        );
        let (mut url, mut has_printed) = (String::new(), Vec::new());
        for line in lines.by_ref() {
            if let Some(at) = line.strip_prefix("listening on ") {
                at.clone_into(&mut url);
            }
            let ready = line == "ready";
            has_printed.push(line);
            if ready {
                break;
            }
        }
        assert!(!url.is_empty(), "{has_printed:?}");
        (
            Host {
                child,
                url,
                has_printed: watch::Sender::new(has_printed),
            },
            lines,
        )
    }

    /// Returns what the last host wrote to its standard error.
    fn stderr_text(&self) -> String {
        fs::read_to_string(self.0.join("noted")).unwrap()
    }

    fn token(&self) -> Token {
        Token::from_file(self.0.join(".local/state/levity/bridge/token")).unwrap()
    }

    fn client(&self, host: &Host) -> BridgeClient {
        BridgeClient::new(&host.url, self.token()).unwrap()
    }

    /// Starts the bridge as an MCP client does.
    async fn bridge(&self, url: &str, env: &[(&str, &str)]) -> Servers {
        let mut config = ServerConfig::stdio("bridge", env!("CARGO_BIN_EXE_levity"))
            .args(["bridge", "stdio", "--url", url])
            .env("HOME", self.0.to_str().unwrap());
        for (name, value) in env {
            config = config.env(*name, *value);
        }
        let servers = Servers::builder().server(config).start().unwrap();
        for status in servers.wait(WaitFor::All).await {
            assert!(status.state.is_ready(), "{status:?}");
        }
        servers
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The lines that a host has not printed yet.
type HostLines = Box<dyn Iterator<Item = String> + Send>;

struct Host {
    child: Child,
    url: String,
    has_printed: watch::Sender<Vec<String>>,
}

impl Host {
    /// Kills the host as `kill -9` does.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the host as the system does, and returns its exit code.
    fn end(mut self) -> Option<i32> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }

    fn has_printed(&self, part: &str) -> bool {
        self.has_printed
            .borrow()
            .iter()
            .any(|line| line.contains(part))
    }

    /// Waits until the host prints this, and returns the whole line.
    async fn wait_for_line(&self, part: &str) -> String {
        let mut has_printed = self.has_printed.subscribe();
        let line = |has_printed: &Vec<String>| {
            has_printed.iter().find(|line| line.contains(part)).cloned()
        };
        let waiting = has_printed.wait_for(|has_printed| line(has_printed).is_some());
        let has_printed = tokio::time::timeout(Duration::from_secs(60), waiting)
            .await
            .ok()
            .and_then(Result::ok);
        has_printed
            .and_then(|has_printed| line(&has_printed))
            .ok_or_else(|| format!("the host never printed `{part}`"))
            .unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls a tool of the bridge, and returns its text or its error.
async fn call(bridge: &Servers, name: &str, args: Value, cx: &ToolCx) -> Result<String, String> {
    let tools = bridge.tools();
    let tool = tools
        .iter()
        .find(|tool| tool.spec().name.ends_with(name))
        .unwrap();
    let called = tool.call(args, cx).await;
    called
        .map(|output| output.as_text().into_owned())
        .map_err(|error| error.to_string())
}

async fn ask(bridge: &Servers, name: &str, args: Value) -> Result<String, String> {
    call(bridge, name, args, &ToolCx::detached()).await
}

fn plan() -> Value {
    json!([
        {"call": {"name": "write_file",
            "args": {"path": "ARCHITECTURE.md", "content": "# Two parts\n"}}},
        {"reply": "It is planned."},
    ])
}

/// Waits for the end of a task, and returns its state.
#[cfg(unix)]
async fn ended(client: &BridgeClient, task: &str) -> Value {
    let signals = format!("{{DONE_{task},FAILED_{task}}}");
    client
        .request("fs/wait", json!({"glob": signals, "timeout": 60}))
        .await
        .unwrap();
    client
        .request("agent/status", json!({"task": task}))
        .await
        .unwrap()
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn external_commander_receives_task_and_answers() {
    let place = Place::new("commander");
    let command = "read task; echo \"$task in $(basename $PWD)\" >seen; echo \"did: $task\"";
    let host = place.host(&["--commander", command]);
    let client = place.client(&host);
    client
        .request(
            "agent/dispatch",
            json!({"prompt": "Paint it.", "task": "t"}),
        )
        .await
        .unwrap();
    let state = ended(&client, "t").await;
    assert_eq!(state["answer"], "did: Paint it.", "{state}");
    assert_eq!(place.read("seen"), "Paint it. in work\n");
    assert_eq!(host.end(), Some(0));
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn failing_commander_reports_reason() {
    let place = Place::new("commander-fails");
    let host = place.host(&["--commander", "echo no licence >&2; exit 3"]);
    let client = place.client(&host);
    client
        .request(
            "agent/dispatch",
            json!({"prompt": "Paint it.", "task": "t"}),
        )
        .await
        .unwrap();
    let state = ended(&client, "t").await;
    assert_eq!(state["state"], "failed", "{state}");
    let signal = place.read("FAILED_t");
    assert!(
        signal.contains("no licence") || state.to_string().contains("no licence"),
        "{signal} {state}"
    );
    drop(host);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_task_kills_commander_and_its_children() {
    let place = Place::new("commander-cancelled");
    let host = place.host(&[
        "--commander",
        "sleep 600 & echo $! >child; echo $$ >leader; wait",
    ]);
    let client = place.client(&host);
    client
        .request("agent/dispatch", json!({"prompt": "Wait.", "task": "t"}))
        .await
        .unwrap();
    client
        .request("fs/wait", json!({"path": "leader", "timeout": 60}))
        .await
        .unwrap();
    let ids: Vec<i32> = ["child", "leader"]
        .map(|name| place.read(name).trim().parse().unwrap())
        .into_iter()
        .collect();
    client
        .request("agent/cancel", json!({"task": "t"}))
        .await
        .unwrap();
    assert_eq!(ended(&client, "t").await["state"], "cancelled");
    for id in ids {
        let id = rustix::process::Pid::from_raw(id).unwrap();
        let gone = async {
            while rustix::process::test_kill_process(id).is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // The process would end on its own after some time.
        tokio::time::timeout(Duration::from_secs(60), gone)
            .await
            .expect("it is killed");
    }
    drop(host);
}

#[tokio::test]
async fn mcp_client_works_with_host_through_bridge() {
    let place = Place::new("whole");
    let host = place.host(&["--script", &place.script(&plan()), "--read-limit", "200"]);
    let bridge = place.bridge(&host.url, &[]).await;
    assert_eq!(bridge.tools().len(), 6);
    let written = ask(
        &bridge,
        "write_file",
        json!({"path": "src/a.rs", "content": "fn a() {}\n"}),
    )
    .await
    .unwrap();
    assert!(
        written.contains("`src/a.rs` was created (10 bytes)"),
        "{written}"
    );
    assert_eq!(
        ask(&bridge, "read_file", json!({"path": "src/a.rs"}))
            .await
            .unwrap(),
        "fn a() {}\n"
    );
    let listed = ask(&bridge, "list_files", json!({"recursive": true}))
        .await
        .unwrap();
    assert!(listed.contains("src/a.rs (10)"), "{listed}");
    let started = ask(
        &bridge,
        "dispatch_agent_task",
        json!({"prompt": "Plan it.", "done": "DONE_PLANning"}),
    )
    .await
    .unwrap();
    assert!(started.contains("`DONE_PLANning` appears"), "{started}");
    let found = ask(
        &bridge,
        "wait_for_file",
        json!({"glob": "{DONE_PLANning,FAILED_*}", "timeout": 40}),
    )
    .await
    .unwrap();
    assert!(found.contains("`DONE_PLANning`"), "{found}");
    assert_eq!(place.read("ARCHITECTURE.md"), "# Two parts\n");
    let task = started.split(' ').nth(1).unwrap();
    let status = ask(&bridge, "task_status", json!({"task": task}))
        .await
        .unwrap();
    assert!(
        status.contains("done") && status.contains("It is planned."),
        "{status}"
    );
    // Rejections explain what to do.
    fs::write(place.work("long"), "x".repeat(201)).unwrap();
    for (args, words) in [
        (json!({"path": "../secret"}), "leads out of the workspace"),
        (json!({"path": "long"}), "--read-limit"),
        (json!({"path": "nothing"}), "list its parent folder"),
        (json!({"path": ".env"}), "denied to tools"),
    ] {
        let refusal = ask(&bridge, "read_file", args).await.unwrap_err();
        assert!(refusal.contains(words), "{refusal}");
    }
    host.wait_for_line("created src/a.rs (10 bytes)").await;
    host.wait_for_line(&format!("dispatched task {task}: Plan it."))
        .await;
    bridge.stop().await;
    assert_eq!(host.end(), Some(0));
}

#[tokio::test]
async fn bridge_starts_without_host_and_finds_it_later() {
    let place = Place::new("late");
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let bridge = place.bridge(&format!("ws://{free}"), &[]).await;
    let refusal = ask(&bridge, "list_files", json!({})).await.unwrap_err();
    assert!(
        refusal.contains("levity bridge host --workspace DIR"),
        "{refusal}"
    );
    let token = "a-token-that-was-agreed-upon";
    let wrong = place
        .bridge(&format!("ws://{free}"), &[("LEVITY_BRIDGE_TOKEN", token)])
        .await;
    let refusal = ask(&wrong, "list_files", json!({})).await.unwrap_err();
    assert!(
        refusal.contains("levity bridge host --workspace DIR"),
        "{refusal}"
    );

    let host = place.host(&["--listen", &free.to_string()]);
    assert!(
        ask(&bridge, "list_files", json!({}))
            .await
            .unwrap()
            .contains("nothing to list")
    );
    let refusal = ask(&wrong, "list_files", json!({})).await.unwrap_err();
    assert!(
        refusal.contains("does not have the token") && !refusal.contains(token),
        "{refusal}"
    );
    // A restarted host is found again, even during a wait.
    let wait_started = Arc::new(Notify::new());
    let (reported, mut cx) = (wait_started.clone(), ToolCx::detached());
    cx.progress = Progress::listen(move |report| {
        if matches!(report, ToolReport::Text(_)) {
            reported.notify_one();
        }
    });
    let waiting = call(
        &bridge,
        "wait_for_file",
        json!({"path": "late", "timeout": 50}),
        &cx,
    );
    let (found, again) = tokio::join!(waiting, async {
        wait_started.notified().await;
        host.kill();
        let again = place.host(&["--listen", &free.to_string()]);
        fs::write(place.work("late"), "").unwrap();
        again
    });
    assert!(found.unwrap().contains("`late`"));
    assert_eq!(again.end(), Some(0));
}

#[test]
fn bridge_reports_invalid_arguments() {
    check(&levity(&["bridge", "host"]), 2, "--workspace DIR");
    let homeless = command(&["bridge", "host", "--workspace", "."])
        .env_remove("HOME")
        .output()
        .unwrap();
    check(&homeless, 2, "XDG_STATE_HOME");
    check(
        &levity(&[
            "bridge",
            "stdio",
            "--url",
            "ws://10.0.0.1:8888",
            "--token-file",
            "x",
        ]),
        2,
        "another machine",
    );
    check(
        &levity(&[
            "bridge",
            "stdio",
            "--url",
            "wss://127.0.0.1",
            "--token-file",
            "x",
        ]),
        2,
        "TLS",
    );
    let place = Place::new("wrong");
    let host = place.host(&[]);
    let at = host.url.strip_prefix("ws://").unwrap();
    let work = place.work("");
    let second = [
        "bridge",
        "host",
        "--workspace",
        work.to_str().unwrap(),
        "--listen",
    ];
    let two = |at: &str, journal: &str| {
        let mut command = place.command(&[&second[..], &[at, "--journal", journal]].concat());
        command.output().unwrap()
    };
    check(
        &two(at, place.0.join("other.db").to_str().unwrap()),
        1,
        "cannot listen on",
    );
    let mut same = place.command(&[&second[..], &["127.0.0.1:0"]].concat());
    check(&same.output().unwrap(), 1, "another host uses this folder");
    let short = place
        .command(&[&second[..], &["127.0.0.1:0"]].concat())
        .env("LEVITY_BRIDGE_TOKEN", "short")
        .output();
    check(&short.unwrap(), 2, "too short");
}

#[test]
fn token_is_printed_once_and_stored_for_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new("token");
    let host = place.host(&[]);
    let token = place.token();
    assert!(
        place
            .stderr_text()
            .contains(&format!(": {}", token.reveal()))
    );
    assert!(!host.has_printed(token.reveal()));
    let file = place.0.join(".local/state/levity/bridge/token");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(host.end(), Some(0));
    let _host = place.host(&[]);
    let stderr_text = place.stderr_text();
    assert!(
        !stderr_text.contains(token.reveal())
            && stderr_text.contains("clients must send the token in"),
        "{stderr_text}"
    );
    assert!(place.token().matches(token.reveal()));
}

/// A stopped terminal, as by Ctrl-S, or an unread pipe blocks no client.
#[tokio::test]
async fn host_works_while_its_output_is_blocked() {
    let place = Place::new("stopped");
    let (host, mut lines) = place.silent_host(&[]);
    let client = place.client(&host);
    let write = json!({"path": "n".repeat(200), "content": "x"});
    // These are more lines than the pipe and the host hold.
    let fill = async || {
        for _ in 0..2500 {
            let written = tokio::time::timeout(
                Duration::from_secs(30),
                client.request("fs/write", write.clone()),
            );
            written.await.expect("the host is held up").unwrap();
        }
    };
    fill().await;
    // Once the output is read again, it contains the number of dropped lines at the right place.
    let reading = tokio::task::spawn_blocking(move || {
        let is_gap = |line: &String| line.contains("dropped, because");
        let before = lines.by_ref().take_while(|line| !is_gap(line)).count();
        // A slow reader may cause several gaps in a row.
        (before, lines.find(|line| !is_gap(line)), lines)
    });
    while !reading.is_finished() {
        client
            .request("fs/write", json!({"path": "last", "content": "x"}))
            .await
            .unwrap();
    }
    let (before, after, lines) = reading.await.unwrap();
    assert!(before > 1024 && before < 2500, "{before}");
    // The host answers before it prints the line, so the last of the many lines may be after the
    // gap, too.
    assert!(after.unwrap().ends_with("(1 bytes)"));
    // It still ends on a shutdown signal.
    fill().await;
    assert_eq!(host.end(), Some(0));
    drop(lines);
}

/// A task with a question is shown at the host, and answered from another terminal.
#[tokio::test]
async fn question_of_task_is_answered_from_another_terminal() {
    let place = Place::new("asks");
    let script = place.script(&json!([
        {"call": {"name": "ask_user", "args": {"question": "Which colour?"}}},
        {"reply": "It is green."},
    ]));
    let host = place.host(&["--script", &script]);
    let client = place.client(&host);
    client
        .request(
            "agent/dispatch",
            json!({"prompt": "Paint it.", "task": "t"}),
        )
        .await
        .unwrap();
    let line = host.wait_for_line("levity runs approve t").await;
    assert!(host.has_printed("task t waits for a decision: `ask_user`"));
    let status = client
        .request("agent/status", json!({"task": "t"}))
        .await
        .unwrap();
    assert_eq!(
        (&status["state"], &status["asks"][0]["call"]["name"]),
        (&json!("waiting"), &json!("ask_user"))
    );
    let journal = line.split_whitespace().nth(5).unwrap();
    let answered = place
        .command(&[
            "runs",
            "answer",
            "t",
            "--text",
            "green",
            "--journal",
            journal,
        ])
        .output()
        .unwrap();
    check(&answered, 0, "");
    let found = client
        .request("fs/wait", json!({"path": "DONE_t", "timeout": 40}))
        .await
        .unwrap();
    assert_eq!(found["timed_out"], false);
}

/// A task that another user left in a journal is not resumed, and its question shows the whole
/// call.
#[tokio::test]
async fn planted_task_is_not_resumed_and_its_question_shows_the_call() {
    let place = Place::new("planted");
    let script = place.script(&json!([
        {"call": {"name": "write_file", "args": {"path": "planted", "content": "all of it"}}},
        {"reply": "Done."},
    ]));
    let journal = place.0.join("runs");
    let args = [
        "--script",
        &script,
        "--journal",
        journal.to_str().unwrap(),
        "--ask",
        "write_file",
    ];
    let host = place.host(&args);
    let client = place.client(&host);
    client
        .request(
            "agent/dispatch",
            json!({"prompt": "Write it.", "task": "t"}),
        )
        .await
        .unwrap();
    host.wait_for_line("levity runs approve t").await;
    assert!(host.has_printed("all of it"));
    host.kill();
    let approve = [
        "runs",
        "approve",
        "t",
        "--journal",
        journal.to_str().unwrap(),
    ];
    check(&place.command(&approve).output().unwrap(), 0, "all of it");
    // The same journal is opened by a user who did not create it.
    let marks = place.0.join(".local/state/levity/journals");
    fs::rename(&marks, place.0.join("marks-of-the-stranger")).unwrap();
    let host = place.host(&args);
    host.wait_for_line("`--trust-journal`").await;
    assert!(!place.work("planted").exists());
    host.kill();
    let host = place.host(&[&args[..], &["--trust-journal"]].concat());
    let found = place
        .client(&host)
        .request("fs/wait", json!({"path": "DONE_t", "timeout": 40}))
        .await
        .unwrap();
    assert_eq!(found["timed_out"], false);
    assert_eq!(place.read("planted"), "all of it");
}

/// A named file takes precedence over the environment, for a host and for a bridge.
#[tokio::test]
async fn named_token_file_takes_precedence_over_environment() {
    let place = Place::new("named");
    let (file, env) = (
        place.0.join("own"),
        ("LEVITY_BRIDGE_TOKEN", "a-token-that-is-not-meant"),
    );
    let mut command = place.command(&["bridge", "host", "--listen", "127.0.0.1:0", "--token-file"]);
    command
        .arg(&file)
        .args(["--workspace", place.work("").to_str().unwrap()])
        .env(env.0, env.1);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let url = lines
        .find_map(|line| line.strip_prefix("listening on ").map(str::to_owned))
        .unwrap();
    let host = Host {
        child,
        url,
        has_printed: watch::Sender::default(),
    };
    std::thread::spawn(move || lines.for_each(drop));
    let asked = BridgeClient::new(&host.url, Token::from_file(&file).unwrap()).unwrap();
    asked.request("ping", json!({})).await.unwrap();
    let config = ServerConfig::stdio("bridge", env!("CARGO_BIN_EXE_levity"))
        .args([
            "bridge",
            "stdio",
            "--url",
            &host.url,
            "--token-file",
            file.to_str().unwrap(),
        ])
        .env(env.0, env.1);
    let bridge = Servers::builder().server(config).start().unwrap();
    bridge.wait(WaitFor::All).await;
    assert!(
        ask(&bridge, "list_files", json!({}))
            .await
            .unwrap()
            .contains("nothing to list")
    );
    assert_eq!(host.end(), Some(0));
}

/// Uses the library that most MCP clients in Python are built with, if it is installed.
#[test]
fn python_mcp_client_works_with_host() {
    let Some(python) = std::env::var_os("LEVITY_TEST_MCP_PYTHON") else {
        eprintln!(
            "SKIPPED: `LEVITY_TEST_MCP_PYTHON` is not set, so no client in Python is started"
        );
        return;
    };
    let place = Place::new("python");
    let host = place.host(&["--script", &place.script(&plan())]);
    let client = place.0.join("client.py");
    fs::write(&client, PYTHON).unwrap();
    let mut command = Command::new(python);
    command
        .arg(client)
        .args([env!("CARGO_BIN_EXE_levity"), &host.url])
        .env("HOME", &place.0);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    assert!(child.wait().unwrap().success(), "{err}");
    assert_eq!(
        out, "6 tools\nfn a() {}\nwas dispatched\n`DONE_py`\n# Two parts\nrejected: leads out\n",
        "{err}"
    );
}

const PYTHON: &str = r##"
import asyncio, os, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.argv[1],
                                   args=["bridge", "stdio", "--url", sys.argv[2]],
                                   env={"HOME": os.environ["HOME"]})
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        async def call(name, **arguments):
            result = await session.call_tool(name, arguments)
            failed = getattr(result, "isError", None) or getattr(result, "is_error", None)
            return failed, result.content[0].text
        print(len((await session.list_tools()).tools), "tools")
        await call("write_file", path="a.rs", content="fn a() {}")
        print((await call("read_file", path="a.rs"))[1])
        begun = (await call("dispatch_agent_task", prompt="Plan it.", done="DONE_py"))[1]
        print("was dispatched" if "was dispatched" in begun else begun)
        file = (await call("wait_for_file", path="DONE_py"))[1]
        print("`DONE_py`" if "`DONE_py`" in file else "not found")
        print((await call("read_file", path="ARCHITECTURE.md"))[1], end="")
        failed, words = await call("read_file", path="../x")
        print("rejected:" if failed else "read:", "leads out" if "leads out" in words else words)

asyncio.run(main())
"##;

/// The kinds of rejections are those in the documentation.
#[test]
fn every_rejection_kind_is_documented() {
    let docs = include_str!("../fixtures/bridge.md");
    for kind in ErrorKind::ALL {
        let row = format!("| `{}` | {} |", kind.name(), kind.code());
        assert!(docs.contains(&row), "{row}");
    }
}

#[test]
fn host_beyond_loopback_requires_permission_and_warns() {
    let place = Place::new("exposed");
    let work = place.work("");
    let open = [
        "bridge",
        "host",
        "--workspace",
        work.to_str().unwrap(),
        "--listen",
        "0.0.0.0:0",
    ];
    let rejected = super::output_within_minute(&mut place.command(&open));
    check(&rejected, 2, "--allow-plaintext");
    check(&rejected, 2, "is reachable from other machines");
    let host = place.host(&["--listen", "0.0.0.0:0", "--allow-plaintext"]);
    drop(host);
    assert!(
        place.stderr_text().contains("warning: 0.0.0.0:"),
        "{}",
        place.stderr_text()
    );
}

#[test]
fn host_accepts_only_allowed_host_names() {
    use std::io::Write as _;
    let place = Place::new("named");
    let host = place.host(&["--allow-host", "tunnel.example:7777"]);
    let address = host
        .url
        .trim_start_matches("ws://")
        .trim_end_matches('/')
        .to_owned();
    for (name, status) in [
        ("tunnel.example:7777", "200"),
        ("evil.example", "403"),
        (&*address, "200"),
    ] {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let head = format!(
            "GET /challenge?client=0123456789abcdef HTTP/1.1\r\nHost: {name}\r\nConnection: \
                close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer.split(' ').nth(1), Some(status), "{name}: {answer}");
    }
    drop(host);
}
