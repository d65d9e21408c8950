//! The vectors of an index in memory: adjacent, so that a search over all of them is fast.
//!
//! They are read with the first search by meaning, and again after a change of the file.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use levity_search::{Cosines, Nearest, QueryVector, quantize};
use rusqlite::Connection;

use crate::rows::Allowed;

/// The vectors of one embedder.
#[derive(Debug, Default)]
pub(crate) struct Vectors {
    embedder: i64,
    /// SQLite's counter of the changes that other connections made.
    version: i64,
    /// The number of components of each vector.
    size: usize,
    /// The keys of the chunks, in increasing order.
    chunks: Vec<i64>,
    scales: Vec<f32>,
    data: Vec<u8>,
}

/// The vectors that were read last; none after a change by this process.
#[derive(Debug, Default)]
pub(crate) struct VectorCache(Mutex<Option<Arc<Vectors>>>);

impl VectorCache {
    /// Forgets the vectors, after a change.
    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the current vectors of an embedder.
    pub(crate) fn get(&self, view: &Connection, embedder: i64) -> rusqlite::Result<Arc<Vectors>> {
        let version = view.query_row("PRAGMA data_version", [], |row| row.get(0))?;
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = cache
            .as_ref()
            .filter(|known| known.embedder == embedder && known.version == version);
        if let Some(known) = known {
            return Ok(known.clone());
        }
        let vectors = Arc::new(Vectors::read(view, embedder, version)?);
        *cache = Some(vectors.clone());
        Ok(vectors)
    }
}

impl Vectors {
    fn read(view: &Connection, embedder: i64, version: i64) -> rusqlite::Result<Self> {
        let mut vectors = Self {
            embedder,
            version,
            ..Self::default()
        };
        let mut all = view.prepare_cached(
            "SELECT chunk, scale, data FROM vectors WHERE embedder = ?1 \
                ORDER BY chunk",
        )?;
        let mut rows = all.query([embedder])?;
        while let Some(row) = rows.next()? {
            let data = row.get_ref(2)?.as_blob().unwrap_or_default();
            if vectors.size == 0 {
                vectors.size = data.len();
            }
            // Vectors of another size cannot be compared.
            if data.len() == vectors.size && vectors.size > 0 {
                vectors.chunks.push(row.get(0)?);
                vectors.scales.push(row.get(1)?);
                vectors.data.extend_from_slice(data);
            }
        }
        Ok(vectors)
    }

    /// Collects vectors of one size, in any order and with any keys.
    pub(crate) fn from_list(mut list: Vec<(i64, Vec<f32>)>) -> Self {
        list.sort_by_key(|(chunk, _)| *chunk);
        list.dedup_by_key(|(chunk, _)| *chunk);
        let mut vectors = Self {
            size: list.first().map_or(0, |(_, vector)| vector.len()),
            ..Self::default()
        };
        for (chunk, vector) in list {
            if vector.len() == vectors.size {
                let (scale, data) = quantize(&vector);
                vectors.chunks.push(chunk);
                vectors.scales.push(scale);
                vectors.data.extend_from_slice(&data);
            }
        }
        vectors
    }

    /// Returns the cosine of each vector. This takes most of the time of a search by meaning.
    pub(crate) fn cosines(&self, query: &[f32]) -> Vec<f32> {
        let query = QueryVector::new(query);
        let vectors = self.scales.iter().zip(self.data.chunks(self.size.max(1)));
        vectors
            .map(|(scale, data)| query.cosine(*scale, data).unwrap_or(0.0))
            .collect()
    }

    /// Returns the nearest chunks of these documents, and the cosines of the `wanted` ones.
    pub(crate) fn nearest(
        &self,
        cosines: &[f32],
        allowed: Option<&Allowed>,
        wanted: &HashSet<i64>,
        limit: usize,
    ) -> Cosines {
        let none = HashSet::new();
        let mut nearest = Nearest::new(&none, limit, 0.0);
        for (chunk, cosine) in self.chunks.iter().zip(cosines) {
            if allowed.is_none_or(|allowed| allowed.contains(*chunk)) {
                nearest.add(*chunk, *cosine);
            }
        }
        let mut nearest = nearest.finish();
        // Fewer chunks are wanted than there are, so each is looked up.
        let known = wanted.iter().filter_map(|chunk| {
            let at = self.chunks.binary_search(chunk).ok()?;
            Some((*chunk, *cosines.get(at)?))
        });
        nearest.known.extend(known);
        nearest
    }

    /// Returns `true` if a comparison with all vectors takes more than about a millisecond.
    pub(crate) fn are_many(&self) -> bool {
        self.data.len() > 1 << 20
    }

    /// Returns the vector of a chunk as numbers.
    pub(crate) fn of_chunk(&self, chunk: i64) -> Option<Vec<f32>> {
        let at = self.chunks.binary_search(&chunk).ok()?;
        let data = self.data.get(at * self.size..(at + 1) * self.size)?;
        let part = |part: &u8| f32::from(part.cast_signed()) * self.scales[at];
        Some(data.iter().map(part).collect())
    }
}
