//! The tables of an index.

use levity_sqlite::Format;

use crate::DocumentError;
use crate::index::File;

/// The schema; `docs/documents.md` describes the columns. Keys of chunks are never reused, so that
/// a citation of a removed chunk finds nothing instead of another text.
///
/// The index of words has no copy of the texts, so a removal must pass the exact text again.
macro_rules! tables {
    () => {
        "
CREATE TABLE documents (
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    hash TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    file TEXT,
    indexed INTEGER NOT NULL
);
CREATE INDEX documents_file ON documents (file);
CREATE TABLE files (
    name TEXT PRIMARY KEY,
    hash TEXT NOT NULL,
    reason TEXT
) WITHOUT ROWID;
CREATE TABLE chunks (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    document INTEGER NOT NULL,
    number INTEGER NOT NULL,
    context TEXT NOT NULL,
    text TEXT NOT NULL,
    page INTEGER,
    first_line INTEGER NOT NULL,
    last_line INTEGER NOT NULL,
    embedder INTEGER NOT NULL DEFAULT 0,
    UNIQUE (document, number)
);
CREATE INDEX chunks_embedder ON chunks (embedder);
CREATE TABLE embedders (key INTEGER PRIMARY KEY, card TEXT NOT NULL UNIQUE);
CREATE TABLE vectors (
    chunk INTEGER PRIMARY KEY,
    document INTEGER NOT NULL,
    embedder INTEGER NOT NULL,
    scale REAL NOT NULL,
    data BLOB NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5(
    context, text, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
"
    };
}

/// The namespaces of vectors in an outside store, and the vectors to remove from it.
macro_rules! store_tables {
    () => {
        "
CREATE TABLE IF NOT EXISTS namespaces (embedder INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS removed (
    namespace TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    PRIMARY KEY (namespace, chunk)
) WITHOUT ROWID;
"
    };
}

/// The tables of earlier files, which [`migrate`] changes.
const WITHOUT_STORE: &str = tables!();

pub(crate) static FORMAT: Format = Format {
    what: "documents",
    // `lvtd`
    application: 0x6c76_7464,
    version: 1,
    tables: concat!(tables!(), store_tables!()),
    earlier: &[WITHOUT_STORE],
    columns: &[
        "SELECT key, name, kind, hash, bytes, changed, file, indexed FROM documents",
        "SELECT name, hash, reason FROM files",
        "SELECT key, document, number, context, text, page, first_line, last_line, embedder \
            FROM chunks",
        "SELECT key, card FROM embedders",
        "SELECT chunk, document, embedder, scale, data FROM vectors",
        "SELECT context, text FROM words",
    ],
    log_pages: 4_000,
    overwrites: true,
};

/// Adds the tables for an outside store to a file of a version that had none.
pub(crate) fn migrate(file: &File) -> Result<(), DocumentError> {
    let known = "SELECT count(*) FROM sqlite_schema WHERE name IN ('namespaces', 'removed')";
    let known: i64 = file.read(|view| view.query_row(known, [], |row| row.get(0)))?;
    if known == 2 {
        return Ok(());
    }
    file.write(|change| Ok(change.execute_batch(store_tables!())?))
}
