use std::future::poll_fn;
use std::ops::AddAssign;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Digest, EffectId, EffectNote, Intervention, Limit, Limits, MachineKind, Message, Money,
    Outcome, RunId, RunQuery, RunRequest, RunSummary, SharedError, Status, Timestamp,
};

/// Keeps what happened in runs, so that a run can go on after the process that drove it.
///
/// # Contract
/// - `open` is exclusive: while the log it returned lives, opening the same run fails with
///   [`Busy`](JournalErrorKind::Busy), in this process and in any other.
/// - `append` is all or nothing and returns once the records are as durable as the journal
///   promises.
/// - Records come back as they were appended, and in that order.
/// - After a failed append, the log may be used no more.
/// - A log that has lost its run to somebody else appends nothing more: it fails with
///   [`Fenced`](JournalErrorKind::Fenced), whatever it slept through.
///
/// `levity_test::conformance::journal` checks an implementation.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Opens a run, new or old, for writing.
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError>;

    /// Opens a run for writing like [`open`](Self::open), but gives its last snapshot in place of
    /// the records before that, if the journal has one. A snapshot that is damaged, or that does
    /// not belong to the records, is as good as none.
    async fn open_latest(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        self.open(run).await
    }

    /// The runs it keeps that `query` asks for; oldest first, unless it says otherwise.
    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError>;

    /// The records of a run, for whoever only looks; empty when there is none. Override it where
    /// that needs no exclusive access.
    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        Ok(self.open(run).await?.records)
    }

    /// Drops the records of a run and of all runs below it, and says whether there were any. A run
    /// that somebody drives is [`Busy`](JournalErrorKind::Busy), and nothing is dropped.
    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        let message = format!("this journal removes no runs, so `{run}` stays");
        Err(JournalError::new(JournalErrorKind::Refused, message))
    }

    /// Leaves word for whoever drives the run, now or next: its log gives it out by
    /// [`posted`](RunLog::posted). A journal that other processes cannot reach takes none.
    async fn post(&self, run: &RunId, post: &RunRequest) -> Result<(), JournalError> {
        let _ = post;
        Err(JournalError::busy(run))
    }

    /// Whether records come back. A journal that keeps nothing spares the runtime the making of
    /// what only a reader needs.
    fn keeps(&self) -> bool {
        true
    }
}

macro_rules! forward_journal {
    ($($pointer:ty),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<J: Journal + ?Sized> Journal for $pointer {
            async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
                (**self).open(run).await
            }

            async fn open_latest(&self, run: &RunId) -> Result<OpenRun, JournalError> {
                (**self).open_latest(run).await
            }

            async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
                (**self).list(query).await
            }

            async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
                (**self).read(run).await
            }

            async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
                (**self).remove(run).await
            }

            async fn post(&self, run: &RunId, post: &RunRequest) -> Result<(), JournalError> {
                (**self).post(run, post).await
            }

            fn keeps(&self) -> bool {
                (**self).keeps()
            }
        }
    )*};
}

forward_journal!(Arc<J>, Box<J>);

/// One run's log. Dropping it lets others open the run.
#[async_trait]
pub trait RunLog: Send {
    /// Adds records at the end.
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError>;

    /// Returns whether the log takes snapshots at all.
    fn takes_snapshots(&self) -> bool {
        false
    }

    /// Returns whether it is time for a snapshot: enough was appended since the last one.
    fn wants_snapshot(&self) -> bool {
        false
    }

    /// Keeps a snapshot of the run after all that was appended, in place of the last one. A journal
    /// that cannot keep it says so by an error, and the run goes on without.
    async fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), JournalError> {
        let _ = snapshot;
        Ok(())
    }

    /// Waits until others have left word for the run, and gives it out, oldest first.
    ///
    /// What was given out is forgotten with the next append, in one go; until then, whoever opens
    /// the run next gets it again. Dropping the future loses nothing.
    async fn posted(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        std::future::pending().await
    }

    /// Gives out what others have left for the run by now, if anything, as [`posted`](Self::posted)
    /// does. Asked before a run that waits is let go of. Override it where `posted` needs a moment
    /// to find out.
    async fn posted_by_now(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        let mut posted = self.posted();
        let now = poll_fn(|cx| match posted.as_mut().poll(cx) {
            Poll::Ready(posts) => Poll::Ready(Some(posts)),
            Poll::Pending => Poll::Ready(None),
        });
        now.await.unwrap_or_else(|| Ok(Vec::new()))
    }
}

/// The state of a run after its first records. A journal that keeps one need not read those records
/// for a run to go on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The number of the first record that is not in it.
    pub seq: u64,
    /// The state, which only levity's driver reads.
    pub state: Value,
}

impl Snapshot {
    /// A snapshot of a run up to this record.
    pub fn new(seq: u64, state: Value) -> Self {
        Self { seq, state }
    }
}

/// A run that was opened.
#[non_exhaustive]
pub struct OpenRun {
    /// The state of the run before `records`, if it was opened [from its last
    /// snapshot](Journal::open_latest).
    pub snapshot: Option<Snapshot>,
    /// What happened before.
    pub records: Vec<Record>,
    /// Takes what happens next.
    pub log: Box<dyn RunLog>,
}

impl OpenRun {
    /// What `open` returns.
    pub fn new(records: Vec<Record>, log: impl RunLog + 'static) -> Self {
        Self::from_parts(records, Box::new(log))
    }

    /// The same, of a log that is boxed already.
    pub fn from_parts(records: Vec<Record>, log: Box<dyn RunLog>) -> Self {
        Self {
            snapshot: None,
            records,
            log,
        }
    }

    /// The same with a snapshot, which `records` follow.
    #[must_use]
    pub fn with_snapshot(mut self, snapshot: Snapshot) -> Self {
        self.snapshot = Some(snapshot);
        self
    }
}

impl std::fmt::Debug for OpenRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenRun")
            .field("records", &self.records.len())
            .finish_non_exhaustive()
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// Its number in the run, from 0.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// What.
    pub entry: Entry,
}

impl Record {
    /// A record.
    pub fn new(seq: u64, at: Timestamp, entry: Entry) -> Self {
        Self { seq, at, entry }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// The run was made; always the first record.
    Opened(Opened),
    /// An effect begins; once more, when an earlier process left it under way.
    Started {
        /// Which.
        effect: EffectId,
        /// What it is.
        note: EffectNote,
    },
    /// An effect was performed, and this came of it.
    Finished {
        /// Which.
        effect: EffectId,
        /// What came of it.
        outcome: Outcome,
        /// What a child and all below it have used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spent: Option<Spending>,
    },
    /// The host says that an effect which had begun did not take effect: it may begin again.
    Cleared {
        /// Which.
        effect: EffectId,
    },
    /// The host said what to do.
    Commanded(ControlCommand),
    /// A limit is near: the run is to finish.
    Wrapped(Limit),
    /// Little is left of what a limit allows.
    Low(Limit),
    /// A limit was passed: the run ends.
    Stopped(Limit),
    /// The run ended; always the last record.
    Ended(Status),
}

/// What a run was made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Opened {
    /// What drives it.
    pub machine: MachineKind,
    /// The machine's state before its first input; `null` in a journal that keeps nothing.
    pub state: Value,
    /// A limit that was near from the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrap: Option<Limit>,
    /// A limit of which little was left from the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Limit>,
    /// What the run may use; in a box, since every record has room for the largest.
    pub limits: Box<Limits>,
    /// Which run of its parent a child belongs to, and what it was told to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Digest>,
    /// Fingerprints of what the run is driven with, by name: its model, its tools, its settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<(String, Digest)>,
    /// Whether what people say to it is looked at before it is written down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hears: bool,
    /// The run that it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked: Option<Forked>,
}

impl Opened {
    /// A run of this machine.
    pub fn new(machine: MachineKind, state: Value, limits: Limits) -> Self {
        Self {
            machine,
            state,
            wrap: None,
            low: None,
            limits: Box::new(limits),
            origin: None,
            setup: Vec::new(),
            hears: false,
            forked: None,
        }
    }
}

/// Where a run was forked from another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Forked {
    /// The other run.
    pub run: RunId,
    /// The last of its records that this one began with.
    pub after: u64,
}

impl Forked {
    /// Forked from `run`, after that record.
    pub fn new(run: RunId, after: u64) -> Self {
        Self { run, after }
    }
}

impl Entry {
    /// An effect was performed, and this came of it.
    pub fn finished(effect: EffectId, outcome: Outcome) -> Self {
        Self::Finished {
            effect,
            outcome,
            spent: None,
        }
    }
}

/// What was used against the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Spending {
    /// Calls of a model.
    pub model_calls: u64,
    /// Calls of tools.
    pub tool_calls: u64,
    /// Tokens sent and received.
    pub tokens: u64,
    /// Money, as far as prices are known.
    #[serde(skip_serializing_if = "is_zero")]
    pub cost: Money,
    /// The tokens that this money was for; nobody knows what the others cost.
    #[serde(skip_serializing_if = "is_none")]
    pub priced: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(money: &Money) -> bool {
    *money == Money::ZERO
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Spending {
    /// So much, of which nobody knows what it costs.
    pub fn new(model_calls: u64, tool_calls: u64, tokens: u64) -> Self {
        Self {
            model_calls,
            tool_calls,
            tokens,
            ..Self::default()
        }
    }

    /// So many tokens, for this much where it is known.
    pub fn on(tokens: u64, cost: Option<Money>) -> Self {
        let priced = if cost.is_some() { tokens } else { 0 };
        Self {
            tokens,
            cost: cost.unwrap_or_default(),
            priced,
            ..Self::default()
        }
    }

    /// The tokens of which nobody knows what they cost.
    pub fn unpriced(&self) -> u64 {
        self.tokens.saturating_sub(self.priced)
    }
}

impl AddAssign for Spending {
    fn add_assign(&mut self, other: Self) {
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.cost += other.cost;
        self.priced = self.priced.saturating_add(other.priced);
    }
}

/// What a host can tell a run at any time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ControlCommand {
    /// Begin nothing new.
    Pause,
    /// Go on.
    Resume,
    /// End now.
    Cancel {
        /// Why.
        reason: String,
    },
    /// Take this in before the next call of a model.
    Say {
        /// The message.
        message: Arc<Message>,
    },
    /// A guard stepped in on what people say: on what is told next, or on what is not told at all.
    /// At the start of a child run, it stepped in on the child's input. The run itself takes no
    /// notice.
    Guarded(Intervention),
}

/// What is wrong with a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JournalErrorKind {
    /// Somebody else drives the run.
    Busy,
    /// Somebody else has taken the run over meanwhile; nothing more was written.
    Fenced,
    /// The journal cannot keep a run of this name.
    Refused,
    /// What was written cannot be read; it is left as it is.
    Damaged,
    /// It was written by a newer version; it is left as it is.
    Version,
    /// Reading or writing failed.
    Io,
}

/// Why a journal could not do its work.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct JournalError {
    kind: JournalErrorKind,
    message: String,
    #[source]
    cause: Option<SharedError>,
}

impl JournalError {
    /// An error of this kind.
    pub fn new(kind: JournalErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            cause: None,
        }
    }

    /// The run is driven elsewhere.
    pub fn busy(run: &RunId) -> Self {
        Self::new(
            JournalErrorKind::Busy,
            format!("run `{run}` is driven elsewhere"),
        )
    }

    /// The run was taken over.
    pub fn fenced(run: &RunId) -> Self {
        let message =
            format!("run `{run}` was taken over by another process; this one writes no more");
        Self::new(JournalErrorKind::Fenced, message)
    }

    /// Adds what it came from.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.cause = Some(SharedError::new(source));
        self
    }

    /// What kind of error it is.
    pub fn kind(&self) -> JournalErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, JournalErrorKind::Busy | JournalErrorKind::Io)
    }
}
