//! Searches tools by words.
//!
//! The ranking is BM25 with weights for the place of a word. A few hundred tools need no embedding,
//! and the result is the same in every process.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::ToolSpec;
use serde_json::Value;

/// The weight of a word by its place.
const NAME_WEIGHT: f64 = 3.0;
const ARGUMENTS_WEIGHT: f64 = 1.5;
const DESCRIPTION_WEIGHT: f64 = 1.0;

/// The weight of a word that only begins like the searched one.
const PREFIX_WEIGHT: f64 = 0.4;

/// The saturation of repeated words, and the penalty for the length of a text.
const SATURATION: f64 = 1.2;
const LENGTH: f64 = 0.5;

/// The maximum bytes of a description and the maximum words of a query that are used.
const MAX_TEXT: usize = 4 << 10;
const MAX_WORDS: usize = 32;
/// The maximum depth of nested arguments.
const MAX_NESTING: usize = 3;

/// An index from words to tools.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The tools that contain each word, with its weight there.
    words: BTreeMap<String, Vec<(usize, f64)>>,
    /// The number of words of each tool.
    lengths: Vec<f64>,
    average: f64,
}

impl Index {
    pub(super) fn new(specs: &[Arc<ToolSpec>]) -> Self {
        let mut index = Self::default();
        for (at, spec) in specs.iter().enumerate() {
            let mut own: BTreeMap<String, f64> = BTreeMap::new();
            let mut add = |text: &str, weight: f64| {
                for word in words(text) {
                    *own.entry(word).or_default() += weight;
                }
            };
            add(&spec.name, NAME_WEIGHT);
            add(
                &spec.description[..crate::text::floor(&spec.description, MAX_TEXT)],
                DESCRIPTION_WEIGHT,
            );
            arguments(&spec.input, MAX_NESTING, &mut |name| {
                add(name, ARGUMENTS_WEIGHT);
            });
            index.lengths.push(own.values().sum());
            for (word, weight) in own {
                index.words.entry(word).or_default().push((at, weight));
            }
        }
        index.average = index.lengths.iter().sum::<f64>() / index.lengths.len().max(1) as f64;
        index
    }

    /// Returns the indexes of the tools that match best; equal ones in their order.
    pub(super) fn best(&self, query: &str, limit: usize) -> Vec<usize> {
        let mut scores = vec![0.0; self.lengths.len()];
        for word in words(query).take(MAX_WORDS) {
            self.score(&word, &mut scores);
        }
        let mut best: Vec<(usize, f64)> = scores
            .into_iter()
            .enumerate()
            .filter(|(_, score)| *score > 0.0)
            .collect();
        best.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        best.into_iter().take(limit).map(|(at, _)| at).collect()
    }

    /// Adds the score of a word of the query to each tool.
    fn score(&self, wanted: &str, scores: &mut [f64]) {
        let similar = self
            .words
            .range(wanted.to_owned()..)
            .take_while(|(word, _)| word.starts_with(wanted));
        for (word, tools) in similar {
            let like = match word.len() {
                length if length == wanted.len() => 1.0,
                _ if wanted.len() >= 3 => PREFIX_WEIGHT,
                _ => continue,
            };
            let rare = (1.0 + scores.len() as f64 / tools.len() as f64).ln();
            for (at, weight) in tools {
                let (Some(score), Some(length)) = (scores.get_mut(*at), self.lengths.get(*at))
                else {
                    continue;
                };
                let long = 1.0 - LENGTH + LENGTH * length / self.average.max(1.0);
                *score += like * rare * weight * (SATURATION + 1.0) / (weight + SATURATION * long);
            }
        }
    }
}

/// Collects the names of arguments, and of nested ones.
fn arguments(schema: &Value, deep: usize, add: &mut impl FnMut(&str)) {
    let Some(deep) = deep.checked_sub(1) else {
        return;
    };
    for (name, schema) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        add(name);
        arguments(schema, deep, add);
        if let Some(items) = schema.get("items") {
            arguments(items, deep, add);
        }
    }
}

/// Returns the words of a text or a name, in lower case and in the singular.
fn words(text: &str) -> impl Iterator<Item = String> {
    let parts = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|part| !part.is_empty());
    parts
        .flat_map(camel_parts)
        .map(|word| singular(word.to_lowercase()))
        .filter(|word| !is_filler(word))
}

/// Returns the parts of a name like `readFile` or `HTTPServer`.
fn camel_parts(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let chars: Vec<(usize, char)> = name.char_indices().collect();
    for (n, (at, c)) in chars.iter().enumerate().skip(1) {
        let before = chars
            .get(n - 1)
            .is_some_and(|(_, before)| before.is_lowercase() || before.is_numeric());
        let after = chars
            .get(n + 1)
            .is_some_and(|(_, after)| after.is_lowercase());
        if c.is_uppercase() && (before || after) {
            parts.extend(name.get(start..*at));
            start = *at;
        }
    }
    parts.extend(name.get(start..));
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns a word without its English plural ending, by a simple rule.
fn singular(mut word: String) -> String {
    let is_plural =
        word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us");
    if is_plural && word.ends_with("ies") && word.len() > 4 {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if is_plural {
        word.pop();
    }
    word
}

/// Returns `true` for words that are in nearly every description.
fn is_filler(word: &str) -> bool {
    [
        "a", "an", "and", "by", "for", "from", "in", "is", "it", "of", "on", "or", "that", "the",
        "this", "to", "tool", "with",
    ]
    .contains(&word)
}

#[cfg(test)]
mod tests;
