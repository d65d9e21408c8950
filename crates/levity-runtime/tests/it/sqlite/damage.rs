//! Damaged, foreign and older SQLite files.

use std::fs;

use levity_core::{Entry, Journal, JournalErrorKind, Record, RunId};
use levity_runtime::SqliteJournal;

use super::{Folder, add, opened, record, result, run};

/// Checks that the content of a file leads to this error, and stays unchanged, with no file beside
/// it.
#[track_caller]
fn refused(bytes: &[u8], kind: JournalErrorKind, part: &str) {
    let folder = Folder::new();
    fs::write(folder.file(), bytes).unwrap();
    for _ in 0..2 {
        let error = SqliteJournal::new(folder.file()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(
        fs::read(folder.file()).unwrap() == bytes,
        "it was changed: {part}"
    );
    assert_eq!(folder.names(), ["runs.db"], "{part}");
}

/// Returns the bytes of a file that another program changed.
fn changed(journal: bool, change: &str) -> Vec<u8> {
    let folder = Folder::new();
    if journal {
        drop(folder.journal());
    }
    let sql = folder.sql();
    sql.execute_batch("PRAGMA journal_mode = delete").unwrap();
    sql.execute_batch(change).unwrap();
    drop(sql);
    fs::read(folder.file()).unwrap()
}

#[test]
fn damaged_database_is_rejected_and_unchanged() {
    let damaged = JournalErrorKind::Damaged;
    refused(b"name,age\nAda,36\n", damaged, "it is not an SQLite file");
    refused(b"\xff", damaged, "left unchanged");
    refused(&vec![0; 10_000], damaged, "it is not an SQLite file");
    refused(
        &changed(false, "CREATE TABLE books (title)"),
        damaged,
        "it belongs to another program",
    );
    refused(
        &changed(
            false,
            "PRAGMA journal_mode = wal; CREATE TABLE books (title)",
        ),
        damaged,
        "it belongs to another program",
    );
    refused(
        &changed(true, "PRAGMA user_version = 2"),
        JournalErrorKind::Version,
        "use a newer one",
    );
    refused(
        &changed(true, "PRAGMA user_version = 0"),
        damaged,
        "it belongs to another program",
    );
    refused(
        &changed(true, "DROP TABLE inbox"),
        damaged,
        "`inbox_run` differs from the object that levity creates",
    );
    refused(
        &changed(true, "ALTER TABLE runs DROP COLUMN fence"),
        damaged,
        "`runs` differs from the object that levity creates",
    );
    // These are forged posts, which would approve calls.
    let posts = "SELECT 1 AS id, 1 AS run, '{}' AS post";
    for forged in [
        format!("DROP TABLE inbox; CREATE VIEW inbox AS {posts}"),
        format!(
            "DROP INDEX inbox_run; DROP TABLE inbox; CREATE VIEW v AS {posts}; CREATE VIRTUAL \
            TABLE inbox USING fts5(id, run, post, content='v', content_rowid='id')"
        ),
        "ALTER TABLE runs RENAME TO other; CREATE VIEW runs AS SELECT * FROM other".to_owned(),
        "ALTER TABLE records ADD COLUMN more TEXT AS (entry || '')".to_owned(),
        "CREATE TRIGGER t AFTER INSERT ON records BEGIN INSERT INTO inbox (run, post) VALUES \
            (new.run, '{}'); END"
            .to_owned(),
    ] {
        refused(
            &changed(true, &forged),
            damaged,
            "differs from the object that levity creates",
        );
    }
    let whole = changed(true, "SELECT 1");
    refused(
        &whole[..whole.len() / 2],
        damaged,
        "SQLite reports corruption",
    );
    let mut page = whole;
    page[100..200].fill(0xff);
    refused(&page, damaged, "SQLite reports corruption");
}

#[tokio::test]
async fn damage_of_a_run_is_reported_for_that_run_only() {
    for (flaw, part) in [
        (
            "DELETE FROM records WHERE run = 1 AND seq = 1",
            "record 1 is missing",
        ),
        (
            "DELETE FROM records WHERE run = 1 AND seq = 2",
            "has 2 records but should have 3",
        ),
        (
            "UPDATE records SET entry = '{\"of_a_newer_kind\":{}}' WHERE run = 1 AND seq = 1",
            "record 1 is damaged",
        ),
        (
            "UPDATE records SET entry = x'ff' WHERE run = 1 AND seq = 1",
            "record 1 is damaged",
        ),
    ] {
        let folder = Folder::new();
        let journal = folder.journal();
        for id in ["r", "other"] {
            let mut open = journal.open(&RunId::new(id)).await.unwrap();
            for seq in 0..3 {
                add(&mut open, seq, "text").await.unwrap();
            }
        }
        folder.sql().execute(flaw, []).unwrap();
        for error in [
            journal.open(&run()).await.map(drop).unwrap_err(),
            journal.read(&run()).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), JournalErrorKind::Damaged);
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(
            journal
                .open(&RunId::new("other"))
                .await
                .unwrap()
                .records
                .len(),
            3
        );
    }
}

#[tokio::test]
async fn fence_that_cannot_increase_is_reported_as_damage() {
    // With the fence 1, a run would be opened as a new one.
    for fence in [i64::MAX, 0, -1, i64::MIN] {
        let folder = Folder::new();
        let journal = folder.journal();
        let records = short(&journal).await;
        let sql = folder.sql();
        sql.execute("UPDATE runs SET fence = ?1", [fence]).unwrap();
        let error = journal.open(&run()).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), JournalErrorKind::Damaged, "{error}");
        let part = format!("run `r`: its fence is {fence}");
        assert!(error.to_string().contains(&part), "{error}");
        assert_eq!(journal.read(&run()).await.unwrap(), records);
        drop(journal.open(&RunId::new("other")).await.unwrap());
        assert!(journal.remove(&run()).await.unwrap());
    }
}

/// Writes a run of a few short records.
async fn short(journal: &SqliteJournal) -> Vec<Record> {
    let mut open = journal.open(&run()).await.unwrap();
    let records = vec![
        record(0, opened()),
        record(1, result("a b, c", None)),
        record(2, Entry::Ended(levity_core::Status::Complete)),
    ];
    open.log.append(&records).await.unwrap();
    records
}

/// Returns `true` if a change of the file is reported, or changes no record.
async fn is_detected_or_harmless(journal: &SqliteJournal, records: &[Record]) -> bool {
    match journal.read(&run()).await {
        Ok(found) => found == records,
        Err(error) => error.kind() == JournalErrorKind::Damaged,
    }
}

#[tokio::test]
async fn every_flipped_bit_of_row_is_detected() {
    let folder = Folder::new();
    let journal = folder.journal();
    let records = short(&journal).await;
    let sql = folder.sql();
    sql.execute_batch("PRAGMA synchronous = OFF").unwrap();
    for seq in 0..3_i64 {
        let entry: String = sql
            .query_row("SELECT entry FROM records WHERE seq = ?1", [seq], |row| {
                row.get(0)
            })
            .unwrap();
        // The first record is long, and a checksum treats its bits alike.
        for bit in (0..8 * entry.len()).step_by(if seq == 0 { 7 } else { 1 }) {
            let mut flipped = entry.clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let change = "UPDATE records SET entry = CAST(?2 AS TEXT) WHERE seq = ?1";
            sql.execute(change, rusqlite::params![seq, flipped])
                .unwrap();
            let found = journal.read(&run()).await.map_err(|error| error.kind());
            assert_eq!(
                found,
                Err(JournalErrorKind::Damaged),
                "record {seq}, bit {bit}"
            );
        }
        sql.execute(
            "UPDATE records SET entry = ?2 WHERE seq = ?1",
            rusqlite::params![seq, entry],
        )
        .unwrap();
        for column in ["at", "crc"] {
            for bit in 0..63 {
                let flip = format!(
                    "UPDATE records SET {column} = ({column} | ?2) - ({column} & ?2) WHERE seq = ?1"
                );
                sql.execute(&flip, [seq, 1_i64 << bit]).unwrap();
                let found = journal.read(&run()).await.map_err(|error| error.kind());
                assert_eq!(
                    found,
                    Err(JournalErrorKind::Damaged),
                    "record {seq}, bit {bit} of {column}"
                );
                sql.execute(&flip, [seq, 1_i64 << bit]).unwrap();
            }
        }
    }
    assert_eq!(journal.read(&run()).await.unwrap(), records);
}

#[tokio::test]
async fn every_flipped_bit_of_row_on_disk_is_detected_or_harmless() {
    let folder = Folder::new();
    let journal = folder.journal();
    let records = short(&journal).await;
    folder
        .sql()
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let whole = fs::read(folder.file()).unwrap();
    let text = b"{\"ended\":\"complete\"}";
    let at = whole
        .windows(text.len())
        .position(|part| part == text)
        .unwrap();
    // These are SQLite's header of a row, the values, and the checksum behind them.
    for bit in 8 * (at - 12)..8 * (at + text.len() + 6) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let copy = Folder::new();
        fs::write(copy.file(), &flipped).unwrap();
        let told = match SqliteJournal::new(copy.file()) {
            Ok(journal) => is_detected_or_harmless(&journal, &records).await,
            Err(error) => error.kind() == JournalErrorKind::Damaged,
        };
        assert!(
            told,
            "bit {bit}, {} bytes behind the text's start",
            (bit / 8).cast_signed() - at.cast_signed()
        );
    }
}

#[tokio::test]
async fn files_of_versions_without_checksums_are_read_and_continued() {
    let folder = Folder::new();
    let mut records = short(&folder.journal()).await;
    records.pop();
    let sql = folder.sql();
    let older =
        "DELETE FROM records WHERE seq = 2; UPDATE runs SET records = 2, status = NULL, state = 0;
                 DROP TABLE snapshots; ALTER TABLE records DROP COLUMN crc";
    sql.execute_batch(older).unwrap();
    let journal = folder.journal();
    let mut open = loop {
        match journal.open(&run()).await {
            // The thread of the first journal has not released the run yet.
            Err(error) if error.kind() == JournalErrorKind::Busy => tokio::task::yield_now().await,
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(open.records, records);
    add(&mut open, 2, "new").await.unwrap();
    drop(open);
    // This is a row as an older version writes it into a newer file.
    let insert =
        "INSERT INTO records (run, seq, at, entry) VALUES (1, 3, 7, '{\"ended\":\"complete\"}');
                  UPDATE runs SET records = 4";
    sql.execute_batch(insert).unwrap();
    assert_eq!(folder.journal().read(&run()).await.unwrap().len(), 4);
    let checked: i64 = sql
        .query_row(
            "SELECT count(*) FROM records WHERE crc IS NOT NULL",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(checked, 1);
    sql.execute("UPDATE records SET at = 8 WHERE seq = 2", [])
        .unwrap();
    let error = folder.journal().read(&run()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("run `r`: record 2 is damaged: its checksum"),
        "{error}"
    );
}
