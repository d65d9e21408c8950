//! Who works on a goal, by its words alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::plan::Delegation;
use crate::rules::Rules;
use crate::worker::Card;

/// How many workers are chosen.
const CHOSEN: usize = 3;

/// Words that say nothing about who should work.
const PLAIN: [&str; 22] = [
    "about", "after", "also", "and", "are", "before", "can", "for", "from", "has", "how", "its",
    "new", "not", "that", "the", "them", "this", "what", "when", "with", "you",
];

/// A plan that gives the whole goal to those whose words are in it: one after the other in the
/// order in which they were added, each seeing what those before it said. Without such a word, the
/// first worker gets it.
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
    let mut chosen: Vec<usize> = scored.into_iter().take(CHOSEN).map(|(_, at)| at).collect();
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

/// How much speaks for a worker: words of its own count three times, those of its name twice.
fn score(goal: &BTreeSet<String>, card: &Card) -> usize {
    let keywords = card
        .keywords
        .iter()
        .filter(|word| words(word).is_subset(goal) && !word.trim().is_empty());
    let named = words(&card.name).intersection(goal).count();
    let described = words(&card.description).intersection(goal).count();
    3 * keywords.count() + 2 * named + described
}

/// The words of a text that say something, without endings that come and go.
fn words(text: &str) -> BTreeSet<String> {
    /// More words of a goal than these are not looked at.
    const MOST: usize = 2_000;
    let words = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.len() > 2)
        .take(MOST);
    words
        .map(str::to_lowercase)
        .filter(|word| !PLAIN.contains(&&**word))
        .map(|word| stem(&word))
        .collect()
}

/// A word without what makes it a plural, a doer or a doing.
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
    fn words_meet_in_their_stems() {
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
