//! The tables of a file of facts.

use levity_sqlite::Format;

/// The schema; `docs/recall.md` describes the columns. Fact ids are never reused.
///
/// The word index has no copy of the texts, so a removal must pass the exact text again. The index
/// also contains the scope of each fact as a word, so that a search skips the facts of other
/// scopes.
const TABLES: &str = "
CREATE TABLE scopes (
    key INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    facts INTEGER NOT NULL DEFAULT 0,
    UNIQUE (kind, id)
);
CREATE TABLE facts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL,
    text TEXT NOT NULL,
    digest INTEGER NOT NULL,
    source TEXT NOT NULL,
    conversation TEXT,
    date INTEGER NOT NULL,
    embedder INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX facts_scope ON facts (scope);
CREATE INDEX facts_digest ON facts (scope, digest);
CREATE INDEX facts_embedder ON facts (scope, embedder);
CREATE UNIQUE INDEX facts_conversation ON facts (scope, conversation) WHERE conversation IS NOT \
NULL;
CREATE TABLE embedders (key INTEGER PRIMARY KEY, card TEXT NOT NULL UNIQUE);
CREATE TABLE vectors (
    place INTEGER PRIMARY KEY,
    embedder INTEGER NOT NULL,
    scale REAL NOT NULL,
    data BLOB NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5(
    scope, text, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
";

pub(super) static FORMAT: Format = Format {
    what: "facts",
    // `lvtr`
    application: 0x6c76_7472,
    version: 1,
    tables: TABLES,
    earlier: &[],
    columns: &[
        "SELECT key, kind, id, facts FROM scopes",
        "SELECT id, scope, text, digest, source, conversation, date, embedder FROM facts",
        "SELECT key, card FROM embedders",
        "SELECT place, embedder, scale, data FROM vectors",
        "SELECT scope, text FROM words",
    ],
    log_pages: 1_000,
    overwrites: true,
};
