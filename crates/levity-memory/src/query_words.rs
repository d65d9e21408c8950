//! Words of messages and of search queries.
//!
//! All stores split texts in the same way, so that a search finds the same messages in each of
//! them.

use std::collections::BTreeSet;

use levity_core::{Message, Part};

/// Returns the searchable text of a message: its text, calls and results, without the reasoning.
pub(crate) fn searchable(message: &Message) -> String {
    let mut text = String::new();
    for part in &message.parts {
        if !text.is_empty() {
            text.push('\n');
        }
        match part {
            Part::Text(part) => text.push_str(&part.text),
            Part::ToolCall(call) => {
                text.push_str(&call.name);
                text.push('\n');
                text.push_str(&call.args.to_string());
            }
            Part::ToolResult(result) => text.push_str(&result.text()),
            _ => {}
        }
    }
    text
}

/// The maximum number of words of a query; further words are ignored.
pub(crate) const MAX_WORDS: usize = 64;

/// The words of a query in lower case. Every character that is not alphanumeric separates words.
pub(crate) struct QueryWords(BTreeSet<String>);

impl QueryWords {
    pub(crate) fn of(query: &str) -> Self {
        let words = query
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty());
        Self(words.take(MAX_WORDS).map(str::to_lowercase).collect())
    }

    /// Returns how many of the words occur in a text.
    pub(crate) fn count_in(&self, text: &str) -> usize {
        if self.0.is_empty() {
            return 0;
        }
        let text = text.to_lowercase();
        let text_words: BTreeSet<_> = text.split(|c: char| !c.is_alphanumeric()).collect();
        self.0
            .iter()
            .filter(|word| text_words.contains(word.as_str()))
            .count()
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
