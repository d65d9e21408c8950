//! The rows of a file: facts, their scopes, and the word index.
//!
//! Every function works within a transaction of its caller. The index of words has no copy of the
//! texts, so each removal passes the exact text that was added.

use std::collections::HashMap;

use levity_core::{ConversationId, MemoryError, MemoryErrorKind, Timestamp};
use levity_search::{WordScores, query_words, spaced, word_weight};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{FactId, RecalledFact, Scope, WriteError};

/// The maximum number of words of a question that count.
const MAX_QUERY_WORDS: usize = 256;

/// The cost of removing a fact from the index, relative to adding one.
const REMOVAL_COST: i64 = 8;

/// The minimum number of matching facts in which the words are counted.
const MIN_COUNTED: usize = 1_000;

/// A fact to be saved.
pub(super) struct Fact {
    pub(super) scope: Scope,
    pub(super) text: String,
    pub(super) source: String,
    pub(super) conversation: Option<ConversationId>,
    pub(super) date: Timestamp,
}

/// Saves a fact, and returns `true` if it is new. An existing fact gets the new date and source;
/// the summary of a session also gets the new text.
pub(super) fn save(
    change: &Connection,
    fact: &Fact,
    max_facts: usize,
) -> Result<(FactId, bool), WriteError> {
    let scope = insert_scope(change, &fact.scope)?;
    let Some((id, text)) = find(change, scope, fact)? else {
        return add(change, scope, fact, max_facts).map(|id| (id, true));
    };
    let mut update = change.prepare_cached(
        "UPDATE facts SET text = ?2, digest = ?3, source = ?4, date = ?5 WHERE id = ?1",
    )?;
    update.execute(params![
        id,
        fact.text,
        digest(&fact.text),
        fact.source,
        millis(fact.date)
    ])?;
    if text != fact.text {
        drop_words(change, id, scope, &text)?;
        add_words(change, id, scope, &fact.text)?;
        drop_vector(change, id, scope)?;
        change.execute("UPDATE facts SET embedder = 0 WHERE id = ?1", [id])?;
    }
    Ok((fact_id(id)?, false))
}

/// Finds the fact with the same text, or the summary of the same conversation.
fn find(change: &Connection, scope: i64, fact: &Fact) -> rusqlite::Result<Option<(i64, String)>> {
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    if let Some(conversation) = &fact.conversation {
        let mut same = change
            .prepare_cached("SELECT id, text FROM facts WHERE scope = ?1 AND conversation = ?2")?;
        return same
            .query_row(params![scope, conversation.as_str()], row)
            .optional();
    }
    let mut same = change.prepare_cached(
        "SELECT id, text FROM facts WHERE scope = ?1 AND digest = ?2 AND conversation IS NULL AND \
            text = ?3",
    )?;
    same.query_row(params![scope, digest(&fact.text), fact.text], row)
        .optional()
}

fn add(
    change: &Connection,
    scope: i64,
    fact: &Fact,
    max_facts: usize,
) -> Result<FactId, WriteError> {
    let facts: i64 = change.query_row(
        "UPDATE scopes SET facts = facts + 1 WHERE key = ?1 RETURNING facts",
        [scope],
        first_column,
    )?;
    if usize::try_from(facts).is_ok_and(|facts| facts > max_facts) {
        let kind = fact.scope.kind();
        let message = format!(
            "the `{kind}` scope already has {max_facts} facts, which is the limit; forget \
                some first"
        );
        return Err(WriteError::Refused(MemoryError::new(
            MemoryErrorKind::Full,
            message,
        )));
    }
    let mut insert = change.prepare_cached(
        "INSERT INTO facts (scope, text, digest, source, conversation, date) VALUES (?1, ?2, ?3, \
            ?4, ?5, ?6)",
    )?;
    let conversation = fact.conversation.as_ref().map(ConversationId::as_str);
    let date = millis(fact.date);
    insert.execute(params![
        scope,
        fact.text,
        digest(&fact.text),
        fact.source,
        conversation,
        date
    ])?;
    let id = change.last_insert_rowid();
    add_words(change, id, scope, &fact.text)?;
    fact_id(id)
}

/// Removes a fact if it is in one of these scopes.
pub(super) fn forget(change: &Connection, scopes: &[i64], id: FactId) -> Result<bool, WriteError> {
    let mut fact = change.prepare_cached("SELECT scope, text FROM facts WHERE id = ?1")?;
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let found_row: Option<(i64, String)> = fact.query_row([id.key()], row).optional()?;
    match found_row.filter(|(scope, _)| scopes.contains(scope)) {
        Some((scope, text)) => remove(change, id.key(), scope, &text).map(|()| true),
        None => Ok(false),
    }
}

/// Removes a scope with all its facts, and returns their number.
pub(super) fn forget_scope(change: &Connection, scope: i64) -> Result<usize, WriteError> {
    let count = |sql: &str| change.query_row(sql, [scope], first_column::<i64>);
    let own = count("SELECT count(*) FROM facts WHERE scope = ?1")?;
    let others = count("SELECT count(*) FROM facts WHERE scope <> ?1")?;
    if own.saturating_mul(REMOVAL_COST) > others {
        remove_by_rebuild(change, scope)?;
    } else {
        remove_one_by_one(change, scope)?;
    }
    change.execute("DELETE FROM scopes WHERE key = ?1", [scope])?;
    Ok(usize::try_from(own).unwrap_or(0))
}

/// Removes one fact after the other.
fn remove_one_by_one(change: &Connection, scope: i64) -> Result<(), WriteError> {
    let mut facts = change.prepare("SELECT id, text FROM facts WHERE scope = ?1 LIMIT 1000")?;
    loop {
        let page = facts.query_map([scope], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let page: Vec<(i64, String)> = page.collect::<rusqlite::Result<_>>()?;
        for (id, text) in &page {
            remove(change, *id, scope, text)?;
        }
        if page.is_empty() {
            return Ok(());
        }
    }
}

/// Removes all facts at once, and rebuilds the index from the remaining ones.
///
/// Rebuilding costs one insertion for each remaining fact; single removals cost about eight times
/// as much each.
fn remove_by_rebuild(change: &Connection, scope: i64) -> Result<(), WriteError> {
    change.execute(
        "DELETE FROM vectors WHERE place >= ?1 AND place < ?2",
        [place(scope, 0), place(scope + 1, 0)],
    )?;
    change.execute("DELETE FROM facts WHERE scope = ?1", [scope])?;
    change.execute("INSERT INTO words (words) VALUES ('delete-all')", [])?;
    let mut facts = change.prepare("SELECT id, scope, text FROM facts")?;
    let mut rows = facts.query([])?;
    while let Some(row) = rows.next()? {
        add_words(change, row.get(0)?, row.get(1)?, &row.get::<_, String>(2)?)?;
    }
    Ok(())
}

fn remove(change: &Connection, id: i64, scope: i64, text: &str) -> Result<(), WriteError> {
    drop_words(change, id, scope, text)?;
    drop_vector(change, id, scope)?;
    change
        .prepare_cached("DELETE FROM facts WHERE id = ?1")?
        .execute([id])?;
    change
        .prepare_cached("UPDATE scopes SET facts = facts - 1 WHERE key = ?1")?
        .execute([scope])?;
    change
        .prepare_cached("DELETE FROM scopes WHERE key = ?1 AND facts = 0")?
        .execute([scope])?;
    Ok(())
}

/// Returns at most `limit` facts of a scope after `after`, oldest first.
pub(super) fn list(
    view: &Connection,
    scope: &Scope,
    after: Option<FactId>,
    limit: usize,
) -> rusqlite::Result<Vec<RecalledFact>> {
    let Some(key) = scope_key(view, scope)? else {
        return Ok(Vec::new());
    };
    let mut facts = view.prepare_cached(
        "SELECT id, text, source, conversation, date FROM facts WHERE scope = ?1 AND id > ?2 ORDER \
            BY id LIMIT ?3",
    )?;
    let (after, limit) = (
        after.map_or(0, FactId::key),
        i64::try_from(limit).unwrap_or(i64::MAX),
    );
    facts
        .query_map(params![key, after, limit], |row| recalled(row, scope, 1.0))?
        .collect()
}

/// Returns the fact with this id if it is in one of these scopes.
pub(super) fn fact(
    view: &Connection,
    scopes: &[(i64, Scope)],
    id: i64,
    score: f32,
) -> rusqlite::Result<Option<RecalledFact>> {
    let mut fact = view.prepare_cached(
        "SELECT id, text, source, conversation, date, scope FROM facts WHERE id = ?1",
    )?;
    let row = |row: &Row<'_>| {
        let key: i64 = row.get(5)?;
        let scope = scopes.iter().find(|(other, _)| *other == key);
        scope
            .map(|(_, scope)| recalled(row, scope, score))
            .transpose()
    };
    fact.query_row([id], row).optional().map(Option::flatten)
}

/// Returns the facts that contain some of the question's words and their scores, best first by
/// BM25: rare words and short texts count more.
///
/// SQLite's own BM25 would count matches in all scopes, so the order would reveal the words of
/// others. This function counts within the given scopes only.
pub(super) fn by_words(
    view: &Connection,
    scopes: &[(i64, Scope)],
    question: &str,
    limit: usize,
) -> rusqlite::Result<Vec<(i64, f64)>> {
    if scopes.is_empty() {
        return Ok(Vec::new());
    }
    let scope_tokens: Vec<_> = scopes.iter().map(|(key, _)| scope_token(*key)).collect();
    let scope_tokens = scope_tokens.join(" OR ");
    let mut facts = view.prepare_cached("SELECT facts FROM scopes WHERE key = ?1")?;
    let facts = scopes
        .iter()
        .map(|(key, _)| facts.query_row([key], first_column::<f64>));
    let facts = facts.sum::<rusqlite::Result<f64>>()?;
    let mut matching = view.prepare_cached("SELECT rowid FROM words WHERE words MATCH ?1")?;
    let (mut sums, mut weights) = (HashMap::<i64, f64>::new(), Vec::new());
    for word in query_words(question, MAX_QUERY_WORDS) {
        let query = format!("scope : ({scope_tokens}) AND text : {word}");
        let found = matching.query_map([query], first_column)?;
        let found: Vec<i64> = found.collect::<rusqlite::Result<_>>()?;
        let weight = word_weight(facts, found.len() as f64);
        for id in found {
            *sums.entry(id).or_default() += weight;
        }
        weights.push((word, weight));
    }
    let mut text = view.prepare_cached("SELECT text FROM facts WHERE id = ?1")?;
    let mut scores = WordScores::new(weights);
    for (id, sum) in take_best(sums.into_iter().collect(), limit.max(MIN_COUNTED)) {
        let mut rows = text.query([id])?;
        if let Some(row) = rows.next()? {
            scores.add(id, sum, row.get_ref(0)?.as_str()?);
        }
    }
    Ok(scores.finish().into_iter().take(limit).collect())
}

/// Returns the highest sums first; among equal sums, the newest fact.
///
/// Newer facts win a tie, since they are more likely still true.
fn take_best(mut sums: Vec<(i64, f64)>, limit: usize) -> Vec<(i64, f64)> {
    sums.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
    sums.truncate(limit);
    sums
}

fn recalled(row: &Row<'_>, scope: &Scope, score: f32) -> rusqlite::Result<RecalledFact> {
    let (id, date): (i64, i64) = (row.get(0)?, row.get(4)?);
    let conversation: Option<String> = row.get(3)?;
    Ok(RecalledFact {
        id: FactId::new(
            u32::try_from(id).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(0, id))?,
        ),
        text: row.get(1)?,
        scope: scope.clone(),
        source: row.get(2)?,
        date: Timestamp::from_millis(u64::try_from(date).unwrap_or(0)),
        conversation: conversation.map(ConversationId::from),
        score,
    })
}

/// Returns the keys of those scopes that have facts.
pub(super) fn scope_keys(
    view: &Connection,
    scopes: &[Scope],
) -> rusqlite::Result<Vec<(i64, Scope)>> {
    let mut keys = Vec::with_capacity(scopes.len());
    for scope in scopes {
        if let Some(key) =
            scope_key(view, scope)?.filter(|key| !keys.iter().any(|(other, _)| other == key))
        {
            keys.push((key, scope.clone()));
        }
    }
    Ok(keys)
}

fn scope_key(view: &Connection, scope: &Scope) -> rusqlite::Result<Option<i64>> {
    let mut key = view.prepare_cached("SELECT key FROM scopes WHERE kind = ?1 AND id = ?2")?;
    // A larger key is an error: it does not fit into the positions of vectors.
    let key = key.query_row([scope.kind(), scope.id()], first_column::<i32>);
    Ok(key.optional()?.map(i64::from))
}

fn insert_scope(change: &Connection, scope: &Scope) -> Result<i64, WriteError> {
    if let Some(key) = scope_key(change, scope)? {
        return Ok(key);
    }
    change.execute(
        "INSERT INTO scopes (kind, id) VALUES (?1, ?2)",
        [scope.kind(), scope.id()],
    )?;
    let key = change.last_insert_rowid();
    // The key of a scope is the upper half of the positions of its vectors.
    if key > i64::from(i32::MAX) {
        let message = "the file has reached its maximum number of scopes; use another file for \
            more";
        return Err(WriteError::Refused(MemoryError::new(
            MemoryErrorKind::Full,
            message,
        )));
    }
    Ok(key)
}

fn add_words(change: &Connection, id: i64, scope: i64, text: &str) -> rusqlite::Result<()> {
    let mut insert =
        change.prepare_cached("INSERT INTO words (rowid, scope, text) VALUES (?1, ?2, ?3)")?;
    insert
        .execute(params![id, scope_token(scope), spaced(text)])
        .map(drop)
}

fn drop_words(change: &Connection, id: i64, scope: i64, text: &str) -> rusqlite::Result<()> {
    let mut delete = change.prepare_cached(
        "INSERT INTO words (words, rowid, scope, text) VALUES ('delete', ?1, ?2, ?3)",
    )?;
    delete
        .execute(params![id, scope_token(scope), spaced(text)])
        .map(drop)
}

fn drop_vector(change: &Connection, id: i64, scope: i64) -> rusqlite::Result<()> {
    change
        .prepare_cached("DELETE FROM vectors WHERE place = ?1")?
        .execute([place(scope, id)])
        .map(drop)
}

/// Returns the word that represents a scope in the index.
fn scope_token(scope: i64) -> String {
    format!("s{scope}")
}

/// Returns the row id of a fact's vector; the vectors of one scope are adjacent.
pub(super) fn place(scope: i64, id: i64) -> i64 {
    scope << 32 | id
}

pub(super) fn fact_id(id: i64) -> Result<FactId, WriteError> {
    u32::try_from(id).map(FactId::new).map_err(|_| {
        let message = "the file has no fact ids left; use another file for more facts";
        WriteError::Refused(MemoryError::new(MemoryErrorKind::Full, message))
    })
}

fn millis(date: Timestamp) -> i64 {
    i64::try_from(date.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn first_column<T: rusqlite::types::FromSql>(row: &Row<'_>) -> rusqlite::Result<T> {
    row.get(0)
}

/// Returns a hash (FNV-1a) to find equal texts without a second copy of each.
pub(super) fn digest(text: &str) -> i64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, step)
        .cast_signed()
}
