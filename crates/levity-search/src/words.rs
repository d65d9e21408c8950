//! Text for the word index, and queries on it.
//!
//! The index splits texts at spaces, which Chinese, Japanese, Thai and other scripts do not use.
//! Their characters become words of their own, and a query looks for pairs of them. A question is
//! reduced to quoted words, so no part of it can be search syntax.

use std::borrow::Cow;
use std::collections::HashSet;

/// The maximum size of a question, in bytes; the rest is ignored.
const MAX_QUESTION_BYTES: usize = 8 << 10;

/// Prepares text for the index: in scripts without spaces, each character becomes a separate word.
///
/// ```
/// assert_eq!(levity_search::spaced("in 東京"), "in  東  京 ");
/// ```
pub fn spaced(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unspaced) {
        return text.into();
    }
    let mut spaced = String::with_capacity(text.len() * 2);
    for c in text.chars() {
        if is_unspaced(c) {
            spaced.extend([' ', c, ' ']);
        } else {
            spaced.push(c);
        }
    }
    spaced.into()
}

/// Returns the index queries that find texts with some of the words of `question`, whatever else it
/// contains.
///
/// Very common words count only if there are no others, and at most `max_words` words count.
///
/// ```
/// assert_eq!(levity_search::query_words("Where is the tea?", 64), ["\"tea\""]);
/// ```
pub fn query_words(question: &str, max_words: usize) -> Vec<String> {
    let question = truncate_question(question);
    let all = phrases(question);
    let distinctive: Vec<_> = all.iter().filter(|word| !is_common(word)).collect();
    let words = if distinctive.is_empty() {
        all.iter().collect()
    } else {
        distinctive
    };
    // Only letters, digits and spaces remain, so a quote cannot end early.
    words
        .into_iter()
        .take(max_words)
        .map(|word| format!("\"{word}\""))
        .collect()
}

/// Truncates a question to the maximum size, 8 KiB.
///
/// ```
/// assert_eq!(levity_search::truncate_question("tea"), "tea");
/// ```
pub fn truncate_question(text: &str) -> &str {
    let mut end = MAX_QUESTION_BYTES.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the distinct words of a text in order; pairs of characters in scripts without spaces.
fn phrases(text: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut phrases = Vec::new();
    for word in text.split(|c: char| !(c.is_alphanumeric() || is_mark(c) || is_vowel_sign(c))) {
        for phrase in split_scripts(&word.to_lowercase().replace(is_vowel_sign, "")) {
            if phrase.contains(char::is_alphanumeric) && seen.insert(phrase.clone()) {
                phrases.push(phrase);
            }
        }
    }
    phrases
}

/// `東京tower` becomes the pairs of its Chinese part and the word `tower`.
fn split_scripts(word: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let unspaced = is_unspaced(first);
        let end = rest
            .find(|c| is_unspaced(c) != unspaced)
            .unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        if unspaced {
            parts.extend(pairs(run));
        } else {
            parts.push(run.to_owned());
        }
        rest = after;
    }
    parts
}

fn pairs(run: &str) -> Vec<String> {
    let chars: Vec<char> = run.chars().collect();
    match chars.len() {
        1 => vec![run.to_owned()],
        _ => chars
            .windows(2)
            .map(|pair| format!("{} {}", pair[0], pair[1]))
            .collect(),
    }
}

/// Returns `true` if the script of the character does not separate words by spaces.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        // Thai, Lao, Burmese, Khmer.
        '\u{0e01}'..='\u{0e33}' | '\u{0e40}'..='\u{0e46}' | '\u{0e81}'..='\u{0eb3}'
        | '\u{0ec0}'..='\u{0ec6}' | '\u{1000}'..='\u{102a}' | '\u{1780}'..='\u{17b3}'
        // Kana and Chinese characters, with the signs that repeat or lengthen them.
        | '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309e}'
        | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30fe}' | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9d}'
        | '\u{20000}'..='\u{3ffff}')
}

/// Returns `true` for a vowel or tone mark of Thai, Lao, Burmese or Khmer next to a letter. The
/// index contains only the letters.
fn is_vowel_sign(c: char) -> bool {
    matches!(c,
        '\u{0e31}' | '\u{0e34}'..='\u{0e3a}' | '\u{0e47}'..='\u{0e4e}' | '\u{0eb1}'
        | '\u{0eb4}'..='\u{0ebc}' | '\u{0ec8}'..='\u{0ece}' | '\u{102b}'..='\u{103e}'
        | '\u{17b4}'..='\u{17d3}')
}

/// Returns `true` for a mark that modifies the preceding letter. The index ignores accents, and so
/// treats the mark as part of the word.
fn is_mark(c: char) -> bool {
    matches!(
        c,
        '\u{0300}'..='\u{036f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
            | '\u{20d0}'..='\u{20ff}'
    )
}

fn is_common(word: &str) -> bool {
    COMMON_WORDS.binary_search(&word).is_ok()
}

/// The most common English words, sorted.
const COMMON_WORDS: [&str; 127] = [
    "a", "about", "after", "again", "all", "also", "am", "an", "and", "any", "are", "aren", "as",
    "at", "be", "been", "before", "being", "but", "by", "can", "cannot", "could", "couldn", "d",
    "did", "didn", "do", "does", "doesn", "doing", "don", "for", "from", "get", "give", "had",
    "has", "have", "having", "he", "her", "here", "hers", "him", "his", "how", "i", "if", "in",
    "into", "is", "isn", "it", "its", "just", "know", "let", "like", "ll", "m", "may", "me",
    "might", "mine", "must", "my", "no", "not", "now", "of", "on", "or", "our", "ours", "out",
    "please", "re", "s", "shall", "she", "should", "so", "some", "such", "t", "tell", "than",
    "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "too",
    "up", "us", "ve", "very", "want", "was", "wasn", "we", "were", "what", "when", "where",
    "which", "while", "who", "whom", "whose", "why", "will", "with", "would", "wouldn", "yes",
    "you", "your", "yours", "yourself",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(question: &str, expected: Option<&str>) {
        assert_eq!(
            query_words(question, 64).join(" OR "),
            expected.unwrap_or_default()
        );
    }

    #[test]
    fn common_words_are_sorted() {
        assert!(COMMON_WORDS.is_sorted());
    }

    #[test]
    fn query_quotes_words_and_drops_syntax() {
        check("Where does the tea come from?", Some(r#""tea" OR "come""#));
        check(
            r#"a" OR text:* NEAR(b, "#,
            Some(r#""text" OR "near" OR "b""#),
        );
        check("tea Tea TEA", Some(r#""tea""#));
        check("e-mail/web", Some(r#""e" OR "mail" OR "web""#));
        check("\0\"*^:()-+{}", None);
        check("", None);
    }

    #[test]
    fn query_uses_common_words_only_without_others() {
        check("who am I", Some(r#""who" OR "am" OR "i""#));
    }

    #[test]
    fn query_splits_scripts_without_spaces_into_pairs() {
        check(
            "東京都のtea",
            Some(r#""東 京" OR "京 都" OR "都 の" OR "tea""#),
        );
        check("茶", Some(r#""茶""#));
        check("コーヒー", Some(r#""コ ー" OR "ー ヒ" OR "ヒ ー""#));
        check("人々", Some(r#""人 々""#));
        check("น้ำตาล", Some(r#""น ำ" OR "ำ ต" OR "ต า" OR "า ล""#));
        check("ที่นั่น", Some(r#""ท น" OR "น น""#));
        assert_eq!(spaced("in 東京"), "in  東  京 ");
        assert_eq!(spaced("in Wien"), "in Wien");
    }

    #[test]
    fn query_truncates_long_questions() {
        let words: Vec<_> = (0..10_000).map(|n| format!("wört{n}")).collect();
        let query = query_words(&words.join(" "), 64);
        assert_eq!(query.len(), 64);
        check(
            &"ä".repeat(MAX_QUESTION_BYTES),
            Some(&format!("\"{}\"", "ä".repeat(MAX_QUESTION_BYTES / 2))),
        );
    }
}
