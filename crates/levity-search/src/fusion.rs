//! Fusion of the ranking by words and the ranking by meaning.
//!
//! The scores of words and of vectors are of different kinds, so each is first scaled to the range
//! from 0 to 1 within one query. A sum of scaled scores keeps the distance between two texts, which
//! their ranks alone do not show. In our measurements, the fusion of ranks put texts that match no
//! word of the query above texts that match all of them.

use std::collections::{HashMap, HashSet};

/// The share of the score by words if there is also a score by meaning. Both count the same.
const SHARE_OF_WORDS: f32 = 0.5;

/// The cosines of one query: the texts with the best ones, and the texts that were asked for.
///
/// ```
/// let cosines = levity_search::Cosines::default();
/// assert!(cosines.found.is_empty() && cosines.range.is_none());
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Cosines {
    /// The texts that the query finds by meaning, best first.
    pub found: Vec<i64>,
    /// The cosines of the found texts, and of the wanted texts that have a vector.
    pub known: HashMap<i64, f32>,
    /// The lowest and the highest cosine of all texts.
    pub range: Option<(f32, f32)>,
}

impl Cosines {
    /// Returns the cosine of a text, scaled to the range of all texts. A text without a vector has
    /// the lowest value.
    fn scaled(&self, id: i64) -> f32 {
        match (self.known.get(&id), self.range) {
            (Some(cosine), Some((lowest, highest))) if highest > lowest => {
                ((cosine - lowest) / (highest - lowest)).clamp(0.0, 1.0)
            }
            (Some(_), _) => 1.0,
            (None, _) => 0.0,
        }
    }
}

/// Merges the texts found by words, best first with their scores, with those found by meaning. The
/// score is 1 for a text that is best in both.
///
/// Without cosines, the score of words counts alone. Equal scores keep the order of the words, and
/// then the order of the cosines.
///
/// ```
/// use levity_search::{Cosines, fuse};
///
/// let mut cosines = Cosines::default();
/// cosines.found = vec![2];
/// cosines.known = [(2, 0.5)].into();
/// cosines.range = Some((0.0, 0.5));
/// let best = fuse(&[(1, 8.0), (2, 6.0)], Some(&cosines));
/// assert_eq!(best, [(2, 0.875), (1, 0.5)]);
/// ```
pub fn fuse(words: &[(i64, f64)], cosines: Option<&Cosines>) -> Vec<(i64, f32)> {
    let best = words.first().map_or(1.0, |(_, score)| *score);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the value is between 0 and 1"
    )]
    let by_words = |score: f64| {
        if best > 0.0 {
            (score / best) as f32
        } else {
            1.0
        }
    };
    let Some(cosines) = cosines else {
        let alone = words.iter().map(|(id, score)| (*id, by_words(*score)));
        return alone.collect();
    };
    let score = |by_words: f32, id: i64| {
        SHARE_OF_WORDS * by_words + (1.0 - SHARE_OF_WORDS) * cosines.scaled(id)
    };
    let matching: HashSet<i64> = words.iter().map(|(id, _)| *id).collect();
    let by_meaning = cosines.found.iter().filter(|id| !matching.contains(id));
    let mut fused: Vec<_> = words
        .iter()
        .map(|(id, words)| (*id, score(by_words(*words), *id)))
        .chain(by_meaning.map(|id| (*id, score(0.0, *id))))
        .collect();
    fused.sort_by(|a, b| b.1.total_cmp(&a.1));
    fused
}

/// Merges the results of several queries, each best first with scores from 0 to 1.
///
/// The score of a text is half its best score and half the mean of its scores, where a result
/// without the text counts as 0. Texts that many queries find come before others, and the best text
/// of one query is not lost. Equal scores keep the order of the queries.
///
/// ```
/// use levity_search::merge;
///
/// let merged = merge(vec![vec![(1, 1.0), (2, 0.5)], vec![(2, 1.0)]]);
/// assert_eq!(merged, [(2, 0.875), (1, 0.75)]);
/// ```
pub fn merge(mut results: Vec<Vec<(i64, f32)>>) -> Vec<(i64, f32)> {
    if results.len() == 1 {
        return results.pop().unwrap_or_default();
    }
    let share = 1.0 / results.len().max(1) as f32;
    let mut places: HashMap<i64, usize> = HashMap::new();
    // The best score and the mean of each text.
    let mut scores: Vec<(i64, f32, f32)> = Vec::new();
    for (id, score) in results.iter().flatten() {
        let place = *places.entry(*id).or_insert_with(|| {
            scores.push((*id, 0.0, 0.0));
            scores.len() - 1
        });
        let (_, best, mean) = &mut scores[place];
        *best = best.max(*score);
        *mean += score * share;
    }
    let scores = scores.into_iter();
    let mut merged: Vec<_> = scores
        .map(|(id, best, mean)| (id, f32::midpoint(best, mean)))
        .collect();
    merged.sort_by(|a, b| b.1.total_cmp(&a.1));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosines(all: &[(i64, f32)], range: (f32, f32)) -> Cosines {
        Cosines {
            found: all.iter().map(|(id, _)| *id).collect(),
            known: all.iter().copied().collect(),
            range: Some(range),
        }
    }

    #[track_caller]
    fn check(words: &[(i64, f64)], meaning: Option<&Cosines>, expected: &[i64]) {
        let fused = fuse(words, meaning);
        let ids: Vec<_> = fused.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, expected, "{fused:?}");
        let mut scores = fused.iter().map(|(_, score)| *score);
        assert!(
            scores.all(|score| (0.0..=1.0).contains(&score)),
            "{fused:?}"
        );
    }

    #[test]
    fn words_alone_keep_their_order() {
        check(&[(1, 8.0), (2, 2.0)], None, &[1, 2]);
        check(&[(1, 0.0), (2, 0.0)], None, &[1, 2]);
        check(&[], None, &[]);
        assert_eq!(fuse(&[(1, 8.0), (2, 2.0)], None), [(1, 1.0), (2, 0.25)]);
    }

    #[test]
    fn fact_that_is_good_in_both_comes_first() {
        let meaning = cosines(&[(3, 0.9), (2, 0.8), (4, 0.1)], (0.0, 0.9));
        check(&[(1, 4.0), (2, 3.5)], Some(&meaning), &[2, 1, 3, 4]);
        assert_eq!(
            fuse(&[(9, 3.0)], Some(&cosines(&[(9, 0.4)], (0.1, 0.4)))),
            [(9, 1.0)]
        );
    }

    #[test]
    fn distance_of_scores_counts_and_not_only_rank() {
        // The fusion of ranks would put 2 first: it is second by words and first by meaning.
        let meaning = cosines(&[(2, 0.31), (1, 0.30), (3, 0.0)], (0.0, 0.31));
        check(&[(1, 9.0), (2, 0.3)], Some(&meaning), &[1, 2, 3]);
    }

    #[test]
    fn merged_results_count_the_best_and_the_mean_score() {
        assert_eq!(merge(vec![]), []);
        assert_eq!(merge(vec![vec![(1, 0.7)]]), [(1, 0.7)]);
        let merged = merge(vec![
            vec![(1, 1.0), (2, 0.9)],
            vec![],
            vec![(3, 1.0), (2, 0.8)],
        ]);
        let ids: Vec<_> = merged.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [2, 1, 3], "equal scores keep the order: {merged:?}");
        assert!((merged[1].1 - 2.0 / 3.0).abs() < 1e-6, "{merged:?}");
        // The best text of one query comes before a text that all queries find a little.
        let merged = merge(vec![vec![(1, 1.0), (2, 0.4)], vec![(3, 1.0), (2, 0.4)]]);
        assert_eq!(merged[2].0, 2, "{merged:?}");
    }

    #[test]
    fn missing_vectors_and_equal_cosines_are_no_error() {
        check(&[(1, 1.0)], Some(&Cosines::default()), &[1]);
        check(
            &[],
            Some(&cosines(&[(5, 0.2), (6, 0.2)], (0.2, 0.2))),
            &[5, 6],
        );
    }
}
