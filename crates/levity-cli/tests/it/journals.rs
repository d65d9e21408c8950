//! Tests of journals and caches that another user wrote: levity performs nothing in them without a
//! question, and approves no hidden call. Also a test of the cost of stored runs.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use super::{check, command, text};

/// The name of a file that only the call of the other user writes.
const WRITTEN: &str = "written-by-the-call";

/// A folder with a journal whose run `nightly` was approved by another user, and the homes of both
/// users.
pub(crate) struct PlantedJournal {
    dir: tempfile::TempDir,
    journal: &'static str,
}

impl PlantedJournal {
    fn new(journal: &'static str) -> Self {
        let planted = Self::waiting(journal);
        check(
            &planted.call("stranger", &["runs", "approve", "nightly"]),
            0,
            "resume run nightly",
        );
        planted
    }

    /// The same folder before the approval.
    pub(crate) fn waiting(journal: &'static str) -> Self {
        let planted = Self {
            dir: tempfile::tempdir().unwrap(),
            journal,
        };
        for home in ["stranger", "user"] {
            fs::create_dir(planted.path(home)).unwrap();
        }
        fs::create_dir(planted.path("clone")).unwrap();
        let call =
            json!({"call": {"name": "write_file", "args": {"path": WRITTEN, "content": "x"}}});
        fs::write(
            planted.path("clone/script.json"),
            json!([call, {"reply": "Done."}]).to_string(),
        )
        .unwrap();
        let run = planted.call(
            "stranger",
            &[
                "run",
                "Go",
                "--id",
                "nightly",
                "--park",
                "--ask",
                "write_file",
            ],
        );
        check(&run, 3, "run nightly is waiting");
        planted
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn is_written(&self) -> bool {
        self.path("clone").join(WRITTEN).exists()
    }

    /// Returns a command in the clone, on its journal. Commands that run agents get the script and
    /// the workspace.
    pub(crate) fn command(&self, home: &str, args: &[&str]) -> std::process::Command {
        let drives = match args {
            ["runs", what, ..] => ["resume", "fork"].contains(what),
            _ => true,
        };
        let journal = ["--journal", self.journal];
        let agent = ["--workspace", ".", "--script", "script.json"];
        let all = [args, &journal, if drives { &agent[..] } else { &[] }].concat();
        let mut command = command(&all);
        command
            .current_dir(self.path("clone"))
            .env("HOME", self.path(home))
            .env("LEVITY_TOKEN", crate::serve::TOKEN);
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn call(&self, home: &str, args: &[&str]) -> Output {
        self.command(home, args).output().unwrap()
    }

    fn user(&self, args: &[&str]) -> Output {
        self.call("user", args)
    }

    /// Starts a server, waits for a line with this prefix, ends the server, and returns its
    /// standard error.
    #[cfg(unix)]
    fn served(&self, home: &str, args: &[&str], ready: &str) -> String {
        use rustix::process::{Pid, Signal, kill_process};
        let mut child = self
            .command(home, args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let mut told = String::new();
        assert!(lines.by_ref().any(|line| {
            told += &format!("{line}\n");
            line.starts_with(ready)
        }));
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        lines.for_each(|line| told += &format!("{line}\n"));
        child
            .stderr
            .as_mut()
            .unwrap()
            .read_to_string(&mut told)
            .unwrap();
        child.wait().unwrap();
        told
    }
}

pub(crate) const FORMS: [&str; 2] = ["runs", "runs.db"];

#[test]
fn no_command_resumes_planted_run_without_trust() {
    for journal in FORMS {
        let planted = PlantedJournal::new(journal);
        for (args, code) in [
            (&["run", "Go", "--id", "nightly"][..], 2),
            (&["runs", "resume", "nightly"], 1),
            (&["runs", "fork", "nightly", "--id", "other"], 1),
            (&["runs", "approve", "nightly", "--effect", "2"], 1),
            (
                &["runs", "answer", "nightly", "--effect", "2", "--text", "x"],
                1,
            ),
            (
                &["runs", "resolve", "nightly", "--effect", "2", "--not-done"],
                1,
            ),
        ] {
            let output = planted.user(args);
            check(&output, code, "`--trust-journal`");
            check(&output, code, "was not started by you on this machine");
            assert!(!planted.is_written(), "{args:?}");
        }
        // The calls that another user approved are listed before the user trusts them.
        check(&planted.user(&["runs", "resume", "nightly"]), 1, WRITTEN);
        // The user can inspect and cancel the run.
        check(&planted.user(&["runs", "list"]), 0, "nightly");
        check(&planted.user(&["runs", "show", "nightly"]), 0, WRITTEN);
        check(
            &planted.user(&["runs", "resume", "nightly", "--trust-journal"]),
            0,
            "already approved: write_file",
        );
        assert!(planted.is_written());
    }
}

#[test]
fn trust_is_stored_for_existing_runs() {
    for journal in FORMS {
        let planted = PlantedJournal::waiting(journal);
        check(
            &planted.user(&["runs", "approve", "nightly"]),
            1,
            "`--trust-journal`",
        );
        check(
            &planted.user(&["runs", "approve", "nightly", "--trust-journal"]),
            0,
            "resume run nightly",
        );
        check(&planted.user(&["runs", "resume", "nightly"]), 0, "Done.");
        assert!(planted.is_written());
    }
}

/// Changes an SQLite journal as a stranger would.
pub(crate) fn change(file: &Path, sql: &str) {
    let file = rusqlite::Connection::open(file).unwrap();
    assert!(file.execute(sql, []).unwrap() > 0, "{sql}");
}

#[test]
fn trusted_run_drops_requests_that_others_left() {
    let planted = PlantedJournal::waiting("runs.db");
    change(
        &planted.path("clone/runs.db"),
        r#"INSERT INTO inbox (run, post)
            SELECT key, '{"decide":{"effect":2,"decision":"allow"}}' FROM runs"#,
    );
    let resume = ["runs", "resume", "nightly", "--park", "--ask", "write_file"];
    let trusted = planted.user(&[&resume[..], &["--trust-journal"]].concat());
    check(&trusted, 3, "dropped the requests in its inbox (1)");
    assert!(!planted.is_written());
    // Now the run belongs to the user, and the request must not take effect later.
    check(&planted.user(&resume), 3, "run nightly is waiting");
    assert!(!planted.is_written());
}

/// A journal in a workspace can be changed by commands and tools. Here, another user's levity does
/// that, so the new records are valid.
#[test]
fn approval_that_other_program_wrote_is_refused() {
    for journal in FORMS {
        let planted = PlantedJournal::waiting(journal);
        let own = |args: &[&str]| planted.call("stranger", args);
        let approve = ["runs", "approve", "nightly", "--trust-journal"];
        check(&planted.user(&approve), 0, "resume run nightly");
        for action in ["resume", "fork"] {
            let refused = own(&["runs", action, "nightly"]);
            check(&refused, 1, "another program changed the records");
        }
        let refused = own(&["runs", "answer", "nightly", "--text", "x"]);
        check(&refused, 1, "another program changed the records");
        assert!(!planted.is_written());
        let trusted = own(&["runs", "resume", "nightly", "--trust-journal"]);
        check(&trusted, 0, "already approved: write_file");
        assert!(planted.is_written());
    }
}

/// The web page and the HTTP API read records, too.
#[cfg(unix)]
#[test]
fn server_neither_forks_nor_shows_questions_of_changed_run() {
    for journal in FORMS {
        let planted = PlantedJournal::waiting(journal);
        let approve = ["runs", "approve", "nightly", "--trust-journal"];
        check(&planted.user(&approve), 0, "resume run nightly");
        let serve = ["serve", "http", "--listen", "127.0.0.1:0"];
        let server = crate::serve::Server::spawn(planted.command("stranger", &serve));
        for (method, path, body) in [
            ("POST", "/v1/runs/nightly/fork", json!({"id": "copy"})),
            ("POST", "/v1/runs/nightly/resume", json!({})),
            ("GET", "/v1/runs/nightly/asks", Value::Null),
        ] {
            let (status, answer) = server.ask(method, path, &body);
            let is_refused = answer.to_string().contains("another program changed");
            assert!(status == 422 && is_refused, "{path}: {status} {answer}");
        }
        assert!(!planted.is_written());
    }
}

#[test]
fn decision_that_other_program_left_is_dropped() {
    for trust in [&["--trust-journal"][..], &[]] {
        dropped_decision(trust);
    }
}

fn dropped_decision(trust: &[&str]) {
    let planted = PlantedJournal::waiting("runs.db");
    let own = |args: &[&str]| planted.call("stranger", &[args, trust].concat());
    change(
        &planted.path("clone/runs.db"),
        r#"INSERT INTO inbox (run, post)
            SELECT key, '{"decide":{"effect":2,"decision":"allow"}}' FROM runs"#,
    );
    let resume = ["runs", "resume", "nightly", "--park", "--ask", "write_file"];
    check(&own(&resume), 3, "dropped decisions in its inbox (1)");
    assert!(!planted.is_written());
    check(
        &own(&["runs", "approve", "nightly"]),
        0,
        "resume run nightly",
    );
    check(&own(&resume), 0, "Done.");
    assert!(planted.is_written());
}

/// Requests that only stop a run need no trust, and leave an own run as it was.
#[test]
fn denied_run_still_belongs_to_user() {
    for journal in FORMS {
        let planted = PlantedJournal::waiting(journal);
        let own = |args: &[&str]| planted.call("stranger", args);
        check(&own(&["runs", "deny", "nightly"]), 0, "resume run nightly");
        check(&own(&["runs", "resume", "nightly"]), 0, "Done.");
        assert!(!planted.is_written());
    }
}

#[test]
fn approved_call_without_question_is_named_before_trusted_run_resumes() {
    let planted = PlantedJournal::new("runs");
    let path = planted.path("clone/runs/nightly.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut forged = format!("{}\n", lines.next().unwrap());
    let without_question = lines.filter(|line| line["entry"]["started"]["note"]["kind"] != "ask");
    for (seq, mut line) in without_question.enumerate() {
        line["seq"] = seq.into();
        line.as_object_mut().unwrap().remove("crc");
        forged += &format!("{line}\n");
    }
    assert_eq!(forged.lines().count() + 1, text.lines().count(), "{text}");
    fs::write(&path, forged).unwrap();
    for trust in [&[][..], &["--trust-journal"]] {
        check(
            &planted.user(&[&["runs", "resume", "nightly"][..], trust].concat()),
            i32::from(trust.is_empty()),
            "already approved: a call that the journal does not name (effect 2)",
        );
    }
}

#[test]
fn approved_call_of_unlisted_run_is_named_before_trusted_run_resumes() {
    let planted = PlantedJournal::new("runs.db");
    change(
        &planted.path("clone/runs.db"),
        "UPDATE runs SET opened = 'x'",
    );
    for trust in [&[][..], &["--trust-journal"]] {
        check(
            &planted.user(&[&["runs", "resume", "nightly"][..], trust].concat()),
            i32::from(trust.is_empty()),
            "already approved: write_file",
        );
    }
}

#[test]
fn new_run_in_foreign_journal_belongs_to_user() {
    for journal in FORMS {
        let planted = PlantedJournal::new(journal);
        let own = ["run", "Go", "--id", "own", "--park", "--ask", "write_file"];
        check(&planted.user(&own), 3, "run own is waiting");
        check(
            &planted.user(&["runs", "approve", "own"]),
            0,
            "resume run own",
        );
        check(&planted.user(&["runs", "resume", "own"]), 0, "Done.");
        check(
            &planted.user(&["runs", "resume", "nightly"]),
            1,
            "`--trust-journal`",
        );
        // A copy at another path is not the journal that the user created.
        if journal == "runs" {
            fs::remove_file(planted.path("clone").join(WRITTEN)).unwrap();
            fs::create_dir(planted.path("clone/copy")).unwrap();
            copy(&planted.path("clone/runs"), &planted.path("clone/copy"));
            let planted = PlantedJournal {
                journal: "copy",
                ..planted
            };
            check(
                &planted.user(&["runs", "resume", "own"]),
                1,
                "`--trust-journal`",
            );
            assert!(!planted.is_written());
        }
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from)
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.path().is_file())
    {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn imported_run_does_not_belong_to_user() {
    let planted = PlantedJournal::new("runs");
    let archive = planted
        .call("stranger", &["runs", "export", "nightly"])
        .stdout;
    fs::write(planted.path("clone/archive"), archive).unwrap();
    let planted = PlantedJournal {
        journal: "taken-in",
        ..planted
    };
    check(&planted.user(&["runs", "import", "archive"]), 0, "nightly");
    check(
        &planted.user(&["runs", "resume", "nightly"]),
        1,
        "`--trust-journal`",
    );
    assert!(!planted.is_written());
}

#[test]
fn imported_run_in_place_of_removed_own_run_does_not_belong_to_user() {
    for journal in FORMS {
        let planted = PlantedJournal::new(journal);
        let own = |args: &[&str]| planted.call("stranger", args);
        fs::write(
            planted.path("clone/archive"),
            own(&["runs", "export", "nightly"]).stdout,
        )
        .unwrap();
        let removals: &[&dyn Fn()] = &[
            &|| check(&own(&["runs", "rm", "nightly"]), 0, "removed nightly"),
            // levity does not notice a file that was deleted by hand.
            &|| fs::remove_file(planted.path("clone/runs/nightly.jsonl")).unwrap(),
        ];
        for remove in &removals[..if journal == "runs" { 2 } else { 1 }] {
            remove();
            check(&own(&["runs", "import", "archive"]), 0, "nightly");
            check(&own(&["runs", "resume", "nightly"]), 1, "`--trust-journal`");
            assert!(!planted.is_written());
            // A new run with the same id belongs to the user again.
            check(&own(&["runs", "rm", "nightly"]), 0, "removed nightly");
            let run = [
                "run",
                "Go",
                "--id",
                "nightly",
                "--park",
                "--ask",
                "write_file",
            ];
            check(&own(&run), 3, "run nightly is waiting");
            check(&own(&["runs", "approve", "nightly"]), 0, "resume run");
        }
    }
}

#[test]
fn run_that_replaces_own_run_does_not_belong_to_user() {
    let planted = PlantedJournal::new("runs");
    let evil = fs::read(planted.path("clone/runs/nightly.jsonl")).unwrap();
    fs::remove_dir_all(planted.path("clone/runs")).unwrap();
    check(
        &planted.user(&[
            "run",
            "Go",
            "--id",
            "nightly",
            "--park",
            "--ask",
            "write_file",
        ]),
        3,
        "run nightly is waiting",
    );
    fs::write(planted.path("clone/runs/nightly.jsonl"), evil).unwrap();
    check(
        &planted.user(&["runs", "resume", "nightly"]),
        1,
        "`--trust-journal`",
    );
    assert!(!planted.is_written());
}

#[test]
#[cfg(unix)]
fn marks_and_seals_are_private_to_user() {
    use std::os::unix::fs::PermissionsExt as _;
    let planted = PlantedJournal::new("runs");
    let folder = planted.path("stranger/.local/state/levity/journals");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let list = |folder: &Path| -> Vec<_> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let found = list(&folder);
    let (seals, marks): (Vec<_>, Vec<_>) = found.into_iter().partition(|path| path.is_dir());
    assert_eq!((seals.len(), marks.len()), (1, 1));
    assert_eq!((mode(&seals[0]), mode(&marks[0])), (0o700, 0o600));
    let seals = list(&seals[0]);
    assert_eq!((seals.len(), mode(&seals[0])), (1, 0o600));
}

#[test]
#[cfg(unix)]
fn server_reports_planted_runs_and_does_not_resume_them() {
    for journal in FORMS {
        let (args, ready) = (["serve", "http", "--listen", "127.0.0.1:0"], "listening on");
        let planted = PlantedJournal::new(journal);
        let told = planted.served("user", &args, ready);
        assert!(told.contains("run nightly was not resumed"), "{told}");
        assert!(told.contains("`--trust-journal`"), "{told}");
        assert!(!planted.is_written());
        check(
            &planted.user(&["runs", "list", "--state", "open"]),
            0,
            "nightly",
        );
        let told = planted.served("stranger", &args, ready);
        assert!(!told.contains("`--trust-journal`"), "{told}");
        let planted = PlantedJournal::new(journal);
        let mcp = planted.user(&["serve", "mcp"]);
        check(&mcp, 0, "run nightly was not resumed");
        check(
            &planted.user(&["runs", "list", "--state", "open"]),
            0,
            "nightly",
        );
        assert!(!planted.is_written());
    }
}

#[test]
fn swarm_does_not_resume_planted_run() {
    let planted = PlantedJournal {
        dir: tempfile::tempdir().unwrap(),
        journal: "runs.db",
    };
    let call = |home: &str, args: &[&str]| {
        let mut command = command(args);
        command
            .current_dir(planted.dir.path())
            .env("HOME", planted.path(home))
            .output()
            .unwrap()
    };
    let swarm = [
        "swarm",
        "Write",
        "--id",
        "monday",
        "--ask",
        "now",
        "--park",
        "--journal",
        "runs.db",
    ];
    check(&call("stranger", &swarm), 3, "run monday is waiting");
    check(
        &call(
            "stranger",
            &["runs", "approve", "monday", "--journal", "runs.db"],
        ),
        0,
        "resume run monday",
    );
    let resume = [
        "swarm",
        "--resume",
        "monday",
        "--ask",
        "now",
        "--journal",
        "runs.db",
    ];
    check(&call("user", &resume), 1, "`--trust-journal`");
    // The list of runs does not show the child run with the approved call.
    change(&planted.path("runs.db"), "UPDATE runs SET opened = 'x'");
    let trusted = call("user", &[&resume[..], &["--trust-journal"]].concat());
    check(&trusted, 0, "already approved: now");
    check(&trusted, 0, "now: returns ");
}

#[test]
fn plan_does_not_continue_session_of_other_user() {
    let dir = tempfile::tempdir().unwrap();
    let call = |home: &str, args: &[&str]| {
        command(args)
            .current_dir(dir.path())
            .env("HOME", dir.path().join(home))
            .output()
            .unwrap()
    };
    let plan = |home: &str, args: &[&str]| {
        call(home, &[&["plan", "--sessions", "sessions"], args].concat())
    };
    // A session that reached a limit is continued as a new session.
    let limited = plan("stranger", &["Compare", "--limit-calls", "4"]);
    check(&limited, 4, "stored as session");
    let printed = String::from_utf8_lossy(&limited.stderr).into_owned();
    let (_, id) = printed.rsplit_once("stored as session ").unwrap();
    let id = id.trim();
    let refused = |args: &[&str]| {
        let output = plan("user", args);
        check(&output, 2, "was not started by you on this machine");
        check(&output, 2, "`--trust-journal`");
    };
    refused(&["--fork", id]);
    refused(&["--resume", id]);
    check(&plan("stranger", &["--fork", id]), 0, "stored as session");
    check(
        &plan("user", &["--fork", id, "--trust-journal"]),
        0,
        "stored as session",
    );
    // Only the file of the session remains.
    let remove = ["runs", "rm", id, "--journal", "sessions/journal"];
    check(&call("stranger", &remove), 0, "removed");
    refused(&["--fork", id]);
    refused(&["--resume", id]);
    for option in ["--fork", "--resume"] {
        check(&plan("stranger", &[option, id]), 0, "stored as session");
    }
    check(
        &plan("user", &["--resume", id, "--trust-journal"]),
        0,
        "continues it as a new session",
    );
}

/// Returns the names of the long texts in a journal.
fn long_texts(journal: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(journal.join("bodies"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.len() == 64)
        .collect();
    names.sort();
    names
}

#[test]
fn runs_rm_removes_long_texts_that_no_other_run_needs() {
    let dir = tempfile::tempdir().unwrap();
    let call = |args: &[&str]| {
        let mut command = command(args);
        command.current_dir(dir.path()).env("HOME", dir.path());
        command.stdin(Stdio::null()).output().unwrap()
    };
    let (first, second) = ("a".repeat(80 << 10), "b".repeat(80 << 10));
    for (id, reply) in [("one", &first), ("two", &first), ("three", &second)] {
        let script = json!([{"reply": reply}]).to_string();
        fs::write(dir.path().join("script.json"), script).unwrap();
        let run = ["run", "Go", "--id", id, "--journal", "runs", "--script"];
        check(&call(&[&run[..], &["script.json"]].concat()), 0, "");
    }
    let journal = dir.path().join("runs");
    assert_eq!(long_texts(&journal).len(), 2);
    check(&call(&["runs", "rm", "nobody"]), 1, "there is no run");
    check(&call(&["runs", "rm", "three"]), 0, "removed three");
    let shared = long_texts(&journal);
    assert_eq!(shared.len(), 1);
    check(&call(&["runs", "rm", "one"]), 0, "removed one");
    assert_eq!(long_texts(&journal), shared, "run `two` needs it");
    check(&call(&["runs", "show", "two"]), 0, "the model writes aaa");
    check(&call(&["runs", "rm", "two"]), 0, "removed two");
    assert!(long_texts(&journal).is_empty());
}

#[test]
fn run_id_with_another_goal_is_rejected_with_both_goals() {
    for journal in FORMS {
        let planted = PlantedJournal::new(journal);
        for home in ["stranger", "user"] {
            for more in [&[][..], &["--trust-journal"]] {
                let args = [&["run", "Send the report", "--id", "nightly"][..], more].concat();
                let output = planted.call(home, &args);
                if home == "user" && more.is_empty() {
                    check(&output, 2, "`--trust-journal`");
                } else {
                    check(&output, 2, "its goal is `Go`");
                    check(&output, 2, "not `Send the report`");
                }
                assert!(!planted.is_written());
            }
        }
        check(
            &planted.call("stranger", &["run", "Go", "--id", "nightly"]),
            0,
            "Done.",
        );
        let ended = planted.call("stranger", &["run", "Send the report", "--id", "nightly"]);
        check(&ended, 2, "not `Send the report`");
        assert!(!String::from_utf8_lossy(&ended.stdout).contains("Done."));
    }
}

/// Starts a run that asks for approval of a call whose end does not fit into a line.
fn parked_long_call(name: &str, length: usize) -> (tempfile::TempDir, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let content = format!("{}THE-END", "x".repeat(length));
    let call =
        json!({"call": {"name": "write_file", "args": {"path": WRITTEN, "content": content}}});
    fs::write(
        dir.path().join("script.json"),
        json!([call, {"reply": "Done."}]).to_string(),
    )
    .unwrap();
    let args = [
        "run",
        "Go",
        "--id",
        name,
        "--journal",
        "runs",
        "--workspace",
        ".",
        "--script",
        "script.json",
    ];
    (
        dir,
        args.iter()
            .map(|arg| (*arg).to_owned())
            .chain(["--ask".to_owned(), "write_file".to_owned()])
            .collect(),
    )
}

#[test]
fn approve_shows_call_in_full() {
    let (dir, args) = parked_long_call("long", 3000);
    let call = |args: &[&str]| {
        command(args)
            .current_dir(dir.path())
            .env("HOME", dir.path())
            .output()
            .unwrap()
    };
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--park"]).collect();
    check(&call(&args), 3, "THE-END");
    check(&call(&["runs", "show", "long"]), 0, "THE-END");
    let approved = call(&["runs", "approve", "long"]);
    check(&approved, 0, "THE-END");
    check(&approved, 0, "approving write_file");
}

#[test]
fn too_long_call_requires_long_call_option() {
    let (dir, args) = parked_long_call("long", 30_000);
    let call = |args: &[&str]| {
        command(args)
            .current_dir(dir.path())
            .env("HOME", dir.path())
            .output()
            .unwrap()
    };
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--park"]).collect();
    for shown in [&call(&args), &call(&["runs", "show", "long"])] {
        let text = String::from_utf8_lossy(&shown.stdout);
        assert!(
            text.contains("bytes are not shown") && text.contains("THE-END") && text.len() < 40_000,
            "{text}"
        );
    }
    check(&call(&["runs", "approve", "long"]), 1, "`--long-call`");
    check(&call(&["runs", "show", "long"]), 0, "waiting for an answer");
    check(
        &call(&["runs", "approve", "long", "--long-call"]),
        0,
        "resume run long",
    );
}

#[test]
#[cfg(target_os = "linux")]
fn text_typed_before_question_approves_nothing() {
    use std::io::Write as _;
    let (dir, args) = parked_long_call("typed", 5);
    let paths = [
        dir.path(),
        &dir.path().join("runs"),
        &dir.path().join("script.json"),
    ]
    .map(|path| path.to_str().unwrap().to_owned());
    let args: Vec<&str> = args
        .iter()
        .map(|arg| match arg.as_str() {
            "." => &paths[0],
            "runs" => &paths[1],
            "script.json" => &paths[2],
            other => other,
        })
        .collect();
    let mut terminal = crate::plan_terminal::Terminal::new(&args, b"y\n");
    terminal.until("[y/N] ");
    terminal.ours.write_all(b"n\n").unwrap();
    terminal.until("the user denied the call");
    assert!(!dir.path().join(WRITTEN).exists());
    terminal.until("Done.");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
}

#[test]
fn cost_is_added_up_by_day_model_and_agent() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"[
        {"call": {"name": "add", "args": {"a": 1, "b": 2}}, "usage": {"input": 100, "output": 10}},
        {"reply": "Three.", "usage": {"input": 120, "output": 5, "cost": 2000000}}
    ]"#;
    fs::write(folder.path().join("script.json"), script).unwrap();
    let levity = |args: &str| {
        let args: Vec<_> = args.split(' ').collect();
        let mut command = command(&args);
        command.current_dir(folder.path()).output().unwrap()
    };
    check(
        &levity("run one --script script.json --journal runs --id one"),
        0,
        "Three.",
    );
    check(
        &levity("run two --script script.json --journal runs --id two"),
        0,
        "Three.",
    );
    check(&levity("swarm three --journal runs --id three"), 0, "");
    let sum = |output: &Output| -> Value {
        let last = text(output).lines().last().unwrap().to_owned();
        serde_json::from_str(&last).unwrap()
    };
    let by_day = levity("runs cost --json");
    check(&by_day, 0, "model_calls");
    let (all, printed) = (sum(&by_day), text(&by_day));
    assert_eq!(printed.lines().count(), 2, "{printed}");
    assert_eq!(all["group"], Value::Null);
    assert!(all["model_calls"].as_u64() > Some(4), "{all}");
    let by_agent = levity("runs cost --by agent");
    check(&by_agent, 0, "agent  4 model calls  440 tokens in, 30 out");
    check(&by_agent, 0, "researcher  ");
    assert_eq!(sum(&levity("runs cost --by model --json")), all);
    assert_eq!(sum(&levity("runs cost --by agent --json")), all);

    // Records that a fork shares with its origin are counted once.
    let fork = "runs fork one --after 4 --id four --script script.json --journal runs";
    check(&levity(fork), 0, "Three.");
    let forked = sum(&levity("runs cost --json"));
    let more = forked["model_calls"].as_u64().unwrap() - all["model_calls"].as_u64().unwrap();
    assert_eq!(more, 1, "{forked}");
}
