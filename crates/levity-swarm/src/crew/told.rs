//! What was done, in words.

use std::fmt::Write as _;

use levity_core::text::{clipped, share};

use crate::report::{Report, missing};

/// How many failures are named below an answer.
const MOST_NAMED: usize = 20;
/// How much a list has at most, in bytes.
const MOST_LISTED: usize = 1 << 20;

/// What was not done, by name; nothing when all was.
pub(crate) fn not_done(reports: &[Report]) -> String {
    let mut text = String::new();
    let missing = missing(reports);
    for report in missing.iter().take(MOST_NAMED) {
        let why = report.error.as_deref().unwrap_or("it did not end");
        let _ = write!(text, "\n- {} (`{}`): {}", report.worker, report.id, clipped(why, 300));
    }
    if missing.len() > MOST_NAMED {
        let _ = write!(text, "\n- and {} more", missing.len() - MOST_NAMED);
    }
    if text.is_empty() { text } else { format!("\n\nNot done:{text}") }
}

/// Texts below their headings, each as long as there is room for all.
pub(crate) fn shared_list<'a>(parts: impl Iterator<Item = (String, &'a str)>) -> String {
    let parts: Vec<(String, &str)> = parts.collect();
    let each = share(parts.iter().map(|(_, text)| text.len()), MOST_LISTED);
    let mut list = String::new();
    for (heading, text) in parts {
        let _ = write!(list, "## {heading}\n{}\n\n", clipped(text.trim_end(), each));
    }
    list.truncate(list.trim_end().len());
    list
}
