//! Results that differ from each other: maximal marginal relevance.

use crate::vectors::Vectors;

/// The maximum number of candidates that are compared with each other.
const MAX_CANDIDATES: usize = 100;

/// Chooses `limit` chunks one after the other: each time the one with the best score, reduced by
/// its similarity to those already chosen. The scores stay as they are.
pub(crate) fn spread(
    best: Vec<(i64, f32)>,
    vectors: &Vectors,
    diversity: f32,
    limit: usize,
) -> Vec<(i64, f32)> {
    let diversity = diversity.clamp(0.0, 1.0);
    let count = best.len().min(MAX_CANDIDATES.max(limit));
    let mut open: Vec<_> = best
        .into_iter()
        .take(count)
        .map(|(key, score)| (key, score, vectors.of_chunk(key), 0.0_f32))
        .collect();
    let mut chosen = Vec::new();
    while chosen.len() < limit && !open.is_empty() {
        let value = |(_, score, _, similar): &(i64, f32, Option<Vec<f32>>, f32)| {
            (1.0 - diversity) * score - diversity * similar
        };
        let mut next = 0;
        for at in 1..open.len() {
            if value(&open[at]) > value(&open[next]) {
                next = at;
            }
        }
        let (key, score, vector, _) = open.remove(next);
        for (_, _, other, similar) in &mut open {
            *similar = similar.max(cosine(vector.as_deref(), other.as_deref()));
        }
        chosen.push((key, score));
    }
    chosen
}

/// Returns the cosine of two vectors of length 1; 0 if one is missing.
fn cosine(one: Option<&[f32]>, other: Option<&[f32]>) -> f32 {
    match (one, other) {
        (Some(one), Some(other)) => one.iter().zip(other).map(|(a, b)| a * b).sum(),
        _ => 0.0,
    }
}
