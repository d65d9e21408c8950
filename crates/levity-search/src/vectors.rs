//! Vectors of eight bits per component, and the nearest of them.
//!
//! Eight bits per component keep a file small; the error of the cosine is below 0.01. A linear scan
//! needs no index to build or repair.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashSet};

use crate::Cosines;

/// The number of components that can be summed without overflow.
const CHUNK: usize = 64;

/// The vector of a query, with 16 bits per component.
///
/// ```
/// use levity_search::{QueryVector, quantize};
///
/// let (scale, data) = quantize(&[3.0, 4.0]);
/// let cosine = QueryVector::new(&[0.6, 0.8]).cosine(scale, &data).unwrap();
/// assert!((cosine - 1.0).abs() < 0.01);
/// assert!(QueryVector::new(&[1.0]).cosine(scale, &data).is_none(), "another size");
/// ```
#[derive(Clone, Debug)]
pub struct QueryVector {
    scale: f32,
    parts: Vec<i16>,
}

impl QueryVector {
    /// Creates the vector of a query from the numbers of an embedder.
    pub fn new(vector: &[f32]) -> Self {
        let scale = largest(vector) / f32::from(i16::MAX);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "no component is larger than the largest one"
        )]
        let part = |part: &f32| (part / scale).round() as i16;
        Self {
            scale: unit_scale(scale, vector),
            parts: vector.iter().map(part).collect(),
        }
    }

    /// Returns the cosine of the angle to a quantized vector, or `None` if it has another size.
    pub fn cosine(&self, scale: f32, data: &[u8]) -> Option<f32> {
        (data.len() == self.parts.len()).then(|| dot(&self.parts, data) as f32 * scale * self.scale)
    }
}

/// The nearest of the vectors that are added, and the cosines of those that were asked for.
///
/// ```
/// use levity_search::Nearest;
///
/// let wanted = [7].into();
/// let mut nearest = Nearest::new(&wanted, 1, 0.0);
/// for (id, cosine) in [(5, 0.2), (6, 0.9), (7, 0.1)] {
///     nearest.add(id, cosine);
/// }
/// let cosines = nearest.finish();
/// assert_eq!(cosines.found, [6]);
/// assert_eq!(cosines.known[&7], 0.1);
/// ```
#[derive(Debug)]
pub struct Nearest<'a> {
    wanted: &'a HashSet<i64>,
    limit: usize,
    min_cosine: f32,
    best: BinaryHeap<Reverse<Candidate>>,
    cosines: Cosines,
}

impl<'a> Nearest<'a> {
    /// Finds at most `limit` vectors with a positive cosine of at least `min_cosine`.
    pub fn new(wanted: &'a HashSet<i64>, limit: usize, min_cosine: f32) -> Self {
        Self {
            wanted,
            limit,
            min_cosine,
            best: BinaryHeap::with_capacity(limit),
            cosines: Cosines::default(),
        }
    }

    /// Adds a vector with its cosine.
    pub fn add(&mut self, id: i64, cosine: f32) {
        self.cosines.range = Some(match self.cosines.range {
            Some((lowest, highest)) => (cosine.min(lowest), cosine.max(highest)),
            None => (cosine, cosine),
        });
        if !self.wanted.is_empty() && self.wanted.contains(&id) {
            self.cosines.known.insert(id, cosine);
        }
        if cosine <= 0.0 || cosine < self.min_cosine {
            return;
        }
        let new = Candidate { cosine, id };
        if self.best.len() < self.limit {
            self.best.push(Reverse(new));
        } else if let Some(mut last) = self.best.peek_mut().filter(|last| new > last.0) {
            last.0 = new;
        }
    }

    /// Returns the result, the nearest vector first.
    pub fn finish(self) -> Cosines {
        let mut cosines = self.cosines;
        for Reverse(Candidate { cosine, id }) in self.best.into_sorted_vec() {
            cosines.found.push(id);
            cosines.known.insert(id, cosine);
        }
        cosines
    }
}

/// An id and its cosine; among equal cosines, the newer id comes first.
#[derive(Debug)]
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

/// Returns a vector as integers from -127 to 127, and the factor that scales them to length 1.
///
/// ```
/// let (scale, data) = levity_search::quantize(&[1.0, -0.5]);
/// assert_eq!(data, [127, 0xc0]); // two's complement
/// assert!(scale < 1.0);
/// ```
pub fn quantize(vector: &[f32]) -> (f32, Vec<u8>) {
    let scale = largest(vector) / 127.0;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "no component is larger than the largest one"
    )]
    let part = |part: &f32| ((part / scale).round() as i8).cast_unsigned();
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
    let ((query, query_rest), (data, data_rest)) =
        (query.as_chunks::<CHUNK>(), data.as_chunks::<CHUNK>());
    let products = |query: &[i16], data: &[u8]| {
        let products = query
            .iter()
            .zip(data)
            .map(|(a, b)| i32::from(*a) * i32::from(b.cast_signed()));
        i64::from(products.sum::<i32>())
    };
    // The known size of a chunk lets the compiler compute several products at once.
    let chunks = query.iter().zip(data);
    chunks
        .map(|(query, data)| products(query, data))
        .sum::<i64>()
        + products(query_rest, data_rest)
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
                let found = QueryVector::new(&other).cosine(scale, &data).unwrap();
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
            let _ = QueryVector::new(&vector).cosine(scale, &data);
        }
        assert_eq!(dot(&[i16::MIN; 1000], &[0x80; 1000]), 128 * 32_768 * 1000);
    }
}
