//! Notes about omitted parts, in the words that a model reads.

use levity_core::ContextBlock;

/// The maximum number of omitted parts that are named.
const MAX_NAMED: usize = 5;

/// Creates a block that lists omitted parts within a token limit. If space is short, the text is
/// shorter.
///
/// The full text names the parts. If it does not fit, a fixed short text is tried, and then
/// nothing.
pub(crate) fn left_out(
    name: impl Into<String>,
    parts: &[String],
    tokens: usize,
) -> Option<ContextBlock> {
    if parts.is_empty() {
        return None;
    }
    let (name, text) = (
        name.into(),
        format!("[not shown for lack of room: {}]", parts.join(", ")),
    );
    let short = ContextBlock::new(name.as_str(), "[there is no room for all]");
    [ContextBlock::new(name, text), short]
        .into_iter()
        .find(|block| block.tokens() <= tokens)
}

/// Returns the first names, and how many more there are.
///
/// At most [`MAX_NAMED`] names appear, so a folder of thousands of files does not fill the note.
pub(crate) fn named(names: &[String], what: &str) -> Vec<String> {
    let (first, rest) = names.split_at(names.len().min(MAX_NAMED));
    let more = (!rest.is_empty()).then(|| count(rest.len(), what));
    first
        .iter()
        .map(|name| format!("`{name}`"))
        .chain(more)
        .collect()
}

/// Formats a count such as `3 more files`.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{number} more {what}{}", if number == 1 { "" } else { "s" })
}
