//! Files of levity and of other programs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::path::PathBuf;

use levity_sqlite::{ErrorKind, Format, SharedFile};
use rusqlite::Connection;

static NOTES: Format = Format {
    what: "notes",
    application: 0x6e6f_7465,
    version: 2,
    tables: "CREATE TABLE notes (text TEXT NOT NULL);",
    earlier: &[],
    columns: &["SELECT text FROM notes"],
    log_pages: 1_000,
    overwrites: true,
};

struct TestFolder(tempfile::TempDir);

impl TestFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("notes.db")
    }

    /// Checks that the file is rejected for this reason and left unchanged, byte for byte.
    #[track_caller]
    fn check_rejected(&self, kind: ErrorKind, what: &str) {
        let before = fs::read(self.path()).unwrap();
        let error = SharedFile::open_or_create(&self.path(), &NOTES).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(
            error.to_string().contains("`notes.db`") && error.to_string().contains(what),
            "{error}"
        );
        assert_eq!(fs::read(self.path()).unwrap(), before);
        let names: Vec<_> = fs::read_dir(self.0.path())
            .unwrap()
            .flatten()
            .map(|file| file.file_name())
            .collect();
        assert_eq!(names, ["notes.db"], "no other file remains");
    }

    fn change(&self, sql: &str) {
        Connection::open(self.path())
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    }
}

#[test]
fn make_creates_file_and_opens_it_again() {
    let folder = TestFolder::new();
    let (file, connection) = SharedFile::open_or_create(&folder.path(), &NOTES).unwrap();
    connection
        .execute("INSERT INTO notes VALUES ('a')", [])
        .unwrap();
    let count = |connection: &Connection| {
        connection
            .query_row("SELECT count(*) FROM notes", [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    assert_eq!(count(&file.connect().unwrap()), 1);
    assert_eq!(
        count(
            &SharedFile::open_or_create(&folder.path(), &NOTES)
                .unwrap()
                .1
        ),
        1
    );
}

#[test]
fn make_fills_empty_file_and_accepts_older_version() {
    let folder = TestFolder::new();
    fs::write(folder.path(), "").unwrap();
    drop(SharedFile::open_or_create(&folder.path(), &NOTES).unwrap());
    folder.change("PRAGMA user_version = 1");
    SharedFile::open_or_create(&folder.path(), &NOTES).unwrap();
}

#[test]
fn make_rejects_foreign_files_unchanged() {
    let folder = TestFolder::new();
    fs::write(
        folder.path(),
        "Not a database, but a text of some length. ".repeat(40),
    )
    .unwrap();
    folder.check_rejected(ErrorKind::Damaged, "it is not an SQLite file");
    fs::remove_file(folder.path()).unwrap();
    folder.change("CREATE TABLE other (x); PRAGMA application_id = 7;");
    folder.check_rejected(ErrorKind::Damaged, "it belongs to another program");
    folder.change("PRAGMA application_id = 0");
    folder.check_rejected(ErrorKind::Damaged, "it belongs to another program");
    folder.change("PRAGMA application_id = 0x6e6f7465; PRAGMA user_version = 3");
    folder.check_rejected(
        ErrorKind::Version,
        "has format 3, and this version reads up to 2",
    );
    folder.change("PRAGMA user_version = 2");
    folder.check_rejected(
        ErrorKind::Damaged,
        "`notes` differs from the object that levity creates",
    );
}

#[test]
fn make_rejects_folder() {
    let folder = TestFolder::new();
    fs::create_dir(folder.path()).unwrap();
    let error = SharedFile::open_or_create(&folder.path(), &NOTES).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the notes `notes.db` is not a regular file"
    );
}

#[cfg(unix)]
#[test]
fn make_in_missing_folder_names_reason_of_system() {
    let folder = TestFolder::new();
    let path = folder.0.path().join("missing/notes.db");
    let error = SharedFile::open_or_create(&path, &NOTES).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(
        error.to_string(),
        "the notes `notes.db` could not be created"
    );
    let source = error.into_source().unwrap();
    let source = source.downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn check_place_detects_replaced_file() {
    let folder = TestFolder::new();
    let (file, _connection) = SharedFile::open_or_create(&folder.path(), &NOTES).unwrap();
    fs::rename(folder.path(), folder.0.path().join("old.db")).unwrap();
    assert!(file.check_place().is_err() && file.connect().is_err());
    fs::write(folder.path(), "").unwrap();
    assert!(
        file.check_place()
            .unwrap_err()
            .to_string()
            .contains("open it again")
    );
}

#[test]
fn write_reports_busy_file_after_waiting() {
    let folder = TestFolder::new();
    let (file, mut connection) = SharedFile::open_or_create(&folder.path(), &NOTES).unwrap();
    let other = Connection::open(folder.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection.busy_handler(None::<fn(i32) -> bool>).unwrap();
    let error = connection
        .execute("INSERT INTO notes VALUES ('a')", [])
        .unwrap_err();
    let error = file.failed("written", error);
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(
        error.to_string(),
        "the notes `notes.db` could not be written: another program has locked it"
    );
    assert!(error.into_source().is_some());
}

/// A foreign file may have objects that write or return forged rows.
#[test]
fn make_rejects_file_with_foreign_object() {
    for (change, name) in [
        (
            "CREATE TRIGGER planted AFTER INSERT ON notes WHEN new.text <> 'x' BEGIN INSERT INTO \
                notes VALUES ('x'); END",
            "planted",
        ),
        ("CREATE VIEW planted AS SELECT 1", "planted"),
        ("CREATE TABLE planted (x)", "planted"),
        ("CREATE INDEX planted ON notes (text)", "planted"),
        ("CREATE INDEX planted ON notes (abs(text))", "planted"),
        ("CREATE VIRTUAL TABLE planted USING fts5 (text)", "planted"),
        (
            "ALTER TABLE notes ADD COLUMN planted TEXT DEFAULT 'x'",
            "notes",
        ),
        (
            "DROP TABLE notes; CREATE VIEW notes AS SELECT 'x' AS text",
            "notes",
        ),
        (
            "DROP TABLE notes; CREATE VIRTUAL TABLE notes USING fts5 (text)",
            "notes",
        ),
        (
            "DROP TABLE notes; CREATE TABLE notes (text TEXT NOT NULL CHECK (text = 'x'))",
            "notes",
        ),
        (
            "DROP TABLE notes; CREATE TABLE notes (a TEXT, text TEXT AS (a || 'x'))",
            "notes",
        ),
        ("DROP TABLE notes", "notes"),
        ("ANALYZE", "sqlite_stat1"),
        (
            "CREATE TABLE other (text TEXT NOT NULL); PRAGMA writable_schema = on; \
             UPDATE sqlite_schema SET sql = 'CREATE VIEW notes AS SELECT text FROM other', type = \
             'view', rootpage = 0 \
             WHERE name = 'notes'",
            "notes",
        ),
        ("CREATE VIEW \"a\u{1b}]0;b\" AS SELECT 1", "a\\u{1b}]0;b"),
    ] {
        let folder = TestFolder::new();
        drop(SharedFile::open_or_create(&folder.path(), &NOTES).unwrap());
        folder.change("PRAGMA journal_mode = delete");
        folder.change(change);
        folder.check_rejected(
            ErrorKind::Damaged,
            &format!("`{name}` differs from the object that levity creates"),
        );
    }
}

#[test]
fn make_rejects_file_with_endless_view_at_once() {
    let folder = TestFolder::new();
    drop(SharedFile::open_or_create(&folder.path(), &NOTES).unwrap());
    folder.change(
        "PRAGMA journal_mode = delete; DROP TABLE notes; CREATE VIEW notes AS \
         WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS text FROM n",
    );
    folder.check_rejected(
        ErrorKind::Damaged,
        "`notes` differs from the object that levity creates",
    );
}

#[test]
fn make_accepts_file_with_earlier_tables() {
    static LATER: Format = Format {
        what: "notes",
        application: 0x6e6f_7465,
        version: 2,
        tables: "CREATE TABLE notes (text TEXT NOT NULL, more TEXT);",
        earlier: &["CREATE TABLE notes (text TEXT NOT NULL);"],
        columns: &["SELECT text FROM notes"],
        log_pages: 1_000,
        overwrites: true,
    };
    let folder = TestFolder::new();
    drop(SharedFile::open_or_create(&folder.path(), &NOTES).unwrap());
    let (_, connection) = SharedFile::open_or_create(&folder.path(), &LATER).unwrap();
    connection
        .execute_batch("ALTER TABLE notes ADD COLUMN more TEXT")
        .unwrap();
    SharedFile::open_or_create(&folder.path(), &LATER).unwrap();
}

#[test]
fn connections_reject_views_and_schema_writes() {
    let folder = TestFolder::new();
    let (file, connection) = SharedFile::open_or_create(&folder.path(), &NOTES).unwrap();
    for connection in [connection, file.connect().unwrap()] {
        connection
            .execute_batch("CREATE VIEW IF NOT EXISTS own AS SELECT 1 AS x")
            .unwrap();
        assert!(connection.prepare("SELECT x FROM own").is_err());
        let changed = connection.execute_batch(
            "PRAGMA writable_schema = on; UPDATE sqlite_schema SET sql = NULL WHERE name = 'notes'",
        );
        assert!(changed.is_err());
    }
}

/// Creates a rollback journal that makes SQLite truncate the file to zero pages.
fn plant_journal(folder: &TestFolder) -> PathBuf {
    let mut planted = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    planted.extend(
        [0_u32, 1, 0, 512, 4096]
            .iter()
            .flat_map(|word| word.to_be_bytes()),
    );
    planted.resize(512, 0);
    let path = folder.0.path().join("notes.db-journal");
    fs::write(&path, planted).unwrap();
    path
}

/// SQLite looks for the rollback journal of the link's target.
#[cfg(unix)]
#[test]
fn opening_through_link_rejects_rollback_journal_of_target() {
    let folder = TestFolder::new();
    drop(SharedFile::open_or_create(&folder.path(), &NOTES).unwrap());
    let link = folder.0.path().join("link.db");
    std::os::unix::fs::symlink("notes.db", &link).unwrap();
    let (_, connection) = SharedFile::open_or_create(&link, &NOTES).unwrap();
    drop(connection);
    let before = fs::read(folder.path()).unwrap();
    let planted = plant_journal(&folder);
    let error = SharedFile::open_or_create(&link, &NOTES).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(planted.exists());
    assert_eq!(fs::read(folder.path()).unwrap(), before);
}

#[cfg(unix)]
#[test]
fn link_to_missing_file_is_an_error() {
    let folder = TestFolder::new();
    let link = folder.0.path().join("link.db");
    std::os::unix::fs::symlink("missing.db", &link).unwrap();
    let error = SharedFile::open_or_create(&link, &NOTES).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(!folder.0.path().join("missing.db").exists());
}

#[test]
fn opening_rejects_rollback_journal_without_changes() {
    let folder = TestFolder::new();
    let (file, connection) = SharedFile::open_or_create(&folder.path(), &NOTES).unwrap();
    connection
        .execute("INSERT INTO notes VALUES ('a')", [])
        .unwrap();
    let planted = plant_journal(&folder);
    let error = file.connect().unwrap_err();
    assert!(
        error.to_string().contains("notes.db-journal` is beside it"),
        "{error}"
    );
    drop(connection);
    let before = fs::read(folder.path()).unwrap();
    assert_eq!(
        SharedFile::open_or_create(&folder.path(), &NOTES)
            .unwrap_err()
            .kind(),
        ErrorKind::Refused
    );
    assert_eq!(fs::read(folder.path()).unwrap(), before);
    fs::remove_file(planted).unwrap();
    let (_, connection) = SharedFile::open_or_create(&folder.path(), &NOTES).unwrap();
    let notes: i64 = connection
        .query_row("SELECT count(*) FROM notes", [], |row| row.get(0))
        .unwrap();
    assert_eq!(notes, 1);
}

/// States of a file whose creator was killed: only a header with a log, with and without the tables
/// in that log.
#[test]
fn make_completes_interrupted_creation() {
    for with_tables in [false, true] {
        let (folder, half) = (TestFolder::new(), TestFolder::new());
        let connection = Connection::open(half.path()).unwrap();
        connection
            .pragma_update(None, "journal_mode", "wal")
            .unwrap();
        if with_tables {
            let tables = NOTES.tables;
            connection
                .execute_batch(&format!(
                    "BEGIN; {tables} PRAGMA application_id = 0x6e6f7465; PRAGMA user_version = 2; \
                        COMMIT"
                ))
                .unwrap();
        }
        for ending in ["", "-wal"] {
            let name = format!("notes.db{ending}");
            // SQLite creates the log at the first write.
            if with_tables || ending.is_empty() {
                fs::copy(half.0.path().join(&name), folder.0.path().join(&name)).unwrap();
            }
        }
        let (_, connection) = SharedFile::open_or_create(&folder.path(), &NOTES).unwrap();
        connection
            .execute("INSERT INTO notes VALUES ('a')", [])
            .unwrap();
    }
}
