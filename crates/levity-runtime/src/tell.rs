use std::collections::BTreeMap;

use levity_core::{
    ControlCommand, ControlError, EffectId, EffectKind, EffectNote, Entry, Executor,
    JournalErrorKind, OpenRun, Outcome, Record, Resolution, RunId, RunRequest, RuntimeError,
    ToolCall, ToolResult,
};

use crate::drive::screen::{has_words, screened_post, stepped_in};
use crate::runtime::Runtime;

/// What became of something that a run was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// It is in the run's journal. Nobody drives the run; it goes by it when it is resumed.
    Written,
    /// It was left for the process that drives the run, which takes it shortly. Words for a run
    /// that has guards and that nobody drives are left for the process that resumes it.
    Posted,
}

impl Runtime {
    /// Tells something to a run of the journal that this process does not drive: answers its
    /// question, cancels it, says what came of a call. [`Control`](crate::Control) tells runs that
    /// it does drive.
    ///
    /// ```
    /// # use levity_core::{ControlCommand, RunRequest, RunId};
    /// # use levity_runtime::Runtime;
    /// # async fn cancel(runtime: Runtime) -> Result<(), levity_core::RuntimeError> {
    /// let reason = "no longer needed".to_owned();
    /// runtime.tell(&RunId::new("monday"), RunRequest::Command(ControlCommand::Cancel { reason })).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// What people say to a run with guards is written down once these have looked at it. Where
    /// nobody drives the run, it is left for whoever resumes it, if the journal takes that
    /// (`SqliteJournal` does); otherwise [`tell_by`](Self::tell_by) has the guards look.
    ///
    /// # Errors
    /// When there is no such run, it has ended, it does not ask or wait for that, it is driven by a
    /// process that this journal cannot reach, or nobody can ask its guards
    /// ([`ControlError::Unheard`]).
    pub async fn tell(&self, run: &RunId, post: RunRequest) -> Result<Delivery, RuntimeError> {
        self.tell_heard(None, run, post).await
    }

    /// The same, and when nobody drives the run, the [screener](levity_core::Inspection::screener)
    /// of this executor looks at what people say before it is written down. It is to be that of the
    /// agent whose run it is; of a run below another, that of the agent below.
    ///
    /// # Errors
    /// As [`tell`](Self::tell), and [`ControlError::Blocked`] when a guard does not let it through.
    pub async fn tell_by(
        &self,
        executor: &dyn Executor,
        run: &RunId,
        post: RunRequest,
    ) -> Result<Delivery, RuntimeError> {
        self.tell_heard(Some(executor), run, post).await
    }

    async fn tell_heard(
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
        let (mut told, words) = (Ok(Delivery::Written), has_words(&post));
        let screener = by
            .filter(|_| words)
            .and_then(|executor| executor.inspect().screener);
        match (by, screener) {
            (_, Some(screener)) => {
                let call = call_of(&open.records, &post);
                let (post, guarded) = screened_post(&*screener, run, call, post).await;
                entries = guarded.iter().cloned().map(stepped_in).collect();
                match (post, guarded.last()) {
                    (Some(post), _) => entries.push(entry(run, &open.records, post)?),
                    (None, Some(by)) => {
                        told = Err(ControlError::Blocked {
                            run: run.clone(),
                            intervention: by.clone(),
                        });
                    }
                    (None, None) => return Err(ControlError::Unheard(run.clone()).into()),
                }
            }
            (None, None) if words && hears(&open.records) => {
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
        Ok(told?)
    }

    /// Leaves words for whoever drives the run next, and has its guards look at them.
    async fn leave(&self, run: &RunId, post: &RunRequest) -> Result<Delivery, RuntimeError> {
        match self.journal().post(run, post).await {
            Ok(()) => Ok(Delivery::Posted),
            Err(error) if error.kind() == JournalErrorKind::Busy => {
                Err(ControlError::Unheard(run.clone()).into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The entry for what a run is told, if it makes sense to it.
fn entry(run: &RunId, records: &[Record], post: RunRequest) -> Result<Entry, ControlError> {
    let begun = |effect: EffectId, kinds: fn(&EffectNote) -> bool| {
        let not_asked = ControlError::NotAsked {
            run: run.clone(),
            effect,
        };
        under_way(records)
            .remove(&effect)
            .filter(|note| kinds(note))
            .ok_or(not_asked)
    };
    match post {
        RunRequest::Command(ControlCommand::Say { .. })
            if said(records) >= levity_driver::MAX_SAID =>
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

/// Whether what people say to the run is looked at.
fn hears(records: &[Record]) -> bool {
    matches!(records.first().map(|record| &record.entry), Some(Entry::Opened(opened)) if opened.hears)
}

/// The call that a decision is on, without its arguments: these are in no record.
fn call_of(records: &[Record], post: &RunRequest) -> Option<ToolCall> {
    let RunRequest::Decide { effect, .. } = post else {
        return None;
    };
    let note = under_way(records).remove(effect)?;
    let id = note.call.clone().unwrap_or_else(|| "".into());
    Some(ToolCall::new(id, &*note.name, serde_json::Value::Null))
}

/// The effects that have begun and not finished.
fn under_way(records: &[Record]) -> BTreeMap<EffectId, &EffectNote> {
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

/// How much the host has said since the last call of a model.
fn said(records: &[Record]) -> usize {
    let called = |record: &&Record| !matches!(&record.entry, Entry::Started { note, .. } if note.kind == EffectKind::Model);
    let since = records.iter().rev().take_while(called);
    since
        .filter(|record| matches!(record.entry, Entry::Commanded(ControlCommand::Say { .. })))
        .count()
}

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
