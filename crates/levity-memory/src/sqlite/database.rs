//! The database file: its format and its connections.
//!
//! The messages of a conversation have adjacent row ids: its key in the upper half, the position in
//! the lower one. So a window is one range of the table.

use std::io;
use std::path::{Path, PathBuf};

use levity_core::MemoryError;
use levity_sqlite::{Format, SharedFile};
use rusqlite::Connection;

use crate::Durability;
use crate::sqlite_error::to_memory_error;

/// The schema; `docs/memory.md` describes the columns. Keys are never reused.
const TABLES: &str = "
CREATE TABLE conversations (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    changed INTEGER NOT NULL,
    first INTEGER NOT NULL DEFAULT 0,
    next INTEGER NOT NULL DEFAULT 0,
    words_from INTEGER NOT NULL DEFAULT 0,
    words_to INTEGER NOT NULL DEFAULT 0,
    upto INTEGER,
    summary TEXT
);
CREATE INDEX conversations_changed ON conversations (changed, id);
CREATE TABLE messages (place INTEGER PRIMARY KEY, message TEXT NOT NULL);
CREATE TABLE holds (id TEXT PRIMARY KEY, owner INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (text, content = '', tokenize = 'unicode61 remove_diacritics \
2');
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
";

static FORMAT: Format = Format {
    what: "memory",
    // `lvmy`
    application: 0x6c76_6d79,
    version: 1,
    tables: TABLES,
    earlier: &[],
    columns: &[
        "SELECT key, id, changed, first, next, words_from, words_to, upto, summary FROM \
            conversations",
        "SELECT place, message FROM messages",
        "SELECT id, owner FROM holds",
        "SELECT rowid FROM words WHERE words MATCH 'a'",
    ],
    log_pages: 2_000,
    overwrites: true,
};

/// A file of conversations and its durability.
#[derive(Clone)]
pub(super) struct Database {
    pub(super) file: SharedFile,
    pub(super) durability: Durability,
}

impl Database {
    /// Creates the file if there is none, and checks its format.
    pub(super) fn make(path: &Path) -> Result<(Self, Connection), MemoryError> {
        let (file, connection) =
            SharedFile::open_or_create(path, &FORMAT).map_err(to_memory_error)?;
        Ok((
            Self {
                file,
                durability: Durability::default(),
            },
            connection,
        ))
    }

    /// Returns the folder with the lock files of owners.
    pub(super) fn owners(&self) -> PathBuf {
        self.file.beside("-owners")
    }

    /// Returns `true` if the log beside the file has content.
    pub(super) fn has_log(&self) -> bool {
        std::fs::metadata(self.file.beside("-wal")).is_ok_and(|log| log.len() > 0)
    }

    /// Connects to a file whose format was checked before.
    pub(super) fn connect(&self) -> Result<Connection, MemoryError> {
        self.file.connect().map_err(to_memory_error)
    }

    /// Checks that the file is still at its path: writes to a moved or deleted file would be lost.
    pub(super) fn check_place(&self) -> Result<(), MemoryError> {
        self.file.check_place().map_err(to_memory_error)
    }

    pub(super) fn failed(&self, what: &str, error: rusqlite::Error) -> MemoryError {
        to_memory_error(self.file.failed(what, error))
    }

    pub(super) fn failed_io(&self, what: &str, error: io::Error) -> MemoryError {
        to_memory_error(self.file.failed_io(what, error))
    }
}
