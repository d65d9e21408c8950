//! Processes killed at random moments; the next process finds the state before or after a save.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ChildStdout;
use std::time::Duration;

use levity_core::{ConversationId, MemoryErrorKind, MemoryStore};

use crate::children::{BATCH, Kind, RETAINED, batch, start};

/// The lanes run in parallel, because most of the time is spent waiting for the disk.
const LANES: u64 = 5;
/// The number of kills in each lane: 200 in total.
const KILLS: u64 = 40;

/// Waits until the process has printed a line that contains `wanted`, and returns the line.
fn read_until(lines: &mut BufReader<ChildStdout>, wanted: &str) -> String {
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert_ne!(
            lines.read_line(&mut line).unwrap(),
            0,
            "the child ended before it said {wanted:?}"
        );
    }
    line
}

fn kill_repeatedly(kind: Kind) {
    let lane = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(kill_in_lane(kind));
    };
    std::thread::scope(|scope| (0..LANES).for_each(|_| drop(scope.spawn(lane))));
}

async fn kill_in_lane(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let mut saves = 0;
    for _ in 0..KILLS {
        let mut child = start("write", kind, dir.path());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap());
        read_until(&mut lines, "begun");
        // Any moment is fine, as long as it differs each time. Waiting for saves makes progress
        // even if they are slow.
        let random = RandomState::new().build_hasher().finish();
        let mut output: String = (0..random % 3)
            .map(|_| read_until(&mut lines, "saved"))
            .collect();
        std::thread::sleep(Duration::from_micros(random / 3 % 4_000));
        child.kill();
        lines.read_to_string(&mut output).unwrap();
        let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let last = whole
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("saved ")?.parse::<u64>().ok());
        let found = check(&*kind.open(dir.path())).await;
        let acknowledged = last.map_or(saves, |last| last + 1);
        // Saves after the last report may have completed.
        assert!(
            found == acknowledged || found == acknowledged + 1,
            "{found} saves, {acknowledged} were done"
        );
        saves = found;
    }
    assert!(
        saves > KILLS / 4,
        "only {saves} saves were made: the child was killed too early"
    );
    check_files(kind, dir.path());
}

/// Checks that the store contains whole saves and is not held; returns the number of saves.
async fn check(store: &dyn MemoryStore) -> u64 {
    let (id, other) = (ConversationId::new("main"), ConversationId::new("other"));
    drop(store.hold(&id).await.expect("a process that ends lets go"));
    let found = store.load(&id, 0).await.unwrap();
    assert_eq!((found.end % BATCH, found.first % BATCH), (0, 0));
    let saves = found.end / BATCH;
    let left = saves - found.first / BATCH;
    assert!(
        left == saves || left >= RETAINED,
        "{left} of {saves} are left"
    );
    let summary = found
        .summary
        .map(|summary| (summary.text.to_string(), summary.upto));
    let expected = saves
        .checked_sub(1)
        .map(|last| (format!("up to {last}"), last * BATCH));
    assert_eq!(summary, expected, "a summary is saved with its messages");
    let expected: Vec<_> = (found.first / BATCH..saves).flat_map(batch).collect();
    let read = store.read(&id, 0, usize::MAX).await.unwrap();
    let messages: Vec<_> = read
        .iter()
        .map(|(_, message)| (**message).clone())
        .collect();
    assert_eq!(messages, expected);
    let end = store.load(&other, 0).await.unwrap().end;
    assert!(end == 0 || end == BATCH, "{end}");
    store.forget(&other).await.unwrap();
    saves
}

/// Checks the integrity of the files, which no store reports.
fn check_files(kind: Kind, dir: &Path) {
    match kind {
        Kind::Files => {
            let mut names: Vec<_> = std::fs::read_dir(dir.join("files"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name != ".main.json.new")
                .collect();
            names.sort();
            assert_eq!(names, [".levity", "main.json"]);
        }
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => {
            let connection = rusqlite::Connection::open(dir.join("memory.db")).unwrap();
            let sound: String = connection
                .query_row("PRAGMA integrity_check", [], |row| row.get(0))
                .unwrap();
            assert_eq!(sound, "ok");
            connection
                .execute("INSERT INTO words (words) VALUES ('integrity-check')", [])
                .unwrap();
        }
        Kind::KeyValue => {}
    }
}

#[test]
fn file_store_survives_kill_during_save() {
    kill_repeatedly(Kind::Files);
}

#[cfg(feature = "sqlite")]
#[test]
fn sqlite_store_survives_kill_during_save() {
    kill_repeatedly(Kind::Sqlite);
}

async fn check_hold_of_other_process(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let store = kind.open(dir.path());
    let id = ConversationId::new("main");
    let mut child = start("hold", kind, dir.path());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap());
    read_until(&mut lines, "held");
    assert_eq!(
        store.hold(&id).await.unwrap_err().kind(),
        MemoryErrorKind::Busy
    );
    assert_eq!(
        store.forget(&id).await.unwrap_err().kind(),
        MemoryErrorKind::Busy
    );
    drop(store.hold(&"another".into()).await.unwrap());
    child.kill();
    drop(store.hold(&id).await.unwrap());
    // Another store of this process immediately sees holds and releases of this one.
    let second = kind.open(dir.path());
    for _ in 0..20 {
        let hold = store.hold(&id).await.unwrap();
        assert_eq!(
            second.hold(&id).await.unwrap_err().kind(),
            MemoryErrorKind::Busy
        );
        drop(hold);
        drop(second.hold(&id).await.unwrap());
    }
    let hold = second.hold(&id).await.unwrap();
    drop(second);
    assert_eq!(
        store.hold(&id).await.unwrap_err().kind(),
        MemoryErrorKind::Busy,
        "a hold outlives its store"
    );
    drop(hold);
}

#[tokio::test]
async fn file_hold_of_other_process_is_busy_until_it_ends() {
    check_hold_of_other_process(Kind::Files).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_hold_of_other_process_is_busy_until_it_ends() {
    check_hold_of_other_process(Kind::Sqlite).await;
}
