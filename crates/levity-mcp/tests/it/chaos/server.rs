//! A server that misbehaves on demand. It is this test binary itself, started again.
//!
//! [`MODE`] sets how it starts: `serve`, `die`, `exit`, `mute`, `deaf`, `flood`, `sleep`,
//! `stubborn`, `session` or `fork`. The called tool determines its later behaviour; `TOOLS` lists
//! the names.

use std::io::{BufRead, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// The variable that turns the test below into a server, and sets its mode.
pub(crate) const MODE: &str = "LEVITY_CHAOS";

/// The names of the tools.
const TOOLS: &[&str] = &[
    "echo",
    "die",
    "kill",
    "deaf",
    "ask",
    "hang",
    "garbage",
    "noise",
    "large",
    "large_end",
    "late",
    "twice",
    "no_id",
    "no_id_absent",
    "unknown",
    "text",
    "null",
    "string_id",
    "children",
    "pid",
    "fail",
    "broken",
];

/// Returns the arguments that turn this binary into the server.
pub(crate) fn arguments() -> Vec<String> {
    // The path of the test below without the name of the crate.
    let path = module_path!().split_once("::").map_or("", |(_, path)| path);
    vec![
        format!("{path}::chaos_server"),
        "--exact".into(),
        "--nocapture".into(),
        "--test-threads=1".into(),
    ]
}

/// Returns the path of this binary.
pub(crate) fn program() -> String {
    std::env::current_exe()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned()
}

/// Runs the server; does nothing unless the environment variable sets its mode.
#[test]
fn chaos_server() {
    let Ok(mode) = std::env::var(MODE) else {
        return;
    };
    // The test harness has started a line.
    write_stdout(b"\n");
    match mode.as_str() {
        "die" => {
            eprintln!("starting up\nmissing API key: set WEATHER_KEY");
            std::process::exit(7);
        }
        "exit" => std::process::exit(0),
        "deaf" | "sleep" => {
            eprintln!("it is up");
            sleep();
        }
        "stubborn" => stubborn(),
        "session" => {
            rustix::process::setsid().unwrap();
            sleep();
        }
        "fork" => {
            // The server exits at once and leaves a child behind that holds all its pipes.
            let child = start("sleep", Stdio::inherit());
            eprintln!("left {} behind", child.id());
            std::process::exit(3);
        }
        "flood" => {
            let line = "noise ".repeat(100) + "\n";
            for _ in 0..20_000 {
                std::io::stderr().write_all(line.as_bytes()).unwrap();
            }
            serve(false);
        }
        "mute" => serve(true),
        _ => serve(false),
    }
    std::process::exit(0);
}

fn sleep() -> ! {
    loop {
        std::thread::park();
    }
}

/// Runs without end and ignores even SIGTERM.
fn stubborn() -> ! {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let kind = tokio::signal::unix::SignalKind::terminate();
        let _ignored = tokio::signal::unix::signal(kind).unwrap();
        eprintln!("it is up");
        std::future::pending::<()>().await;
    });
    sleep();
}

/// Starts a child in the given mode.
pub(crate) fn start(mode: &str, pipes: Stdio) -> Child {
    let mut command = Command::new(program());
    command
        .args(arguments())
        .env(MODE, mode)
        .stdin(Stdio::null())
        .stdout(pipes)
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

fn serve(mute: bool) {
    let mut late = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        if mute {
            continue;
        }
        let id = message["id"].clone();
        match message["method"].as_str() {
            Some("initialize") => answer(&id, &initialized(&message["params"]["protocolVersion"])),
            Some("ping") => answer(&id, &json!({})),
            Some("tools/list") => answer(&id, &json!({"tools": tools()})),
            Some("tools/call") => call(&id, &message["params"], &mut late),
            Some("notifications/cancelled") => {
                eprintln!("cancelled {}", message["params"]["requestId"]);
            }
            Some(_) if !id.is_null() => error(&id, -32601, "no such method"),
            _ => {}
        }
    }
}

fn initialized(version: &Value) -> Value {
    json!({"protocolVersion": version, "capabilities": {"tools": {}},
        "serverInfo": {"name": "chaos", "version": "1"}})
}

fn tools() -> Vec<Value> {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    TOOLS
        .iter()
        .map(|name| json!({"name": name, "description": "Chaos.", "inputSchema": schema}))
        .collect()
}

fn call(id: &Value, params: &Value, late: &mut Option<Value>) {
    match params["name"].as_str().unwrap_or_default() {
        "die" => {
            eprintln!("out of cheese");
            std::process::exit(9);
        }
        "kill" => {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
        }
        "deaf" => sleep(),
        "ask" => {
            for id in 0..u64::MAX {
                send(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
            }
        }
        "hang" => {}
        "garbage" => loop {
            write_stdout(b"\x00\xff garbage, and no end of it\n");
        },
        "noise" => {
            write_stdout(b"some noise\n\n{\"not\": \"a message\"}\n");
            text(id, "after the noise");
        }
        "large" => large(
            &format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":\
                    {{\"content\":[{{\"type\":\"text\",\"text\":\""
            ),
            "\"}]}}\n",
        ),
        "large_end" => {
            large(
                "{\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"",
                &format!("\"}}]}},\"jsonrpc\":\"2.0\",\"id\":{id}}}\n"),
            );
        }
        "late" => *late = Some(id.clone()),
        "twice" => {
            text(id, "once");
            text(id, "twice");
        }
        "no_id" => send(&json!({"jsonrpc": "2.0", "id": null,
                "error": {"code": -32700, "message": "what was that?"}})),
        "no_id_absent" => {
            send(
                &json!({"jsonrpc": "2.0", "error": {"code": -32700, "message": "what was that?"}}),
            );
        }
        "unknown" => answer(
            id,
            &json!({"content": [{"type": "text", "text": "known"},
                {"type": "hologram", "beams": 3}]}),
        ),
        "text" => answer(id, &json!({"content": "just text"})),
        "null" => answer(id, &Value::Null),
        "string_id" => text(&json!(id.to_string()), "by a string"),
        "children" => children(id),
        "pid" => text(id, &std::process::id().to_string()),
        "fail" => error(id, -32000, "cannot"),
        "broken" => {
            write_stdout(
                format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[],\"x\":NaN}}}}\n"
                )
                .as_bytes(),
            );
        }
        _ => {
            if let Some(id) = late.take() {
                text(&id, "late");
            }
            text(id, params["arguments"]["text"].as_str().unwrap_or_default());
        }
    }
}

/// Starts one child of each kind, and returns their process ids.
fn children(id: &Value) {
    let ids: Vec<String> = ["sleep", "stubborn", "session"]
        .iter()
        .map(|mode| start(mode, Stdio::null()).id().to_string())
        .collect();
    text(id, &ids.join(" "));
}

/// Writes a message of 100 MB on one line.
fn large(begin: &str, end: &str) {
    write_stdout(begin.as_bytes());
    let piece = vec![b'x'; 1_000_000];
    for _ in 0..100 {
        write_stdout(&piece);
    }
    write_stdout(end.as_bytes());
}

fn text(id: &Value, text: &str) {
    answer(id, &json!({"content": [{"type": "text", "text": text}]}));
}

fn answer(id: &Value, result: &Value) {
    send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn error(id: &Value, code: i32, message: &str) {
    send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}));
}

fn send(message: &Value) {
    write_stdout((message.to_string() + "\n").as_bytes());
}

/// Writes to stdout past the test harness; exits when there is no reader.
fn write_stdout(bytes: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    if stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .is_err()
    {
        std::process::exit(0);
    }
}
