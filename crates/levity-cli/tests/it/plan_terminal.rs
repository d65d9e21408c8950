//! Tests of `levity plan` on a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// A terminal with a running command.
pub(crate) struct Terminal {
    pub(crate) ours: File,
    theirs: File,
    pub(crate) child: Child,
    printed: String,
}

impl Terminal {
    pub(crate) fn new(args: &[&str], typed: &[u8]) -> Self {
        Self::in_folder(env!("CARGO_TARGET_TMPDIR").as_ref(), args, typed)
    }

    /// Starts the command in a folder.
    pub(crate) fn in_folder(folder: &std::path::Path, args: &[&str], typed: &[u8]) -> Self {
        Self::with_variables(folder, args, typed, &[])
    }

    /// Starts the command in a folder, with these variables.
    pub(crate) fn with_variables(
        folder: &std::path::Path,
        args: &[&str],
        typed: &[u8],
        variables: &[(&str, &str)],
    ) -> Self {
        let ours: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let size = Winsize {
            ws_row: 30,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&ours, size).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let theirs = File::options().read(true).write(true).open(name).unwrap();
        let end = || theirs.try_clone().unwrap();
        let mut ours: File = ours.into();
        ours.write_all(typed).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_levity"));
        command
            .args(args)
            .env_clear()
            .env("TERM", "xterm")
            .env("HOME", crate::HOME)
            .envs(variables.iter().copied())
            .current_dir(folder);
        let child = command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Self {
            ours,
            theirs,
            child,
            printed: String::new(),
        }
    }

    /// Reads until this text is printed.
    #[track_caller]
    pub(crate) fn until(&mut self, part: &str) {
        self.until_within(part, 60);
    }

    /// Reads until this text is printed, and waits this many seconds for each part of the output.
    #[track_caller]
    pub(crate) fn until_within(&mut self, part: &str, seconds: i64) {
        let mut bytes = [0; 4096];
        // A text that never comes must fail the test, and not block it for ever.
        let limit = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        while !self.printed.contains(part) {
            let mut polled = [PollFd::new(&self.ours, PollFlags::IN)];
            let ready = poll(&mut polled, Some(&limit)).unwrap();
            assert!(ready > 0, "no `{part}` in: {}", self.printed);
            let read = self.ours.read(&mut bytes).unwrap();
            self.printed += &String::from_utf8_lossy(&bytes[..read]);
            assert!(self.printed.len() < 1 << 20, "{}", self.printed);
        }
        self.printed = self
            .printed
            .split_off(self.printed.find(part).unwrap() + part.len());
    }

    /// Returns the output until the command has ended.
    fn all(mut self) -> String {
        const END: &[u8] = b"[the command has ended]";
        let Self {
            ours,
            theirs,
            child,
            ..
        } = &mut self;
        let mut printed = Vec::new();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                child.wait().unwrap();
                theirs.write_all(END).unwrap();
            });
            let mut bytes = [0; 4096];
            while !printed.ends_with(END) {
                let read = ours.read(&mut bytes).unwrap();
                printed.extend_from_slice(&bytes[..read]);
            }
        });
        printed.truncate(printed.len() - END.len());
        String::from_utf8_lossy(&printed).into_owned()
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.theirs)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn cancelled_plan_restores_terminal() {
    let mut terminal = Terminal::new(&["plan", "Compare"], b"");
    assert!(terminal.echoes());
    terminal.until("first ◐ Retriever");
    assert!(!terminal.echoes(), "typed text would appear in the view");
    let child = Pid::from_child(&terminal.child);
    kill_process(child, Signal::INT).unwrap();
    // The view has 23 of 30 rows; no row above it is touched.
    terminal.until("\u{1b}[22A\r\u{1b}[J(cancelled;");
    terminal.until("cancelled: interrupted from the terminal\r\n");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(130));
    assert!(terminal.echoes());
}

#[test]
fn plan_approval_is_asked_below_view() {
    let mut terminal = Terminal::new(&["plan", "Compare", "--ask-plan"], b"");
    terminal.until("└── second ○ Retriever");
    terminal.until("[y/N, or describe the change] ");
    assert!(terminal.echoes(), "typed text is visible");
    terminal.ours.write_all(b"no\n").unwrap();
    terminal.until("the user denied the plan");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(1));
    assert!(terminal.echoes());
}

#[test]
fn plan_approval_shows_values_that_plan_gives_to_steps() {
    let plan = |notes: &str| {
        let plan = serde_json::json!({
            "steps": [{"id": "save", "agent": "Coder", "prompt": "x", "reads": ["notes"],
                "writes": ["out"]}],
            "given": {"notes": notes},
        });
        serde_json::json!([{"reply": plan.to_string()}]).to_string()
    };
    let ask = |name: &str, notes: &str, prompt: &str| {
        let script = crate::file(name, &plan(notes));
        let script = script.to_str().unwrap();
        let args = [
            "plan",
            "Go",
            "--script",
            script,
            "--ask-plan",
            "--view",
            "plain",
        ];
        let mut terminal = Terminal::new(&args, b"");
        terminal.until(&format!("given: {{\"notes\":\"{}", &notes[..10]));
        terminal.until(prompt);
        terminal.ours.write_all(b"no\n").unwrap();
        terminal.until("the user denied the plan");
    };
    ask("given.json", "delete all", "[y/N, or describe the change] ");
    ask(
        "long-given.json",
        &"pad ".repeat(5_000),
        "too long to be shown in full",
    );
}

#[test]
fn question_is_asked_once_and_ignores_earlier_typing() {
    let plan = r#"{"steps": [
        {"id": "one", "agent": "Clarification", "prompt": "x", "writes": ["x"]},
        {"id": "two", "agent": "Clarification", "prompt": "x", "writes": ["y"]}]}"#;
    let asks = r#"{"call": {"name": "ask_user", "args": {"question": "Which?"}}}"#;
    let says = r#"{"reply": "{\"x\": 1, \"y\": 2}"}"#;
    let plan = crate::file("two-questions.json", plan);
    let script = crate::file(
        "two-answers.json",
        &format!("[{asks}, {asks}, {says}, {says}]"),
    );
    let paths = [&plan, &script].map(|path| path.to_str().unwrap());
    let args = [
        "plan", "--plan", paths[0], "--script", paths[1], "--view", "plain",
    ];
    let mut terminal = Terminal::new(&args, b"typed before\n");
    for answer in ["red", "blue"] {
        terminal.until("the agent asks: Which?\r\n  > ");
        terminal
            .ours
            .write_all(format!("{answer}\n").as_bytes())
            .unwrap();
    }
    terminal.until("complete\r\n");
    let rest = std::mem::take(&mut terminal.printed);
    assert!(!rest.contains("no longer open"), "{rest}");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
}

#[test]
fn export_is_escaped_on_terminal_and_byte_exact_in_pipe() {
    let text = "a\u{1b}[2J\u{9b}31m\u{7f}\u{202e}b\u{85}\u{2066}c ü";
    let script = crate::file(
        "controls.json",
        &serde_json::json!([{"reply": text}]).to_string(),
    );
    let journal = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("controls-{}", std::process::id()));
    let journal = journal.to_str().unwrap();
    let run = [
        "run",
        "Hi \u{9b}2J",
        "--id",
        "odd",
        "--journal",
        journal,
        "--script",
        script.to_str().unwrap(),
    ];
    crate::check(&crate::levity(&run), 0, "");
    let export = ["runs", "export", "odd", "--journal", journal];
    let piped = crate::levity(&export).stdout;
    let piped = String::from_utf8(piped).unwrap();
    assert!(
        piped.contains('\u{9b}') && piped.contains('\u{202e}'),
        "a pipe gets the exact bytes"
    );
    for args in [
        &export[..],
        &["runs", "show", "odd", "--journal", journal],
        &["runs", "list", "--journal", journal],
        &[
            "runs",
            "replay",
            "odd",
            "--journal",
            journal,
            "--script",
            script.to_str().unwrap(),
        ],
        &["run", "Hi", "--script", script.to_str().unwrap()],
    ] {
        let printed = Terminal::new(args, b"").all();
        let acts = |c: char| {
            c.is_control() && !matches!(c, '\n' | '\r' | '\t')
                || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert!(!printed.contains(acts), "{args:?}: {printed:?}");
        assert!(!printed.is_empty(), "{args:?}");
        if args[1] == "export" {
            let read = |text: &str| -> Vec<serde_json::Value> {
                text.lines()
                    .map(|line| serde_json::from_str(line).unwrap())
                    .collect()
            };
            assert_eq!(
                read(&printed.replace("\r\n", "\n")),
                read(&piped),
                "the value is the same"
            );
        }
    }
    let _ = std::fs::remove_dir_all(journal);
}
