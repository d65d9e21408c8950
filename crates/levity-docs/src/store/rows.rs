//! The rows that connect the passages of a file with the vectors of a store.

use std::collections::HashSet;

use levity_core::{Timestamp, VectorEntry};
use rusqlite::{Connection, OptionalExtension, params};

use crate::rows::put_vector;

/// The maximum number of vectors that one call removes.
const MAX_REMOVED: i64 = 500;

/// Returns the namespace of the vectors of an embedder.
pub(super) fn namespace(view: &Connection, embedder: i64) -> rusqlite::Result<Option<String>> {
    view.prepare_cached("SELECT name FROM namespaces WHERE embedder = ?1")?
        .query_row([embedder], |row| row.get(0))
        .optional()
}

/// Returns the namespace of the vectors of an embedder, which is `new` if there is none yet.
pub(super) fn insert_namespace(
    change: &Connection,
    embedder: i64,
    new: &str,
) -> rusqlite::Result<String> {
    if let Some(known) = namespace(change, embedder)? {
        return Ok(known);
    }
    let insert = "INSERT INTO namespaces (embedder, name) VALUES (?1, ?2)";
    change.execute(insert, params![embedder, new])?;
    Ok(new.to_owned())
}

/// Notes that the vectors of a document's passages must be removed from the store. A passage
/// without a mark may have one as well, which another process is adding.
pub(crate) fn note_removed(change: &Connection, document: i64) -> rusqlite::Result<()> {
    let mut note = change.prepare_cached(
        "INSERT OR IGNORE INTO removed (namespace, chunk) SELECT namespaces.name, chunks.key \
            FROM namespaces JOIN chunks ON document = ?1",
    )?;
    note.execute([document]).map(drop)
}

/// Notes keys in a namespace that must be removed from the store.
pub(super) fn note(change: &Connection, namespace: &str, keys: &[i64]) -> rusqlite::Result<()> {
    let mut insert = change
        .prepare_cached("INSERT OR IGNORE INTO removed (namespace, chunk) VALUES (?1, ?2)")?;
    for key in keys {
        insert.execute(params![namespace, key])?;
    }
    Ok(())
}

/// Returns some noted keys of one namespace, or `None` if there are none.
pub(super) fn noted(view: &Connection) -> rusqlite::Result<Option<(String, Vec<i64>)>> {
    let first = view
        .prepare_cached("SELECT namespace FROM removed LIMIT 1")?
        .query_row([], |row| row.get::<_, String>(0))
        .optional()?;
    let Some(namespace) = first else {
        return Ok(None);
    };
    let mut keys =
        view.prepare_cached("SELECT chunk FROM removed WHERE namespace = ?1 LIMIT ?2")?;
    let keys = keys.query_map(params![namespace, MAX_REMOVED], |row| row.get(0))?;
    let keys = keys.collect::<rusqlite::Result<_>>()?;
    Ok(Some((namespace, keys)))
}

/// Forgets noted keys, after the store has removed their vectors.
pub(super) fn forget_notes(
    change: &Connection,
    namespace: &str,
    keys: &[i64],
) -> rusqlite::Result<()> {
    let mut forget =
        change.prepare_cached("DELETE FROM removed WHERE namespace = ?1 AND chunk = ?2")?;
    for key in keys {
        forget.execute(params![namespace, key])?;
    }
    Ok(())
}

/// Returns the entries of vectors whose passages the file has.
pub(super) fn entries(
    view: &Connection,
    vectors: Vec<(i64, Vec<f32>)>,
) -> rusqlite::Result<Vec<VectorEntry>> {
    let mut find = view.prepare_cached(
        "SELECT name, kind, changed FROM chunks JOIN documents ON documents.key = document \
            WHERE chunks.key = ?1",
    )?;
    let mut entries = Vec::with_capacity(vectors.len());
    for (key, vector) in vectors {
        let found = find.query_row([key], |row| {
            let (name, kind): (String, String) = (row.get(0)?, row.get(1)?);
            Ok((
                name,
                kind,
                u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
            ))
        });
        if let Some((name, kind, changed)) = found.optional()? {
            let entry = VectorEntry::new(key, vector).document(name).kind(kind);
            entries.push(entry.changed(Timestamp::from_millis(changed)));
        }
    }
    Ok(entries)
}

/// Marks passages whose vectors are in the store, and notes those that were removed meanwhile.
pub(super) fn mark(
    change: &Connection,
    embedder: i64,
    namespace: &str,
    keys: &[i64],
) -> rusqlite::Result<()> {
    let mut set = change.prepare_cached("UPDATE chunks SET embedder = ?2 WHERE key = ?1")?;
    let mut drop_vector = change.prepare_cached("DELETE FROM vectors WHERE chunk = ?1")?;
    for key in keys {
        if set.execute([*key, embedder])? == 0 {
            note(change, namespace, &[*key])?;
        }
        drop_vector.execute([key])?;
    }
    Ok(())
}

/// Marks passages that the embedder cannot embed.
pub(super) fn mark_refused(
    change: &Connection,
    embedder: i64,
    keys: &[i64],
) -> rusqlite::Result<()> {
    keys.iter()
        .try_for_each(|key| put_vector(change, *key, embedder, None))
}

/// Returns the keys of the passages that are marked.
pub(super) fn marked(view: &Connection, embedder: i64) -> rusqlite::Result<HashSet<i64>> {
    view.prepare_cached("SELECT key FROM chunks WHERE embedder = ?1")?
        .query_map([embedder], |row| row.get(0))?
        .collect()
}

/// Removes the marks of passages whose vectors the store has lost.
pub(super) fn unmark(change: &Connection, embedder: i64, keys: &[i64]) -> rusqlite::Result<()> {
    let mut set =
        change.prepare_cached("UPDATE chunks SET embedder = 0 WHERE key = ?1 AND embedder = ?2")?;
    for key in keys {
        set.execute([*key, embedder])?;
    }
    Ok(())
}

/// Returns `true` if the file has this chunk.
pub(super) fn has_chunk(view: &Connection, chunk: i64) -> rusqlite::Result<bool> {
    view.prepare_cached("SELECT 1 FROM chunks WHERE key = ?1")?
        .exists([chunk])
}

/// Returns the number of documents.
pub(super) fn documents(view: &Connection) -> rusqlite::Result<usize> {
    let count: i64 = view.query_row("SELECT count(*) FROM documents", [], |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Returns the namespaces of other embedders that no passage uses any more.
pub(super) fn unused_namespaces(view: &Connection, embedder: i64) -> rusqlite::Result<Vec<String>> {
    let mut names = view.prepare_cached(
        "SELECT name FROM namespaces WHERE embedder <> ?1 AND NOT EXISTS \
            (SELECT 1 FROM chunks WHERE chunks.embedder = namespaces.embedder)",
    )?;
    names.query_map([embedder], |row| row.get(0))?.collect()
}

/// Forgets a namespace whose vectors were removed.
pub(super) fn forget_namespace(change: &Connection, name: &str) -> rusqlite::Result<()> {
    change.execute("DELETE FROM removed WHERE namespace = ?1", [name])?;
    change.execute("DELETE FROM namespaces WHERE name = ?1", [name])?;
    Ok(())
}

/// Forgets all namespaces and marks.
pub(super) fn forget_store(change: &Connection) -> rusqlite::Result<()> {
    change.execute(
        "UPDATE chunks SET embedder = 0 WHERE embedder IN (SELECT embedder FROM namespaces)",
        [],
    )?;
    change.execute("DELETE FROM removed", [])?;
    change.execute("DELETE FROM namespaces", [])?;
    Ok(())
}
