use levity_core::ContextBlock;

/// How many are named of those that are left out.
const MAX_NAMED: usize = 5;

/// A block that says what is left out, within so many tokens; in few words where there is room only
/// for those.
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

/// The first of some names, and how many more there are.
pub(crate) fn named(names: &[String], what: &str) -> Vec<String> {
    let (first, rest) = names.split_at(names.len().min(MAX_NAMED));
    let more = (!rest.is_empty()).then(|| count(rest.len(), what));
    first
        .iter()
        .map(|name| format!("`{name}`"))
        .chain(more)
        .collect()
}

/// So many more of something.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{number} more {what}{}", if number == 1 { "" } else { "s" })
}
