//! The content of the log files.

use std::process::Command;

use levity_core::{EventKind, MachineKind};
use levity_log::{LogFiles, LogFilesBuilder};

use crate::support::{PATIENCE, event, lead, read, with, within};

fn logs() -> (tempfile::TempDir, LogFilesBuilder) {
    let dir = tempfile::tempdir().unwrap();
    let builder = LogFiles::builder(dir.path());
    (dir, builder)
}

/// Returns the lines without their time, run and duration.
fn plain_lines(text: &str) -> Vec<String> {
    let words = |line: &str| {
        let mut words = line.splitn(4, ' ').filter(|word| !word.is_empty());
        let (_, level) = (words.next(), words.next().unwrap().to_owned());
        let rest = line
            .split_once(&level)
            .unwrap()
            .1
            .trim_start()
            .split_once(' ')
            .unwrap()
            .1;
        let rest = rest.split(" ms=").enumerate().map(|(at, part)| match at {
            0 => part.to_owned(),
            _ => part
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .to_owned(),
        });
        format!("{level} {}", rest.collect::<String>())
    };
    text.lines().map(words).collect()
}

#[test]
fn session_writes_general_and_reasoning_logs() {
    let (_dir, builder) = logs();
    let logs = builder.open().unwrap();
    within(&with(logs.layer()), async {
        let agent = lead().build().unwrap();
        agent
            .run("Weather and sum")
            .id("r1")
            .conversation("talk")
            .on_event(logs.session("talk"))
            .await
            .unwrap();
    });
    assert!(logs.flush(PATIENCE));
    let general = read(logs.session_folder("talk").join("general.log"));
    let plain_lines = plain_lines(&general);
    for line in [
        "INFO run started machine=agent/1",
        "INFO goal text=\"Weather and sum\"",
        "INFO turn turn=1 of=10",
        "INFO model called slot=main",
        "INFO model replied slot=main input=100 output=20 finish=tool_calls",
        r#"INFO tool called tool=weather call=c-1 args="{\"city\":\"Paris\"}""#,
        "INFO looked at the sky station=LFPG target=it::support",
        "INFO tool answered tool=weather call=c-1 bytes=5",
        "WARN tool failed tool=broken call=c-2 kind=failed error=\"out of order\"",
        "INFO agent finished agent=adder status=complete",
        "INFO run ended status=complete turns=3 model_calls=3 tool_calls=3 failed_calls=1 \
            reasoning_steps=1 input=480 output=37 answer=\"Sunny, and 7.\"",
    ] {
        let found = plain_lines.iter().any(|plain_lines| plain_lines == line);
        assert!(found, "no line\n{line}\nin\n{}", plain_lines.join("\n"));
    }
    assert!(
        general
            .lines()
            .any(|line| line.contains(" r1.") && line.contains("run started")),
        "the child's too"
    );
    assert!(
        general
            .lines()
            .all(|line| line.starts_with("20") && line[..24].ends_with('Z')),
        "{general}"
    );
    let reasoning = read(logs.session_folder("talk").join("reasoning.log"));
    assert_eq!(
        crate::files::plain_lines(&reasoning),
        [r#"INFO thought text="First the weather,\nthen the sum.""#]
    );
}

#[test]
fn runs_without_session_have_separate_folders() {
    let (dir, builder) = logs();
    let logs = builder.open().unwrap();
    let watch = logs.runs();
    let started = || EventKind::RunStarted {
        machine: MachineKind::new("agent", 1),
    };
    watch(&event("a", 0, started()));
    watch(&event("a.3", 1, started()));
    watch(&event("../b", 2, started()));
    assert!(logs.flush(PATIENCE));
    assert_eq!(read(dir.path().join("a/general.log")).lines().count(), 2);
    let folders = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(folders, 2, "nothing was written outside");
    assert!(!dir.path().parent().unwrap().join("b").exists());
}

#[cfg(unix)]
#[test]
fn linked_session_folder_gets_no_entries() {
    let (dir, builder) = logs();
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("a")).unwrap();
    let logs = builder.open().unwrap();
    let watch = logs.runs();
    watch(&event(
        "a",
        0,
        EventKind::RunStarted {
            machine: MachineKind::new("agent", 1),
        },
    ));
    logs.flush(PATIENCE);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn entry_stays_on_one_line_for_any_text() {
    for json in [false, true] {
        let (dir, builder) = logs();
        let builder = if json { builder.json() } else { builder };
        let logs = builder.open().unwrap();
        let text =
            "a\n2026-01-01T00:00:00.000Z INFO  r1 forged\r\u{1b}[2J\u{9b}31m\u{202e}\u{2028}b\0"
                .to_owned();
        logs.session("s")(&event("r1", 0, EventKind::Goal { text: text.clone() }));
        assert!(logs.flush(PATIENCE));
        let general = read(dir.path().join("s/general.log"));
        assert_eq!(general.lines().count(), 1, "{general:?}");
        let tricks = |c: char| c.is_control() || "\u{202e}\u{2028}".contains(c);
        assert!(!general.trim_end().contains(tricks), "{general:?}");
        if json {
            let line: serde_json::Value = serde_json::from_str(&general).unwrap();
            assert_eq!(line["text"], text, "a reader of JSON has it as it was");
            assert_eq!(
                (&line["run"], &line["level"], &line["event"]),
                (&"r1".into(), &"info".into(), &"goal".into())
            );
            assert_eq!(line["at"], "1970-01-01T00:00:00.000Z");
        }
    }
}

#[test]
fn long_texts_are_clipped_but_reasoning_is_whole() {
    let (dir, builder) = logs();
    let logs = builder.max_text(10).open().unwrap();
    logs.session("s")(&event(
        "r1",
        0,
        EventKind::Goal {
            text: "ä".repeat(100),
        },
    ));
    assert!(logs.flush(PATIENCE));
    assert!(read(dir.path().join("s/general.log")).contains("text=\"äääää… (190 bytes more)\""));
}

#[test]
fn open_rejects_invalid_settings() {
    let (dir, _) = logs();
    let error = LogFiles::builder(dir.path()).queue(0).open().unwrap_err();
    assert!(error.to_string().contains("`queue`"), "{error}");
    std::fs::write(dir.path().join("file"), "").unwrap();
    let error = LogFiles::open(dir.path().join("file/logs")).unwrap_err();
    assert_eq!(error.kind(), levity_log::ErrorKind::Folder);
}

/// Writes many lines as a child process of the next test; it is not a test.
#[test]
fn child_writes_many_lines() {
    let Ok(folder) = std::env::var("LEVITY_LOG_TEST_FOLDER") else {
        return;
    };
    let logs = LogFiles::builder(folder)
        .max_file(20_000)
        .keep(1_000)
        .open()
        .unwrap();
    let watch = logs.session("shared");
    for number in 0..1_000 {
        let text = format!("{}:{number}", std::process::id());
        watch(&event("r", number, EventKind::Goal { text }));
    }
    assert!(logs.flush(PATIENCE));
    assert_eq!(logs.dropped(), 0);
}

#[test]
fn processes_lose_no_lines_during_rotation() {
    let dir = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let start = |_| {
        let mut command = Command::new(&program);
        command.args(["--exact", "files::child_writes_many_lines"]);
        command
            .env("LEVITY_LOG_TEST_FOLDER", dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..3).map(start).collect();
    let pids: Vec<u32> = children.iter().map(std::process::Child::id).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let folder = dir.path().join("shared");
    let text = crate::support::all(&folder);
    for pid in pids {
        for number in 0..1_000 {
            let line = format!(" goal text={pid}:{number}");
            assert_eq!(
                text.lines()
                    .filter(|plain_lines| plain_lines.ends_with(&line))
                    .count(),
                1,
                "{line}"
            );
        }
    }
    assert_eq!(text.lines().count(), 3_000);
    // The number of rotations depends on how much each process writes at once.
    assert!(
        folder.join("general.log.1").exists(),
        "files were turned over"
    );
    let sizes = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len());
    // A process that finds another one rotating continues to write, so a file may be slightly
    // longer.
    assert!(sizes.max().unwrap() < 200_000);
}
