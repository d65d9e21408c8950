//! The calls that a fork makes without asking again.
//!
//! A fork copies the decisions of the old run. If it begins between an approval and the end of the
//! approved call, the fork makes the call, although nobody approved it for the fork. Servers
//! therefore look at the records before they let a client fork a run.

use std::collections::{BTreeSet, HashMap};

use levity_core::{
    CallId, Decision, EffectId, EffectKind, Entry, Journal, Outcome, Record, RunId, RuntimeError,
};
use levity_driver::cut;

/// The records that a fork begins with, in short.
///
/// ```
/// use levity_core::{Journal, RunId, RuntimeError};
/// use levity_runtime::preview_fork;
///
/// /// Returns `true` if a fork of the run makes no call that was approved for the run.
/// async fn is_harmless(journal: &dyn Journal, run: &RunId) -> Result<bool, RuntimeError> {
///     Ok(preview_fork(journal, run, None).await?.approved.is_empty())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForkPreview {
    /// The number of the last record that the fork begins with.
    pub after: u64,
    /// The questions of the old run whose calls a person approved, and which the fork makes. The
    /// approval of a plan never ends, because the fork executes the rest of the plan.
    pub approved: Vec<EffectId>,
}

/// Returns the point at which a fork leaves an existing run, and the approvals that it inherits.
///
/// Pass [`ForkPreview::after`] to the fork, so that it begins with the records that were examined
/// even if the run writes more of them in the meantime.
///
/// # Errors
/// Returns an error if there is no such run, if it has no record `after`, or if the journal fails.
///
/// ```
/// use levity_core::{RunId, RuntimeError};
/// use levity_runtime::{MemoryJournal, preview_fork};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let journal = MemoryJournal::new();
/// let preview = preview_fork(&journal, &RunId::new("monday"), None).await;
/// assert!(matches!(preview, Err(RuntimeError::NotFound(_))));
/// # }
/// ```
pub async fn preview_fork(
    journal: &dyn Journal,
    from: &RunId,
    after: Option<u64>,
) -> Result<ForkPreview, RuntimeError> {
    let records = cut(from, journal.read_to_continue(from).await?, after)?;
    Ok(ForkPreview {
        after: (records.len() as u64).saturating_sub(1),
        approved: open_approvals(&records),
    })
}

/// Returns the questions that were answered with an approval, and whose call did not end.
///
/// A call ends with an outcome of its tool, child run or wait, which was requested after the
/// question.
fn open_approvals(records: &[Record]) -> Vec<EffectId> {
    let mut calls: HashMap<EffectId, (EffectKind, CallId)> = HashMap::new();
    let mut approved: Vec<EffectId> = Vec::new();
    let mut ended: BTreeSet<EffectId> = BTreeSet::new();
    for record in records {
        match &record.entry {
            Entry::Started { effect, note } => {
                if let Some(call) = &note.call {
                    calls.insert(*effect, (note.kind, call.clone()));
                }
            }
            Entry::Finished {
                effect,
                outcome: Outcome::Decision(Decision::Allow | Decision::Edit { .. }),
                ..
            } => approved.push(*effect),
            Entry::Finished { effect, .. } => drop(ended.insert(*effect)),
            // The call did not take effect, so it may be made again.
            Entry::Cleared { effect } => drop(ended.remove(effect)),
            _ => {}
        }
    }
    let mut last_end: HashMap<&CallId, EffectId> = HashMap::new();
    for effect in &ended {
        if let Some((kind, call)) = calls.get(effect)
            && *kind != EffectKind::Ask
        {
            last_end.insert(call, *effect);
        }
    }
    let is_open = |question: &EffectId| {
        let call = calls.get(question).map(|(_, call)| call);
        let end = call.and_then(|call| last_end.get(call));
        end.is_none_or(|end| end < question)
    };
    approved.retain(is_open);
    approved
}

#[cfg(test)]
mod tests {
    use levity_core::{EffectClass, EffectNote, Timestamp, ToolCall, ToolOutput, ToolResult};
    use serde_json::json;

    use super::*;

    fn started(effect: u64, kind: EffectKind, call: &str) -> Entry {
        let mut note = EffectNote::new(kind, "delete", EffectClass::AtMostOnce);
        note.call = Some(call.into());
        let effect = EffectId::new(effect);
        Entry::Started { effect, note }
    }

    fn finished(effect: u64, outcome: Outcome) -> Entry {
        Entry::Finished {
            effect: EffectId::new(effect),
            outcome,
            spent: None,
        }
    }

    fn done(call: &str) -> Outcome {
        let call = ToolCall::new(call, "delete", json!({}));
        Outcome::Tool(ToolResult::new(&call, Ok(ToolOutput::text("gone"))))
    }

    fn asks(reason: &str) -> Outcome {
        Outcome::NeedsApproval {
            reason: reason.to_owned(),
        }
    }

    #[track_caller]
    fn check(entries: &[Entry], expected: &[u64]) {
        let record =
            |(seq, entry): (u64, &Entry)| Record::new(seq, Timestamp::default(), entry.clone());
        let records: Vec<Record> = (0..).zip(entries).map(record).collect();
        let found: Vec<u64> = open_approvals(&records).iter().map(|id| id.get()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn approval_is_open_until_its_call_ends() {
        let allow = || Outcome::Decision(Decision::Allow);
        let entries = [
            started(1, EffectKind::Tool, "a"),
            finished(1, asks("it deletes")),
            started(2, EffectKind::Ask, "a"),
            finished(2, allow()),
            started(3, EffectKind::Tool, "a"),
            finished(3, done("a")),
        ];
        for (count, expected) in [(3, &[][..]), (4, &[2]), (5, &[2]), (6, &[])] {
            check(&entries[..count], expected);
        }
        let mut cleared = entries.to_vec();
        cleared[5] = finished(3, Outcome::Unknown);
        check(&cleared, &[]);
        cleared.push(Entry::Cleared {
            effect: EffectId::new(3),
        });
        check(&cleared, &[2]);
    }

    #[test]
    fn approval_without_call_stays_open_and_denial_is_none() {
        let entries = [
            started(1, EffectKind::Tool, "a"),
            finished(1, done("a")),
            started(2, EffectKind::Ask, "a"),
            finished(2, Outcome::Decision(Decision::edit(json!({})))),
            started(3, EffectKind::Ask, "b"),
            finished(3, Outcome::Decision(Decision::deny("no"))),
            started(4, EffectKind::Ask, "c"),
            finished(4, Outcome::Decision(Decision::answer("yes"))),
        ];
        check(&entries, &[2]);
    }
}
