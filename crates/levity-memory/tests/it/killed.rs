//! A process is killed at random moments, and the next one finds what was there before or after.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ChildStdout;
use std::time::Duration;

use levity_core::{ConversationId, MemoryErrorKind, MemoryStore};

use crate::children::{BATCH, Kind, LEFT, batch, start};

/// Side by side, since most of the time goes by in waiting for the disk.
const LANES: u64 = 5;
/// So many in each lane: 200 in all.
const KILLS: u64 = 40;

/// The process has come so far that this line is there. It is returned.
fn until(lines: &mut BufReader<ChildStdout>, wanted: &str) -> String {
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

fn kill_often(kind: Kind) {
    let lane = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(kill_in_turn(kind));
    };
    std::thread::scope(|scope| (0..LANES).for_each(|_| drop(scope.spawn(lane))));
}

async fn kill_in_turn(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let mut saves = 0;
    for _ in 0..KILLS {
        let mut child = start("write", kind, dir.path());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap());
        until(&mut lines, "begun");
        // Any moment will do, so long as it is another one each time. Waiting for saves gets on,
        // however slow they are.
        let random = RandomState::new().build_hasher().finish();
        let mut said: String = (0..random % 3)
            .map(|_| until(&mut lines, "saved"))
            .collect();
        std::thread::sleep(Duration::from_micros(random / 3 % 4_000));
        child.kill();
        lines.read_to_string(&mut said).unwrap();
        let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let last = whole
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("saved ")?.parse::<u64>().ok());
        let found = check(&*kind.open(dir.path())).await;
        let acknowledged = last.map_or(saves, |last| last + 1);
        // What was not said any more may have been done.
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
    look_into(kind, dir.path());
}

/// The store holds whole saves, and nobody holds it; says how many saves.
async fn check(store: &dyn MemoryStore) -> u64 {
    let (id, other) = (ConversationId::new("main"), ConversationId::new("other"));
    drop(store.hold(&id).await.expect("a process that ends lets go"));
    let found = store.load(&id, 0).await.unwrap();
    assert_eq!((found.end % BATCH, found.first % BATCH), (0, 0));
    let saves = found.end / BATCH;
    let left = saves - found.first / BATCH;
    assert!(left == saves || left >= LEFT, "{left} of {saves} are left");
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

/// What no store says: whether its files are sound.
fn look_into(kind: Kind, dir: &Path) {
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
fn files_survive_being_killed() {
    kill_often(Kind::Files);
}

#[cfg(feature = "sqlite")]
#[test]
fn sqlite_survives_being_killed() {
    kill_often(Kind::Sqlite);
}

async fn hold_elsewhere(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let store = kind.open(dir.path());
    let id = ConversationId::new("main");
    let mut child = start("hold", kind, dir.path());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap());
    until(&mut lines, "held");
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
    // Another store of this process sees at once what this one holds and lets go of.
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
async fn a_file_that_another_process_holds_is_busy_until_it_ends() {
    hold_elsewhere(Kind::Files).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn what_another_process_holds_in_sqlite_is_busy_until_it_ends() {
    hold_elsewhere(Kind::Sqlite).await;
}
