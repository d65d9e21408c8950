//! Reading and listing runs of the journal for clients, so many at once.

use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use levity_core::{Ask, JournalError, JournalErrorKind, RunId, RunQuery, RunSummary};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Feed, RunStatus, Runs};
use crate::access::Caller;
use crate::error::{Error, Result};
use crate::feed::{Given, Reader};
use crate::quota::{Permit, Quota};

/// How long a client waits until its run may be read.
const WAIT: Duration = Duration::from_secs(10);

impl Runs {
    /// How many runs are read whole from the journal at once for clients: 8. One named token has
    /// the share of them that [`token_share`](Self::token_share) says; others wait for 10 seconds
    /// at most.
    pub const JOURNAL_READS: usize = 8;

    /// How many lists of runs or conversations are read at once for clients: 4, as many as the
    /// journals read at once. One named token has the share of them that
    /// [`token_share`](Self::token_share) says; others wait for 10 seconds at most.
    pub const JOURNAL_LISTS: usize = 4;

    /// A place among those for whom a run is read whole.
    pub(crate) async fn journal_place(&self, caller: &Caller) -> Result<Permit> {
        self.place(&self.inner.reads, Self::JOURNAL_READS, caller)
            .await
    }

    async fn place(&self, quota: &Arc<Quota>, most: usize, caller: &Caller) -> Result<Permit> {
        let waited = timeout(WAIT, quota.wait(caller)).await;
        waited.map_err(|_| Error::JournalBusy {
            most: self.share().of_caller(most, caller),
        })
    }

    /// Does something that reads a run whole, in a place that is kept to its end: a client that
    /// leaves does not end a read, which is on a thread.
    pub(crate) async fn with_journal<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let place = self.journal_place(caller).await?;
        self.keep_place(place, work).await
    }

    /// As [`with_journal`](Self::with_journal), for something that lists what a store has. A list
    /// looks at what all tenants keep, so it has places of its own: reads of single runs do not
    /// wait for it.
    pub(crate) async fn with_list<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let place = self
            .place(&self.inner.lists, Self::JOURNAL_LISTS, caller)
            .await?;
        self.keep_place(place, work).await
    }

    async fn keep_place<T: Send + 'static>(
        &self,
        place: Permit,
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
                let _place = place;
                let _ = send.send(work.await);
            });
        }
        let ended = |_| {
            JournalError::new(
                JournalErrorKind::Io,
                "the journal is read no more: the server ends",
            )
        };
        done.await.map_err(ended)?
    }

    /// The first `most` runs that a query lists and `wanted` takes, for a client.
    pub(crate) async fn newest(
        &self,
        caller: &Caller,
        query: RunQuery,
        most: usize,
        wanted: impl Fn(&RunSummary) -> bool + Send + 'static,
    ) -> Result<Vec<RunSummary>> {
        let runtime = self.runtime().clone();
        if !runtime.journal().keeps() {
            let mut found =
                query.select(self.here().iter().map(|run| run.summary()).filter(wanted));
            found.truncate(most);
            return Ok(found);
        }
        let list = async move {
            // Others' runs may be between those that are wanted.
            let mut read = most;
            loop {
                let mut found = runtime.journal().list(&query.clone().limit(read)).await?;
                let full = found.len() >= read;
                found.retain(&wanted);
                if found.len() >= most || !full {
                    found.truncate(most);
                    return Ok(found);
                }
                read = read.saturating_mul(4);
            }
        };
        self.with_list(caller, list).await
    }

    /// What the journal lists of one run, without its records; `None` when there is none.
    pub(crate) async fn summary(&self, caller: &Caller, id: &RunId) -> Result<Option<RunSummary>> {
        let query = RunQuery::new().below(id.clone());
        // Runs below others have a dot in their ids, and need not be looked at to find one without.
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

    /// As [`standing`](Self::standing), for a client.
    pub(crate) async fn standing_for(&self, caller: &Caller, id: &RunId) -> Result<RunStatus> {
        if let Some(run) = self.known_here(id) {
            return Ok(run.standing());
        }
        let (runner, run) = (self.inner.runner.clone(), id.clone());
        self.with_journal(caller, async move {
            Ok(RunStatus::of(&run, &runner.history(&run).await?))
        })
        .await
    }

    /// As [`asks`](Self::asks), for a client.
    pub(crate) async fn asks_for(&self, caller: &Caller, id: &RunId) -> Result<Vec<Ask>> {
        if let Some(run) = self.known_here(id) {
            return Ok(run.asks().await);
        }
        let (runner, run) = (self.inner.runner.clone(), id.clone());
        self.with_journal(caller, async move { runner.asks(&run).await })
            .await
    }

    /// As [`events`](Self::events), for a client; and how a run stands that only the journal has.
    pub(crate) async fn events_for(
        &self,
        caller: &Caller,
        id: &RunId,
        after: Option<&str>,
    ) -> Result<(Reader, Option<RunStatus>)> {
        if let Some(run) = self.known_here(id) {
            return Ok((run.events(after), None));
        }
        let (runner, run) = (self.inner.runner.clone(), id.clone());
        let read = self.with_journal(caller, async move {
            let events = runner.history(&run).await?;
            Ok((
                Feed::kept(run.clone(), &events),
                RunStatus::of(&run, &events),
            ))
        });
        let (feed, standing) = read.await?;
        Ok((Arc::new(feed).reader(after), Some(standing)))
    }

    /// The end of what a run has told by now, but for what was fleeting, each event as JSON: as
    /// many as fit into so many bytes.
    pub(crate) async fn told(
        &self,
        caller: &Caller,
        id: &RunId,
        most: usize,
    ) -> Result<Vec<Bytes>> {
        if let Some(run) = self.known_here(id) {
            return Ok(last(run.events(None), most));
        }
        let (runner, run) = (self.inner.runner.clone(), id.clone());
        let read = self.with_journal(caller, async move {
            let feed = Feed::kept(run.clone(), &runner.history(&run).await?);
            Ok(last(Arc::new(feed).reader(None), most))
        });
        read.await
    }
}

/// The last events that there are by now, as many as fit with a line end each.
fn last(mut reader: Reader, most: usize) -> Vec<Bytes> {
    let mut told = Vec::new();
    while let Some(given) = reader.given_by_now() {
        if let Given::Event {
            id: Some(_),
            told: event,
        } = given
        {
            told.push(event.json);
        }
    }
    let mut room = most;
    let fits = |line: &&Bytes| {
        let left = room.checked_sub(line.len() + 1);
        room = left.unwrap_or_default();
        left.is_some()
    };
    let count = told.iter().rev().take_while(fits).count();
    told.split_off(told.len() - count)
}
