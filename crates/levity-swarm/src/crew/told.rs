//! What was done, in words.

use std::fmt::Write as _;

use levity_core::text::{clipped, one_line, share};

use crate::desk::Desk;
use crate::report::{WorkerReport, missing};

/// How many of the others are named.
const NAMED: usize = 50;
/// How much is told of who somebody is.
pub(crate) const MOST_WORKER: usize = 600;
/// How many failures are named below an answer.
const MOST_NAMED: usize = 20;
/// How much a list has at most, in bytes.
const MOST_LISTED: usize = 1 << 20;

/// What it is all about, with what the user has added.
pub(crate) fn goal(heading: &str, desk: &Desk) -> String {
    let mut text = format!("# {heading}\n{}\n", desk.start.goal);
    for said in &desk.said {
        let _ = write!(text, "\nThe user has added: {said}\n");
    }
    text
}

/// Who a worker is.
pub(crate) fn tell_who(text: &mut String, worker: &str, desk: &Desk) {
    let _ = write!(text, "You are `{worker}`");
    if let Some(card) = desk.rules.cards.get(worker) {
        let _ = write!(text, ": {}", one_line(&card.description, MOST_WORKER));
    }
    text.push('\n');
}

/// The names of the others.
pub(crate) fn others(worker: &str, desk: &Desk) -> String {
    let others = desk
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

/// What was not done, by name; nothing when all was.
pub(crate) fn not_done(reports: &[WorkerReport]) -> String {
    let mut text = String::new();
    let missing = missing(reports);
    for report in missing.iter().take(MOST_NAMED) {
        let why = report.error.as_deref().unwrap_or("it did not end");
        let _ = write!(
            text,
            "\n- {} (`{}`): {}",
            report.worker,
            report.id,
            clipped(why, 300)
        );
    }
    if missing.len() > MOST_NAMED {
        let _ = write!(text, "\n- and {} more", missing.len() - MOST_NAMED);
    }
    if text.is_empty() {
        text
    } else {
        format!("\n\nNot done:{text}")
    }
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
