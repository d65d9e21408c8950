//! Clean-up of old logs.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levity_core::Timestamp;
use levity_log::{Retention, clean};

const DAY: u64 = 86_400;

fn session(root: &Path, name: &str, bytes: usize, day: u64) {
    fs::create_dir_all(root.join(name)).unwrap();
    for file in ["general.log", "reasoning.log.2"] {
        let path = root.join(name).join(file);
        fs::write(&path, vec![b'x'; bytes / 2]).unwrap();
        let then: SystemTime = UNIX_EPOCH + Duration::from_secs(day * DAY);
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(then)
            .unwrap();
    }
    fs::write(root.join(name).join(".lock"), "").unwrap();
}

fn remaining(root: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn now() -> Timestamp {
    Timestamp::from_millis(100 * DAY * 1000)
}

#[test]
fn clean_removes_old_sessions_only() {
    let dir = tempfile::tempdir().unwrap();
    session(dir.path(), "old", 100, 10);
    session(dir.path(), "mixed", 100, 10);
    session(dir.path(), "new", 100, 99);
    fs::write(dir.path().join("mixed/notes.txt"), "mine").unwrap();
    fs::write(dir.path().join("general.log"), "the process").unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    let cleaned = clean(
        dir.path(),
        &Retention::new().older_than(Duration::from_secs(30 * DAY)),
        now(),
    )
    .unwrap();
    assert_eq!(
        (cleaned.sessions, cleaned.bytes, cleaned.remaining),
        (2, 200, 1)
    );
    assert_eq!(
        remaining(dir.path()),
        ["empty", "general.log", "mixed", "new"]
    );
    assert_eq!(
        remaining(&dir.path().join("mixed")),
        ["notes.txt"],
        "what is not ours stays"
    );
}

#[test]
fn clean_removes_oldest_sessions_beyond_size() {
    let dir = tempfile::tempdir().unwrap();
    for (name, day) in [("b", 20), ("a", 10), ("c", 30)] {
        session(dir.path(), name, 100, day);
    }
    let cleaned = clean(dir.path(), &Retention::new().max_bytes(150), now()).unwrap();
    assert_eq!((cleaned.sessions, cleaned.remaining), (2, 1));
    assert_eq!(remaining(dir.path()), ["c"]);
    assert_eq!(
        clean(dir.path(), &Retention::new(), now())
            .unwrap()
            .sessions,
        0,
        "by default, all is kept"
    );
    assert!(clean(dir.path().join("none"), &Retention::new(), now()).is_err());
}

#[cfg(unix)]
#[test]
fn clean_does_not_follow_links() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    session(other.path(), "s", 100, 1);
    std::os::unix::fs::symlink(other.path().join("s"), dir.path().join("s")).unwrap();
    session(dir.path(), "t", 100, 1);
    std::os::unix::fs::symlink(
        other.path().join("s/general.log"),
        dir.path().join("t/general.log.1"),
    )
    .unwrap();
    clean(dir.path(), &Retention::new().max_bytes(0), now()).unwrap();
    assert_eq!(
        remaining(&other.path().join("s")),
        [".lock", "general.log", "reasoning.log.2"]
    );
}
