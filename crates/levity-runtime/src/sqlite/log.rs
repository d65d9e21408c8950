//! The log of one run.
//!
//! The log computes the summary of the run itself and writes the changed columns with the records.
//! A list of runs then reads one row per run and no records.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    JournalError, JournalErrorKind, Record, RunLog, RunRequest, RunState, RunSummary, Snapshot,
};

use super::file::{json, row_checksum};
use super::mailbox::Mailbox;
use super::writer::{HeldRun, Job};
use crate::files::{needs_sync, on_thread};

/// It holds the run until it is dropped; an error of an append makes it unusable.
pub(super) struct SqliteLog {
    held: HeldRun,
    /// The content of the run's row once all appended records are written.
    summary: RunSummary,
    mailbox: Option<Arc<Mailbox>>,
    /// The last post that was delivered, unless an append has removed it since.
    given: Option<i64>,
    /// The error that prevents further appends.
    broken: Option<JournalError>,
    /// The last record of the run.
    last: LastRow,
    /// The bytes appended since the last snapshot, the length of that snapshot, and the minimum
    /// interval between two.
    since_snapshot: usize,
    last_snapshot: usize,
    interval: usize,
}

/// The last record of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastRow {
    /// The checksum of the record.
    pub(super) crc: i64,
    /// The bytes of this record and of those that were read before it.
    pub(super) bytes: usize,
}

impl SqliteLog {
    /// Creates the log of a run whose records were read, up to `last`, since a snapshot of this
    /// length.
    pub(super) fn new(
        held: HeldRun,
        summary: RunSummary,
        last: LastRow,
        last_snapshot: usize,
        interval: usize,
    ) -> Self {
        let since_snapshot = last.bytes;
        let (mailbox, given, broken) = (None, None, None);
        Self {
            held,
            summary,
            mailbox,
            given,
            broken,
            last,
            since_snapshot,
            last_snapshot,
            interval,
        }
    }

    /// Turns records into rows.
    ///
    /// Columns that only count, such as the number of records, are always written; the others only
    /// if they changed.
    fn rows(&mut self, records: &[Record]) -> Result<Rows, JournalError> {
        let mut before = self.summary.clone();
        if let Some(first) = records.first().filter(|_| before.records == 0) {
            self.summary.opened = first.at;
        }
        let mut rows = Vec::with_capacity(records.len());
        for record in records {
            if record.seq != self.summary.records {
                let message = format!(
                    "record {} cannot follow record {}",
                    record.seq, self.summary.records
                );
                return Err(JournalError::new(JournalErrorKind::Refused, message));
            }
            let entry = json(&record.entry, "a record")?;
            let (seq, at) = (number(record.seq)?, number(record.at.as_millis())?);
            let crc = row_checksum(self.held.key, seq, at, &entry);
            self.last.crc = crc;
            rows.push(Row {
                seq,
                at,
                entry,
                crc,
            });
            self.summary.add(record);
        }
        (before.updated, before.records) = (self.summary.updated, self.summary.records);
        let shape = (before != self.summary)
            .then(|| ListedColumns::of(&self.summary))
            .transpose()?;
        let updated = number(self.summary.updated.as_millis())?;
        Ok(Rows {
            rows,
            updated,
            count: number(self.summary.records)?,
            shape,
        })
    }

    /// Returns the mailbox to which the writer's thread delivers the posts of the run.
    fn mailbox(&mut self) -> Arc<Mailbox> {
        let mailbox = self.mailbox.get_or_insert_with(|| {
            let mailbox = Arc::new(Mailbox::default());
            let (run, key, fence) = (self.summary.run.clone(), self.held.key, self.held.fence);
            self.held.writer.tell(Job::Watch {
                run,
                key,
                fence,
                mailbox: mailbox.clone(),
            });
            mailbox
        });
        mailbox.clone()
    }

    async fn write(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let rows = self.rows(records)?;
        let sync = records.is_empty() || records.iter().any(needs_sync);
        self.since_snapshot += rows.rows.iter().map(|row| row.entry.len()).sum::<usize>();
        let (key, fence, given) = (self.held.key, self.held.fence, self.given);
        let run = self.summary.run.clone();
        let work = |reply| Job::Append {
            run,
            key,
            fence,
            rows,
            given,
            sync,
            reply,
        };
        self.held.writer.ask(work).await
    }
}

#[async_trait]
impl RunLog for SqliteLog {
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        // Without records, only delivered posts are removed.
        if records.is_empty() && self.given.is_none() {
            return Ok(());
        }
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        // This holds until the result of the append is known.
        let message = format!(
            "an earlier write of run `{}` failed; open the run again",
            self.summary.run
        );
        self.broken = Some(JournalError::new(JournalErrorKind::Io, message));
        let written = self.write(records).await;
        if let Err(error) = &written {
            self.broken = Some(error.clone());
            return written;
        }
        (self.broken, self.given) = (None, None);
        Ok(())
    }

    fn takes_snapshots(&self) -> bool {
        true
    }

    fn wants_snapshot(&self) -> bool {
        self.broken.is_none() && self.since_snapshot >= self.interval.max(self.last_snapshot)
    }

    async fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), JournalError> {
        // If it fails, the next one is as far away.
        self.since_snapshot = 0;
        let (run, key, fence) = (self.summary.run.clone(), self.held.key, self.held.fence);
        let before = self.last.crc;
        let row = on_thread(move || SnapshotRow::of(key, before, &snapshot)).await?;
        self.last_snapshot = row.state.len();
        self.held
            .writer
            .ask(|reply| Job::Snapshot {
                run,
                key,
                fence,
                row,
                reply,
            })
            .await
    }

    async fn posted(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        let (last, posts) = self.mailbox().take().await?;
        self.given = Some(last);
        Ok(posts)
    }

    async fn posted_by_now(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        let mailbox = self.mailbox();
        let key = self.held.key;
        self.held
            .writer
            .ask(|reply| Job::Look { key, reply })
            .await?;
        let Some((last, posts)) = mailbox.take_now()? else {
            return Ok(Vec::new());
        };
        self.given = Some(last);
        Ok(posts)
    }
}

/// The rows that an append writes.
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) updated: i64,
    /// The number of records after the append.
    pub(super) count: i64,
    /// The changed columns that a list shows.
    pub(super) shape: Option<ListedColumns>,
}

pub(super) struct Row {
    pub(super) seq: i64,
    pub(super) at: i64,
    pub(super) entry: String,
    pub(super) crc: i64,
}

/// The last snapshot of a run.
pub(super) struct SnapshotRow {
    pub(super) seq: i64,
    pub(super) state: String,
    pub(super) crc: i64,
}

impl SnapshotRow {
    /// Returns the row of a snapshot. Its checksum covers that of the record before it, so that it
    /// fits no other.
    fn of(key: i64, before: i64, snapshot: &Snapshot) -> Result<Self, JournalError> {
        let (seq, state) = (number(snapshot.seq)?, json(&snapshot.state, "a snapshot")?);
        let crc = row_checksum(key, seq, before, &state);
        Ok(Self { seq, state, crc })
    }
}

/// The state of a run as a list shows it.
///
/// `state` and `wakes` are redundant, but indexed: they make the queries for waiting and due runs
/// fast.
pub(super) struct ListedColumns {
    pub(super) opened: i64,
    pub(super) state: i64,
    pub(super) child: bool,
    pub(super) paused: bool,
    pub(super) wakes: Option<i64>,
    pub(super) waiting: Option<String>,
    pub(super) status: Option<String>,
}

impl ListedColumns {
    fn of(summary: &RunSummary) -> Result<Self, JournalError> {
        let waiting =
            (!summary.waiting.is_empty()).then(|| json(&summary.waiting, "what a run waits for"));
        let status = summary
            .status
            .as_ref()
            .map(|status| json(status, "the end of a run"));
        Ok(Self {
            opened: number(summary.opened.as_millis())?,
            state: state(summary.state()),
            child: summary.child,
            paused: summary.paused,
            // A time that never arrives is replaced by the last one there is.
            wakes: summary
                .next_wake()
                .map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX)),
            waiting: waiting.transpose()?,
            status: status.transpose()?,
        })
    }
}

/// Returns the number by which a state is stored.
pub(super) fn state(state: RunState) -> i64 {
    match state {
        RunState::Open => 0,
        RunState::Waiting => 1,
        RunState::Answered => 2,
        RunState::Failed => 3,
        _ => -1,
    }
}

fn number(number: u64) -> Result<i64, JournalError> {
    i64::try_from(number).map_err(|error| {
        let message = format!("the number {number} is too large for a row");
        JournalError::new(JournalErrorKind::Refused, message).with_source(error)
    })
}
