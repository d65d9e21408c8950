//! Vectors in the file: eight bits per component, adjacent within a scope, and searched linearly.
//!
//! A scan over all vectors of a scope needs no index to build or repair, and costs what the scope
//! holds. Eight bits per component keep the file small; the error of the cosine is below 0.01.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashSet};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::Scope;
use super::rank::Cosines;
use super::rows::{first_column, place};

/// The number of components that can be summed without overflow.
const CHUNK: usize = 64;

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
    let (query_scale, query) = quantize_query(vector);
    let mut best: BinaryHeap<Reverse<Candidate>> = BinaryHeap::with_capacity(limit + 1);
    let mut cosines = Cosines::default();
    let mut all = view.prepare_cached(
        "SELECT place, scale, data FROM vectors WHERE place >= ?1 AND place < ?2 AND embedder = ?3",
    )?;
    for (scope, _) in scopes {
        let mut rows = all.query(params![place(*scope, 0), place(*scope + 1, 0), embedder])?;
        while let Some(row) = rows.next()? {
            let data = row.get_ref(2)?.as_blob().unwrap_or_default();
            if data.len() != query.len() {
                continue;
            }
            let scale: f32 = row.get(1)?;
            let cosine = dot(&query, data) as f32 * scale * query_scale;
            let id = row.get::<_, i64>(0)? - place(*scope, 0);
            cosines.range = Some(match cosines.range {
                Some((lowest, highest)) => (cosine.min(lowest), cosine.max(highest)),
                None => (cosine, cosine),
            });
            if wanted.contains(&id) {
                cosines.known.insert(id, cosine);
            }
            if cosine > 0.0 && cosine >= min_cosine {
                best.push(Reverse(Candidate { cosine, id }));
            }
            if best.len() > limit {
                best.pop();
            }
        }
    }
    for Reverse(Candidate { cosine, id }) in best.into_sorted_vec() {
        cosines.found.push(id);
        cosines.known.insert(id, cosine);
    }
    Ok(cosines)
}

/// A fact and its cosine; among equal cosines, the newer fact comes first.
struct Candidate {
    cosine: f32,
    id: i64,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cosine
            .total_cmp(&other.cosine)
            .then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// Returns a vector as integers from -127 to 127, with the factor that scales them to length 1.
fn quantize(vector: &[f32]) -> (f32, Vec<u8>) {
    let scale = largest(vector) / 127.0;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "no component is larger than the largest one"
    )]
    let part = |part: &f32| ((part / scale).round() as i8).cast_unsigned();
    (unit_scale(scale, vector), vector.iter().map(part).collect())
}

/// Returns the same with 16 bits per component, for the query vector.
fn quantize_query(vector: &[f32]) -> (f32, Vec<i16>) {
    let scale = largest(vector) / f32::from(i16::MAX);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "no component is larger than the largest one"
    )]
    let part = |part: &f32| (part / scale).round() as i16;
    (unit_scale(scale, vector), vector.iter().map(part).collect())
}

/// Returns the factor for length 1. Not every embedder normalizes, and long vectors must not count
/// for more.
fn unit_scale(scale: f32, vector: &[f32]) -> f32 {
    let length = vector
        .iter()
        .map(|part| f64::from(*part) * f64::from(*part))
        .sum::<f64>()
        .sqrt();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the largest component is no longer than the vector"
    )]
    let scale = (f64::from(scale) / length.max(f64::from(f32::MIN_POSITIVE))) as f32;
    scale
}

fn largest(vector: &[f32]) -> f32 {
    vector
        .iter()
        .fold(0.0_f32, |largest, part| largest.max(part.abs()))
        .max(f32::MIN_POSITIVE)
}

/// Chunks of 64 products fit into 32 bits.
fn dot(query: &[i16], data: &[u8]) -> i64 {
    let run = |(query, data): (&[i16], &[u8])| {
        let products = query
            .iter()
            .zip(data)
            .map(|(a, b)| i32::from(*a) * i32::from(b.cast_signed()));
        i64::from(products.sum::<i32>())
    };
    query.chunks(CHUNK).zip(data.chunks(CHUNK)).map(run).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns distinct vectors of length 1.
    fn vector(seed: u64, dimensions: usize) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let vector: Vec<f32> = (0..dimensions).map(|_| next()).collect();
        let length = vector.iter().map(|part| part * part).sum::<f32>().sqrt();
        vector.into_iter().map(|part| part / length).collect()
    }

    #[test]
    fn quantized_dot_product_is_close_to_exact_cosine() {
        for dimensions in [1, 7, 64, 65, 256, 3072] {
            for seed in 0..20 {
                let (one, other) = (vector(seed, dimensions), vector(seed + 100, dimensions));
                let exact: f32 = one.iter().zip(&other).map(|(a, b)| a * b).sum();
                let longer: Vec<f32> = one.iter().map(|part| part * 100.0).collect();
                let (scale, data) = quantize(if seed % 2 == 0 { &one } else { &longer });
                let (query_scale, query) = quantize_query(&other);
                let found = dot(&query, &data) as f32 * scale * query_scale;
                assert!(
                    (found - exact).abs() < 0.01,
                    "{dimensions}: {found} for {exact}"
                );
            }
        }
    }

    #[test]
    fn dot_of_extreme_vectors_does_not_overflow() {
        for vector in [
            vec![0.0; 300],
            vec![f32::MAX; 300],
            vec![-1.0; 300],
            vec![f32::MIN_POSITIVE; 300],
        ] {
            let (scale, data) = quantize(&vector);
            assert!(scale.is_finite());
            let _ = dot(&quantize_query(&vector).1, &data);
        }
        assert_eq!(dot(&[i16::MIN; 1000], &[0x80; 1000]), 128 * 32_768 * 1000);
    }
}
