//! Tests of agents with tools on the command line.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use super::{Place, check, command, file, levity};

/// Creates a folder with some files, and one file that tools must not reach.
fn folder(name: &str) -> PathBuf {
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    fs::create_dir_all(path.join("tools")).unwrap();
    fs::write(path.join("notes.txt"), "one\ntwo\n").unwrap();
    fs::write(path.join(".env"), "KEY=hush\n").unwrap();
    let shout = "def shout(text: str) -> str:\n    \"\"\"Writes in capitals.\"\"\"\n    return \
        text.upper()\n";
    fs::write(path.join("tools/texts.py"), shout).unwrap();
    fs::write(path.join("tools/broken.py"), "def f(:\n").unwrap();
    path
}

fn run(place: &PathBuf, script: &str, args: &[&str]) -> Output {
    let script = file(
        &format!(
            "{}-script.json",
            place.file_name().unwrap().to_str().unwrap()
        ),
        script,
    );
    let mut all = vec!["run", "Look around", "--script", script.to_str().unwrap()];
    all.extend(args);
    command(&all)
        .current_dir(place)
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap()
}

#[test]
fn agent_works_in_workspace() {
    let place = folder("works");
    let script = r#"[
        {"call": {"name": "edit_file",
            "args": {"path": "notes.txt", "old": "two", "new": "three"}}},
        {"call": {"name": "read_file", "args": {"path": ".env"}}},
        {"call": {"name": "run_command", "args": {"command": "wc -l notes.txt"}}},
        {"call": {"name": "run_command", "args": {"command": "rm notes.txt"}}},
        {"call": {"name": "shout", "args": {"text": "hi"}}},
        {"call": {"name": "run_python",
            "args": {"code": "len(read_file('notes.txt')['content'])"}}},
        {"call": {"name": "web_fetch", "args": {"url": "http://localhost/"}}},
        {"reply": "Done."}]"#;
    let output = run(
        &place,
        script,
        &[
            "--workspace",
            ".",
            "--tools",
            "tools",
            "--python",
            "--web",
            "--weak",
        ],
    );
    for part in [
        "(`broken.py`: line 1:",
        "  written notes.txt\n",
        "is denied to tools",
        "2 notes.txt",
        "asks   run_command {\"command\":\"rm notes.txt\"}: `rm` may change something",
        "answer no: there is no terminal",
        "gets   HI\n",
        "\"result\":10",
        "denied ",
        "Done.\n",
    ] {
        check(&output, 0, part);
    }
    assert_eq!(
        fs::read_to_string(place.join("notes.txt")).unwrap(),
        "one\nthree\n"
    );
    let script = r#"[{"call": {"name": "run_command", "args": {"command": "rm notes.txt"}}},
        {"reply": "Done."}]"#;
    check(
        &run(
            &place,
            script,
            &["--workspace", ".", "--weak", "--allow", "rm"],
        ),
        0,
        "exit code 0",
    );
    assert!(!place.join("notes.txt").exists());
    check(
        &run(&place, script, &["--workspace", "nowhere"]),
        2,
        "`nowhere`",
    );
    check(&run(&place, script, &["--read-only"]), 2, "--workspace");
    for empty in ["", "  ", "\t\n"] {
        let output = run(
            &place,
            script,
            &[
                "--workspace",
                ".",
                "--weak",
                "--allow",
                "ls",
                "--allow",
                empty,
            ],
        );
        check(&output, 2, "the value has no words");
    }
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn read_only_workspace_is_unchanged() {
    let place = folder("stays");
    let script = r#"[
        {"call": {"name": "write_file", "args": {"path": "notes.txt", "content": ""}}},
        {"call": {"name": "read_file", "args": {"path": "notes.txt"}}},
        {"reply": "Done."}]"#;
    let output = run(&place, script, &["--workspace", ".", "--read-only"]);
    check(&output, 0, "there is no tool `write_file`");
    check(&output, 0, "gets   one\ntwo\n");
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn parked_question_waits_for_answer() {
    let script = r#"[{"call": {"name": "ask_user", "args": {"question": "Which colour?"}}},
        {"reply": "Painted."}]"#;
    let script = file("asks.json", script);
    let (place, script) = (Place::new("asks"), script.to_str().unwrap());
    check(
        &place.levity(&["run", "Paint", "--script", script, "--id", "a", "--park"]),
        3,
        "run a is waiting",
    );
    check(
        &place.levity(&["runs", "show", "a"]),
        0,
        "waiting for an answer to effect 1: ask_user",
    );
    check(
        &place.levity(&["runs", "answer", "a", "--text", "blue"]),
        0,
        "resume run a with",
    );
    check(
        &place.levity(&["runs", "resume", "a", "--script", script]),
        0,
        "Painted.",
    );
    check(&place.levity(&["runs", "show", "a"]), 0, "blue");
    check(
        &levity(&["run", "Paint", "--script", script]),
        0,
        "there is no terminal",
    );
}

#[test]
fn sandbox_reports_confinement() {
    check(&levity(&["sandbox"]), 0, "network");
    check(&levity(&["sandbox", "nowhere"]), 1, "nowhere");
}

#[test]
fn web_search_uses_searxng_server_of_option() {
    use std::io::{Read as _, Write as _};

    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://localhost:{}", server.local_addr().unwrap().port());
    let served = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).unwrap();
        let body = r#"{"results": [{"title": "Tides of Dover", "url": "https://example.org/"}]}"#;
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let script = r#"[{"call": {"name": "web_search", "args": {"query": "tides"}}},
        {"reply": "Done."}]"#;
    let script = file("search.json", script);
    let script = script.to_str().unwrap();
    let args = ["run", "Search", "--script", script, "--web", "--searxng"];
    let output = levity(&[&args[..], &[&address]].concat());
    check(&output, 0, "Tides of Dover");
    assert!(served.join().unwrap().contains("q=tides"));
    check(
        &levity(&[&args[..], &["nonsense"]].concat()),
        2,
        "http://127.0.0.1:8888",
    );
    let without = levity(&["run", "Search", "--script", script, "--web"]);
    check(&without, 0, "there is no tool `web_search`");
}

#[test]
fn files_of_run_are_listed_with_their_calls() {
    let place = folder("artifacts");
    let script = r##"[
        {"call": {"name": "write_file",
            "args": {"path": "artifacts/tides.md", "content": "# Tides\n"}}},
        {"call": {"name": "edit_file",
            "args": {"path": "notes.txt", "old": "two", "new": "three"}}},
        {"reply": "Done."}]"##;
    let args = ["--workspace", ".", "--journal", "runs", "--id", "r1"];
    check(&run(&place, script, &args), 0, "Done.");

    let runs = |args: &[&str]| {
        let all = [&["runs"], args, &["--journal", "runs"]].concat();
        command(&all).current_dir(&place).output().unwrap()
    };
    let listed = runs(&["artifacts", "r1"]);
    check(
        &listed,
        0,
        "artifacts/tides.md  8 bytes  text/markdown  442eaeed159d  agent › write_file  \
            {\"path\":\"artifacts/tides.md\"",
    );
    check(&listed, 0, "notes.txt  10 bytes  text/plain");
    check(
        &runs(&["artifacts", "r1", "--json"]),
        0,
        r#""arguments":{"path":"notes.txt","old":"two","new":"three"}"#,
    );
    check(
        &runs(&["show", "r1"]),
        0,
        "written artifacts/tides.md (8 bytes)",
    );
    check(&runs(&["artifacts", "r2"]), 1, "r2");
}

#[test]
fn session_of_plan_lists_files_of_each_step() {
    let place = folder("session-artifacts");
    let script = r#"[
        {"call": {"name": "write_file", "args": {"path": "artifacts/a.txt", "content": "a"}}},
        {"reply": "{\"text\": \"written\"}"}]"#;
    let script = file("session-artifacts.json", script);
    let plan = r#"{"steps": [{"id": "write", "agent": "Coder", "description": "Write it.",
        "writes": ["text"]}]}"#;
    fs::write(place.join("plan.json"), plan).unwrap();
    let args = [
        "plan",
        "--plan",
        "plan.json",
        "--sessions",
        "s",
        "--workspace",
        ".",
    ];
    let script = ["--script", script.to_str().unwrap()];
    let output = command(&[&args[..], &script].concat())
        .current_dir(&place)
        .output()
        .unwrap();
    check(&output, 0, "written");
    let export = [
        "sessions",
        "export",
        "",
        "--format",
        "json",
        "--sessions",
        "s",
    ];
    let exported = command(&export).current_dir(&place).output().unwrap();
    let session: serde_json::Value = serde_json::from_slice(&exported.stdout).unwrap();
    let step = session["nodes"].as_array().unwrap().last().unwrap();
    assert_eq!(step["artifacts"][0]["path"], "artifacts/a.txt", "{session}");
    assert_eq!(step["artifacts"][0]["size"], 1);
}
