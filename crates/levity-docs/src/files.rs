//! The files of a folder whose texts a reader of formats extracted.
//!
//! Their bytes, and not their texts, decide whether they are read again, because reading takes long
//! and can fail. A file is recorded after its documents are in the index. An update that is killed
//! in between therefore reads the file again, and finds its documents unchanged.
//!
//! Records of parts name the files of an archive that could not be read. They are removed with the
//! record of the archive.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use crate::{DocumentError, DocumentIndex};

/// The record of a file, or of a part of it that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileRecord {
    /// The hash of the bytes.
    pub(crate) hash: String,
    /// The reason why it has no document.
    pub(crate) reason: Option<String>,
}

/// The records by the names of files. Parts have names below that of their file.
pub(crate) type FileRecords = BTreeMap<String, FileRecord>;

/// Returns the records of the parts of a file.
#[cfg(feature = "formats")]
pub(crate) fn parts<'a>(
    records: &'a FileRecords,
    file: &str,
) -> impl Iterator<Item = (&'a String, &'a FileRecord)> {
    // `0` is the sign after `/`.
    records.range(format!("{file}/")..format!("{file}0"))
}

impl DocumentIndex {
    /// Returns the records of all files.
    pub(crate) async fn file_records(&self) -> Result<FileRecords, DocumentError> {
        let read = |view: &Connection| {
            let mut files = view.prepare_cached("SELECT name, hash, reason FROM files")?;
            let record = |row: &rusqlite::Row<'_>| {
                let record = FileRecord {
                    hash: row.get(1)?,
                    reason: row.get(2)?,
                };
                Ok((row.get(0)?, record))
            };
            files.query_map([], record)?.collect()
        };
        self.file().run(move |file| file.read(read)).await
    }

    /// Replaces the records of these files and of their parts.
    pub(crate) async fn replace_file_records(
        &self,
        files: Vec<String>,
        records: Vec<(String, FileRecord)>,
    ) -> Result<(), DocumentError> {
        let write = move |change: &Connection| {
            for file in &files {
                let mut remove = change.prepare_cached(
                    "DELETE FROM files WHERE name = ?1 OR (name >= ?1 || '/' AND name < ?1 || '0')",
                )?;
                remove.execute([file])?;
            }
            for (name, record) in &records {
                let mut insert = change.prepare_cached(
                    "INSERT OR REPLACE INTO files (name, hash, reason) VALUES (?1, ?2, ?3)",
                )?;
                insert.execute(params![name, record.hash, record.reason])?;
            }
            Ok(())
        };
        self.file().run(move |file| file.write(write)).await
    }

    /// Returns the names of the documents of a file.
    #[cfg(feature = "formats")]
    pub(crate) async fn documents_of(&self, file: &str) -> Result<Vec<String>, DocumentError> {
        let name = file.to_owned();
        let read = move |view: &Connection| {
            let mut names = view.prepare_cached("SELECT name FROM documents WHERE file = ?1")?;
            names.query_map([&name], |row| row.get(0))?.collect()
        };
        self.file().run(move |file| file.read(read)).await
    }
}
