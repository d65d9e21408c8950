use std::collections::BTreeMap;

use levity_core::{
    Command, EffectId, EffectKind, EffectNote, Entry, JournalErrorKind, OpenRun, Outcome, Post, Record,
    Resolution, RunId, ToolCall, ToolResult,
};

use crate::error::{ControlError, Error};
use crate::runtime::Runtime;

/// What became of something that a run was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Told {
    /// It is in the run's journal. Nobody drives the run; it goes by it when it is resumed.
    Written,
    /// It was left for the process that drives the run, which takes it shortly.
    Posted,
}

impl Runtime {
    /// Tells something to a run of the journal that this process does not drive: answers its question,
    /// cancels it, says what came of a call. [`Control`](crate::Control) tells runs that it does drive.
    ///
    /// ```
    /// # use levity_core::{Command, Post, RunId};
    /// # use levity_runtime::Runtime;
    /// # async fn cancel(runtime: Runtime) -> Result<(), levity_runtime::Error> {
    /// let reason = "no longer needed".to_owned();
    /// runtime.tell(&RunId::new("monday"), Post::Command(Command::Cancel { reason })).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there is no such run, it has ended, it does not ask or wait for that, or it is driven by a process
    /// that this journal cannot reach.
    pub async fn tell(&self, run: &RunId, post: Post) -> Result<Told, Error> {
        match self.journal().open(run).await {
            Ok(open) => self.write(run, open, post).await,
            Err(error) if error.kind() == JournalErrorKind::Busy => {
                self.journal().post(run, &post).await?;
                Ok(Told::Posted)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn write(&self, run: &RunId, mut open: OpenRun, post: Post) -> Result<Told, Error> {
        let Some(last) = open.records.last() else { return Err(Error::NotFound(run.clone())) };
        if matches!(last.entry, Entry::Ended(_)) {
            return Err(ControlError::NotRunning(run.clone()).into());
        }
        let seq = last.seq.saturating_add(1);
        let entry = entry(run, &open.records, post)?;
        open.log.append(&[Record::new(seq, self.world().now(), entry)]).await?;
        Ok(Told::Written)
    }
}

/// The entry for what a run is told, if it makes sense to it.
fn entry(run: &RunId, records: &[Record], post: Post) -> Result<Entry, ControlError> {
    let begun = |effect: EffectId, kinds: fn(&EffectNote) -> bool| {
        let not_asked = ControlError::NotAsked { run: run.clone(), effect };
        under_way(records).remove(&effect).filter(|note| kinds(note)).ok_or(not_asked)
    };
    match post {
        Post::Command(Command::Say { .. }) if said(records) >= crate::drive::MAX_SAID => {
            Err(ControlError::Full(run.clone()))
        }
        Post::Command(command) => Ok(Entry::Commanded(command)),
        Post::Decide { effect, decision } => {
            begun(effect, |note| note.kind == EffectKind::Ask)?;
            Ok(Entry::finished(effect, Outcome::Decision(decision)))
        }
        Post::Resolve { effect, resolution } => {
            let note = begun(effect, |note| note.kind == EffectKind::Tool && !note.class.may_repeat())?;
            Ok(resolved(effect, note, resolution))
        }
        _ => Err(ControlError::NotRunning(run.clone())),
    }
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
    since.filter(|record| matches!(record.entry, Entry::Commanded(Command::Say { .. }))).count()
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
