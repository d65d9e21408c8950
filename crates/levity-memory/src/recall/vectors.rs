//! Vectors in the file: eight bits per component, adjacent within a scope, and searched linearly.
//!
//! A scan over all vectors of a scope costs what the scope contains.

use std::collections::HashSet;

use levity_search::{Cosines, Nearest, QueryVector, quantize};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::Scope;
use super::rows::{first_column, place};

/// Returns the key of an embedder in the file.
pub(super) fn embedder(view: &Connection, card: &str) -> rusqlite::Result<Option<i64>> {
    view.prepare_cached("SELECT key FROM embedders WHERE card = ?1")?
        .query_row([card], first_column)
        .optional()
}

/// Returns the key of an embedder, and adds the embedder if it is new to the file.
pub(super) fn insert_embedder(change: &Connection, card: &str) -> rusqlite::Result<i64> {
    if let Some(key) = embedder(change, card)? {
        return Ok(key);
    }
    change.execute("INSERT INTO embedders (card) VALUES (?1)", [card])?;
    Ok(change.last_insert_rowid())
}

/// Returns facts of these scopes that this embedder has neither embedded nor rejected: the `wanted`
/// one first, then the newest.
pub(super) fn missing(
    view: &Connection,
    embedder: i64,
    scopes: &[(i64, Scope)],
    (wanted, limit): (i64, usize),
) -> rusqlite::Result<Vec<(i64, String)>> {
    let mut own = view.prepare_cached(
        "SELECT id, text, scope FROM facts WHERE id = ?1 AND embedder NOT IN (?2, -?2)",
    )?;
    let fact = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let mut found: Vec<_> = own
        .query_map([wanted, embedder], |row| {
            Ok((row.get::<_, i64>(2)?, fact(row)?))
        })?
        .filter(|row| {
            row.as_ref()
                .is_ok_and(|(own, _)| scopes.iter().any(|(scope, _)| scope == own))
        })
        .map(|row| row.map(|(_, fact)| fact))
        .collect::<rusqlite::Result<_>>()?;
    // Each query reads one range of the index, so it costs what it finds.
    let mut others = view.prepare_cached(
        "SELECT id, text FROM facts WHERE scope = ?1 AND embedder > ?2 AND embedder < ?3 AND id <> \
            ?4
         ORDER BY embedder DESC, id DESC LIMIT ?5",
    )?;
    for (scope, _) in scopes {
        for (above, below) in [
            (embedder, i64::MAX),
            (-embedder, embedder),
            (i64::MIN, -embedder),
        ] {
            let remaining = i64::try_from(limit.saturating_sub(found.len())).unwrap_or(0);
            let rows = others.query_map([*scope, above, below, wanted, remaining], fact)?;
            found.extend(rows.collect::<rusqlite::Result<Vec<_>>>()?);
        }
    }
    Ok(found)
}

/// Returns the next such facts of all scopes after the fact `after`, oldest first.
pub(super) fn next_missing(
    view: &Connection,
    embedder: i64,
    after: i64,
    limit: usize,
) -> rusqlite::Result<Vec<(i64, String)>> {
    let mut facts = view.prepare_cached(
        "SELECT id, text FROM facts WHERE id > ?1 AND embedder NOT IN (?2, -?2) ORDER BY id \
            LIMIT ?3",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    facts
        .query_map([after, embedder, limit], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect()
}

/// Saves the vector of a fact, or records that the embedder has none for it. It does nothing if the
/// fact was removed or its text changed.
pub(super) fn save(
    change: &Connection,
    embedder: i64,
    (id, digest): (i64, i64),
    vector: Option<&[f32]>,
) -> rusqlite::Result<()> {
    let mut mark = change.prepare_cached(
        "UPDATE facts SET embedder = ?3 WHERE id = ?1 AND digest = ?2 RETURNING scope",
    )?;
    let embedder_mark = if vector.is_some() {
        embedder
    } else {
        -embedder
    };
    let scope: Option<i64> = mark
        .query_row([id, digest, embedder_mark], first_column)
        .optional()?;
    let Some(scope) = scope else { return Ok(()) };
    let Some(vector) = vector else {
        return change
            .execute("DELETE FROM vectors WHERE place = ?1", [place(scope, id)])
            .map(drop);
    };
    let (scale, data) = quantize(vector);
    let mut insert = change.prepare_cached(
        "INSERT OR REPLACE INTO vectors (place, embedder, scale, data) VALUES (?1, ?2, ?3, ?4)",
    )?;
    insert
        .execute(params![place(scope, id), embedder, f64::from(scale), data])
        .map(drop)
}

/// Returns the facts of these scopes with the closest vectors, closest first, and the cosines of
/// the `wanted` ones. Facts with a cosine of at most 0, or below `min_cosine`, are not found.
pub(super) fn nearest(
    view: &Connection,
    embedder: i64,
    scopes: &[(i64, Scope)],
    (vector, min_cosine): (&[f32], f32),
    (wanted, limit): (&HashSet<i64>, usize),
) -> rusqlite::Result<Cosines> {
    let query = QueryVector::new(vector);
    let mut nearest = Nearest::new(wanted, limit, min_cosine);
    let mut all = view.prepare_cached(
        "SELECT place, scale, data FROM vectors WHERE place >= ?1 AND place < ?2 AND embedder = ?3",
    )?;
    for (scope, _) in scopes {
        let mut rows = all.query(params![place(*scope, 0), place(*scope + 1, 0), embedder])?;
        while let Some(row) = rows.next()? {
            let data = row.get_ref(2)?.as_blob().unwrap_or_default();
            if let Some(cosine) = query.cosine(row.get(1)?, data) {
                nearest.add(row.get::<_, i64>(0)? - place(*scope, 0), cosine);
            }
        }
    }
    Ok(nearest.finish())
}
