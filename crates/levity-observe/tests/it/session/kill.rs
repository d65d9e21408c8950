//! Writers killed during a write.

use super::*;

/// Writes one session repeatedly, until the process is killed.
#[test]
fn writer_process() {
    let Some(dir) = std::env::var_os("LEVITY_TEST_SESSION_WRITER") else {
        return;
    };
    let (plan, edges) = pages();
    let mut stream = Stream::new("killed", "g");
    stream.planned(&plan, &edges);
    let writer = SessionFolder::open(dir).writer(&stream.run);
    stream.events.iter().for_each(|event| writer.apply(event));
    for size in 1.. {
        let mut more = Stream {
            run: "killed".into(),
            now: BEGIN + size,
            events: Vec::new(),
        };
        more.completed("fetch_a", json!({"a": "x".repeat(300_000 + size as usize)}));
        more.events.iter().for_each(|event| writer.apply(event));
    }
}

#[test]
fn killed_process_leaves_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("2026/03/04/session_killed.json");
    for round in 0..10 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "session::kill::writer_process", "--nocapture"])
            .env("LEVITY_TEST_SESSION_WRITER", dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Each kill happens at a different point: after a number of reads of the changing file.
        let mut last = 0;
        let mut changes = 0;
        while changes < 2 + round {
            let size = fs::metadata(&path).map_or(0, |data| data.len());
            changes += u64::from(size != last);
            last = size;
            assert!(child.try_wait().unwrap().is_none(), "the writer has gone");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let session = Session::parse(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(session.query, "g");
    }
    // The next writer removes the leftovers.
    let mut stream = Stream::new("killed", "g");
    stream.ended(Status::Complete);
    let writer = SessionFolder::open(dir.path()).writer(&stream.run);
    stream.events.iter().for_each(|event| writer.apply(event));
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}
