//! The tables of an index.

use levity_sqlite::Format;

/// The schema; `docs/documents.md` describes the columns. Keys of chunks are never reused, so that
/// a citation of a removed chunk finds nothing instead of another text. The chunks of a document
/// have consecutive keys from `first_chunk`.
///
/// The indexes of words and of parts of words have no copy of the texts, so a removal must pass the
/// exact text again. `parts` contains the trigrams of code, without their positions.
/// `namespaces` and `removed` belong to an outside store of vectors: its namespaces, and the
/// vectors to remove from it.
const TABLES: &str = "
CREATE TABLE documents (
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    hash TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    file TEXT,
    indexed INTEGER NOT NULL,
    first_chunk INTEGER NOT NULL,
    chunks INTEGER NOT NULL
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
CREATE VIRTUAL TABLE parts USING fts5(
    text, content = '', tokenize = 'trigram', detail = none
);
INSERT INTO parts (parts, rank) VALUES ('secure-delete', 1);
CREATE TABLE namespaces (embedder INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE removed (
    namespace TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    PRIMARY KEY (namespace, chunk)
) WITHOUT ROWID;
";

pub(crate) static FORMAT: Format = Format {
    what: "documents",
    // `lvtd`
    application: 0x6c76_7464,
    version: 1,
    tables: TABLES,
    earlier: &[],
    columns: &[
        "SELECT key, name, kind, hash, bytes, changed, file, indexed, first_chunk, chunks \
            FROM documents",
        "SELECT name, hash, reason FROM files",
        "SELECT key, document, number, context, text, page, first_line, last_line, embedder \
            FROM chunks",
        "SELECT key, card FROM embedders",
        "SELECT chunk, document, embedder, scale, data FROM vectors",
        "SELECT context, text FROM words",
        "SELECT embedder, name FROM namespaces",
        "SELECT namespace, chunk FROM removed",
        "SELECT text FROM parts",
    ],
    log_pages: 4_000,
    overwrites: true,
};
