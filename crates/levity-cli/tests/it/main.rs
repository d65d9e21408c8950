//! Tests of the `levity` command as its users run it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

mod agent_options;
#[cfg(unix)]
#[allow(
    clippy::disallowed_methods,
    reason = "what other processes do is waited for"
)]
mod bridge;
mod certificates;
mod chat;
mod complete;
mod context;
mod conversations;
mod docs;
#[cfg(target_os = "linux")]
mod errors;
mod estimate;
#[cfg(unix)]
mod eval;
mod first_use;
mod given;
mod journals;
mod logs;
mod mcp;
mod models;
mod options;
mod plan;
#[cfg(target_os = "linux")]
mod plan_terminal;
mod promises;
mod seals;
mod serve;
mod serve_mcp;
mod settings;
mod swarm;
mod team;
mod tools;
mod trust;
mod untrusted;

/// Returns the command without a configured model.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levity"));
    command
        .args(args)
        .env_clear()
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .env("HOME", HOME);
    command
}

/// The folder for user state that one call leaves to the next.
const HOME: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/home");

fn levity(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Returns the output of a command that may never end. After a minute the command is killed, and
/// has no exit code.
fn output_within_minute(command: &mut Command) -> Output {
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let process = child.id().to_string();
    let (sender, output_within_minute) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
    output_within_minute
        .recv_timeout(std::time::Duration::from_secs(60))
        .unwrap_or_else(|_| {
            Command::new("kill")
                .args(["-9", &process])
                .status()
                .unwrap();
            output_within_minute.recv().unwrap()
        })
}

/// Writes a file for the calling test.
fn file(name: &str, text: &str) -> PathBuf {
    // The thread has the name of the test.
    let test = std::thread::current().name().unwrap().replace("::", "-");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

#[track_caller]
fn check(output: &Output, code: i32, part: &str) {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    assert!(out.contains(part) || err.contains(part), "{out}{err}");
    assert!(!err.contains("panicked"), "{err}");
}

#[test]
fn run_without_model_uses_scripted_demonstration() {
    let output = levity(&["run", "What is 2 + 5?"]);
    check(&output, 0, "a scripted model");
    check(&output, 0, "calls  add {\"a\":2,\"b\":5}");
}

#[test]
fn every_command_rejects_prompt_without_visible_text() {
    for prompt in [
        "",
        " ",
        "\n\t",
        "\u{200b}",
        " \u{feff}\u{2060} ",
        "\u{1b}\u{7f}",
        "\u{3164}\u{2800}",
        "\u{e0041}\u{ad}",
    ] {
        for (name, args) in [
            ("run", &[][..]),
            ("run", &["-q"]),
            ("plan", &[]),
            ("swarm", &[]),
            ("complete", &["--model", "ollama:m"]),
        ] {
            let args = [&[name, prompt], args].concat();
            let part = if name == "complete" {
                "the prompt is empty"
            } else {
                "the goal has no visible text"
            };
            check(&levity(&args), 2, part);
        }
    }
}

#[test]
fn chat_ignores_lines_without_visible_text() {
    use std::io::Write as _;
    let script = file("blank-lines.json", r#"[{"reply": "Once."}]"#);
    let mut chat = command(&["chat", "-q", "--script", script.to_str().unwrap()]);
    let mut chat = chat
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = "\n \n\0\n\u{200b}\n\u{feff}\u{2060}\nHi\n\u{1b}\n";
    chat.stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = chat.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "Once.\n",
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn run_with_script_gives_scripted_answer() {
    let script = r#"[{"call": {"name": "add", "args": {"a": 1, "b": 2}}}, {"reply": "Three."}]"#;
    let path = file("script.json", script);
    let output = levity(&[
        "run",
        "-q",
        "What is 1 + 2?",
        "--script",
        path.to_str().unwrap(),
    ]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Three.\n");
}

#[test]
fn run_with_json_prints_events_as_json_lines() {
    let output = levity(&["run", "What is 2 + 5?", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let events: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(events[0]["kind"]["run_started"].is_object());
    let last = &events.last().unwrap()["kind"]["run_ended"];
    assert_eq!(last["status"], "complete");
}

#[test]
fn run_reports_invalid_arguments_and_scripts() {
    check(&levity(&["run"]), 2, "Usage");
    check(
        &levity(&["run", "x", "--max-turns", "0"]),
        2,
        "set 1 or more",
    );
    check(
        &levity(&["run", "x", "--script", "nowhere.json"]),
        2,
        "cannot read `nowhere.json`",
    );
    let path = file("odd.json", r#"[{"reply": "a"}, {"answer": "b"}]"#);
    check(
        &levity(&["run", "x", "--script", path.to_str().unwrap()]),
        2,
        "step 2",
    );
    let path = file(
        "short.json",
        r#"[{"call": {"name": "add", "args": {"a": 1, "b": 2}}}]"#,
    );
    check(
        &levity(&["run", "x", "--script", path.to_str().unwrap()]),
        1,
        "script has only 1",
    );
    let path = file("fails.json", r#"[{"fail": "overloaded"}]"#);
    check(
        &levity(&["run", "x", "--script", path.to_str().unwrap()]),
        1,
        "the model gave no reply",
    );
}

#[test]
fn stored_run_can_be_listed_shown_and_resumed() {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kept-{}", std::process::id()));
    let journal = folder.to_str().unwrap();
    check(
        &levity(&["runs", "list", "--journal", journal]),
        1,
        "there is no journal",
    );
    check(
        &levity(&["run", "What?", "--journal", journal, "--id", "monday"]),
        0,
        "stored as run monday",
    );
    check(
        &levity(&["runs", "list", "--journal", journal]),
        0,
        "monday  8 records  complete",
    );
    check(
        &levity(&["runs", "show", "monday", "--journal", journal]),
        0,
        "add returned 7.0",
    );
    check(
        &levity(&["runs", "show", "tuesday", "--journal", journal]),
        1,
        "there is no run `tuesday`",
    );
    // The run has ended: its answer is read from the journal, and nothing is called or written.
    let before = fs::read(folder.join("monday.jsonl")).unwrap();
    let again = levity(&["run", "-q", "What?", "--journal", journal, "--id", "monday"]);
    check(&again, 0, "A scripted model cannot answer this.");
    assert_eq!(fs::read(folder.join("monday.jsonl")).unwrap(), before);
    let shown = levity(&["runs", "show", "monday", "--journal", journal, "--json"]);
    assert_eq!(String::from_utf8(shown.stdout).unwrap().lines().count(), 8);
    fs::write(folder.join("monday.jsonl"), "garbage\n").unwrap();
    check(
        &levity(&["runs", "show", "monday", "--journal", journal]),
        1,
        "left unchanged",
    );
    fs::remove_dir_all(folder).unwrap();
}

/// A path for this test run: a folder, or an SQLite file.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let base = format!("{}-{name}", std::process::id());
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(base))
    }

    fn levity(&self, args: &[&str]) -> Output {
        levity(&[args, &["--journal", self.0.to_str().unwrap()]].concat())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        for end in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{end}", self.0.display()));
        }
        let _ = fs::remove_dir_all(format!("{}-owners", self.0.display()));
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn parked_run_waits_and_resumes_in_files_and_sqlite() {
    for name in ["waits", "waits.db"] {
        let place = Place::new(name);
        let run = &[
            "run",
            "What is 2 + 5?",
            "--id",
            "monday",
            "--ask",
            "add",
            "--park",
        ];
        check(&place.levity(run), 3, "run monday is waiting");
        check(
            &place.levity(&["runs", "list", "--state", "waiting"]),
            0,
            "monday  5 records  waiting for an answer",
        );
        assert_eq!(
            text(&place.levity(&["runs", "list", "--state", "answered"])),
            ""
        );
        check(
            &place.levity(&["runs", "show", "monday"]),
            0,
            "waiting for an answer to effect 2: allow the call add",
        );
        check(
            &place.levity(&["runs", "resume", "monday", "--ask", "add", "--park"]),
            3,
            "run monday is waiting",
        );
        let shown = text(&place.levity(&["runs", "show", "monday"]));
        let (_, selected) = shown.rsplit_once("(--effect ").unwrap();
        let (selected, _) = selected.split_once(')').unwrap();
        let other = format!("2:{}", "0".repeat(32));
        check(
            &place.levity(&["runs", "approve", "monday", "--effect", &other]),
            1,
            "effect 2 of run `monday` is another question than the selected one",
        );
        check(
            &place.levity(&["runs", "approve", "monday", "--effect", selected]),
            0,
            "resume run monday with `levity runs resume`",
        );
        check(
            &place.levity(&["runs", "approve", "monday"]),
            1,
            "run `monday` has no open question",
        );
        check(
            &place.levity(&["runs", "resume", "monday", "--ask", "add"]),
            0,
            "gets   7.0",
        );
        check(
            &place.levity(&["runs", "approve", "monday"]),
            1,
            "has ended",
        );
        check(
            &place.levity(&["runs", "cancel", "monday"]),
            1,
            "is not running",
        );
        let resolve = &["runs", "resolve", "monday", "--effect", "3", "--not-done"];
        check(&place.levity(resolve), 1, "is not running");
    }
}

#[test]
fn runs_commands_replay_fork_compare_move_and_remove() {
    for (name, other) in [("moves", "moved.db"), ("moves.db", "moved")] {
        let (place, other) = (Place::new(name), Place::new(other));
        check(
            &place.levity(&["run", "What is 2 + 5?", "--id", "monday"]),
            0,
            "stored as run monday",
        );
        check(
            &place.levity(&["runs", "replay", "monday"]),
            0,
            "replayed 8 records with the same",
        );
        let changed = &["runs", "replay", "monday", "--instructions", "Be long."];
        check(&place.levity(changed), 1, "the instructions changed");
        let script = file(
            &format!("{name}.json"),
            r#"[{"reply": "x"}, {"reply": "Seven, as it were."}]"#,
        );
        let fork = &[
            "runs", "fork", "monday", "--after", "4", "--id", "tuesday", "--script",
        ];
        let fork = [&fork[..], &[script.to_str().unwrap()]].concat();
        check(&place.levity(&fork), 0, "Seven, as it were.");
        check(
            &place.levity(&["runs", "fork", "monday", "--after", "99"]),
            1,
            "must be between 0 and 6",
        );
        check(
            &place.levity(&["runs", "compare", "monday", "tuesday"]),
            0,
            "both took the same steps",
        );
        let exported = place.levity(&["runs", "export", "tuesday"]);
        let archive = file(&format!("{name}.jsonl"), &text(&exported));
        check(
            &other.levity(&["runs", "import", archive.to_str().unwrap()]),
            0,
            "tuesday",
        );
        assert_eq!(
            text(&other.levity(&["runs", "show", "tuesday", "--json"])),
            text(&place.levity(&["runs", "show", "tuesday", "--json"]))
        );
        check(
            &other.levity(&["runs", "rm", "tuesday", "nobody"]),
            1,
            "there is no run `nobody`",
        );
        assert_eq!(text(&other.levity(&["runs", "list"])), "");
        check(&place.levity(&["runs", "rm"]), 2, "Usage");
        check(
            &place.levity(&["runs", "rm", "--state", "answered"]),
            0,
            "removed monday",
        );
        assert_eq!(text(&place.levity(&["runs", "list", "--json"])), "");
    }
}

#[test]
fn runs_commands_resume_replay_and_fork_swarm() {
    for name in ["swarm-runs", "swarm-runs.db"] {
        let place = Place::new(name);
        check(
            &place.levity(&["swarm", "Write", "--id", "monday", "--ask", "now", "--park"]),
            3,
            "monday is waiting",
        );
        let resume = ["runs", "resume", "monday", "--ask", "now"];
        check(
            &levity_within_minute(&place, &[&resume[..], &["--park"]].concat()),
            3,
            "run monday is waiting",
        );
        check(
            &place.levity(&["runs", "approve", "monday"]),
            0,
            "resume run monday with `levity runs resume`",
        );
        let with_memory = [&resume[..], &["--memory", "somewhere"]].concat();
        check(
            &place.levity(&with_memory),
            2,
            "`--memory` has no effect on a swarm; remove it",
        );
        let output = levity_within_minute(&place, &resume);
        check(&output, 0, "swarm › researcher › now: returns ");
        check(&output, 0, "3 of 3 done");
        assert!(
            text(&output).starts_with("A scripted model cannot answer this."),
            "{output:?}"
        );
        check(
            &place.levity(&["runs", "replay", "monday"]),
            0,
            "records with the same",
        );
        let fork = place.levity(&["runs", "fork", "monday", "--id", "tuesday", "--ask", "now"]);
        check(&fork, 0, "stored as run tuesday");
        assert!(
            text(&fork).starts_with("A scripted model cannot answer this."),
            "{fork:?}"
        );
        let events = place.levity(&["runs", "fork", "monday", "--json", "--ask", "now"]);
        assert!(
            text(&events).lines().all(|line| line.starts_with('{')),
            "{events:?}"
        );
    }
}

#[test]
#[cfg(target_os = "linux")]
fn runs_commands_resume_replay_and_fork_team() {
    let place = Place::new("team-runs");
    let (sessions, journal) = (place.0.to_str().unwrap(), place.0.join("journal"));
    let plan = [
        "plan",
        "Compare two coasts",
        "--sessions",
        sessions,
        "--ask-plan",
        "--park",
    ];
    check(&levity(&plan), 3, "and its `--journal`");
    let runs = |args: &[&str]| {
        let mut command = command(&["runs"]);
        command.args(args).arg("--journal").arg(&journal);
        output_within_minute(command.stdin(Stdio::null()))
    };
    let listed = text(&runs(&["list", "--state", "waiting"]));
    let id = listed.split_whitespace().nth(1).unwrap();
    check(
        &runs(&["resume", id, "--ask-plan", "--park"]),
        3,
        "and its `--journal`",
    );
    check(
        &runs(&["resume", id, "--worker", "coder"]),
        2,
        "`--worker` has no effect on a team",
    );
    // Only the machine has the plan that the question is about.
    check(
        &runs(&["approve", id]),
        1,
        "`levity runs resume` shows it at a terminal",
    );
    let resume = [
        "runs",
        "resume",
        id,
        "--ask-plan",
        "--journal",
        journal.to_str().unwrap(),
    ];
    let mut terminal = plan_terminal::Terminal::new(&resume, b"");
    // A step fails, so the plan is changed, which needs approval as well.
    for _ in 0..2 {
        terminal.until("approve? [y/N, or describe the change]");
        terminal.ours.write_all(b"y\n").unwrap();
    }
    terminal.until("A scripted model cannot answer this.");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    check(
        &runs(&["resume", id, "--ask-plan", "-q"]),
        0,
        "A scripted model cannot answer this.",
    );
    check(
        &runs(&["replay", id, "--ask-plan"]),
        0,
        "records with the same",
    );
    let fork = runs(&["fork", id, "--id", "tuesday"]);
    check(&fork, 0, "A scripted model cannot answer this.");
    check(&fork, 0, "first ✓ Retriever");
    // The sessions next to the journal contain both runs.
    for run in [id, "tuesday"] {
        check(
            &levity(&["sessions", "show", run, "--sessions", sessions]),
            0,
            "Thinker",
        );
    }
}

#[test]
fn resume_rejects_options_without_effect() {
    let place = Place::new("agent-runs");
    check(
        &place.levity(&["run", "What is 2 + 5?", "--id", "monday"]),
        0,
        "stored as run monday",
    );
    for (option, message) in [
        (
            ["--worker", "coder"],
            "`--worker` has no effect on an agent",
        ),
        (
            ["--max-parallel", "3"],
            "`--max-parallel` has no effect on an agent",
        ),
        (["--agents", "team"], "`--agents` has no effect on an agent"),
    ] {
        check(
            &place.levity(&[&["runs", "resume", "monday"][..], &option].concat()),
            2,
            message,
        );
    }
}

#[test]
fn cancel_reaches_run_of_another_process_through_sqlite() {
    let place = Place::new("live.db");
    let script = file(
        "waits.json",
        r#"[{"call": {"name": "wait", "args": {"seconds": 3600}}}, {"reply": "At last."}]"#,
    );
    let args = [
        "run",
        "Wait",
        "--id",
        "live",
        "--script",
        script.to_str().unwrap(),
        "--journal",
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_levity"));
    let child = child
        .args(args)
        .arg(&place.0)
        .env("HOME", HOME)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(lines.any(|line| line.contains("waits  until")));
    check(&place.levity(&["runs", "show", "live"]), 0, "waiting until");
    check(
        &place.levity(&["runs", "resume", "live", "--quiet"]),
        1,
        "driven by another process",
    );
    check(
        &place.levity(&["runs", "rm", "live"]),
        1,
        "driven by another process",
    );
    let cancelled = place.levity(&["runs", "cancel", "live", "--reason", "no time"]);
    check(&cancelled, 0, "sent to the process that drives run live");
    check(
        &child.wait_with_output().unwrap(),
        1,
        "the run was cancelled: no time",
    );
    check(&place.levity(&["runs", "list"]), 0, "cancelled");
}

/// Like [`Place::levity`], for a call that may never end.
fn levity_within_minute(place: &Place, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levity"));
    output_within_minute(
        command
            .args(args)
            .arg("--journal")
            .arg(&place.0)
            .env("HOME", HOME),
    )
}

#[test]
fn rm_removes_only_selected_runs() {
    for name in ["meant", "meant.db"] {
        let place = Place::new(name);
        check(
            &place.levity(&["run", "What?", "--id", "monday"]),
            0,
            "stored as run monday",
        );
        let parked = &[
            "run",
            "What?",
            "--id",
            "monday.two",
            "--ask",
            "add",
            "--park",
        ];
        check(&place.levity(parked), 3, "run monday.two is waiting");
        check(
            &place.levity(&["runs", "rm", "--state", "answered"]),
            1,
            "`monday.two` would be deleted with it",
        );
        check(
            &place.levity(&["runs", "rm", "monday", "--state", "failed"]),
            2,
            "cannot be used with",
        );
        check(
            &place.levity(&["runs", "rm", "--older-than=-1"]),
            2,
            "0 or more",
        );
        check(
            &place.levity(&["runs", "rm", "--older-than", "nan"]),
            2,
            "0 or more",
        );
        assert_eq!(text(&place.levity(&["runs", "list"])).lines().count(), 2);
        check(
            &place.levity(&["runs", "cancel", "monday.two"]),
            0,
            "stored",
        );
        check(
            &place.levity(&["runs", "resume", "monday.two", "--ask", "add"]),
            1,
            "cancelled",
        );
        check(
            &place.levity(&["runs", "rm", "--older-than", "0"]),
            0,
            "removed monday.two",
        );
        assert_eq!(text(&place.levity(&["runs", "list"])), "");
    }
}

#[test]
fn fork_with_park_waits_in_journal() {
    let place = Place::new("fork-waits");
    check(
        &place.levity(&["run", "What?", "--id", "monday"]),
        0,
        "stored as run monday",
    );
    let fork = [
        "runs", "fork", "monday", "--after", "2", "--id", "tuesday", "--ask", "add", "--park",
    ];
    check(
        &levity_within_minute(&place, &fork),
        3,
        "run tuesday is waiting",
    );
}

#[test]
fn resume_continues_paused_run() {
    let place = Place::new("paused");
    let run = &["run", "What?", "--id", "monday", "--ask", "add", "--park"];
    check(&place.levity(run), 3, "run monday is waiting");
    let file = place.0.join("monday.jsonl");
    let mut records = fs::read_to_string(&file).unwrap();
    records.push_str("{\"seq\":5,\"at\":1,\"entry\":{\"commanded\":\"pause\"}}\n");
    fs::write(&file, &records).unwrap();
    // Another program changed the records, so the fork needs trust, which holds for later calls.
    check(
        &levity_within_minute(
            &place,
            &[
                "runs",
                "fork",
                "monday",
                "--id",
                "tuesday",
                "--park",
                "--ask",
                "add",
                "--trust-journal",
            ],
        ),
        3,
        "is waiting",
    );
    check(
        &levity_within_minute(&place, &["runs", "resume", "monday", "--ask", "add"]),
        0,
        "cannot answer",
    );
}

#[tokio::test(flavor = "current_thread")]
async fn child_run_is_shown_once_and_approved_through_parent() {
    use levity::core::Hints;
    use levity::prelude::*;
    use levity::runtime::FileJournal;
    use levity::test::ScriptedModel;
    use serde_json::json;

    let place = Place::new("below");
    let runtime = Runtime::new().with_journal(FileJournal::new(&place.0).unwrap());
    let asks = ScriptedModel::new()
        .call("wipe", json!({"disk": 1}))
        .reply("Wiped.")
        .by_history();
    let wipe = levity::test::RecordingTool::new("wipe", |_| Ok(ToolOutput::text("wiped")));
    let helper = Agent::builder(asks)
        .tool(wipe.with_hints(Hints::new().destructive()))
        .build()
        .unwrap();
    let lead = ScriptedModel::new()
        .call("helper", json!({"task": "Wipe it"}))
        .reply("Done.")
        .by_history();
    let agent = Agent::builder(lead)
        .agent("helper", "Wipes.", helper)
        .runtime(runtime)
        .build()
        .unwrap();
    agent.run("Wipe").id("lead").park().await.unwrap_err();
    agent.resume("lead").park().await.unwrap_err();
    let shown = text(&place.levity(&["runs", "show", "lead"]));
    assert_eq!(shown.matches("opened").count(), 2, "{shown}");
    assert!(shown.contains("run lead.1"), "{shown}");
    check(
        &place.levity(&["runs", "approve", "lead", "--trust-journal"]),
        0,
        "resume run lead with `levity runs resume`",
    );
    assert_eq!(agent.resume("lead").await.unwrap().text(), "Done.");
}

#[cfg(unix)]
#[test]
fn files_readable_by_others_cause_warning_on_stderr() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = std::env::temp_dir().join(format!("levity-shared-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let share = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (journal, memory) in [("runs", "talks"), ("runs.db", "talks.db")] {
        let [journal, memory] = [journal, memory].map(|name| folder.join(name));
        fs::create_dir_all(&folder).unwrap();
        let (runs, conversations) = (journal.to_str().unwrap(), memory.to_str().unwrap());
        let run = levity(&["run", "--journal", runs, "What is 2 + 5?"]);
        check(&run, 0, "");
        let chat_run = levity(&[
            "run",
            "--memory",
            conversations,
            "--conversation",
            "a",
            "Hello",
        ]);
        check(&chat_run, 0, "");
        let warnings = String::from_utf8_lossy(&run.stderr).into_owned()
            + &String::from_utf8_lossy(&chat_run.stderr);
        assert!(!warnings.contains("chmod"), "{warnings}");
        share(&folder, 0o755);
        let passes = |above: &std::path::Path| mode(above) & 0o011 != 0;
        for (place, list) in [
            (&journal, ["runs", "list", "--journal", runs]),
            (
                &memory,
                ["conversations", "list", "--memory", conversations],
            ),
        ] {
            assert_eq!(mode(place) & 0o077, 0, "{place:?}");
            let file = if place.is_dir() {
                share(place, 0o755);
                let mut files = fs::read_dir(place)
                    .unwrap()
                    .map(|entry| entry.unwrap().path());
                files.find(|path| path.is_file()).unwrap()
            } else {
                place.clone()
            };
            share(&file, 0o644);
            let list = levity(&list);
            check(&list, 0, "");
            let (warnings, shown) = (
                String::from_utf8_lossy(&list.stderr),
                String::from_utf8_lossy(&list.stdout),
            );
            assert_eq!(
                warnings.contains("chmod"),
                folder.ancestors().all(passes),
                "{place:?}: {warnings}"
            );
            assert!(!shown.contains("chmod"), "{shown}");
            assert_eq!(mode(&file), 0o644);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
