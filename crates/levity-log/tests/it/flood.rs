//! Whatever becomes of the files, runs go on.

use std::path::Path;
use std::time::Duration;

use levity_core::EventKind;
use levity_log::LogFiles;
use levity_loop::Agent;
use levity_test::ScriptedModel;

use crate::support::{PATIENCE, event, read};

fn goal(logs: &LogFiles, session: &str, count: usize) {
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

/// A file that nobody reads from the other end of: to open it takes for ever.
#[cfg(unix)]
fn stuck(path: &Path) {
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
fn a_disk_that_hangs_stops_no_run_and_what_is_left_out_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogFiles::builder(dir.path()).queue(16).open().unwrap();
    let fifo = dir.path().join("s/general.log");
    stuck(&fifo);
    goal(&logs, "s", 1_000);
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
    // The disk lives again: somebody reads at the other end, and has it open for writing, too, so
    // that there is no end.
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
    let said =
        std::iter::from_fn(|| lines.recv_timeout(PATIENCE).ok()).find(|line| line.contains(wanted));
    assert!(said.is_some(), "what was left out is said");
}

#[test]
fn what_did_not_fit_is_counted_in_the_log_of_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogFiles::builder(dir.path()).queue(1).open().unwrap();
    goal(&logs, "s", 20_000);
    assert!(logs.flush(PATIENCE));
    goal(&logs, "s", 1);
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
fn a_flood_turns_files_over_and_keeps_as_many_as_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogFiles::builder(dir.path())
        .max_file(4_096)
        .keep(2)
        .queue(100_000)
        .open()
        .unwrap();
    goal(&logs, "s", 5_000);
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
fn a_file_that_cannot_be_written_is_told_of_once_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogFiles::open(dir.path()).unwrap();
    let file = dir.path().join("s/general.log");
    std::fs::create_dir_all(&file).unwrap();
    goal(&logs, "s", 7);
    assert!(logs.flush(PATIENCE), "it is done with, if not written");
    goal(&logs, "t", 1);
    assert!(logs.flush(PATIENCE));
    assert!(
        read(dir.path().join("t/general.log")).contains("goal"),
        "other sessions are not held up"
    );
    std::fs::remove_dir(&file).unwrap();
    goal(&logs, "s", 1);
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

/// Not a test by itself: what the next one runs with little room.
#[test]
fn runs_with_little_room_when_told() {
    let Ok(folder) = std::env::var("LEVITY_LOG_TEST_ROOM") else {
        return;
    };
    let logs = LogFiles::open(&folder).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    goal(&logs, "s", 500);
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
    // Room again, as after somebody has cleaned up: what was cut short does not spoil the next
    // line.
    let file = Path::new(&folder).join("s/general.log");
    let cut = std::fs::read_to_string(&file).unwrap();
    assert!(!cut.ends_with('\n'), "the last line was cut short");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(100)
        .unwrap();
    goal(&logs, "s", 1);
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

/// Files of this process can have 8 KiB (16 blocks of 512 bytes) and no more: the system refuses
/// the rest, as a disk that is full does.
#[cfg(unix)]
#[test]
fn a_disk_that_is_full_stops_no_run() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        r#"trap "" XFSZ; ulimit -f 16; exec "$0" --exact flood::runs_with_little_room_when_told"#;
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("LEVITY_LOG_TEST_ROOM", dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
