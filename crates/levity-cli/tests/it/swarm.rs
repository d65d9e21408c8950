//! Tests of `levity swarm` without a configured model.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::{
    Place, check, command, file, levity, levity_within_minute, output_within_minute, text,
};

const ANSWER: &str = "A scripted model cannot answer this.";

fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes a file of replies; a string is a reply, any other value is a step.
fn script(name: &str, steps: &[Value]) -> PathBuf {
    let step = |step: &Value| {
        if step.is_string() {
            json!({"reply": step})
        } else {
            step.clone()
        }
    };
    file(
        &format!("swarm-{name}.json"),
        &json!(steps.iter().map(step).collect::<Vec<_>>()).to_string(),
    )
}

fn call(name: &str, args: &Value) -> Value {
    json!({"call": {"name": name, "args": args}})
}

/// Returns the plan that a router would write: these workers, one after the other.
fn plan(workers: &[&str]) -> Value {
    let one = |at: usize| {
        let before: Vec<String> = at
            .checked_sub(1)
            .map(|at| format!("d{at}"))
            .into_iter()
            .collect();
        json!({"id": format!("d{at}"), "worker": workers[at], "task": "Work.",
            "depends_on": before})
    };
    let delegations: Vec<_> = (0..workers.len()).map(one).collect();
    json!(json!({"delegations": delegations}).to_string())
}

/// A folder for this test run, with a file.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("notes.txt"), "one\n").unwrap();
        Self(path)
    }

    fn notes(&self) -> String {
        fs::read_to_string(self.0.join("notes.txt")).unwrap()
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn swarm_without_model_shows_demonstration() {
    let output = levity(&["swarm", "Write a haiku"]);
    assert!(text(&output).starts_with(ANSWER), "{output:?}");
    for part in [
        "a scripted model",
        "swarm: the plan, by the router: find (researcher), write (coder), review (reviewer)\n",
        "swarm › researcher › now: is called with {}\n",
        "swarm › coder: failed at `write`: ",
        "swarm › coder: starts `write`, attempt 2\n",
        "swarm › reviewer: answers: I found nothing. Ready.\n",
        "swarm: the results are combined\n",
        "3 of 3 done",
    ] {
        check(&output, 0, part);
    }
    let quiet = levity(&["swarm", "-q", "Write a haiku"]);
    assert_eq!(
        (stderr_text(&quiet), text(&quiet)),
        (String::new(), text(&output))
    );
}

#[test]
fn coder_writes_file_and_reviewer_cannot() {
    let folder = Folder::new("swarm-writes");
    let write = |content: &str| {
        call(
            "write_file",
            &json!({"path": "notes.txt", "content": content}),
        )
    };
    let steps = [
        plan(&["coder", "reviewer"]),
        write("by the coder\n"),
        json!("Written."),
        write("by the reviewer\n"),
        call("run_command", &json!({"command": "rm notes.txt"})),
        call("read_file", &json!({"path": "notes.txt"})),
        json!("I can only read."),
        json!("The coder wrote it; the reviewer looked at it."),
    ];
    let script = script("writes", &steps);
    let args = [
        "swarm",
        "Write notes",
        "--script",
        script.to_str().unwrap(),
        "--workspace",
        folder.path(),
    ];
    let output = levity(&[&args[..], &["--weak", "--allow", "rm"]].concat());
    for part in [
        "swarm › coder › write_file: written notes.txt\n",
        "swarm › reviewer › write_file: fails: there is no tool `write_file`",
        "swarm › reviewer › run_command: fails: there is no tool `run_command`",
        "swarm › reviewer › read_file: returns by the coder\n",
        "2 of 2 done",
    ] {
        check(&output, 0, part);
    }
    assert_eq!(
        text(&output),
        "The coder wrote it; the reviewer looked at it.\n"
    );
    assert_eq!(folder.notes(), "by the coder\n");
}

#[test]
fn worker_option_limits_workers() {
    let output = levity(&["swarm", "Write", "--worker", "coder"]);
    check(&output, 0, "by the router: write (coder)\n");
    assert_eq!(text(&output), "Written, at the second attempt.\n");
    check(
        &levity(&["swarm", "Write", "--worker", "cook"]),
        2,
        "use researcher, coder, reviewer",
    );
    let script = script(
        "nobody",
        &[plan(&["reviewer"]), plan(&["reviewer"]), json!("Done.")],
    );
    let args = [
        "swarm",
        "Fix it",
        "--worker",
        "coder",
        "--script",
        script.to_str().unwrap(),
    ];
    let output = levity(&args);
    check(&output, 0, "`d0` is for `reviewer`, who is not there");
    check(
        &output,
        0,
        "swarm: the plan, by keywords of the goal: d1 (coder)\n",
    );
}

#[test]
fn plan_from_file_is_carried_out() {
    let path = file(
        "swarm-plan.json",
        r#"[{"id": "a", "worker": "reviewer", "task": "Look."}]"#,
    );
    let output = levity(&["swarm", "--plan", path.to_str().unwrap()]);
    check(&output, 0, "swarm: the plan, as given: a (reviewer)\n");
    assert_eq!(text(&output), "I found nothing. Ready.\n");
    let path = file(
        "swarm-cook.json",
        r#"{"delegations": [{"id": "a", "worker": "codr", "task": "Cook."}]}"#,
    );
    check(
        &levity(&["swarm", "--plan", path.to_str().unwrap()]),
        2,
        "did you mean `coder`?",
    );
    let path = file("swarm-odd.json", r#"{"steps": []}"#);
    check(
        &levity(&["swarm", "--plan", path.to_str().unwrap()]),
        2,
        "swarm-odd.json` is not a valid plan",
    );
    check(
        &levity(&["swarm", "--plan", "nowhere.json"]),
        2,
        "cannot read `nowhere.json`",
    );
}

#[test]
fn swarm_reports_invalid_arguments() {
    check(&levity(&["swarm"]), 2, "Usage");
    check(
        &levity(&["swarm", "x", "--max-parallel", "0"]),
        2,
        "`max_parallel` is 0",
    );
    check(
        &levity(&["swarm", "x", "--max-delegations", "0"]),
        2,
        "`max_delegations` is 0",
    );
    check(&levity(&["swarm", "x", "--park"]), 2, "--journal");
    check(
        &levity(&["swarm", "x", "--workspace", "nowhere"]),
        2,
        "`nowhere`",
    );
    let place = Place::new("swarm-none");
    check(
        &place.levity(&["swarm", "--resume", "nobody"]),
        2,
        "there is no run `nobody`",
    );
    let output = place.levity(&["swarm", "x", "--id", "../monday"]);
    check(&output, 2, "needs an id of at most 200 letters");
    assert!(!stderr_text(&output).contains("stored as"), "{output:?}");
    check(
        &place.levity(&["swarm", "x", "--id", "monday", "--limit-calls", "0"]),
        1,
        "the goal was not reached",
    );
    check(
        &place.levity(&["swarm", "x", "--id", "monday"]),
        2,
        "run `monday` already exists",
    );
    check(
        &levity(&["swarm", "x", "--bus", "nowhere/bus.jsonl"]),
        2,
        "cannot open `nowhere/bus.jsonl` for the messages",
    );
    #[cfg(unix)]
    {
        let (mine, link) = (place.0.join("mine"), place.0.join("link"));
        fs::write(&mine, "mine").unwrap();
        std::os::unix::fs::symlink(&mine, &link).unwrap();
        check(
            &levity(&["swarm", "x", "--bus", link.to_str().unwrap()]),
            2,
            "is a symbolic link",
        );
        let pipe = place.0.join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        check(
            &output_within_minute(&mut command(&[
                "swarm",
                "x",
                "--bus",
                pipe.to_str().unwrap(),
            ])),
            2,
            "is not a regular file",
        );
        assert_eq!(fs::read_to_string(mine).unwrap(), "mine");
    }
}

#[test]
fn swarm_prints_result_object_and_writes_bus_file() {
    let folder = Folder::new("swarm-bus");
    let bus = folder.0.join("bus.jsonl");
    let output = levity(&["swarm", "Write", "--json", "--bus", bus.to_str().unwrap()]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(
            fs::metadata(&bus).unwrap().permissions().mode() & 0o077,
            0,
            "it is its owner's alone"
        );
    }
    let object: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(
        (&object["status"], &object["error"]),
        (&json!("complete"), &Value::Null)
    );
    assert!(
        object["text"]
            .as_str()
            .is_some_and(|text| text.starts_with(ANSWER)),
        "{object}"
    );
    assert_eq!(object["reports"][1]["attempts"], 2);
    assert_eq!(object["plan"][2]["worker"], "reviewer");
    let lines: Vec<Value> = fs::read_to_string(bus)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let contents: Vec<_> = lines
        .iter()
        .map(|line| (line["from"].as_str(), line["type"].as_str()))
        .collect();
    let (worker, router) = (
        |name, kind| (Some(name), Some(kind)),
        |kind| (Some("router"), Some(kind)),
    );
    let expected = [
        router("task"),
        router("task"),
        router("task"),
        worker("researcher", "result"),
        worker("coder", "failure"),
        worker("coder", "result"),
        worker("reviewer", "result"),
        router("answer"),
    ];
    assert_eq!(contents, expected);
}

#[test]
fn limit_keeps_completed_work() {
    let output = levity(&["swarm", "Write", "--limit-calls", "3", "--json"]);
    check(&output, 4, "1 of 3 done");
    let none = levity(&["swarm", "Write", "--limit-calls", "0"]);
    assert!(text(&none).starts_with("Not done:\n- "), "{none:?}");
    let object: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(object["reports"][0]["status"], "done", "{object}");
    assert!(
        object["stats"]["model_calls"].as_u64() <= Some(3),
        "{object}"
    );
}

#[test]
fn run_resumes_after_process_is_killed() {
    for name in ["swarm-killed", "swarm-killed.db"] {
        let place = Place::new(name);
        let steps = [
            plan(&["researcher", "coder"]),
            json!("Found."),
            json!({"hang": true}),
        ];
        let hangs = script(&format!("{name}-hangs"), &steps);
        let args = [
            "swarm",
            "Write",
            "--id",
            "monday",
            "--script",
            hangs.to_str().unwrap(),
            "--journal",
        ];
        let mut child = command(&args)
            .arg(&place.0)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .map_while(Result::ok);
        assert!(lines.any(|line| line == "swarm › coder: starts `d1`"));
        child.kill().unwrap();
        child.wait().unwrap();
        let goes_on = script(
            &format!("{name}-goes-on"),
            &[json!("Written."), json!("Found and written.")],
        );
        let again = [
            "swarm",
            "--resume",
            "monday",
            "--script",
            goes_on.to_str().unwrap(),
        ];
        let output = place.levity(&again);
        assert_eq!(text(&output), "Found and written.\n", "{output:?}");
        let stderr_text = stderr_text(&output);
        assert!(
            stderr_text.contains(
                "swarm › coder: completed \
                `d1`"
            ) && !stderr_text.contains("researcher"),
            "{stderr_text}"
        );
        check(&place.levity(&again), 0, "2 of 2 done");
    }
}

#[test]
fn question_of_worker_waits_in_journal() {
    let place = Place::new("swarm-waits");
    let run = ["swarm", "Write", "--id", "monday", "--ask", "now", "--park"];
    check(&place.levity(&run), 3, "run monday is waiting");
    check(
        &levity_within_minute(
            &place,
            &["swarm", "--resume", "monday", "--ask", "now", "--park"],
        ),
        3,
        "run monday is waiting",
    );
    check(
        &place.levity(&["runs", "approve", "monday"]),
        0,
        "resume run monday with `levity runs resume`",
    );
    let output = levity_within_minute(&place, &["swarm", "--resume", "monday", "--ask", "now"]);
    check(&output, 0, "swarm › researcher › now: returns ");
    assert!(text(&output).starts_with(ANSWER));
    // Without a terminal, the answer is no.
    let run = ["swarm", "Write", "--id", "tuesday", "--ask", "now"];
    check(
        &place.levity(&[&run[..], &["--park"]].concat()),
        3,
        "run tuesday is waiting",
    );
    let output = levity_within_minute(&place, &["swarm", "--resume", "tuesday", "--ask", "now"]);
    check(&output, 0, "there is no terminal");
}

#[test]
#[cfg(target_os = "linux")]
fn question_on_terminal_names_worker() {
    use std::io::Write as _;

    let path = file(
        "swarm-asks.json",
        r#"[{"id": "a", "worker": "researcher", "task": "[demo: find]"}]"#,
    );
    let args = ["swarm", "--plan", path.to_str().unwrap(), "--ask", "now"];
    let mut terminal = crate::plan_terminal::Terminal::new(&args, b"typed before\n");
    terminal.until("researcher:\r\n  allow the call now {}? (`--ask` requires approval) [y/N] ");
    terminal.ours.write_all(b"y\n").unwrap();
    terminal.until("swarm › researcher › now: returns ");
    terminal.until("1 of 1 done");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
}
