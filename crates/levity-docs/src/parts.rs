//! Parts of words in code: `conf` finds `parse_config`.
//!
//! The index has the trigrams of code without their positions, which takes much less space. It
//! therefore finds chunks that contain all trigrams of a word in any order, and a chunk that is
//! read is checked again.

use levity_search::word_weight;
use rusqlite::Connection;

/// The minimum and the maximum length of a word that may be a part of another, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 4..=64;
/// The maximum number of words of a question that are looked for as parts.
const MAX_WORDS: usize = 32;
/// The number of chunks with a word from which on its parts are not needed to find enough chunks.
const ENOUGH: usize = 400;
/// The weight of a part, relative to that of a word that occurs as often.
const SHARE: f64 = 0.5;

/// A word or an identifier of a question, and the chunks of code that may contain it.
pub(crate) struct Part {
    word: String,
    /// The keys in increasing order.
    pub(crate) chunks: Vec<i64>,
    pub(crate) weight: f64,
}

/// Returns the parts that are in few of the `texts` chunks. A frequent part says little, and so
/// does a part that is a word of many chunks; `numbers` has their number for each word.
pub(crate) fn find(
    view: &Connection,
    question: &str,
    words: &[String],
    numbers: &[usize],
    texts: usize,
) -> rusqlite::Result<Vec<Part>> {
    let frequent = texts.div_ceil(8);
    let mut matching = view.prepare_cached("SELECT rowid FROM parts WHERE parts MATCH ?1")?;
    let mut parts = Vec::new();
    let words = words.iter().zip(numbers);
    let words = words.filter(|(_, number)| **number < ENOUGH);
    let words = words.map(|(word, _)| word.trim_matches('"').to_owned());
    let usable = |word: &String| word.is_ascii() && LENGTHS.contains(&word.len());
    for word in identifiers(question)
        .chain(words)
        .filter(usable)
        .take(MAX_WORDS)
    {
        let found = matching.query_map([trigrams(&word)], |row| row.get(0))?;
        let chunks: Vec<i64> = found.take(frequent + 1).collect::<rusqlite::Result<_>>()?;
        if !chunks.is_empty() && chunks.len() <= frequent {
            let weight = SHARE * word_weight(texts as f64, chunks.len() as f64);
            parts.push(Part {
                word,
                chunks,
                weight,
            });
        }
    }
    Ok(parts)
}

/// Returns the words of a question with `_`, which the index of words divides.
fn identifiers(question: &str) -> impl Iterator<Item = String> {
    let words = question.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let words = words.filter(|word| word.trim_matches('_').contains('_'));
    words.map(str::to_ascii_lowercase)
}

/// Returns the index query for chunks with all trigrams of a word of letters, digits and `_`.
fn trigrams(word: &str) -> String {
    let trigrams = word.as_bytes().windows(3).map(|three| {
        let three = String::from_utf8_lossy(three);
        format!("\"{three}\"")
    });
    trigrams.collect::<Vec<_>>().join(" AND ")
}

/// Returns the weights of the parts that the index found in a chunk, but that are not in its text,
/// or also are words of it.
pub(crate) fn unconfirmed(parts: &[Part], chunk: i64, text: &str) -> f64 {
    let mut found = parts
        .iter()
        .filter(|part| part.chunks.binary_search(&chunk).is_ok())
        .peekable();
    if found.peek().is_none() {
        return 0.0;
    }
    let text = text.to_ascii_lowercase();
    let wrong = found.filter(|part| !is_only_part(&text, &part.word));
    wrong.map(|part| part.weight).sum()
}

/// Returns `true` if a text contains a word within longer words, and nowhere alone. The index of
/// words does not have an identifier, so any place of it counts.
fn is_only_part(text: &str, word: &str) -> bool {
    if word.contains('_') {
        return text.contains(word);
    }
    let mut places = text.match_indices(word).peekable();
    let is_part = |at: usize| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        [before, after]
            .into_iter()
            .flatten()
            .any(char::is_alphanumeric)
    };
    places.peek().is_some() && places.all(|(at, _)| is_part(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_within_longer_words_are_parts() {
        for (text, expected) in [
            ("fn parse_config()", true),
            ("parseconfig and reconfigure", true),
            ("the conf of parse_config", false),
            ("conf_of", false),
            ("c o n f", false),
            ("éconf", true),
            ("", false),
        ] {
            assert_eq!(is_only_part(text, "conf"), expected, "{text}");
        }
        assert!(is_only_part("fn parse_conf()", "parse_conf"));
        assert!(!is_only_part("fn parse()", "parse_conf"));
        let found: Vec<_> = identifiers("Where is Parse_conf (_a, __b_) or c?").collect();
        assert_eq!(found, ["parse_conf"]);
        assert_eq!(trigrams("conf"), "\"con\" AND \"onf\"");
    }
}
