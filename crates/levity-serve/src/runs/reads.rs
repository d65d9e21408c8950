//! Reads and lists runs of the journal for clients, within limits.
//!
//! A full read of a run loads all its records and occupies a thread. Reads are therefore limited to
//! 8 at once and lists to 4, with a share per tenant. A request waits up to 10 seconds for its
//! permit and then fails with [`Error::JournalBusy`]. Runs that are in memory need no permit.
//!
//! The functions ending in `_for` do the same as their public counterparts, within the limits of a
//! caller.

use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use levity_core::{
    Ask, ControlError, Decision, JournalError, JournalErrorKind, RunId, RunQuery, RunSummary,
};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Feed, OpenAsk, RunStatus, Runs};
use crate::access::Caller;
use crate::error::{Error, Result};
use crate::feed::{EventReader, FeedEntry};
use crate::quota::{Permit, Quota};
use crate::runner::Runner as _;

/// The maximum time that a client waits until its run may be read.
const MAX_WAIT: Duration = Duration::from_secs(10);

impl Runs {
    /// The maximum number of runs that are read in full from the journal for clients at the same
    /// time: 8. One named token gets the share that [`token_share`](Self::token_share) sets;
    /// further reads wait for up to 10 seconds.
    pub const JOURNAL_READS: usize = 8;

    /// The maximum number of lists of runs or conversations that are read for clients at the same
    /// time: 4, which is the number that the journals read at once. One named token gets the share
    /// that [`token_share`](Self::token_share) sets; further lists wait for up to 10 seconds.
    pub const JOURNAL_LISTS: usize = 4;

    /// Waits for a permit to read a run in full.
    pub(crate) async fn journal_permit(&self, caller: &Caller) -> Result<Permit> {
        self.wait_for_permit(&self.inner.reads, Self::JOURNAL_READS, caller)
            .await
    }

    async fn wait_for_permit(
        &self,
        quota: &Arc<Quota>,
        limit: usize,
        caller: &Caller,
    ) -> Result<Permit> {
        let waited = timeout(MAX_WAIT, quota.wait(caller)).await;
        waited.map_err(|_| Error::JournalBusy {
            limit: self.share().of_caller(limit, caller),
        })
    }

    /// Runs `work`, which reads a run in full, and holds a permit until it ends. A read occupies a
    /// thread, so it continues even if the client disconnects.
    pub(crate) async fn with_journal<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let permit = self.journal_permit(caller).await?;
        self.run_with_permit(permit, work).await
    }

    /// Same as [`with_journal`](Self::with_journal), for work that lists a store. A list covers the
    /// data of all tenants, so it has a separate quota: reads of single runs do not wait for it.
    pub(crate) async fn with_list<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let permit = self
            .wait_for_permit(&self.inner.lists, Self::JOURNAL_LISTS, caller)
            .await?;
        self.run_with_permit(permit, work).await
    }

    async fn run_with_permit<T: Send + 'static>(
        &self,
        permit: Permit,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (send, done) = oneshot::channel();
        {
            let mut tasks = self
                .inner
                .tasks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(async move {
                let _permit = permit;
                let _ = send.send(work.await);
            });
        }
        let ended = |_| {
            JournalError::new(
                JournalErrorKind::Io,
                "cannot read the journal: the server is shutting down",
            )
        };
        done.await.map_err(ended)?
    }

    /// Returns the first `limit` runs that a query lists and `wanted` accepts, for a client.
    ///
    /// If the filter leaves too few runs, the list is read again with four times the limit, until
    /// it is complete or enough runs are found.
    pub(crate) async fn newest(
        &self,
        caller: &Caller,
        query: RunQuery,
        limit: usize,
        wanted: impl Fn(&RunSummary) -> bool + Send + 'static,
    ) -> Result<Vec<RunSummary>> {
        let runtime = self.runtime().clone();
        if !runtime.journal().keeps() {
            let mut found = query.select(
                self.in_memory()
                    .iter()
                    .map(|run| run.summary())
                    .filter(wanted),
            );
            found.truncate(limit);
            return Ok(found);
        }
        let list = async move {
            // Runs of other tenants may lie between the wanted ones.
            let mut read = limit;
            loop {
                let mut found = runtime.journal().list(&query.clone().limit(read)).await?;
                let full = found.len() >= read;
                found.retain(&wanted);
                if found.len() >= limit || !full {
                    found.truncate(limit);
                    return Ok(found);
                }
                read = read.saturating_mul(4);
            }
        };
        self.with_list(caller, list).await
    }

    /// Returns the journal's summary of one run without reading its records; `None` if there is no
    /// such run.
    pub(crate) async fn summary(&self, caller: &Caller, id: &RunId) -> Result<Option<RunSummary>> {
        let query = RunQuery::new().below(id.clone());
        // Ids of child runs contain a dot, so a root run is found without looking at them.
        let query = if id.parent().is_none() {
            query.roots()
        } else {
            query
        };
        let (runtime, run) = (self.runtime().clone(), id.clone());
        let list = async move {
            let found = runtime.journal().list(&query).await?;
            Ok(found.into_iter().find(|found| found.run == run))
        };
        self.with_journal(caller, list).await
    }

    /// Same as [`status`](Self::status), for a client.
    pub(crate) async fn status_for(&self, caller: &Caller, id: &RunId) -> Result<RunStatus> {
        if let Some(run) = self.known_here(id) {
            return Ok(run.status());
        }
        let (runner, run) = (self.inner.runner.clone(), id.clone());
        self.with_journal(caller, async move {
            Ok(RunStatus::of(&run, &runner.history(&run).await?))
        })
        .await
    }

    /// Same as [`asks`](Self::asks), for a client, with the ids that decide the questions.
    pub(crate) async fn open_asks_for(&self, caller: &Caller, id: &RunId) -> Result<Vec<OpenAsk>> {
        if let Some(run) = self.known_here(id) {
            return Ok(run.open_asks().await);
        }
        let (runner, run) = (self.inner.runner.clone(), id.clone());
        self.with_journal(caller, async move {
            let status = RunStatus::of(&run, &runner.history_with_children(&run).await?);
            Ok(status.open_asks(runner.asks(&run).await?))
        })
        .await
    }

    /// Fails if a decision contains arguments that do not match the schema of the tool. The run is
    /// read from the journal; a run in this process checks the arguments itself.
    pub(crate) async fn check_edit_for(
        &self,
        caller: &Caller,
        root: &RunId,
        ask: &Ask,
        decision: &Decision,
    ) -> Result<()> {
        let Decision::Edit { args } = decision else {
            return Ok(());
        };
        let runner = self.inner.runner.clone();
        let (run, open, args) = (root.clone(), ask.clone(), args.clone());
        let check = async move { runner.check_edit(&run, &open, &args).await };
        match self.with_journal(caller, check).await? {
            problems if problems.is_empty() => Ok(()),
            problems => Err(Error::Control(ControlError::InvalidArguments {
                run: ask.run.clone(),
                effect: ask.effect,
                problems,
            })),
        }
    }

    /// Same as [`events`](Self::events), for a client. Also returns the status of a run that only
    /// the journal has.
    pub(crate) async fn events_for(
        &self,
        caller: &Caller,
        id: &RunId,
        after: Option<&str>,
    ) -> Result<(EventReader, Option<RunStatus>)> {
        if let Some(run) = self.known_here(id) {
            return Ok((run.events(after), None));
        }
        let (runner, run) = (self.inner.runner.clone(), id.clone());
        let read = self.with_journal(caller, async move {
            let events = runner.history(&run).await?;
            Ok((
                Feed::from_journal(run.clone(), &events),
                RunStatus::of(&run, &events),
            ))
        });
        let (feed, standing) = read.await?;
        Ok((Arc::new(feed).reader(after), Some(standing)))
    }

    /// Returns the latest events of a run as JSON, without transient ones: as many as fit into
    /// `limit` bytes.
    pub(crate) async fn recent_events(
        &self,
        caller: &Caller,
        id: &RunId,
        limit: usize,
    ) -> Result<Vec<Bytes>> {
        if let Some(run) = self.known_here(id) {
            return Ok(last(run.events(None), limit));
        }
        let (runner, run) = (self.inner.runner.clone(), id.clone());
        let read = self.with_journal(caller, async move {
            let feed = Feed::from_journal(run.clone(), &runner.history(&run).await?);
            Ok(last(Arc::new(feed).reader(None), limit))
        });
        read.await
    }
}

/// Returns the last available events that fit into `limit` bytes, counting a line end for each.
fn last(mut reader: EventReader, limit: usize) -> Vec<Bytes> {
    let mut events = Vec::new();
    while let Some(item) = reader.try_next_item() {
        if let FeedEntry::Event { id: Some(_), event } = item {
            events.push(event.json);
        }
    }
    let mut room = limit;
    let fits = |line: &&Bytes| {
        let left = room.checked_sub(line.len() + 1);
        room = left.unwrap_or_default();
        left.is_some()
    };
    let count = events.iter().rev().take_while(fits).count();
    events.split_off(events.len() - count)
}
