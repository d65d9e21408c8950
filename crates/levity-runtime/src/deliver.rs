//! Requests to runs that this process does not drive.
//!
//! If no process drives the run, the request becomes a record in its journal. Otherwise the journal
//! keeps it for the driver, if it can. Both paths validate the request against the records first. A
//! decision on a question that nobody asked, or a command to a run that has ended, is rejected
//! instead of being stored forever.

use std::collections::BTreeMap;

use levity_core::{
    ControlCommand, ControlError, Decision, EffectId, EffectKind, EffectNote, Entry, Executor,
    JournalErrorKind, OpenRun, Outcome, Record, Resolution, RunId, RunRequest, RuntimeError,
    ToolCall, ToolResult,
};

use crate::drive::orders::edit_problems;
use crate::drive::screen::{intervention_entry, request_has_text, screened_post};
use crate::runtime::Runtime;

/// The result of sending a request to a run.
///
/// Both values mean that the request survives the end of this process.
///
/// ```
/// use levity_core::{
///     ControlCommand, Entry, Journal, Limits, MachineKind, Record, RunHeader, RunId, RunRequest,
///     Timestamp,
/// };
/// use levity_runtime::{Delivery, MemoryJournal, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::RuntimeError> {
/// let (journal, run) = (MemoryJournal::new(), RunId::new("monday"));
/// let kind = MachineKind::new("agent", 1);
/// let header = RunHeader::new(kind, serde_json::Value::Null, Limits::new());
/// let first = Record::new(0, Timestamp::default(), Entry::Opened(header));
/// journal.open(&run).await?.log.append(&[first]).await?;
///
/// let runtime = Runtime::new().with_journal(journal.clone());
/// let pause = RunRequest::Command(ControlCommand::Pause);
/// assert_eq!(runtime.send_request(&run, pause).await?, Delivery::Written);
/// assert_eq!(journal.records(&run).len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// The request is in the run's journal. No process drives the run, which handles it when it is
    /// resumed.
    Written,
    /// The request was left for the process that drives the run, which handles it shortly. A
    /// message for a run that has guards and no driver is left for the process that resumes it.
    Posted,
}

impl Runtime {
    /// Sends a request to a run of the journal that this process does not drive: answers its
    /// question, cancels it, reports the outcome of a call. Use [`Control`](crate::Control) for
    /// runs that this process drives.
    ///
    /// ```
    /// # use levity_core::{ControlCommand, RunRequest, RunId};
    /// # use levity_runtime::Runtime;
    /// # async fn cancel(runtime: Runtime) -> Result<(), levity_core::RuntimeError> {
    /// let reason = "no longer needed".to_owned();
    /// let request = RunRequest::Command(ControlCommand::Cancel { reason });
    /// runtime.send_request(&RunId::new("monday"), request).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A message for a run with guards is journaled after they have checked it. If no process
    /// drives the run, the message is left for the one that resumes it, if the journal supports
    /// that (`SqliteJournal` does). Otherwise, use
    /// [`send_screened_request`](Self::send_screened_request) to call the guards.
    ///
    /// # Errors
    /// Returns an error if there is no such run, it has ended, or it does not wait for the request.
    /// It also fails if this journal cannot reach the process that drives the run, or if its guards
    /// cannot be called ([`ControlError::NotDriven`]).
    pub async fn send_request(
        &self,
        run: &RunId,
        post: RunRequest,
    ) -> Result<Delivery, RuntimeError> {
        self.tell_screened(None, run, post).await
    }

    /// Sends a request as [`send_request`](Self::send_request) does, and screens it with the
    /// [screener](levity_core::Inspection::screener) of this executor if no process drives the run.
    ///
    /// Pass the executor of the agent whose run it is; for a child run, that of the child agent.
    ///
    /// # Errors
    /// Fails in the same cases as [`send_request`](Self::send_request), and with
    /// [`ControlError::Blocked`] if a guard blocks the request.
    pub async fn send_screened_request(
        &self,
        executor: &dyn Executor,
        run: &RunId,
        post: RunRequest,
    ) -> Result<Delivery, RuntimeError> {
        self.tell_screened(Some(executor), run, post).await
    }

    async fn tell_screened(
        &self,
        by: Option<&dyn Executor>,
        run: &RunId,
        post: RunRequest,
    ) -> Result<Delivery, RuntimeError> {
        match self.journal().open(run).await {
            Ok(open) => self.write(by, run, open, post).await,
            Err(error) if error.kind() == JournalErrorKind::Busy => {
                self.journal().post(run, &post).await?;
                Ok(Delivery::Posted)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Nothing is appended if the request is invalid. If a guard blocks it, the intervention is
    /// appended alone, so that the block is visible in the run.
    async fn write(
        &self,
        by: Option<&dyn Executor>,
        run: &RunId,
        mut open: OpenRun,
        post: RunRequest,
    ) -> Result<Delivery, RuntimeError> {
        let Some(last) = open.records.last() else {
            return Err(RuntimeError::NotFound(run.clone()));
        };
        if matches!(last.entry, Entry::Ended(_)) {
            return Err(ControlError::NotRunning(run.clone()).into());
        }
        let seq = last.seq.saturating_add(1);
        let mut entries = vec![entry(run, &open.records, post.clone())?];
        let (mut result, words) = (Ok(Delivery::Written), request_has_text(&post));
        check_arguments(by, run, &open.records, &post)?;
        let screener = by
            .filter(|_| words)
            .and_then(|executor| executor.inspect().screener);
        match (by, screener) {
            (_, Some(screener)) => {
                let call = call_of(&open.records, &post);
                let (post, guarded) = screened_post(&*screener, run, call, post).await;
                entries = guarded.iter().cloned().map(intervention_entry).collect();
                match (post, guarded.last()) {
                    (Some(post), _) => entries.push(entry(run, &open.records, post)?),
                    (None, Some(by)) => {
                        result = Err(ControlError::Blocked {
                            run: run.clone(),
                            intervention: by.clone(),
                        });
                    }
                    (None, None) => return Err(ControlError::NotDriven(run.clone()).into()),
                }
            }
            (None, None) if words && has_guards(&open.records) => {
                drop(open);
                return self.leave(run, &post).await;
            }
            _ => {}
        }
        let at = self.world().now();
        let numbered = entries
            .into_iter()
            .zip(seq..)
            .map(|(entry, seq)| Record::new(seq, at, entry));
        open.log.append(&numbered.collect::<Vec<_>>()).await?;
        Ok(result?)
    }

    /// Leaves a message for the next driver of the run, whose guards check it.
    async fn leave(&self, run: &RunId, post: &RunRequest) -> Result<Delivery, RuntimeError> {
        match self.journal().post(run, post).await {
            Ok(()) => Ok(Delivery::Posted),
            Err(error) if error.kind() == JournalErrorKind::Busy => {
                Err(ControlError::NotDriven(run.clone()).into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the journal entry for a request, if it is valid for the run.
///
/// A message is refused while the run has as many pending messages as a driver accepts.
fn entry(run: &RunId, records: &[Record], post: RunRequest) -> Result<Entry, ControlError> {
    let begun = |effect: EffectId, kinds: fn(&EffectNote) -> bool| {
        let not_asked = ControlError::NotAsked {
            run: run.clone(),
            effect,
        };
        open_effects(records)
            .remove(&effect)
            .filter(|note| kinds(note))
            .ok_or(not_asked)
    };
    match post {
        RunRequest::Command(ControlCommand::Say { .. })
            if pending_messages(records) >= levity_driver::MAX_PENDING_MESSAGES =>
        {
            Err(ControlError::Full(run.clone()))
        }
        RunRequest::Command(command) => Ok(Entry::Commanded(command)),
        RunRequest::Decide { effect, decision } => {
            begun(effect, |note| note.kind == EffectKind::Ask)?;
            Ok(Entry::finished(effect, Outcome::Decision(decision)))
        }
        RunRequest::Resolve { effect, resolution } => {
            let note = begun(effect, |note| {
                note.kind == EffectKind::Tool && !note.class.may_repeat()
            })?;
            Ok(resolved(effect, note, resolution))
        }
        _ => Err(ControlError::NotRunning(run.clone())),
    }
}

/// Returns `true` if the run has guards for input from people.
fn has_guards(records: &[Record]) -> bool {
    matches!(
        records.first().map(|record| &record.entry),
        Some(Entry::Opened(opened)) if opened.screens_input
    )
}

/// Fails if the decision contains arguments that this executor rejects.
fn check_arguments(
    by: Option<&dyn Executor>,
    run: &RunId,
    records: &[Record],
    post: &RunRequest,
) -> Result<(), ControlError> {
    let (Some(executor), RunRequest::Decide { effect, decision }) = (by, post) else {
        return Ok(());
    };
    let (Decision::Edit { args }, Some(call)) = (decision, call_of(records, post)) else {
        return Ok(());
    };
    match edit_problems(executor, call, args) {
        problems if problems.is_empty() => Ok(()),
        problems => Err(ControlError::InvalidArguments {
            run: run.clone(),
            effect: *effect,
            problems,
        }),
    }
}

/// Returns the call that a decision is about, without its arguments: these are in no record.
fn call_of(records: &[Record], post: &RunRequest) -> Option<ToolCall> {
    let RunRequest::Decide { effect, .. } = post else {
        return None;
    };
    let note = open_effects(records).remove(effect)?;
    let id = note.call.clone().unwrap_or_else(|| "".into());
    Some(ToolCall::new(id, &*note.name, serde_json::Value::Null))
}

/// Returns the effects that have started and not finished.
fn open_effects(records: &[Record]) -> BTreeMap<EffectId, &EffectNote> {
    let mut open = BTreeMap::new();
    for record in records {
        match &record.entry {
            Entry::Started { effect, note } => drop(open.insert(*effect, note)),
            Entry::Finished { effect, .. } => drop(open.remove(effect)),
            _ => {}
        }
    }
    open
}

/// Returns the number of messages from the host since the last model call.
fn pending_messages(records: &[Record]) -> usize {
    let called = |record: &&Record| {
        !matches!(
            &record.entry,
            Entry::Started { note, .. } if note.kind == EffectKind::Model
        )
    };
    let since = records.iter().rev().take_while(called);
    since
        .filter(|record| matches!(record.entry, Entry::Commanded(ControlCommand::Say { .. })))
        .count()
}

/// The records do not contain the arguments of the call, and the result needs only its id and its
/// name.
fn resolved(effect: EffectId, note: &EffectNote, resolution: Resolution) -> Entry {
    match resolution {
        Resolution::Done(output) => {
            let id = note.call.clone().unwrap_or_else(|| "".into());
            let call = ToolCall::new(id, &*note.name, serde_json::Value::Null);
            Entry::finished(effect, Outcome::Tool(ToolResult::new(&call, Ok(output))))
        }
        Resolution::NotDone => Entry::Cleared { effect },
        _ => Entry::finished(effect, Outcome::Unknown),
    }
}
