//! The rows of an index: documents, their chunks, and the index of words.
//!
//! Every function works within a transaction of its caller.

use std::borrow::Cow;

use levity_core::Timestamp;
use levity_search::{Presence, WordScores, quantize, query_words, spaced};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::parts::{self, Part};
use crate::split::{Chunk, split};
use crate::store::{NewVectors, note_removed};
use crate::{Document, DocumentInfo, Passage, PassageId, SearchOptions, TextKind};

/// The maximum number of words of a question that count.
const MAX_QUERY_WORDS: usize = 256;
/// The maximum number of ranges of chunks that are searched one by one.
const MAX_RANGES: usize = 64;
/// The minimum sum of weights of a match; less is an error of rounding.
const MIN_SUM: f64 = 1e-9;
/// A range of keys that contains every chunk.
const EVERY_CHUNK: (i64, i64) = (i64::MIN, i64::MAX);

/// The keys of chunks and their scores, best first.
pub(crate) type Scores = Vec<(i64, f64)>;

/// A document that is split, with the vectors of its chunks.
pub(crate) struct SplitDocument {
    pub(crate) document: Document,
    pub(crate) hash: String,
    pub(crate) chunks: Vec<Chunk>,
    /// The vectors of the chunks; without an embedder, or after its failure, there are none.
    pub(crate) vectors: Vec<Option<Vec<f32>>>,
}

impl SplitDocument {
    pub(crate) fn new(document: Document, hash: String) -> Self {
        let chunks = split(&document.text, document.kind, &document.pages);
        Self {
            document,
            hash,
            chunks,
            vectors: Vec::new(),
        }
    }

    /// Returns the texts to embed: each chunk with its context.
    pub(crate) fn texts(&self) -> impl Iterator<Item = String> {
        let text = &self.document.text;
        self.chunks
            .iter()
            .map(|chunk| with_context(&chunk.context, &text[chunk.bytes.clone()]).into_owned())
    }
}

/// Returns a text below its context, for an embedder.
pub(crate) fn with_context<'a>(context: &str, text: &'a str) -> Cow<'a, str> {
    match context {
        "" => text.into(),
        context => format!("{context}\n{text}").into(),
    }
}

/// Returns `true` if the index has this text of the document.
pub(crate) fn has(view: &Connection, document: &Document, hash: &str) -> rusqlite::Result<bool> {
    let mut same = view.prepare_cached(
        "SELECT 1 FROM documents WHERE name = ?1 AND hash = ?2 AND kind = ?3 AND file IS ?4",
    )?;
    let kind = document.kind.name();
    same.exists(params![document.name, hash, kind, document.file])
}

/// Adds a document, or replaces the one with its name. `embedder` is the key of the vectors'
/// embedder. Returns `false` if the index already has this text.
pub(crate) fn put(
    change: &Connection,
    split: &SplitDocument,
    embedder: i64,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let document = &split.document;
    if has(change, document, &split.hash)? {
        return Ok(false);
    }
    remove(change, &document.name)?;
    let mut insert = change.prepare_cached(
        "INSERT INTO documents \
            (name, kind, hash, bytes, changed, file, indexed, first_chunk, chunks) \
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0)",
    )?;
    insert.execute(params![
        document.name,
        document.kind.name(),
        split.hash,
        i64::try_from(document.text.len()).unwrap_or(i64::MAX),
        millis(document.changed.unwrap_or(now)),
        document.file,
        millis(now),
    ])?;
    let key = change.last_insert_rowid();
    let vectors = split.vectors.iter().map(Option::as_deref);
    let vectors = vectors.chain(std::iter::repeat(None));
    let mut first = None;
    for ((number, chunk), vector) in (0_i64..).zip(&split.chunks).zip(vectors) {
        let chunk_key = put_chunk(change, (key, number), document, chunk)?;
        first.get_or_insert(chunk_key);
        if let Some(vector) = vector {
            put_vector(change, chunk_key, embedder, Some(vector))?;
        }
    }
    let chunks = i64::try_from(split.chunks.len()).unwrap_or(i64::MAX);
    change
        .prepare_cached("UPDATE documents SET first_chunk = ?2, chunks = ?3 WHERE key = ?1")?
        .execute([key, first.unwrap_or(0), chunks])?;
    Ok(true)
}

/// Returns the vectors of a document that was just added, with the keys of their chunks. Chunks
/// without a vector are left out.
pub(crate) fn keyed(
    change: &Connection,
    split: &SplitDocument,
    vectors: impl Iterator<Item = Option<Vec<f32>>>,
) -> rusqlite::Result<NewVectors> {
    let mut keys = change.prepare_cached(
        "SELECT chunks.key FROM chunks JOIN documents ON documents.key = document \
            WHERE name = ?1 ORDER BY number",
    )?;
    let keys = keys.query_map([&split.document.name], |row| row.get(0))?;
    let keys = keys.collect::<rusqlite::Result<Vec<i64>>>()?;
    let vectors = keys.into_iter().zip(vectors);
    Ok(vectors
        .filter_map(|(key, vector)| Some((key, Ok(vector?))))
        .collect())
}

fn put_chunk(
    change: &Connection,
    (document, number): (i64, i64),
    of: &Document,
    chunk: &Chunk,
) -> rusqlite::Result<i64> {
    let text = &of.text[chunk.bytes.clone()];
    let mut insert = change.prepare_cached(
        "INSERT INTO chunks (document, number, context, text, page, first_line, last_line) \
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let (first, last) = chunk.lines;
    insert.execute(params![
        document,
        number,
        chunk.context,
        text,
        chunk.page,
        first,
        last
    ])?;
    let key = change.last_insert_rowid();
    let mut words =
        change.prepare_cached("INSERT INTO words (rowid, context, text) VALUES (?1, ?2, ?3)")?;
    words.execute(params![key, spaced(&chunk.context), spaced(text)])?;
    if of.kind == TextKind::Code {
        change
            .prepare_cached("INSERT INTO parts (rowid, text) VALUES (?1, ?2)")?
            .execute(params![key, text])?;
    }
    Ok(key)
}

/// Saves the vector of a chunk, or records that the embedder rejects its text. It does nothing if
/// the chunk was removed.
pub(crate) fn put_vector(
    change: &Connection,
    chunk: i64,
    embedder: i64,
    vector: Option<&[f32]>,
) -> rusqlite::Result<()> {
    let mark = if vector.is_some() {
        embedder
    } else {
        -embedder
    };
    let mut set = change.prepare_cached("UPDATE chunks SET embedder = ?2 WHERE key = ?1")?;
    if set.execute([chunk, mark])? == 0 {
        return Ok(());
    }
    let Some(vector) = vector else {
        let mut drop_vector = change.prepare_cached("DELETE FROM vectors WHERE chunk = ?1")?;
        return drop_vector.execute([chunk]).map(drop);
    };
    let (scale, data) = quantize(vector);
    let mut insert = change.prepare_cached(
        "INSERT OR REPLACE INTO vectors (chunk, document, embedder, scale, data) \
            SELECT key, document, ?2, ?3, ?4 FROM chunks WHERE key = ?1",
    )?;
    insert
        .execute(params![chunk, embedder, f64::from(scale), data])
        .map(drop)
}

/// Returns the key of an embedder, and adds the embedder if it is new to the file.
pub(crate) fn insert_embedder(change: &Connection, card: &str) -> rusqlite::Result<i64> {
    if let Some(key) = embedder(change, card)? {
        return Ok(key);
    }
    change.execute("INSERT INTO embedders (card) VALUES (?1)", [card])?;
    Ok(change.last_insert_rowid())
}

/// Returns the key of an embedder in the file.
pub(crate) fn embedder(view: &Connection, card: &str) -> rusqlite::Result<Option<i64>> {
    view.prepare_cached("SELECT key FROM embedders WHERE card = ?1")?
        .query_row([card], |row| row.get(0))
        .optional()
}

/// Returns the next chunks after `after` that this embedder has neither embedded nor rejected, with
/// the texts to embed.
pub(crate) fn missing(
    view: &Connection,
    embedder: i64,
    after: i64,
    limit: usize,
) -> rusqlite::Result<Vec<(i64, String)>> {
    let mut chunks = view.prepare_cached(
        "SELECT key, context, text FROM chunks WHERE key > ?1 AND embedder NOT IN (?2, -?2) \
            ORDER BY key LIMIT ?3",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    chunks
        .query_map([after, embedder, limit], |row| {
            let (context, text): (String, String) = (row.get(1)?, row.get(2)?);
            Ok((row.get(0)?, with_context(&context, &text).into_owned()))
        })?
        .collect()
}

/// Removes a document with all its chunks, and returns `true` if the index had it.
pub(crate) fn remove(change: &Connection, name: &str) -> rusqlite::Result<bool> {
    let mut find = change.prepare_cached("SELECT key, kind FROM documents WHERE name = ?1")?;
    let Some((key, kind)) = find
        .query_row([name], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        })
        .optional()?
    else {
        return Ok(false);
    };
    let mut chunks =
        change.prepare_cached("SELECT key, context, text FROM chunks WHERE document = ?1")?;
    let mut drop_words = change.prepare_cached(
        "INSERT INTO words (words, rowid, context, text) VALUES ('delete', ?1, ?2, ?3)",
    )?;
    let mut drop_parts = change
        .prepare_cached("INSERT INTO parts (parts, rowid, text) VALUES ('delete', ?1, ?2)")?;
    let mut drop_vector = change.prepare_cached("DELETE FROM vectors WHERE chunk = ?1")?;
    let mut rows = chunks.query([key])?;
    while let Some(row) = rows.next()? {
        let (chunk, context, text): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        drop_words.execute(params![chunk, spaced(&context), spaced(&text)])?;
        if kind == TextKind::Code.name() {
            drop_parts.execute(params![chunk, text])?;
        }
        drop_vector.execute([chunk])?;
    }
    note_removed(change, key)?;
    change.execute("DELETE FROM chunks WHERE document = ?1", [key])?;
    change.execute("DELETE FROM documents WHERE key = ?1", [key])?;
    Ok(true)
}

/// The chunks of the documents that a filter allows, as ranges of their keys in increasing order.
#[derive(Debug, Default)]
pub(crate) struct Allowed(Vec<(i64, i64)>);

impl Allowed {
    /// Joins ranges of a first and a last key where one follows another.
    fn new(mut ranges: Vec<(i64, i64)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut() {
                Some((_, end)) if end.saturating_add(1) >= first => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    /// Returns `true` if the filter allows nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if the filter allows this chunk.
    pub(crate) fn contains(&self, chunk: i64) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= chunk);
        let range = after.checked_sub(1).and_then(|at| self.0.get(at));
        range.is_some_and(|(_, last)| chunk <= *last)
    }
}

/// The condition for documents that a filter allows.
macro_rules! filtered {
    () => {
        "chunks > 0 AND (?1 IS NULL OR name GLOB ?1) AND (?2 IS NULL OR kind = ?2) \
            AND (?3 IS NULL OR changed > ?3)"
    };
}

fn filter_values(options: &SearchOptions) -> (Option<&'static str>, Option<i64>) {
    (
        options.kind.map(TextKind::name),
        options.changed_after.map(millis),
    )
}

/// Returns the names of the first documents that a filter allows.
pub(crate) fn allowed_names(
    view: &Connection,
    options: &SearchOptions,
    limit: usize,
) -> rusqlite::Result<Vec<String>> {
    let mut find = view.prepare_cached(concat!(
        "SELECT name FROM documents WHERE ",
        filtered!(),
        " LIMIT ?4"
    ))?;
    let (kind, after) = filter_values(options);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    find.query_map(params![options.path, kind, after, limit], |row| row.get(0))?
        .collect()
}

/// Returns the number of documents that a filter allows.
pub(crate) fn allowed_documents(
    view: &Connection,
    options: &SearchOptions,
) -> rusqlite::Result<usize> {
    let mut count = view.prepare_cached(concat!(
        "SELECT count(*) FROM documents WHERE ",
        filtered!()
    ))?;
    let (kind, after) = filter_values(options);
    let number: i64 = count.query_row(params![options.path, kind, after], |row| row.get(0))?;
    Ok(usize::try_from(number).unwrap_or(0))
}

/// Returns the chunks that a filter allows, or `None` if it allows all.
pub(crate) fn allowed(
    view: &Connection,
    options: &SearchOptions,
) -> rusqlite::Result<Option<Allowed>> {
    if options.path.is_none() && options.kind.is_none() && options.changed_after.is_none() {
        return Ok(None);
    }
    let mut find = view.prepare_cached(concat!(
        "SELECT first_chunk, chunks FROM documents WHERE ",
        filtered!()
    ))?;
    let (kind, after) = filter_values(options);
    let ranges = find.query_map(params![options.path, kind, after], |row| {
        let (first, chunks): (i64, i64) = (row.get(0)?, row.get(1)?);
        Ok((first, first.saturating_add(chunks - 1)))
    })?;
    let ranges = ranges.collect::<rusqlite::Result<_>>()?;
    Ok(Some(Allowed::new(ranges)))
}

/// Returns the chunks that contain some of the question's words and their scores, best first by
/// BM25.
pub(crate) fn by_words(
    view: &Connection,
    question: &str,
    allowed: Option<&Allowed>,
    limit: usize,
) -> rusqlite::Result<Scores> {
    let words = query_words(question, MAX_QUERY_WORDS);
    let allows = |key| allowed.is_none_or(|allowed| allowed.contains(key));
    let matches = Matches::new(view, question, &words, allowed)?;
    let candidates = matches.presence.best_of(limit, allows);
    let mut text = view.prepare_cached("SELECT context, text FROM chunks WHERE key = ?1")?;
    let mut scores = WordScores::new(words.into_iter().zip(matches.weights.iter().copied()));
    for (key, sum) in candidates {
        let mut rows = text.query([key])?;
        if let Some(row) = rows.next()? {
            let (context, text) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            let sum = sum - parts::unconfirmed(&matches.parts, key, text);
            if sum > MIN_SUM {
                scores.add(key, sum, &with_context(context, text));
            }
        }
    }
    Ok(scores.finish())
}

/// The chunks that contain each word of a question, or a part of code.
struct Matches {
    presence: Presence,
    weights: Vec<f64>,
    /// The number of chunks with each word.
    numbers: Vec<usize>,
    parts: Vec<Part>,
}

impl Matches {
    fn new(
        view: &Connection,
        question: &str,
        words: &[String],
        allowed: Option<&Allowed>,
    ) -> rusqlite::Result<Self> {
        let allows = |key| allowed.is_none_or(|allowed| allowed.contains(key));
        let mut matches = Self::of_rare_words(view, words)?;
        if !matches.presence.has_rare_word(allows) {
            matches = matches.with_frequent_words(view, words, allowed)?;
        }
        let (numbers, texts) = (&matches.numbers, matches.presence.texts());
        matches.parts = parts::find(view, question, words, numbers, texts)?;
        for part in &matches.parts {
            matches.presence.add_part(part.chunks.clone(), part.weight);
        }
        Ok(matches)
    }

    fn empty(chunks: usize) -> Self {
        Self {
            presence: Presence::new(chunks),
            weights: Vec::new(),
            numbers: Vec::new(),
            parts: Vec::new(),
        }
    }

    fn add(&mut self, found: Vec<i64>, number: usize) {
        self.weights.push(self.presence.add(found, number));
        self.numbers.push(number);
    }

    /// The list of a frequent word ends early. Its length is then estimated from the keys: the list
    /// is in their order.
    fn of_rare_words(view: &Connection, words: &[String]) -> rusqlite::Result<Self> {
        let mut size = view.prepare_cached("SELECT count(*), coalesce(max(key), 0) FROM chunks")?;
        let (chunks, last) =
            size.query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        let mut matches = Self::empty(usize::try_from(chunks).unwrap_or(0));
        let limit = matches.presence.frequent() + 1;
        for word in words {
            let found = matching(view, word, EVERY_CHUNK, limit)?;
            let number = match found.last() {
                Some(reached) if found.len() == limit => {
                    (found.len() as f64 * last as f64 / (*reached).max(1) as f64) as usize
                }
                _ => found.len(),
            };
            matches.add(found, number);
        }
        Ok(matches)
    }

    /// Reads the complete lists, or those of a filter if it allows few ranges of chunks.
    fn with_frequent_words(
        self,
        view: &Connection,
        words: &[String],
        allowed: Option<&Allowed>,
    ) -> rusqlite::Result<Self> {
        let ranges = match allowed {
            Some(Allowed(ranges)) if ranges.len() <= MAX_RANGES => ranges,
            _ => &vec![EVERY_CHUNK],
        };
        let mut matches = Self::empty(self.presence.texts());
        for (word, number) in words.iter().zip(self.numbers) {
            let mut found = Vec::new();
            for range in ranges {
                found.extend(matching(view, word, *range, usize::MAX)?);
            }
            let number = match **ranges {
                [EVERY_CHUNK] => found.len(),
                _ => number,
            };
            matches.add(found, number);
        }
        Ok(matches)
    }
}

/// Returns the first chunks that contain a word, within a range of their keys.
fn matching(
    view: &Connection,
    word: &str,
    (first, last): (i64, i64),
    limit: usize,
) -> rusqlite::Result<Vec<i64>> {
    let mut matching = view.prepare_cached(
        "SELECT rowid FROM words WHERE words MATCH ?1 AND rowid BETWEEN ?2 AND ?3",
    )?;
    matching
        .query_map(params![word, first, last], |row| row.get(0))?
        .take(limit)
        .collect()
}

/// Returns the text of a chunk below its context, for a reranker.
pub(crate) fn text(view: &Connection, key: i64) -> rusqlite::Result<Option<String>> {
    let mut find = view.prepare_cached("SELECT context, text FROM chunks WHERE key = ?1")?;
    find.query_row([key], |row| {
        let (context, text) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
        Ok(with_context(context, text).into_owned())
    })
    .optional()
}

/// Returns a chunk with its document.
pub(crate) fn passage(
    view: &Connection,
    key: i64,
    score: f32,
) -> rusqlite::Result<Option<Passage>> {
    let mut find = view.prepare_cached(
        "SELECT chunks.key, name, kind, hash, number, context, text, page, first_line, last_line \
            FROM chunks JOIN documents ON documents.key = document WHERE chunks.key = ?1",
    )?;
    find.query_row([key], |row| to_passage(row, score))
        .optional()
}

/// Returns a chunk and up to `around` neighbors on each side, in the order of the document.
pub(crate) fn neighbors(
    view: &Connection,
    key: i64,
    around: u32,
) -> rusqlite::Result<Vec<Passage>> {
    let mut find = view.prepare_cached(
        "SELECT near.key, name, kind, hash, near.number, near.context, near.text, near.page, \
            near.first_line, near.last_line \
            FROM chunks AS this JOIN chunks AS near ON near.document = this.document \
            AND near.number BETWEEN this.number - ?2 AND this.number + ?2 \
            JOIN documents ON documents.key = this.document WHERE this.key = ?1 \
            ORDER BY near.number",
    )?;
    find.query_map(params![key, around], |row| to_passage(row, 0.0))?
        .collect()
}

/// Returns the passages of a document from the one with number `first`.
pub(crate) fn passages(
    view: &Connection,
    name: &str,
    first: u32,
    limit: usize,
) -> rusqlite::Result<Vec<Passage>> {
    let mut find = view.prepare_cached(
        "SELECT chunks.key, name, kind, hash, number, context, text, page, first_line, last_line \
            FROM documents JOIN chunks ON document = documents.key \
            WHERE name = ?1 AND number >= ?2 ORDER BY number LIMIT ?3",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    find.query_map(params![name, first, limit], |row| to_passage(row, 0.0))?
        .collect()
}

fn to_passage(row: &Row<'_>, score: f32) -> rusqlite::Result<Passage> {
    Ok(Passage {
        id: PassageId(row.get(0)?),
        document: row.get(1)?,
        kind: TextKind::from_name(&row.get::<_, String>(2)?),
        hash: row.get(3)?,
        number: row.get(4)?,
        context: row.get(5)?,
        text: row.get(6)?,
        page: row.get(7)?,
        lines: (row.get(8)?, row.get(9)?),
        score,
    })
}

/// The columns of a document, for [`info`].
macro_rules! document_columns {
    () => {
        "SELECT name, kind, hash, bytes, changed, file, indexed, chunks \
            FROM documents"
    };
}

/// Returns the documents in the order of their names, after the name `after`.
pub(crate) fn list(
    view: &Connection,
    after: &str,
    limit: usize,
) -> rusqlite::Result<Vec<DocumentInfo>> {
    let mut rows = view.prepare_cached(concat!(
        document_columns!(),
        " WHERE name > ?1 ORDER BY name LIMIT ?2"
    ))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    rows.query_map(params![after, limit], info)?.collect()
}

/// Returns the document with this name.
pub(crate) fn document(view: &Connection, name: &str) -> rusqlite::Result<Option<DocumentInfo>> {
    let mut find = view.prepare_cached(concat!(document_columns!(), " WHERE name = ?1"))?;
    find.query_row([name], info).optional()
}

fn info(row: &Row<'_>) -> rusqlite::Result<DocumentInfo> {
    Ok(DocumentInfo {
        name: row.get(0)?,
        kind: TextKind::from_name(&row.get::<_, String>(1)?),
        hash: row.get(2)?,
        bytes: u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0),
        changed: timestamp(row.get(4)?),
        file: row.get(5)?,
        indexed: timestamp(row.get(6)?),
        passages: u64::try_from(row.get::<_, i64>(7)?).unwrap_or(0),
    })
}

/// Returns the numbers of documents, chunks, bytes of text, and chunks with a vector of an
/// embedder.
pub(crate) fn totals(view: &Connection, embedder: i64) -> rusqlite::Result<[u64; 4]> {
    let count = |sql: &str| {
        let number = view.query_row(sql, [], |row| row.get::<_, i64>(0))?;
        Ok::<_, rusqlite::Error>(u64::try_from(number).unwrap_or(0))
    };
    Ok([
        count("SELECT count(*) FROM documents")?,
        count("SELECT count(*) FROM chunks")?,
        count("SELECT coalesce(sum(bytes), 0) FROM documents")?,
        count(&format!(
            "SELECT count(*) FROM chunks WHERE embedder = {embedder} AND embedder > 0"
        ))?,
    ])
}

fn millis(date: Timestamp) -> i64 {
    i64::try_from(date.as_millis()).unwrap_or(i64::MAX)
}

fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
}
