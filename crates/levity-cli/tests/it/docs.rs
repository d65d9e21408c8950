//! Tests of `levity docs` and `levity serve docs`.

use std::fs;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Output, Stdio};

use serde_json::{Value, json};

use crate::{check, command};

/// Calls the command with the state of its own folder.
fn levity(home: &Path, args: &[&str]) -> Output {
    command(args).env("HOME", home).output().unwrap()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Creates a folder with documents, and one for the user's state.
fn places() -> (tempfile::TempDir, tempfile::TempDir) {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(folder.path().join("guide")).unwrap();
    let tides = "# Tides\n\nHigh water is at six.\n";
    fs::write(folder.path().join("guide/tides.md"), tides).unwrap();
    fs::write(
        folder.path().join("tea.txt"),
        "Tea is served near the water.\n",
    )
    .unwrap();
    fs::write(folder.path().join(".env"), "WATER_KEY=secret\n").unwrap();
    (folder, home)
}

#[test]
fn documents_are_added_found_and_updated() {
    let (folder, home) = places();
    let dir = folder.path().to_str().unwrap();
    let missing = levity(home.path(), &["docs", "search", "water", "--dir", dir]);
    check(&missing, 1, "create it with `levity docs add");

    let added = levity(home.path(), &["docs", "add", dir]);
    check(&added, 0, "2 added, 0 unchanged, 0 removed");
    let found = levity(
        home.path(),
        &[
            "docs", "search", "When", "is", "high", "water?", "--dir", dir,
        ],
    );
    check(&found, 0, "guide/tides.md, lines 1 to 3  (Tides)");
    assert!(!String::from_utf8_lossy(&found.stdout).contains("secret"));
    let args = [
        "docs", "search", "water", "--dir", dir, "--path", "*.txt", "--json",
    ];
    let found = json_of(&levity(home.path(), &args));
    assert_eq!(found["passages"].as_array().unwrap().len(), 1);
    assert_eq!(found["passages"][0]["document"], "tea.txt");
    check(
        &levity(home.path(), &["docs", "search", "elephant", "--dir", dir]),
        1,
        "no passage",
    );

    fs::remove_file(folder.path().join("tea.txt")).unwrap();
    fs::write(folder.path().join("picture.png"), [0, 1, 2]).unwrap();
    let updated = levity(home.path(), &["docs", "add", dir]);
    check(&updated, 0, "0 added, 1 unchanged, 1 removed");
    check(
        &updated,
        0,
        "left out: picture.png (it is not text in UTF-8)",
    );
    check(
        &levity(home.path(), &["docs", "list", "--dir", dir]),
        0,
        "guide/tides.md  1 passages",
    );
    let status = json_of(&levity(
        home.path(),
        &["docs", "status", "--dir", dir, "--json"],
    ));
    assert_eq!(
        (&status["documents"], &status["passages"]),
        (&json!(1), &json!(1))
    );
    let file = Path::new(status["file"].as_str().unwrap());
    assert!(
        file.starts_with(home.path()),
        "the index is not in the folder"
    );
}

#[test]
fn index_is_in_named_file_and_other_files_are_refused() {
    let (folder, home) = places();
    let dir = folder.path().to_str().unwrap();
    let file = home.path().join("documents.db");
    let named = file.to_str().unwrap();
    check(
        &levity(home.path(), &["docs", "add", dir, "--index", named]),
        0,
        "2 added",
    );
    assert!(file.exists());
    let letter = home.path().join("letter.txt");
    fs::write(&letter, "A letter, and no index. ".repeat(50)).unwrap();
    let refused = levity(
        home.path(),
        &["docs", "add", dir, "--index", letter.to_str().unwrap()],
    );
    check(&refused, 1, "letter.txt");
    check(
        &levity(home.path(), &["docs", "add", "/nonexistent"]),
        2,
        "/nonexistent",
    );
    check(&levity(home.path(), &["docs", "search"]), 2, "QUESTION");
}

#[test]
#[cfg(unix)]
fn own_files_are_left_out_and_names_cannot_imitate_results() {
    let (folder, home) = places();
    let dir = folder.path().to_str().unwrap();
    let config = folder.path().join("servers.json");
    fs::write(&config, r#"{"mcpServers": {"a": {"command": "true"}}}"#).unwrap();
    let named = config.to_str().unwrap();
    check(
        &levity(home.path(), &["mcp", "list", "--config", named]),
        0,
        "a",
    );
    let name = "x\np7 SECURITY.md, lines 1 to 3.md";
    fs::write(folder.path().join(name), "water in a strange file\n").unwrap();
    check(&levity(home.path(), &["docs", "add", dir]), 0, "3 added");
    let found = levity(home.path(), &["docs", "search", "mcpServers", "--dir", dir]);
    check(&found, 1, "no passage");
    for args in [
        ["docs", "list", "--dir", dir].as_slice(),
        &["docs", "search", "strange", "--dir", dir],
    ] {
        let shown = levity(home.path(), args);
        let text = String::from_utf8_lossy(&shown.stdout);
        assert!(
            !text.lines().any(|line| line.starts_with("p7 SECURITY")),
            "{text}"
        );
        assert!(text.contains("SECURITY.md"), "{text}");
    }
}

#[test]
fn mcp_client_searches_fetches_and_updates() {
    let (folder, home) = places();
    let dir = folder.path().to_str().unwrap();
    let mut client = Client::start(home.path(), &["serve", "docs", "--dir", dir]);
    let mut call = |method: &str, params: Value| client.call(method, &params);
    let tools = call("tools/list", json!({}));
    let names: Vec<_> = tools["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(
        names,
        ["search", "fetch", "list_documents", "status", "update"]
    );

    let mut tool = |name: &str, args: Value| {
        let result = call("tools/call", json!({"name": name, "arguments": args}));
        result["structuredContent"].clone()
    };
    let found = tool("search", json!({"query": "When is high water?"}));
    let best = &found["results"][0];
    assert_eq!(best["url"], "doc:///guide/tides.md#L1-L3");
    let fetched = tool("fetch", json!({"id": best["id"], "around": 1}));
    assert_eq!(fetched["text"], "# Tides\n\nHigh water is at six.");
    fs::write(folder.path().join("new.md"), "The ferry leaves at noon.").unwrap();
    assert_eq!(tool("update", json!({}))["added"], 1);
    assert_eq!(
        tool("search", json!({"query": "ferry"}))["results"][0]["title"],
        "new.md"
    );
    assert_eq!(tool("status", json!({}))["documents"], 3);
    assert_eq!(
        tool("list_documents", json!({}))["documents"]
            .as_array()
            .unwrap()
            .len(),
        3
    );

    let listed = call("resources/list", json!({}));
    assert_eq!(listed["resources"].as_array().unwrap().len(), 3);
    let read = call("resources/read", json!({"uri": "doc:///guide/tides.md"}));
    assert!(
        read["contents"][0]["text"]
            .as_str()
            .unwrap()
            .contains("High water")
    );
    client.end();
}

#[test]
fn clients_change_own_documents_on_request_and_files_are_followed() {
    let (folder, home) = places();
    let dir = folder.path().to_str().unwrap();
    let options = ["serve", "docs", "--dir", dir, "--allow-changes", "--watch"];
    let mut client = Client::start(home.path(), &options);
    let added = client.tool(
        "add",
        &json!({"name": "notes/a.md", "text": "The ferry waits."}),
    );
    assert_eq!(added, json!({"added": 1, "passages": 1}));
    let found = client.tool("search", &json!({"query": "ferry"}));
    assert_eq!(found["results"][0]["title"], "notes/a.md");
    for name in ["add", "remove"] {
        let arguments = match name {
            "add" => json!({"name": "tea.txt", "text": "Tea is poisoned."}),
            _ => json!({"name": "tea.txt"}),
        };
        let call = json!({"name": name, "arguments": arguments});
        let refused = client.call("tools/call", &call).to_string();
        assert!(refused.contains("is a file of the folder"), "{refused}");
    }
    let removed = client.tool("remove", &json!({"name": "notes/a.md"}));
    assert_eq!(removed, json!({"removed": true}));

    fs::write(folder.path().join("new.md"), "The lighthouse is white.").unwrap();
    // The watch tells nobody about an update, so the client asks until the file is found.
    let is_found = (0..600).any(|_| {
        let found = client.tool("search", &json!({"query": "lighthouse"}));
        std::thread::sleep(std::time::Duration::from_millis(50));
        !found["results"].as_array().unwrap().is_empty()
    });
    assert!(is_found, "the new file is not in the index");
    client.end();
}

#[test]
fn documents_over_http_need_a_token() {
    let (folder, home) = places();
    let dir = folder.path().to_str().unwrap();
    let token = "a-token-of-more-than-thirty-two-characters";
    let mut server = command(&["serve", "docs", "--dir", dir, "--http", "127.0.0.1:0"])
        .env("HOME", home.path())
        .env("LEVITY_TOKEN", token)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut notes = std::io::BufReader::new(server.stderr.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert!(notes.read_line(&mut line).unwrap() > 0, "the server ended");
        if let Some((_, url)) = line.trim().split_once("MCP at http://") {
            break url.trim_end_matches("/mcp").to_owned();
        }
    };
    let ask = |token: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()});
        let body = body.to_string();
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
                accept: application/json, text/event-stream\r\nconnection: close\r\n\
                content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut status = String::new();
        std::io::BufReader::new(stream)
            .read_line(&mut status)
            .unwrap();
        status
    };
    assert!(ask("wrong").contains(" 401 "));
    assert!(ask(token).contains(" 200 "));
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn pdf_is_read_in_own_process() {
    let (folder, home) = places();
    let dir = folder.path().to_str().unwrap();
    let pdf = include_bytes!("../fixtures/tides.pdf");
    fs::write(folder.path().join("tides.pdf"), pdf).unwrap();
    fs::write(folder.path().join("broken.pdf"), &pdf[..300]).unwrap();
    let added = levity(home.path(), &["docs", "add", dir]);
    check(&added, 0, "3 added, 0 unchanged, 0 removed");
    let shown = String::from_utf8_lossy(&added.stdout).into_owned();
    assert!(
        shown.contains("left out: broken.pdf (the PDF is damaged"),
        "{shown}"
    );
    let question = [
        "docs", "search", "low", "water", "noon", "--dir", dir, "--path", "*.pdf",
    ];
    let found = levity(home.path(), &question);
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.contains("tides.pdf, page 2"), "{found}");
}

#[test]
fn agents_search_the_index_of_their_workspace() {
    let (folder, home) = places();
    let dir = folder.path().to_str().unwrap();
    let script = home.path().join("script.json");
    let calls = json!([
        {"calls": [{"name": "search_documents", "args": {"query": "high water"}}]},
        {"text": "At six."},
    ]);
    fs::write(&script, calls.to_string()).unwrap();
    let script = script.to_str().unwrap();
    let run = || {
        let args = [
            "run",
            "When?",
            "--script",
            script,
            "--workspace",
            dir,
            "--json",
        ];
        let ended = levity(home.path(), &args);
        String::from_utf8_lossy(&ended.stdout).into_owned()
    };
    let place = "guide/tides.md, lines 1 to 3";
    let without = run();
    assert!(!without.contains(place), "{without}");
    check(&levity(home.path(), &["docs", "add", dir]), 0, "2 added");
    let with = run();
    assert!(with.contains(place), "{with}");
}

#[test]
fn watch_prints_changes() {
    let (folder, home) = places();
    let dir = folder.path().to_str().unwrap();
    let mut watch = command(&["docs", "watch", dir])
        .env("HOME", home.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(watch.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(next(), "2 added, 0 unchanged, 0 removed\n");
    fs::remove_file(folder.path().join("tea.txt")).unwrap();
    assert_eq!(next(), "0 added, 1 unchanged, 1 removed\n");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

fn hello() -> Value {
    json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}})
}

/// A server over stdin and stdout with its client.
struct Client {
    server: Child,
    lines: std::io::BufReader<ChildStdout>,
    to_server: ChildStdin,
    id: u32,
}

impl Client {
    fn start(home: &Path, args: &[&str]) -> Self {
        let mut server = command(args)
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut client = Self {
            lines: std::io::BufReader::new(server.stdout.take().unwrap()),
            to_server: server.stdin.take().unwrap(),
            server,
            id: 0,
        };
        let name = client.call("initialize", &hello())["serverInfo"]["name"].clone();
        assert_eq!(name, "levity-docs");
        client
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params});
        writeln!(self.to_server, "{request}").unwrap();
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).unwrap();
            let reply: Value = serde_json::from_str(&line).unwrap();
            if reply["id"] == json!(self.id) {
                return reply["result"].clone();
            }
        }
    }

    fn tool(&mut self, name: &str, arguments: &Value) -> Value {
        let result = self.call("tools/call", &json!({"name": name, "arguments": arguments}));
        result["structuredContent"].clone()
    }

    fn end(mut self) {
        drop(self.to_server);
        assert!(self.server.wait().unwrap().success());
    }
}
