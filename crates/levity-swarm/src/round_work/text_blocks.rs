//! Text blocks about workers and results for prompts and answers.

use std::fmt::Write as _;

use levity_core::text::{clipped, one_line, share};

use crate::report::{WorkerReport, missing};
use crate::shared_state::SharedState;

/// The maximum number of other workers that are named.
const NAMED: usize = 50;
/// The maximum size of a worker's description, in bytes.
pub(crate) const MAX_DESCRIPTION_BYTES: usize = 600;
/// The maximum number of failures named below an answer.
const MAX_NAMED: usize = 20;
/// The maximum size of a list, in bytes.
const MAX_LIST_BYTES: usize = 1 << 20;

/// Returns the goal, with the messages that the user has added.
pub(crate) fn goal(heading: &str, shared: &SharedState) -> String {
    let mut text = format!("# {heading}\n{}\n", shared.start.goal);
    for message in &shared.host_messages {
        let _ = write!(text, "\nThe user has added: {message}\n");
    }
    text
}

/// Writes the name and the description of a worker.
pub(crate) fn write_identity(text: &mut String, worker: &str, shared: &SharedState) {
    let _ = write!(text, "You are `{worker}`");
    if let Some(card) = shared.rules.cards.get(worker) {
        let _ = write!(
            text,
            ": {}",
            one_line(&card.description, MAX_DESCRIPTION_BYTES)
        );
    }
    text.push('\n');
}

/// Returns the names of the other workers.
pub(crate) fn others(worker: &str, shared: &SharedState) -> String {
    let others = shared
        .rules
        .order
        .iter()
        .filter(|name| ***name != *worker)
        .take(NAMED);
    let others: Vec<String> = others.map(|name| format!("`{name}`")).collect();
    if others.is_empty() {
        "nobody else".to_owned()
    } else {
        others.join(", ")
    }
}

/// Lists the work that did not complete; empty if all did.
pub(crate) fn not_done(reports: &[WorkerReport]) -> String {
    let mut text = String::new();
    let missing = missing(reports);
    for report in missing.iter().take(MAX_NAMED) {
        let error = report.error.as_deref().unwrap_or("the work did not finish");
        let _ = write!(
            text,
            "\n- {} (`{}`): {}",
            report.worker,
            report.id,
            clipped(error, 300)
        );
    }
    if missing.len() > MAX_NAMED {
        let _ = write!(text, "\n- and {} more", missing.len() - MAX_NAMED);
    }
    if text.is_empty() {
        text
    } else {
        format!("\n\nNot done:{text}")
    }
}

/// Lists texts below their headings, each cut so that all fit.
pub(crate) fn shared_list<'a>(parts: impl Iterator<Item = (String, &'a str)>) -> String {
    let parts: Vec<(String, &str)> = parts.collect();
    let each = share(parts.iter().map(|(_, text)| text.len()), MAX_LIST_BYTES);
    let mut list = String::new();
    for (heading, text) in parts {
        let _ = write!(list, "## {heading}\n{}\n\n", clipped(text.trim_end(), each));
    }
    list.truncate(list.trim_end().len());
    list
}
