//! Runs continue regardless of the state of the files.

use std::path::Path;
use std::time::Duration;

use levity_core::EventKind;
use levity_log::LogFiles;
use levity_loop::Agent;
use levity_test::ScriptedModel;

use crate::support::{PATIENCE, event, read};

fn log_goals(logs: &LogFiles, session: &str, count: usize) {
    let watch = logs.session(session);
    for number in 0..count {
        watch(&event(
            "r",
            0,
            EventKind::Goal {
                text: format!("{number}"),
            },
        ));
    }
}

/// Creates a pipe without a reader: opening it blocks forever.
#[cfg(unix)]
fn make_pipe(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(path)
            .status()
            .unwrap()
            .success()
    );
}

#[cfg(unix)]
#[test]
fn hanging_disk_blocks_no_run_and_drops_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogFiles::builder(dir.path()).queue(16).open().unwrap();
    let fifo = dir.path().join("s/general.log");
    make_pipe(&fifo);
    log_goals(&logs, "s", 1_000);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let agent = Agent::builder(ScriptedModel::new().reply("Done."))
            .build()
            .unwrap();
        assert_eq!(
            agent
                .run("Go")
                .on_event(logs.session("s"))
                .await
                .unwrap()
                .text(),
            "Done."
        );
    });
    assert!(
        !logs.flush(Duration::from_millis(20)),
        "nothing could be written yet"
    );
    assert!(logs.dropped() > 900, "{}", logs.dropped());
    // The disk works again: a reader opens the other end, also for writing, so that it sees no end
    // of file.
    let mut pipe = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&fifo)
        .unwrap();
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let lines =
            std::io::BufRead::lines(std::io::BufReader::new(&mut pipe)).map_while(Result::ok);
        lines.for_each(|line| drop(sender.send(line)));
    });
    assert!(logs.flush(PATIENCE));
    let wanted = "entries left out: the log could not keep up count=";
    let printed =
        std::iter::from_fn(|| lines.recv_timeout(PATIENCE).ok()).find(|line| line.contains(wanted));
    assert!(printed.is_some(), "what was left out is said");
}

#[test]
fn dropped_entries_are_counted_in_session_log() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogFiles::builder(dir.path()).queue(1).open().unwrap();
    log_goals(&logs, "s", 20_000);
    assert!(logs.flush(PATIENCE));
    log_goals(&logs, "s", 1);
    assert!(logs.flush(PATIENCE));
    let text = read(dir.path().join("s/general.log"));
    let counts = text.lines().filter_map(|line| {
        line.split_once("WARN  - entries left out: the log could not keep up count=")
            .map(|(_, n)| n.parse::<u64>().unwrap())
    });
    assert_eq!(counts.sum::<u64>(), logs.dropped());
    let written = text
        .lines()
        .filter(|line| line.contains(" goal text="))
        .count() as u64;
    assert_eq!(
        written + logs.dropped(),
        20_001,
        "every entry is there or counted"
    );
    assert!(logs.dropped() > 0, "this test needs a flood");
}

#[test]
fn flood_rotates_files_up_to_limit() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogFiles::builder(dir.path())
        .max_file(4_096)
        .keep(2)
        .queue(100_000)
        .open()
        .unwrap();
    log_goals(&logs, "s", 5_000);
    assert!(logs.flush(PATIENCE));
    let mut names: Vec<_> = std::fs::read_dir(dir.path().join("s"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [".lock", "general.log", "general.log.1", "general.log.2"]
    );
    for name in &names[1..] {
        assert!(
            std::fs::metadata(dir.path().join("s").join(name))
                .unwrap()
                .len()
                <= 4_096
        );
    }
    assert!(read(dir.path().join("s/general.log")).ends_with("goal text=4999\n"));
}

#[test]
fn lost_entries_are_reported_once_file_is_writable() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogFiles::open(dir.path()).unwrap();
    let file = dir.path().join("s/general.log");
    std::fs::create_dir_all(&file).unwrap();
    log_goals(&logs, "s", 7);
    assert!(logs.flush(PATIENCE), "it is done with, if not written");
    log_goals(&logs, "t", 1);
    assert!(logs.flush(PATIENCE));
    assert!(
        read(dir.path().join("t/general.log")).contains("goal"),
        "other sessions are not held up"
    );
    std::fs::remove_dir(&file).unwrap();
    log_goals(&logs, "s", 1);
    assert!(logs.flush(PATIENCE));
    let text = read(&file);
    assert!(
        text.lines()
            .next()
            .unwrap()
            .ends_with("entries lost: they could not be written count=7"),
        "{text}"
    );
    assert_eq!(logs.dropped(), 7);
}

/// Logs with little disk space as a child process of the next test; it is not a test.
#[test]
fn child_runs_with_little_disk_space() {
    let Ok(folder) = std::env::var("LEVITY_LOG_TEST_ROOM") else {
        return;
    };
    let logs = LogFiles::open(&folder).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    log_goals(&logs, "s", 500);
    logs.flush(PATIENCE);
    runtime.block_on(async {
        let agent = Agent::builder(ScriptedModel::new().reply("Done."))
            .build()
            .unwrap();
        assert_eq!(
            agent
                .run("Go")
                .on_event(logs.session("s"))
                .await
                .unwrap()
                .text(),
            "Done."
        );
    });
    logs.flush(PATIENCE);
    assert!(logs.dropped() > 0, "there was room for everything");
    // There is room again, as after a clean-up: the truncated line does not corrupt the next one.
    let file = Path::new(&folder).join("s/general.log");
    let cut = std::fs::read_to_string(&file).unwrap();
    assert!(!cut.ends_with('\n'), "the last line was cut short");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(100)
        .unwrap();
    log_goals(&logs, "s", 1);
    logs.flush(PATIENCE);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.lines().last().unwrap().ends_with(" goal text=0"),
        "{text}"
    );
    let lost = text.lines().nth_back(1).unwrap();
    assert!(
        lost.contains("entries lost: they could not be written count="),
        "{text}"
    );
    assert!(
        !lost.starts_with("1970"),
        "it stands behind nothing that was cut short: {text}"
    );
}

/// Limits files of this process to 8 KiB (16 blocks of 512 bytes): the system rejects further
/// writes, like a full disk.
#[cfg(unix)]
#[test]
fn full_disk_blocks_no_run() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        r#"trap "" XFSZ; ulimit -f 16; exec "$0" --exact flood::child_runs_with_little_disk_space"#;
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("LEVITY_LOG_TEST_ROOM", dir.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
