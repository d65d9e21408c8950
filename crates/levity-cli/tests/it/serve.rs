//! Tests of `levity serve http` in a separate process that is killed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{fs, io};

use serde_json::{Value, json};

use super::{check, command, file, levity, output_within_minute};

pub(crate) const TOKEN: &str = "0123456789abcdef-of-a-test";

fn folder(name: &str) -> PathBuf {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A server that is killed when this value is dropped.
pub(crate) struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        let mut all = vec!["serve", "http", "--listen", "127.0.0.1:0"];
        all.extend(args);
        let mut command = command(&all);
        command.env("LEVITY_TOKEN", TOKEN);
        Self::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on http://")
            .unwrap()
            .strip_suffix("/v1")
            .unwrap();
        Self {
            address: address.to_owned(),
            child,
        }
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (address, length) = (&self.address, body.len());
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer \
                {TOKEN}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let mut answer = String::new();
        self.send(method, path, "", &body)
            .read_to_string(&mut answer)
            .unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (
            head.split(' ').nth(1).unwrap().parse().unwrap(),
            serde_json::from_str(body).unwrap_or(Value::Null),
        )
    }

    /// Appends the events after the last one of `seen`, until `stop` returns `true` or the stream
    /// ends. Returns `true` if the stream has ended.
    pub(crate) fn follow(
        &self,
        run: &str,
        seen: &mut Vec<(String, Value)>,
        stop: impl Fn(&[(String, Value)]) -> bool,
    ) -> bool {
        let last = seen
            .last()
            .map(|(id, _)| format!("Last-Event-ID: {id}\r\n"))
            .unwrap_or_default();
        let stream = self.send(
            "GET",
            &format!("/v1/runs/{run}/events?transient=0"),
            &last,
            "",
        );
        let mut id = String::new();
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return false };
            if line == "event: end" {
                return true;
            }
            assert_ne!(line, "event: reset");
            if let Some(next) = line.strip_prefix("id: ") {
                next.clone_into(&mut id);
            }
            if let Some(data) = line.strip_prefix("data: ") {
                seen.push((id.clone(), serde_json::from_str(data).unwrap()));
                if stop(seen) {
                    return false;
                }
            }
        }
        false
    }

    /// Kills the server without a chance to prepare.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has_kind(event: &Value, name: &str) -> bool {
    event["kind"].get(name).is_some()
}

fn script(name: &str, calls: usize) -> PathBuf {
    let call = |n: usize| json!({"call": {"name": "add", "args": {"a": n, "b": 1}}});
    let mut steps: Vec<Value> = (0..calls).map(call).collect();
    steps.push(json!({"reply": "Done."}));
    file(name, &Value::from(steps).to_string())
}

/// Kills the server repeatedly while it works on a run; the run and its event stream continue.
fn check_run_survives_kills(journal: &Path, script: &Path) {
    let (journal, script) = (journal.to_str().unwrap(), script.to_str().unwrap());
    let args = [
        "--journal",
        journal,
        "--script",
        script,
        "--max-turns",
        "200",
    ];
    let mut server = Server::start(&args);
    assert_eq!(
        server
            .ask("POST", "/v1/runs", &json!({"goal": "Add.", "id": "r"}))
            .0,
        201
    );
    let mut seen = Vec::new();
    let mut lives = 1;
    loop {
        let enough = seen.len() + 60;
        if server.follow("r", &mut seen, |seen| seen.len() >= enough) {
            break;
        }
        server.kill();
        server = Server::start(&args);
        lives += 1;
        // A request that is repeated after the crash starts no new run.
        assert_eq!(
            server
                .ask("POST", "/v1/runs", &json!({"goal": "Add.", "id": "r"}))
                .0,
            200
        );
    }
    assert!(lives > 3, "{lives}");
    let mut whole = Vec::new();
    assert!(server.follow("r", &mut whole, |_| false));
    assert_eq!(seen, whole);
    assert_eq!(
        whole
            .iter()
            .filter(|(_, event)| has_kind(event, "run_ended"))
            .count(),
        1
    );
    let (status, run) = server.ask("GET", "/v1/runs/r", &Value::Null);
    assert_eq!(
        (status, &run["ending"]["text"], &run["stats"]["tool_calls"]),
        (200, &json!("Done."), &json!(60))
    );
}

#[test]
fn run_and_stream_continue_after_every_kill() {
    let folder = folder("killed-files");
    check_run_survives_kills(&folder, &script("killed-files.json", 60));
}

#[test]
fn run_and_stream_continue_after_every_kill_with_sqlite() {
    let folder = folder("killed-sqlite");
    check_run_survives_kills(&folder.join("runs.db"), &script("killed-sqlite.json", 60));
}

#[test]
fn question_survives_restart_of_server() {
    let folder = folder("asked");
    let args = ["--journal", folder.to_str().unwrap(), "--ask", "add"];
    let server = Server::start(&args);
    server.ask("POST", "/v1/runs", &json!({"goal": "Add.", "id": "r"}));
    let mut seen = Vec::new();
    server.follow("r", &mut seen, |seen| {
        seen.last()
            .is_some_and(|(_, event)| has_kind(event, "asked"))
    });
    server.kill();
    let server = Server::start(&args);
    let asks = server.ask("GET", "/v1/runs/r/asks", &Value::Null).1;
    let path = format!(
        "/v1/runs/r/asks/{}",
        asks["asks"][0]["id"].as_str().unwrap()
    );
    // The command line shows the same fingerprint.
    let (_, fingerprint) = path.rsplit_once(':').unwrap();
    let shown = Command::new(env!("CARGO_BIN_EXE_levity"))
        .args(["runs", "show", "r", "--journal", folder.to_str().unwrap()])
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains(&format!(":{fingerprint})")),
        "{path}: {shown}"
    );
    assert_eq!(
        server.ask("POST", &path, &json!({"decision": "allow"})),
        (200, json!({"id": "r", "delivery": "delivered"}))
    );
    assert!(server.follow("r", &mut seen, |_| false));
    let (_, run) = server.ask("GET", "/v1/runs/r", &Value::Null);
    assert_eq!(
        (&run["state"], &run["asks"]),
        (&json!("answered"), &json!([]))
    );
}

#[test]
fn serve_http_offers_teams_and_swarms() {
    for (kind, part) in [
        ("team", "scripted model"),
        ("swarm", "A scripted model cannot answer this."),
    ] {
        let folder = folder(kind);
        let server = Server::start(&["--offer", kind, "--journal", folder.to_str().unwrap()]);
        server.ask(
            "POST",
            "/v1/runs",
            &json!({"goal": "Compare two coasts", "id": "r"}),
        );
        let mut seen = Vec::new();
        assert!(server.follow("r", &mut seen, |_| false));
        assert!(
            seen.iter()
                .any(|(_, event)| has_kind(event, "child_started")),
            "{seen:?}"
        );
        let (_, run) = server.ask("GET", "/v1/runs/r", &Value::Null);
        assert_eq!(run["state"], json!("answered"), "{run}");
        assert!(run.to_string().contains(part), "{run}");
        server.kill();
        // The journal that the server left is readable by other commands.
        let list = levity(&["runs", "replay", "r", "--journal", folder.to_str().unwrap()]);
        check(&list, 0, "records with the same");
    }
    for (args, part) in [
        (
            ["--offer", "team", "--memory", "m"],
            "`--memory` has no effect on a team",
        ),
        (
            ["--offer", "swarm", "--tool-routes", "--web"],
            "`--tool-routes` applies only to a single agent",
        ),
        (
            ["--offer", "agent", "--worker", "coder"],
            "`--worker` has no effect on an agent",
        ),
    ] {
        let output = levity(&[&["serve", "http", "--listen", "127.0.0.1:0"][..], &args].concat());
        check(&output, 2, part);
    }
}

#[cfg(unix)]
#[test]
fn server_ends_cleanly_on_signal_and_keeps_its_token() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::os::unix::fs::PermissionsExt as _;

    let folder = folder("token");
    let path = folder.join("below/token");
    let start = || {
        let args = [
            "serve",
            "http",
            "--listen",
            "127.0.0.1:0",
            "--token-file",
            path.to_str().unwrap(),
        ];
        let mut command = command(&args);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        child
    };
    let end = |mut child: Child, signal| -> io::Result<String> {
        kill_process(Pid::from_child(&child), signal)?;
        let mut stderr_text = String::new();
        child
            .stderr
            .as_mut()
            .unwrap()
            .read_to_string(&mut stderr_text)?;
        assert_eq!(child.wait()?.code(), Some(0), "{stderr_text}");
        Ok(stderr_text)
    };
    let stderr_text = end(start(), Signal::TERM).unwrap();
    let token = fs::read_to_string(&path).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(
        stderr_text.contains(token.trim()) && stderr_text.contains("not printed again"),
        "{stderr_text}"
    );
    let stderr_text = end(start(), Signal::INT).unwrap();
    assert!(
        !stderr_text.contains(token.trim())
            && stderr_text.contains("clients must send the token in"),
        "{stderr_text}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), token);
}

/// Sends a request with another token, and returns the status.
fn ask_as(server: &Server, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let (address, length) = (&server.address, body.len());
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer \
            {token}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        serde_json::from_str(body).unwrap_or(Value::Null),
    )
}

#[test]
fn named_tokens_are_created_used_and_removed() {
    let folder = folder("named-tokens");
    let (tokens, log) = (folder.join("tokens"), folder.join("access.log"));
    let at = ["--named-tokens", tokens.to_str().unwrap()];
    let call = |args: &[&str]| levity(&[&["serve", "token"], args, &at[..]].concat());
    let make = |name: &str, scope: &str| {
        let made = call(&["add", name, "--scope", scope]);
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let (ci, eye) = (make("ci", "run,approve"), make("eye", "read"));
    assert!(!fs::read_to_string(&tokens).unwrap().contains(&ci));
    let listed = String::from_utf8(call(&["list"]).stdout).unwrap();
    assert_eq!(listed, "ci run,approve\neye read\n");
    check(
        &call(&["add", "ci", "--scope", "read"]),
        2,
        "use another name",
    );
    check(
        &call(&["add", "x", "--scope", "root"]),
        2,
        "`read`, `run`, `approve` or `admin`",
    );
    check(&call(&["add", "x"]), 2, "--scope");
    check(
        &call(&["add", "a-b", "--scope", "read"]),
        2,
        "lower-case letters and digits",
    );
    check(
        &call(&["remove", "nobody"]),
        2,
        "there is no token `nobody`",
    );

    let mut started = command(&["serve", "http", "--listen", "127.0.0.1:0", "--tool-routes"]);
    started
        .args(at)
        .args(["--access-log", log.to_str().unwrap()]);
    let server = Server::spawn(started);
    assert_eq!(
        ask_as(&server, TOKEN, "GET", "/v1/runs", "").0,
        401,
        "there is no other token"
    );
    assert_eq!(
        ask_as(&server, &eye, "POST", "/v1/runs", r#"{"goal": "Go"}"#).0,
        403
    );
    let (status, run) = ask_as(
        &server,
        &ci,
        "POST",
        "/v1/runs",
        r#"{"goal": "What is 2 + 5?", "id": "m"}"#,
    );
    assert_eq!((status, &run["id"]), (201, &json!("ci-m")), "{run}");
    assert_eq!(ask_as(&server, &eye, "GET", "/v1/runs/ci-m", "").0, 404);
    assert_eq!(ask_as(&server, &eye, "GET", "/v1/tools", "").0, 200);
    let logged = fs::read_to_string(&log).unwrap();
    assert!(
        logged.lines().count() == 5 && logged.contains("\"token\":\"ci\""),
        "{logged}"
    );
    assert!(!logged.contains(&ci) && !logged.contains(&eye) && !logged.contains(TOKEN));
    drop(server);
    assert!(call(&["remove", "ci"]).status.success() && call(&["remove", "eye"]).status.success());
    let mut empty = command(&["serve", "http", "--listen", "127.0.0.1:0"]);
    check(
        &empty.args(at).output().unwrap(),
        2,
        "levity serve token add",
    );
}

#[test]
fn server_beyond_loopback_requires_encryption_or_permission() {
    for way in [
        &["serve", "http", "--listen", "0.0.0.0:0"][..],
        &["serve", "mcp", "--http", "0.0.0.0:0"],
    ] {
        check(
            &output_within_minute(command(way).env("LEVITY_TOKEN", TOKEN)),
            2,
            "--allow-plaintext",
        );
    }
    let half = command(&["serve", "http", "--tls-cert", "x"])
        .env("LEVITY_TOKEN", TOKEN)
        .output()
        .unwrap();
    check(&half, 2, "--tls-key");
    let none = [
        "serve",
        "http",
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        "nowhere",
        "--tls-key",
        "nowhere",
    ];
    check(
        &command(&none).env("LEVITY_TOKEN", TOKEN).output().unwrap(),
        2,
        "cannot use the TLS file `nowhere`",
    );
    let mut open = command(&[
        "serve",
        "http",
        "--listen",
        "0.0.0.0:0",
        "--allow-plaintext",
    ]);
    let mut child = open
        .env("LEVITY_TOKEN", TOKEN)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    child.kill().unwrap();
    let mut stderr_text = String::new();
    child
        .stderr
        .as_mut()
        .unwrap()
        .read_to_string(&mut stderr_text)
        .unwrap();
    child.wait().unwrap();
    assert!(
        line.starts_with("listening on") && stderr_text.contains("without encryption"),
        "{line} {stderr_text}"
    );
}

#[test]
fn serve_health_reports_whether_server_answers() {
    let server = Server::start(&[]);
    let port = server.address.rsplit_once(':').unwrap().1.to_owned();
    for host in ["127.0.0.1", "0.0.0.0", "localhost"] {
        let address = format!("{host}:{port}");
        let output = output_within_minute(&mut command(&["serve", "health", "--listen", &address]));
        check(&output, 0, "");
        assert_eq!(output.stdout, b"");
        assert_eq!(output.stderr, b"");
    }
    // The server and its check read the same variable.
    let mut by_variable = command(&["serve", "health"]);
    check(
        &output_within_minute(by_variable.env("LEVITY_LISTEN", &server.address)),
        0,
        "",
    );
    let address = server.address.clone();
    server.kill();
    let ended = levity(&["serve", "health", "--listen", &address]);
    check(&ended, 1, "is `levity serve http` running?");
}

#[test]
fn serve_health_rejects_other_servers() {
    for answer in [
        "HTTP/1.1 503 Service Unavailable\r\n\r\n",
        "\x15\x03\x01",
        "",
    ] {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap().to_string();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = other.accept().unwrap();
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let mut asking = command(&["serve", "health", "--listen", &address]);
        check(
            &output_within_minute(&mut asking),
            1,
            "is not a healthy `levity serve http`",
        );
        answering.join().unwrap();
    }
}

#[test]
fn serve_http_reports_invalid_arguments() {
    check(&levity(&["serve"]), 2, "http");
    let homeless = command(&["serve", "http"])
        .env_remove("HOME")
        .output()
        .unwrap();
    check(
        &homeless,
        2,
        "set `LEVITY_TOKEN`, or name a file with `--token-file`",
    );
    let short = command(&["serve", "http"])
        .env("LEVITY_TOKEN", "short")
        .output()
        .unwrap();
    check(&short, 2, "the token is too short");
    let place = command(&["serve", "http", "--listen", "nowhere"])
        .env("LEVITY_TOKEN", TOKEN)
        .output()
        .unwrap();
    check(&place, 2, "cannot listen on `nowhere`");
}

#[test]
fn serve_http_offers_the_named_models_only() {
    let script = script("offered-models", 0);
    let script = script.to_str().unwrap();
    let other = "compatible:tides@http://127.0.0.1:1/v1";
    let server = Server::start(&["--script", script, "--offer-model", other]);
    let (status, models) = server.ask("GET", "/v1/models", &Value::Null);
    assert_eq!(status, 200, "{models}");
    let models = models["models"].as_array().unwrap();
    assert_eq!(models.len(), 2, "{models:?}");
    assert_eq!(models[0]["default"], true);
    assert_eq!(models[1], json!({"name": other, "default": false}));
    let order = json!({"goal": "Go", "model": "compatible:tides@http://127.0.0.1:2/v1"});
    let (status, refused) = server.ask("POST", "/v1/runs", &order);
    assert_eq!(
        (status, &refused["error"]["code"]),
        (422, &json!("unknown_model"))
    );
    let order = json!({"goal": "Go", "model": models[0]["name"]});
    assert_eq!(server.ask("POST", "/v1/runs", &order).0, 201);
    drop(server);

    let team = command(&["serve", "http", "--offer", "team", "--offer-model", other])
        .env("LEVITY_TOKEN", TOKEN)
        .output()
        .unwrap();
    check(&team, 2, "`--offer-model` applies only to a single agent");
    let unknown = command(&[
        "serve",
        "http",
        "--script",
        script,
        "--offer-model",
        "nobody:x",
    ])
    .env("LEVITY_TOKEN", TOKEN)
    .output()
    .unwrap();
    check(&unknown, 2, "`--offer-model nobody:x`: ");
    let errors = String::from_utf8_lossy(&unknown.stderr);
    assert!(
        !errors.contains("--journal"),
        "a note precedes the error: {errors}"
    );
}

#[test]
fn token_share_matches_help() {
    let folder = folder("token-share");
    let tokens = folder.join("tokens");
    let add = |name: &str| {
        let added = levity(&[
            "serve",
            "token",
            "add",
            name,
            "--scope",
            "run",
            "--named-tokens",
            tokens.to_str().unwrap(),
        ]);
        check(&added, 0, "");
        super::text(&added)
            .split_whitespace()
            .last()
            .unwrap()
            .to_owned()
    };
    let (ann, bob) = (add("ann"), add("bob"));
    for (command, args) in [("http", &[][..]), ("mcp", &["--http", "127.0.0.1:0"])] {
        let help = super::text(&levity(&["serve", command, "--help"]));
        let help: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for promise in [
            "--token-share <PERCENT>",
            "25 by default",
            "at least one place",
        ] {
            assert!(
                help.contains(promise),
                "{command}: `{promise}` is not in the help"
            );
        }
        for (share, has_kind) in [("0", true), ("101", true), ("x", true), ("50", false)] {
            let mut all = [&["serve", command][..], args, &["--token-share", share]].concat();
            if has_kind {
                all.extend(["--named-tokens", tokens.to_str().unwrap()]);
            }
            let rejected = output_within_minute(&mut super::command(&all));
            check(
                &rejected,
                2,
                if has_kind {
                    "--token-share"
                } else {
                    "--named-tokens"
                },
            );
        }
    }
    // Of four runs, a tenant gets one by default, and two with a share of half.
    let script = file(
        "token-share.json",
        r#"[{"call": {"name": "ask_user", "args": {"question": "Which?"}}}, {"reply": "x"}]"#,
    );
    for (share, most) in [(None, 1), (Some("50"), 2), (Some("100"), 4)] {
        let mut args = vec!["--max-runs", "4", "--script", script.to_str().unwrap()];
        args.extend(["--named-tokens", tokens.to_str().unwrap()]);
        args.extend(share.iter().flat_map(|share| ["--token-share", *share]));
        let server = Server::start(&args);
        let start = |token: &str| {
            let headers = format!("X-Nothing: 1\r\nAuthorization: Bearer {token}\r\n");
            let mut stream = TcpStream::connect(&server.address).unwrap();
            let body = r#"{"goal": "x"}"#;
            let text = format!(
                "POST /v1/runs?wait=0 HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: \
                    application/json\r\n\
                 Content-Length: {}\r\n{headers}\r\n{body}",
                server.address,
                body.len()
            );
            stream.write_all(text.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
        };
        for number in 0..most {
            assert!((200..300).contains(&start(&ann)), "{share:?}: run {number}");
        }
        assert_eq!(start(&ann), 429, "{share:?}");
        if most < 4 {
            assert!(
                (200..300).contains(&start(&bob)),
                "{share:?}: the other tenant has its own"
            );
        }
    }
}

#[test]
fn ui_prints_a_link_whose_code_returns_the_token() {
    let mut command = command(&["ui"]);
    command.env("LEVITY_TOKEN", TOKEN);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let link = line.trim().strip_prefix("http://").unwrap();
    let (address, code) = link.split_once("/#code=").unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{line}");
    let server = Server {
        address: address.to_owned(),
        child,
    };
    let (status, answer) = server.ask("POST", "/v1/login", &json!({"code": code}));
    assert_eq!((status, &answer["token"]), (200, &json!(TOKEN)));
    let (status, _) = server.ask("POST", "/v1/login", &json!({"code": code}));
    assert_eq!(status, 401);
    let mut page = String::new();
    server
        .send("GET", "/", "", "")
        .read_to_string(&mut page)
        .unwrap();
    assert!(page.contains("<!doctype html>"), "{page}");
}
