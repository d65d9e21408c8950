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

/// Stores the records of runs, so that a run can resume after its process has ended.
///
/// # Contract
/// - `open` is exclusive: while the log it returned lives, opening the same run fails with
///   [`Busy`](JournalErrorKind::Busy), in this process and in any other.
/// - `append` is atomic and returns once the records are as durable as the journal promises.
/// - Records are returned as they were appended, and in that order.
/// - After a failed append, the log must not be used again.
/// - A log that has lost its run to another process appends nothing more: it fails with
///   [`Fenced`](JournalErrorKind::Fenced), even after a long suspension.
///
/// Use `levity_test::conformance::journal` to check an implementation.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{
///     Journal, JournalError, OpenRun, Record, RunId, RunLog, RunQuery, RunSummary,
/// };
///
/// /// Stores nothing: runs end with their process.
/// struct Nowhere;
///
/// #[async_trait]
/// impl Journal for Nowhere {
///     async fn open(&self, _: &RunId) -> Result<OpenRun, JournalError> {
///         Ok(OpenRun::new(Vec::new(), Nowhere))
///     }
///
///     async fn list(&self, _: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
///         Ok(Vec::new())
///     }
///
///     fn keeps(&self) -> bool {
///         false
///     }
/// }
///
/// #[async_trait]
/// impl RunLog for Nowhere {
///     async fn append(&mut self, _: &[Record]) -> Result<(), JournalError> {
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait Journal: Send + Sync {
    /// Opens a new or existing run for writing.
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError>;

    /// Opens a run for writing like [`open`](Self::open), but returns its last snapshot in place of
    /// the records before it, if there is one. A snapshot that is damaged or does not match the
    /// records is ignored.
    async fn open_latest(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        self.open(run).await
    }

    /// Lists the runs that `query` selects; oldest first, unless it requests another order.
    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError>;

    /// Returns the records of a run for reading only; empty if there are none. Override it if
    /// reading needs no exclusive access.
    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        Ok(self.open(run).await?.records)
    }

    /// Returns the records of a run like [`read`](Self::read), for somebody who continues the run
    /// because of them: to fork it, or to decide about its calls. A journal that checks who wrote
    /// the records rejects those that it would not [`open`](Self::open).
    async fn read_to_continue(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        self.read(run).await
    }

    /// Deletes the records of a run and its descendants, and returns `true` if there were any. If
    /// the run is being driven, it fails with [`Busy`](JournalErrorKind::Busy) and deletes nothing.
    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        let message = format!("this journal cannot remove runs; run `{run}` was not removed");
        Err(JournalError::new(JournalErrorKind::Refused, message))
    }

    /// Leaves a request for the current or next driver of the run, which receives it by
    /// [`posted`](RunLog::posted). A journal that other processes cannot reach accepts none.
    async fn post(&self, run: &RunId, post: &RunRequest) -> Result<(), JournalError> {
        let _ = post;
        Err(JournalError::busy(run))
    }

    /// Returns `true` if records can be read back. If not, the runtime skips data that only a
    /// reader needs.
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

            async fn read_to_continue(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
                (**self).read_to_continue(run).await
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

/// The log of one run. Dropping it lets others open the run.
///
/// # Contract
/// - `append` writes all records or none, and in order. It returns once they are as durable as the
///   journal promises.
/// - After an error of `append` the log is not used again.
/// - A snapshot covers exactly the records appended before it. Losing a snapshot loses no data.
/// - Requests that `posted` returned stay stored until the next `append`, so a crash between the
///   two does not lose them.
/// - The log holds the run exclusively until it is dropped.
///
/// [`Journal`] has an example implementation.
#[async_trait]
pub trait RunLog: Send {
    /// Appends records at the end. An append without records only removes the requests that
    /// [`posted`](Self::posted) has returned.
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError>;

    /// Returns `true` if the log accepts snapshots.
    fn takes_snapshots(&self) -> bool {
        false
    }

    /// Returns `true` if enough records were appended since the last snapshot.
    fn wants_snapshot(&self) -> bool {
        false
    }

    /// Stores a snapshot of the run after all appended records, in place of the last one. If the
    /// journal returns an error, the run continues without the snapshot.
    async fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), JournalError> {
        let _ = snapshot;
        Ok(())
    }

    /// Waits until others have left requests for the run and returns them, oldest first.
    ///
    /// The next append atomically removes the returned requests. Until then, the next driver of the
    /// run receives them again. Dropping the future loses nothing.
    async fn posted(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        std::future::pending().await
    }

    /// Returns the requests left for the run so far, if any, like [`posted`](Self::posted). The
    /// runtime calls it before it parks a waiting run. Override it if `posted` needs time to find
    /// them.
    async fn posted_by_now(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        let mut posted = self.posted();
        let now = poll_fn(|cx| match posted.as_mut().poll(cx) {
            Poll::Ready(posts) => Poll::Ready(Some(posts)),
            Poll::Pending => Poll::Ready(None),
        });
        now.await.unwrap_or_else(|| Ok(Vec::new()))
    }
}

/// The state of a run after its first records. With a snapshot, a journal does not need to read
/// those records to resume the run.
///
/// ```
/// # use levity_core::Snapshot;
/// # use serde_json::json;
/// let snapshot = Snapshot::new(40, json!({"turn": 7}));
/// assert_eq!(snapshot.seq, 40); // it replaces the records 0 to 39
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The number of the first record that is not included.
    pub seq: u64,
    /// The state, which only levity's driver reads.
    pub state: Value,
}

impl Snapshot {
    /// Creates a snapshot of a run up to this record.
    pub fn new(seq: u64, state: Value) -> Self {
        Self { seq, state }
    }
}

/// A run that was opened for writing.
///
/// ```
/// use levity_core::{JournalError, OpenRun, Record, RunLog, Snapshot};
/// # struct Log;
/// # #[async_trait::async_trait]
/// # impl RunLog for Log {
/// #     async fn append(&mut self, _: &[Record]) -> Result<(), JournalError> { Ok(()) }
/// # }
/// let snapshot = Snapshot::new(40, serde_json::Value::Null);
/// let open = OpenRun::new(Vec::new(), Log).with_snapshot(snapshot);
/// assert_eq!(open.snapshot.map(|snapshot| snapshot.seq), Some(40));
/// ```
#[non_exhaustive]
pub struct OpenRun {
    /// The state of the run before `records`, if it was opened [from its last
    /// snapshot](Journal::open_latest).
    pub snapshot: Option<Snapshot>,
    /// The records written before.
    pub records: Vec<Record>,
    /// The log that receives further records.
    pub log: Box<dyn RunLog>,
}

impl OpenRun {
    /// Creates the return value of `open`.
    pub fn new(records: Vec<Record>, log: impl RunLog + 'static) -> Self {
        Self::from_parts(records, Box::new(log))
    }

    /// Creates the return value of `open` with a log that is already boxed.
    pub fn from_parts(records: Vec<Record>, log: Box<dyn RunLog>) -> Self {
        Self {
            snapshot: None,
            records,
            log,
        }
    }

    /// Adds a snapshot, which `records` follow.
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

/// One entry in the journal of a run.
///
/// ```
/// use levity_core::{ControlCommand, Entry, Record, Timestamp};
///
/// let record = Record::new(7, Timestamp::from_millis(5), Entry::Commanded(ControlCommand::Pause));
/// let line = serde_json::to_string(&record)?;
/// assert_eq!(line, r#"{"seq":7,"at":5,"entry":{"commanded":"pause"}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// The number of the record in the run, from 0.
    pub seq: u64,
    /// The time of the record.
    pub at: Timestamp,
    /// The content of the record.
    pub entry: Entry,
}

impl Record {
    /// Creates a record from its parts.
    pub fn new(seq: u64, at: Timestamp, entry: Entry) -> Self {
        Self { seq, at, entry }
    }
}

/// The content of a record.
///
/// ```
/// use levity_core::{EffectClass, EffectId, EffectKind, EffectNote, Entry, Outcome};
///
/// // An effect without a `Finished` entry was in progress when its process ended.
/// let effect = EffectId::new(0);
/// let note = EffectNote::new(EffectKind::Wait, "wait", EffectClass::Idempotent);
/// let entries = [Entry::Started { effect, note }, Entry::finished(effect, Outcome::Woken)];
/// assert!(matches!(&entries[1], Entry::Finished { spent: None, .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// The run was created; always the first record.
    Opened(RunHeader),
    /// An effect begins; repeated if an earlier process left it in progress.
    Started {
        /// The number of the effect.
        effect: EffectId,
        /// The description of the effect.
        note: EffectNote,
    },
    /// An effect was performed with this outcome.
    Finished {
        /// The number of the effect.
        effect: EffectId,
        /// The outcome of the effect.
        outcome: Outcome,
        /// The spending of a child run and its descendants.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spent: Option<Spending>,
    },
    /// The host states that an effect that had begun did not take effect: it may begin again.
    Cleared {
        /// The number of the effect.
        effect: EffectId,
    },
    /// The host sent a command.
    Commanded(ControlCommand),
    /// A limit is almost reached: the run must finish.
    Wrapped(Limit),
    /// Little of a limit remains.
    Low(Limit),
    /// A limit was exceeded: the run ends.
    Stopped(Limit),
    /// The run ended; always the last record.
    Ended(Status),
}

/// The initial state and settings of a run.
///
/// ```
/// # use levity_core::{Limits, MachineKind, RunHeader};
/// # use serde_json::json;
/// let kind = MachineKind::new("agent", 1);
/// let header = RunHeader::new(kind, json!({"goal": "tidy up"}), Limits::new());
/// assert!(header.origin.is_none(), "no other run started it");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunHeader {
    /// The kind of machine that drives it.
    pub machine: MachineKind,
    /// The machine's state before its first input; `null` in a journal that stores nothing.
    pub state: Value,
    /// A limit that was almost reached from the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrap: Option<Limit>,
    /// A limit of which little remained from the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Limit>,
    /// The limits of the run; boxed, because every record is as large as the largest variant.
    pub limits: Box<Limits>,
    /// The fingerprint that ties a child to its parent run and its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Digest>,
    /// The fingerprints of the run's setup, by name: its model, its tools, its settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<(String, Digest)>,
    /// `true` if messages to the run are screened before they are journaled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "hears")]
    pub screens_input: bool,
    /// The run that it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked: Option<ForkPoint>,
}

impl RunHeader {
    /// Creates the first entry of a run of this machine.
    pub fn new(machine: MachineKind, state: Value, limits: Limits) -> Self {
        Self {
            machine,
            state,
            wrap: None,
            low: None,
            limits: Box::new(limits),
            origin: None,
            setup: Vec::new(),
            screens_input: false,
            forked: None,
        }
    }
}

/// The point where a run was forked from another.
///
/// ```
/// # use levity_core::{ForkPoint, RunId};
/// let fork = ForkPoint::new(RunId::new("r1"), 12);
/// assert_eq!((fork.run.as_str(), fork.after), ("r1", 12)); // records 0 to 12 are shared
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ForkPoint {
    /// The id of the other run.
    pub run: RunId,
    /// The number of the last record that both runs share.
    pub after: u64,
}

impl ForkPoint {
    /// Creates a fork from `run` after that record.
    pub fn new(run: RunId, after: u64) -> Self {
        Self { run, after }
    }
}

impl Entry {
    /// Creates the entry of an effect that was performed with this outcome.
    pub fn finished(effect: EffectId, outcome: Outcome) -> Self {
        Self::Finished {
            effect,
            outcome,
            spent: None,
        }
    }
}

/// The amounts used against the limits.
///
/// ```
/// # use levity_core::{Money, Spending};
/// let mut spent = Spending::new(2, 5, 300);
/// spent += Spending::on(1_000, Some(Money::from_dollars(0.01)));
/// assert_eq!((spent.tokens, spent.unpriced()), (1_300, 300));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Spending {
    /// The number of model calls.
    pub model_calls: u64,
    /// The number of tool calls.
    pub tool_calls: u64,
    /// The tokens sent and received.
    pub tokens: u64,
    /// The money spent, as far as prices are known.
    #[serde(skip_serializing_if = "is_zero")]
    pub cost: Money,
    /// The tokens that this money paid for; the cost of the others is unknown.
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
    /// Creates a spending of unknown cost.
    pub fn new(model_calls: u64, tool_calls: u64, tokens: u64) -> Self {
        Self {
            model_calls,
            tool_calls,
            tokens,
            ..Self::default()
        }
    }

    /// Creates a spending of tokens, with their cost if it is known.
    pub fn on(tokens: u64, cost: Option<Money>) -> Self {
        let priced = if cost.is_some() { tokens } else { 0 };
        Self {
            tokens,
            cost: cost.unwrap_or_default(),
            priced,
            ..Self::default()
        }
    }

    /// Returns the tokens whose cost is unknown.
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

/// A command that a host can send to a run at any time.
///
/// ```
/// # use levity_core::ControlCommand;
/// let cancel = ControlCommand::Cancel { reason: "no longer needed".to_owned() };
/// let json = serde_json::to_string(&cancel)?;
/// assert_eq!(json, r#"{"cancel":{"reason":"no longer needed"}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ControlCommand {
    /// Start no new effects.
    Pause,
    /// Continue after a pause.
    Resume,
    /// End the run now.
    Cancel {
        /// The reason for the cancellation.
        reason: String,
    },
    /// Add this message before the next model call.
    Say {
        /// The message to add.
        message: Arc<Message>,
    },
    /// A guard intervened in a message from a person: in the next message, or in one that was
    /// blocked. At the start of a child run, it intervened in the child's input. The run itself
    /// ignores this command.
    Guarded(Intervention),
}

/// The kind of a journal error.
///
/// [`Busy`](Self::Busy) and [`Io`](Self::Io) may pass on their own; the others need a person.
///
/// ```
/// # use levity_core::{JournalError, JournalErrorKind, RunId};
/// let busy = JournalError::busy(&RunId::new("r1"));
/// assert_eq!(busy.kind(), JournalErrorKind::Busy);
/// assert!(busy.is_retryable() && !JournalError::fenced(&RunId::new("r1")).is_retryable());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JournalErrorKind {
    /// Another process drives the run.
    Busy,
    /// Another process has taken over the run; nothing more was written.
    Fenced,
    /// The journal cannot store a run of this name.
    Refused,
    /// The stored data cannot be read; it is left unchanged.
    Damaged,
    /// A newer version wrote the data; it is left unchanged.
    Version,
    /// Reading or writing failed.
    Io,
}

/// The error of a journal operation.
///
/// ```
/// # use levity_core::{JournalError, JournalErrorKind, text::chain};
/// let error = JournalError::new(JournalErrorKind::Io, "the disk is full");
/// let error = error.with_source("no space left");
/// assert_eq!(chain(&error), "the disk is full: no space left");
/// ```
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
    /// Creates an error of this kind.
    pub fn new(kind: JournalErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            cause: None,
        }
    }

    /// Creates the error of a run that another process drives.
    pub fn busy(run: &RunId) -> Self {
        Self::new(
            JournalErrorKind::Busy,
            format!("run `{run}` is driven by another process; wait for it, or stop that process"),
        )
    }

    /// Creates the error of a run that another process has taken over.
    pub fn fenced(run: &RunId) -> Self {
        let message =
            format!("run `{run}` was taken over by another process; this process stopped writing");
        Self::new(JournalErrorKind::Fenced, message)
    }

    /// Adds the cause of the error.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.cause = Some(SharedError::new(source));
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> JournalErrorKind {
        self.kind
    }

    /// Returns `true` if the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, JournalErrorKind::Busy | JournalErrorKind::Io)
    }
}
