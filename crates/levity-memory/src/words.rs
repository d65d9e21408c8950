//! Words of messages and of queries.

use std::collections::BTreeSet;

use levity_core::{Message, Part};

/// What of a message is found: what was said, called and answered; not what was thought.
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

/// So many words of a query count; the others are left out.
pub(crate) const MOST_WORDS: usize = 64;

/// The words of a query, in small letters. What is neither letter nor digit only parts them.
pub(crate) struct Words(BTreeSet<String>);

impl Words {
    pub(crate) fn of(query: &str) -> Self {
        let words = query
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty());
        Self(words.take(MOST_WORDS).map(str::to_lowercase).collect())
    }

    /// How many of them are in a text.
    pub(crate) fn count_in(&self, text: &str) -> usize {
        if self.0.is_empty() {
            return 0;
        }
        let text = text.to_lowercase();
        let there: BTreeSet<_> = text.split(|c: char| !c.is_alphanumeric()).collect();
        self.0
            .iter()
            .filter(|word| there.contains(word.as_str()))
            .count()
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
