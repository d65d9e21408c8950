//! Fusion of several rankings into one.
//!
//! The scores of words and of vectors cannot be compared, and their ranks can.

use std::collections::HashMap;

/// The damping constant of reciprocal rank fusion: higher values flatten the ranking.
const DAMPING: f32 = 60.0;

/// Merges ranked lists of facts into one by reciprocal rank fusion: facts that rank high in all
/// lists come first. The score is 1 for a fact that is first in every list. Ties go to the earlier
/// list.
pub(super) fn fuse(lists: &[Vec<i64>]) -> Vec<(i64, f32)> {
    let mut scores: HashMap<i64, (f32, usize)> = HashMap::new();
    let mut next = 0;
    for list in lists {
        for (rank, id) in (0_u16..).zip(list) {
            next += 1;
            let (score, _) = scores.entry(*id).or_insert((0.0, next));
            *score += (DAMPING + 1.0) / (DAMPING + 1.0 + f32::from(rank)) / lists.len() as f32;
        }
    }
    let mut fused: Vec<_> = scores
        .into_iter()
        .map(|(id, (score, order))| (id, score, order))
        .collect();
    fused.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.2.cmp(&b.2)));
    fused
        .into_iter()
        .map(|(id, score, _)| (id, score))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lists: &[Vec<i64>], expected: &[i64]) {
        let fused = fuse(lists);
        assert_eq!(
            fused.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            expected
        );
        assert!(
            fused.iter().all(|(_, score)| *score > 0.0 && *score <= 1.0),
            "{fused:?}"
        );
    }

    #[test]
    fn fuse_ranks_facts_high_in_both_lists_first() {
        check(&[vec![1, 2, 3], vec![2, 3, 4]], &[2, 3, 1, 4]);
        check(&[vec![1, 2], vec![2, 1]], &[1, 2]);
        check(&[vec![1], vec![2]], &[1, 2]);
        check(&[vec![], vec![5, 6]], &[5, 6]);
        check(&[vec![5, 6]], &[5, 6]);
        check(&[vec![], vec![]], &[]);
        assert_eq!(fuse(&[vec![9], vec![9]]), [(9, 1.0)]);
    }
}
