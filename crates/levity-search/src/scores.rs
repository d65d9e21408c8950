//! BM25 in two steps: the index tells which texts contain a word, and the best of these texts are
//! then read to count the words.
//!
//! SQLite's own `bm25` reads the length of each matching text, which takes more than a microsecond.
//! For a question of common words, that is nearly every text.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

/// How quickly further occurrences of a word count less, as usual for BM25.
const K1: f64 = 1.2;
/// How much the length of a text counts, as usual for BM25.
const B: f64 = 0.75;

/// Returns the weight of a word that occurs in `matching` of `all` texts: the fewer, the higher.
///
/// ```
/// assert!(levity_search::word_weight(100.0, 2.0) > levity_search::word_weight(100.0, 50.0));
/// ```
pub fn word_weight(all: f64, matching: f64) -> f64 {
    (1.0 + (all - matching + 0.5).max(0.0) / (matching + 0.5)).ln()
}

/// The texts that contain some words, and the sums of the weights of these words.
///
/// A word is frequent if more than an eighth of the texts contain it. It finds no text alone,
/// unless the other words find none.
///
/// ```
/// use levity_search::Presence;
///
/// let mut presence = Presence::new(80);
/// presence.add(vec![7, 9], 2); // a word in two texts
/// presence.add(vec![9], 1);
/// assert_eq!(presence.best(1)[0].0, 9);
/// assert_eq!(presence.frequent(), 10);
/// ```
#[derive(Debug)]
pub struct Presence {
    texts: usize,
    /// The texts with each word, and the weight of the word.
    words: Vec<(Vec<i64>, f64)>,
    /// The texts with each part of a word, and its weight.
    parts: Vec<(Vec<i64>, f64)>,
}

impl Presence {
    /// Starts with no words, in a collection of this number of texts.
    pub fn new(texts: usize) -> Self {
        Self {
            texts,
            words: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Returns the maximum number of texts that contain a word that is not frequent.
    pub fn frequent(&self) -> usize {
        self.texts.div_ceil(8)
    }

    /// Adds the ids of the texts that contain a word, and their number. Returns the weight of the
    /// word. The ids of a frequent word may be incomplete.
    pub fn add(&mut self, matching: Vec<i64>, number: usize) -> f64 {
        let weight = word_weight(self.texts as f64, number as f64);
        self.words.push((matching, weight));
        weight
    }

    /// Adds the ids of the texts that contain a part of a word, with its weight. A part decides
    /// neither which words are frequent nor whether they count.
    pub fn add_part(&mut self, matching: Vec<i64>, weight: f64) {
        self.parts.push((matching, weight));
    }

    /// Returns the number of texts in the collection.
    pub fn texts(&self) -> usize {
        self.texts
    }

    /// Returns `true` if a text that a filter allows contains a word that is not frequent.
    pub fn has_rare_word(&self, allows: impl Fn(i64) -> bool) -> bool {
        let mut rare = self.words.iter().filter(|(ids, _)| self.is_rare(ids));
        rare.any(|(ids, _)| ids.iter().any(|id| allows(*id)))
    }

    fn is_rare(&self, matching: &[i64]) -> bool {
        !matching.is_empty() && matching.len() <= self.frequent()
    }

    /// Returns the texts with the highest sums, highest first; among equal sums, the newest.
    pub fn best(&self, limit: usize) -> Vec<(i64, f64)> {
        self.best_of(limit, |_| true)
    }

    /// Returns the best texts among those that a filter allows, as [`best`](Self::best).
    ///
    /// ```
    /// use levity_search::Presence;
    ///
    /// let mut presence = Presence::new(80);
    /// presence.add(vec![7, 9], 2);
    /// assert_eq!(presence.best_of(5, |id| id < 8)[0].0, 7);
    /// ```
    pub fn best_of(&self, limit: usize, allows: impl Fn(i64) -> bool) -> Vec<(i64, f64)> {
        let mut best = self.sums(&allows, self.has_rare_word(&allows));
        let order = |a: &(i64, f64), b: &(i64, f64)| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0));
        if best.len() > limit && limit > 0 {
            best.select_nth_unstable_by(limit - 1, order);
        }
        best.truncate(limit);
        best.sort_unstable_by(order);
        best
    }

    /// Returns the allowed texts with the sums of their words.
    fn sums(&self, allows: &impl Fn(i64) -> bool, rare_only: bool) -> Vec<(i64, f64)> {
        let mut sums: HashMap<i64, f64, Mix> = HashMap::default();
        let words = self.words.iter();
        let words = words.filter(|(ids, _)| !rare_only || self.is_rare(ids));
        for (matching, weight) in words.chain(&self.parts) {
            for id in matching.iter().filter(|id| allows(**id)) {
                *sums.entry(*id).or_default() += weight;
            }
        }
        sums.into_iter().collect()
    }
}

/// A quick hash for the ids of a file, which nobody can choose.
#[derive(Clone, Copy, Debug, Default)]
struct Mix(u64);

impl BuildHasher for Mix {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number.cast_unsigned());
    }
}

/// Scores texts by how often they contain the words of a question, and by their length.
///
/// ```
/// use levity_search::{WordScores, query_words};
///
/// let words = query_words("low tide", 64);
/// let mut scores = WordScores::new(words.into_iter().map(|word| (word, 2.0)));
/// scores.add(7, 2.0, "High tide is at six, and the tide turns soon.");
/// scores.add(9, 4.0, "Low tide is at noon.");
/// assert_eq!(scores.finish()[0].0, 9);
/// ```
#[derive(Debug)]
pub struct WordScores {
    /// The positions of words by their roots.
    roots: HashMap<String, Vec<usize>>,
    starts: Starts,
    /// The pairs of characters in scripts without spaces, with their positions.
    pairs: Vec<(String, usize)>,
    weights: Vec<f64>,
    texts: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    id: i64,
    /// The sum of the weights of the words that the text contains, according to the index.
    presence: f64,
    counts: Vec<u32>,
    length: f64,
}

impl WordScores {
    /// Creates the scores for words of [`query_words`](crate::query_words) with their weights.
    pub fn new(words: impl IntoIterator<Item = (String, f64)>) -> Self {
        let (mut roots, mut pairs, mut weights) = (HashMap::new(), Vec::new(), Vec::new());
        for (at, (word, weight)) in words.into_iter().enumerate() {
            let word = word.trim_matches('"');
            match word.split_once(' ') {
                Some((first, second)) => pairs.push((format!("{first}{second}"), at)),
                None => roots
                    .entry(root(word).to_owned())
                    .or_insert_with(Vec::new)
                    .push(at),
            }
            weights.push(weight);
        }
        Self {
            starts: Starts::of(roots.keys()),
            roots,
            pairs,
            weights,
            texts: Vec::new(),
        }
    }

    /// Adds a text that contains words with this sum of weights.
    pub fn add(&mut self, id: i64, presence: f64, text: &str) {
        let mut counts = vec![0_u32; self.weights.len()];
        let (mut length, mut lower) = (0.0, String::new());
        for word in text.split(|c: char| !c.is_alphanumeric()) {
            if word.is_empty() {
                continue;
            }
            length += 1.0;
            if !self.starts.may_match(word) {
                continue;
            }
            lower.clear();
            lower.extend(word.chars().flat_map(char::to_lowercase));
            for at in self.roots.get(root(&lower)).into_iter().flatten() {
                counts[*at] += 1;
            }
        }
        for (pair, at) in &self.pairs {
            let found = text.matches(pair.as_str()).count();
            counts[*at] = u32::try_from(found).unwrap_or(u32::MAX);
        }
        self.texts.push(Counted {
            id,
            presence,
            counts,
            length,
        });
    }

    /// Returns the scores, best first; among equal scores, the newest text.
    pub fn finish(self) -> Vec<(i64, f64)> {
        let count = self.texts.len().max(1) as f64;
        let mean = self.texts.iter().map(|text| text.length).sum::<f64>() / count;
        let mut scores: Vec<_> = self
            .texts
            .iter()
            .map(|text| (text.id, self.score(text, text.length / mean.max(1.0))))
            .collect();
        scores.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        scores
    }

    fn score(&self, text: &Counted, length: f64) -> f64 {
        let gain = |count: f64| count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
        let (mut score, mut counted) = (0.0, 0.0);
        for (count, weight) in text.counts.iter().zip(&self.weights) {
            if *count > 0 {
                score += weight * gain(f64::from(*count));
                counted += weight;
            }
        }
        // The index knows more forms of a word than `root`. Such a word counts once.
        score + (text.presence - counted).max(0.0) * gain(1.0)
    }
}

/// The first two bytes of words to count, so that most other words are left out quickly.
#[derive(Debug)]
struct Starts {
    /// `true` at the place of each start; empty if any word may match.
    known: Vec<bool>,
}

impl Starts {
    fn of<'a>(roots: impl Iterator<Item = &'a String>) -> Self {
        let mut known = vec![false; 1 << 14];
        for root in roots {
            match Self::place(root) {
                Some(place) => known[place] = true,
                None => return Self { known: Vec::new() },
            }
        }
        Self { known }
    }

    /// Returns the place of a word that starts with two ASCII characters.
    fn place(word: &str) -> Option<usize> {
        match word.as_bytes() {
            [first, second, ..] if first.is_ascii() && second.is_ascii() => {
                let lower = [first, second].map(|byte| usize::from(byte.to_ascii_lowercase()));
                Some(lower[0] << 7 | lower[1])
            }
            _ => None,
        }
    }

    /// Returns `false` if the word has none of the roots. A root of at least two bytes has the same
    /// start as its words.
    fn may_match(&self, word: &str) -> bool {
        match Self::place(word) {
            Some(place) => self.known.get(place).is_none_or(|known| *known),
            None => true,
        }
    }
}

/// Endings of English words, longer ones first.
const ENDINGS: [&str; 12] = [
    "ations", "ation", "ments", "ment", "ings", "ing", "ies", "ed", "es", "ly", "s", "e",
];

/// Returns a word without its ending, so that forms of one word are equal. The rest has at least
/// three bytes.
fn root(word: &str) -> &str {
    let endings = ENDINGS.iter();
    endings
        .filter_map(|ending| word.strip_suffix(ending))
        .find(|rest| rest.len() >= 3)
        .unwrap_or(word)
        .trim_end_matches(['i', 'y'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(question: &[(&str, f64)], texts: &[&str]) -> Vec<i64> {
        let words = question
            .iter()
            .map(|(word, weight)| ((*word).to_owned(), *weight));
        let mut scores = WordScores::new(words);
        for (id, text) in (0..).zip(texts) {
            scores.add(id, 0.0, text);
        }
        scores.finish().into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn rare_and_frequent_words_and_short_texts_count_more() {
        let question = [("\"tide\"", 1.0), ("\"oyster\"", 3.0)];
        assert_eq!(
            order(&question, &["a tide of news", "an oyster of note"]),
            [1, 0]
        );
        assert_eq!(
            order(&question, &["tide and wind", "tide and tides"]),
            [1, 0]
        );
        let long = format!("tide {}", "and more words ".repeat(20));
        assert_eq!(order(&question, &[&long, "tide and more"]), [1, 0]);
    }

    #[test]
    fn forms_of_words_and_pairs_are_counted() {
        for (word, text) in [("booking", "Bookings"), ("try", "tries"), ("moved", "move")] {
            assert_eq!(root(word), root(&text.to_lowercase()), "{word}, {text}");
        }
        let question = [("\"東 京\"", 1.0)];
        assert_eq!(order(&question, &["京都", "東京の東京"]), [1, 0]);
    }

    #[test]
    fn forms_of_word_are_counted_for_any_start() {
        for (word, text) in [
            ("tide", "TIDES"),
            ("ki", "Ki"),
            ("day", "days"),
            ("kelvin", "\u{212a}elvin"),
            ("über", "Über"),
            ("a", "A"),
            ("x1", "X1"),
        ] {
            let question = [("other", 1.0), (word, 1.0)];
            assert_eq!(order(&question, &[text, "nothing"]), [0, 1], "{word}");
            assert_eq!(order(&[(word, 1.0)], &[text, "nothing"]), [0, 1], "{word}");
        }
    }

    #[test]
    fn word_that_only_the_index_finds_counts_once() {
        let mut scores = WordScores::new([("\"mouse\"".to_owned(), 2.0)]);
        scores.add(1, 0.0, "nothing here");
        scores.add(2, 2.0, "mice are here");
        let scores = scores.finish();
        assert_eq!(scores[0].0, 2);
        assert!(scores[0].1 > 1.0 && scores[1].1 == 0.0);
    }

    #[test]
    fn best_are_those_with_the_highest_sums() {
        let mut presence = Presence::new(100);
        for matching in [vec![1, 2, 3, 4], vec![2, 3], vec![3]] {
            let number = matching.len();
            presence.add(matching, number);
        }
        let best: Vec<_> = presence.best(3).into_iter().map(|(id, _)| id).collect();
        assert_eq!(best, [3, 2, 4]);
        assert!(presence.best(0).is_empty());
        assert_eq!(presence.best(10).len(), 4);
    }

    #[test]
    fn frequent_word_finds_texts_only_without_rare_words() {
        let mut presence = Presence::new(100);
        presence.add((0..50).collect(), 50);
        assert_eq!(presence.best(100).len(), 50);
        presence.add(vec![], 0);
        assert_eq!(presence.best(100).len(), 50);
        presence.add(vec![7, 70], 2);
        assert_eq!(presence.best(100).len(), 2);
        // A filter excludes all texts of the rare word.
        assert_eq!(presence.best_of(100, |id| id < 5).len(), 5);
        assert_eq!(
            presence.best_of(100, |id| id > 60),
            [(70, word_weight(100.0, 2.0))]
        );
    }
}
