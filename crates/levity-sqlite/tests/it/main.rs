//! Files of ours and of others.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;

use levity_sqlite::{ErrorKind, Format, SharedFile};
use rusqlite::Connection;

static NOTES: Format = Format {
    what: "notes",
    application: 0x6e6f_7465,
    version: 2,
    tables: "CREATE TABLE notes (text TEXT NOT NULL);",
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
        assert!(error.to_string().contains("`notes.db`") && error.to_string().contains(what), "{error}");
        assert_eq!(fs::read(self.path()).unwrap(), before);
        let names: Vec<_> =
            fs::read_dir(self.0.path()).unwrap().flatten().map(|file| file.file_name()).collect();
        assert_eq!(names, ["notes.db"], "nothing is left beside it");
    }

    fn change(&self, sql: &str) {
        Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
    }
}

#[test]
fn a_file_is_made_and_opened_again() {
    let place = Place::new();
    let (file, connection) = SharedFile::make(&place.path(), &NOTES).unwrap();
    connection.execute("INSERT INTO notes VALUES ('a')", []).unwrap();
    let count = |connection: &Connection| {
        connection.query_row("SELECT count(*) FROM notes", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(count(&file.connect().unwrap()), 1);
    assert_eq!(count(&SharedFile::make(&place.path(), &NOTES).unwrap().1), 1);
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
    fs::write(place.path(), "Not a database, but a text of some length. ".repeat(40)).unwrap();
    place.refuses(ErrorKind::Damaged, "it is not an SQLite file");
    fs::remove_file(place.path()).unwrap();
    place.change("CREATE TABLE other (x); PRAGMA application_id = 7;");
    place.refuses(ErrorKind::Damaged, "it is another program's");
    place.change("PRAGMA application_id = 0");
    place.refuses(ErrorKind::Damaged, "it is another program's");
    place.change("PRAGMA application_id = 0x6e6f7465; PRAGMA user_version = 3");
    place.refuses(ErrorKind::Version, "has format 3, and this version reads up to 2");
    place.change("PRAGMA user_version = 2");
    place.refuses(ErrorKind::Damaged, "a table is not as it should be");
}

#[test]
fn a_folder_is_no_file() {
    let place = Place::new();
    fs::create_dir(place.path()).unwrap();
    let error = SharedFile::make(&place.path(), &NOTES).unwrap_err();
    assert_eq!(error.to_string(), "the notes `notes.db` is not a plain file");
}

#[cfg(unix)]
#[test]
fn a_file_that_was_replaced_is_noticed() {
    let place = Place::new();
    let (file, _connection) = SharedFile::make(&place.path(), &NOTES).unwrap();
    fs::rename(place.path(), place.0.path().join("old.db")).unwrap();
    assert!(file.check_place().is_err() && file.connect().is_err());
    fs::write(place.path(), "").unwrap();
    assert!(file.check_place().unwrap_err().to_string().contains("open it anew"));
}

#[test]
fn others_are_waited_for_and_named() {
    let place = Place::new();
    let (file, mut connection) = SharedFile::make(&place.path(), &NOTES).unwrap();
    let other = Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection.busy_handler(None::<fn(i32) -> bool>).unwrap();
    let error = connection.execute("INSERT INTO notes VALUES ('a')", []).unwrap_err();
    let error = file.failed("written", error);
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(error.to_string(), "the notes `notes.db` could not be written: another program keeps it busy");
    assert!(error.into_source().is_some());
}

/// A file from elsewhere may have triggers, which would write what nobody wrote.
#[test]
fn triggers_of_a_file_do_not_fire() {
    let place = Place::new();
    drop(SharedFile::make(&place.path(), &NOTES).unwrap());
    place.change(
        "CREATE TRIGGER planted AFTER INSERT ON notes WHEN new.text <> 'planted'
         BEGIN INSERT INTO notes VALUES ('planted'); END",
    );
    let (file, connection) = SharedFile::make(&place.path(), &NOTES).unwrap();
    for connection in [connection, file.connect().unwrap()] {
        connection.execute("INSERT INTO notes VALUES ('mine')", []).unwrap();
        let planted = "SELECT count(*) FROM notes WHERE text = 'planted'";
        assert_eq!(connection.query_row(planted, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    }
}
