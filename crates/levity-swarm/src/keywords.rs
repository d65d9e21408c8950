//! Selects workers by the words of a goal alone.
//!
//! The selection needs no model, so it also works when the router fails. It is deterministic: words
//! are compared by their stems, and ties are decided by the order in which workers were added. For
//! example, `charting` and `charts` have the same stem `chart`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::plan::Delegation;
use crate::rules::Rules;
use crate::worker::Card;

/// The maximum number of selected workers.
const MAX_WORKERS: usize = 3;

/// Words that do not help to select a worker.
const STOP_WORDS: [&str; 22] = [
    "about", "after", "also", "and", "are", "before", "can", "for", "from", "has", "how", "its",
    "new", "not", "that", "the", "them", "this", "what", "when", "with", "you",
];

/// Returns a plan that gives the whole goal to the workers whose keywords it contains. They work in
/// the order in which they were added, and each sees the earlier results. If no keyword matches,
/// the first worker gets the goal.
pub(crate) fn plan(goal: &str, rules: &Rules) -> Vec<Delegation> {
    let words = words(goal);
    let mut scored: Vec<(usize, usize)> = rules
        .order
        .iter()
        .enumerate()
        .filter_map(|(at, name)| Some((score(&words, rules.cards.get(name)?), at)))
        .filter(|(score, _)| *score > 0)
        .collect();
    scored.sort_by_key(|(score, at)| (std::cmp::Reverse(*score), *at));
    let mut chosen: Vec<usize> = scored
        .into_iter()
        .take(MAX_WORKERS)
        .map(|(_, at)| at)
        .collect();
    chosen.sort_unstable();
    if chosen.is_empty() {
        chosen.push(0);
    }
    let ids: Vec<Arc<str>> = (1..=chosen.len())
        .map(|at| format!("d{at}").into())
        .collect();
    let names = chosen.iter().filter_map(|at| rules.order.get(*at));
    names
        .enumerate()
        .map(|(at, name)| {
            let before = at.checked_sub(1).and_then(|at| ids.get(at)).cloned();
            Delegation::new(ids[at].clone(), name.clone(), goal).after(before)
        })
        .collect()
}

/// Returns the score of a worker: its keywords count three times, the words of its name twice.
fn score(goal: &BTreeSet<String>, card: &Card) -> usize {
    let keywords = card
        .keywords
        .iter()
        .filter(|word| words(word).is_subset(goal) && !word.trim().is_empty());
    let named = words(&card.name).intersection(goal).count();
    let described = words(&card.description).intersection(goal).count();
    3 * keywords.count() + 2 * named + described
}

/// Returns the stems of the significant words of a text.
fn words(text: &str) -> BTreeSet<String> {
    /// The maximum number of words that are considered.
    const MAX_WORDS: usize = 2_000;
    let words = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.len() > 2)
        .take(MAX_WORDS);
    words
        .map(str::to_lowercase)
        .filter(|word| !STOP_WORDS.contains(&&**word))
        .map(|word| stem(&word))
        .collect()
}

/// Returns a word without common endings.
fn stem(word: &str) -> String {
    for ending in ["ers", "er", "ing", "es", "ed", "s", "e"] {
        match word.strip_suffix(ending) {
            Some(stem) if stem.chars().count() >= 3 => return stem.to_owned(),
            _ => {}
        }
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_same_stem_are_equal() {
        for (one, other) in [
            ("Coder", "coding"),
            ("reviews", "Reviewer"),
            ("researching", "researcher"),
            ("codes", "code"),
        ] {
            assert_eq!(words(one), words(other), "{one} {other}");
        }
        assert!(words("the and of it").is_empty());
    }
}
