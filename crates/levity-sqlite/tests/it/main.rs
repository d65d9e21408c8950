//! Files of ours and of others.

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

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("notes.db")
    }

    /// Refused for this reason, and left to the byte as it was.
    #[track_caller]
    fn refuses(&self, kind: ErrorKind, what: &str) {
        let before = fs::read(self.path()).unwrap();
        let error = SharedFile::make(&self.path(), &NOTES).unwrap_err();
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
        assert_eq!(names, ["notes.db"], "nothing is left beside it");
    }

    fn change(&self, sql: &str) {
        Connection::open(self.path())
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    }
}

#[test]
fn a_file_is_made_and_opened_again() {
    let place = Place::new();
    let (file, connection) = SharedFile::make(&place.path(), &NOTES).unwrap();
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
        count(&SharedFile::make(&place.path(), &NOTES).unwrap().1),
        1
    );
}

#[test]
fn an_empty_file_is_filled_and_older_formats_are_read() {
    let place = Place::new();
    fs::write(place.path(), "").unwrap();
    drop(SharedFile::make(&place.path(), &NOTES).unwrap());
    place.change("PRAGMA user_version = 1");
    SharedFile::make(&place.path(), &NOTES).unwrap();
}

#[test]
fn files_of_others_are_left_alone() {
    let place = Place::new();
    fs::write(
        place.path(),
        "Not a database, but a text of some length. ".repeat(40),
    )
    .unwrap();
    place.refuses(ErrorKind::Damaged, "it is not an SQLite file");
    fs::remove_file(place.path()).unwrap();
    place.change("CREATE TABLE other (x); PRAGMA application_id = 7;");
    place.refuses(ErrorKind::Damaged, "it is another program's");
    place.change("PRAGMA application_id = 0");
    place.refuses(ErrorKind::Damaged, "it is another program's");
    place.change("PRAGMA application_id = 0x6e6f7465; PRAGMA user_version = 3");
    place.refuses(
        ErrorKind::Version,
        "has format 3, and this version reads up to 2",
    );
    place.change("PRAGMA user_version = 2");
    place.refuses(ErrorKind::Damaged, "`notes` is not as levity makes it");
}

#[test]
fn a_folder_is_no_file() {
    let place = Place::new();
    fs::create_dir(place.path()).unwrap();
    let error = SharedFile::make(&place.path(), &NOTES).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the notes `notes.db` is not a plain file"
    );
}

#[cfg(unix)]
#[test]
fn a_file_that_was_replaced_is_noticed() {
    let place = Place::new();
    let (file, _connection) = SharedFile::make(&place.path(), &NOTES).unwrap();
    fs::rename(place.path(), place.0.path().join("old.db")).unwrap();
    assert!(file.check_place().is_err() && file.connect().is_err());
    fs::write(place.path(), "").unwrap();
    assert!(
        file.check_place()
            .unwrap_err()
            .to_string()
            .contains("open it anew")
    );
}

#[test]
fn others_are_waited_for_and_named() {
    let place = Place::new();
    let (file, mut connection) = SharedFile::make(&place.path(), &NOTES).unwrap();
    let other = Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection.busy_handler(None::<fn(i32) -> bool>).unwrap();
    let error = connection
        .execute("INSERT INTO notes VALUES ('a')", [])
        .unwrap_err();
    let error = file.failed("written", error);
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(
        error.to_string(),
        "the notes `notes.db` could not be written: another program keeps it busy"
    );
    assert!(error.into_source().is_some());
}

/// A file from elsewhere may have objects that write or return rows that nobody wrote.
#[test]
fn files_with_an_object_that_levity_does_not_make_are_refused() {
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
        let place = Place::new();
        drop(SharedFile::make(&place.path(), &NOTES).unwrap());
        place.change("PRAGMA journal_mode = delete");
        place.change(change);
        place.refuses(
            ErrorKind::Damaged,
            &format!("`{name}` is not as levity makes it"),
        );
    }
}

#[test]
fn file_whose_view_never_ends_is_refused_at_once() {
    let place = Place::new();
    drop(SharedFile::make(&place.path(), &NOTES).unwrap());
    place.change(
        "PRAGMA journal_mode = delete; DROP TABLE notes; CREATE VIEW notes AS \
         WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS text FROM n",
    );
    place.refuses(ErrorKind::Damaged, "`notes` is not as levity makes it");
}

#[test]
fn files_of_earlier_tables_are_read() {
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
    let place = Place::new();
    drop(SharedFile::make(&place.path(), &NOTES).unwrap());
    let (_, connection) = SharedFile::make(&place.path(), &LATER).unwrap();
    connection
        .execute_batch("ALTER TABLE notes ADD COLUMN more TEXT")
        .unwrap();
    SharedFile::make(&place.path(), &LATER).unwrap();
}

#[test]
fn connections_have_no_views_and_no_way_to_the_schema() {
    let place = Place::new();
    let (file, connection) = SharedFile::make(&place.path(), &NOTES).unwrap();
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

/// A rollback journal that makes SQLite cut the file to no page at all.
fn plant_journal(place: &Place) -> PathBuf {
    let mut planted = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    planted.extend(
        [0_u32, 1, 0, 512, 4096]
            .iter()
            .flat_map(|word| word.to_be_bytes()),
    );
    planted.resize(512, 0);
    let path = place.0.path().join("notes.db-journal");
    fs::write(&path, planted).unwrap();
    path
}

#[test]
fn rollback_journal_beside_a_file_is_refused_and_changes_nothing() {
    let place = Place::new();
    let (file, connection) = SharedFile::make(&place.path(), &NOTES).unwrap();
    connection
        .execute("INSERT INTO notes VALUES ('a')", [])
        .unwrap();
    let planted = plant_journal(&place);
    let error = file.connect().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("notes.db-journal` stands beside it"),
        "{error}"
    );
    drop(connection);
    let before = fs::read(place.path()).unwrap();
    assert_eq!(
        SharedFile::make(&place.path(), &NOTES).unwrap_err().kind(),
        ErrorKind::Refused
    );
    assert_eq!(fs::read(place.path()).unwrap(), before);
    fs::remove_file(planted).unwrap();
    let (_, connection) = SharedFile::make(&place.path(), &NOTES).unwrap();
    let notes: i64 = connection
        .query_row("SELECT count(*) FROM notes", [], |row| row.get(0))
        .unwrap();
    assert_eq!(notes, 1);
}

/// States of a file whose maker was killed: nothing but a header with a log, with and without the
/// tables in that log.
#[test]
fn file_whose_making_was_cut_short_is_made() {
    for with_tables in [false, true] {
        let (place, half) = (Place::new(), Place::new());
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
            // SQLite makes the log when somebody writes.
            if with_tables || ending.is_empty() {
                fs::copy(half.0.path().join(&name), place.0.path().join(&name)).unwrap();
            }
        }
        let (_, connection) = SharedFile::make(&place.path(), &NOTES).unwrap();
        connection
            .execute("INSERT INTO notes VALUES ('a')", [])
            .unwrap();
    }
}
