//! Keeps an index up to date while the files of a folder change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levity_core::Timestamp;
use levity_sandbox::Workspace;

use crate::{DocumentError, DocumentIndex, FolderReport, FolderUpdate};

/// The default time between two looks at the folder.
const INTERVAL: Duration = Duration::from_secs(2);
/// A look takes at most this share of the time, also in a large folder.
const MAX_SHARE: u32 = 10;
/// The longest time of a look that counts. The clock may jump.
const MAX_LOOK_MILLIS: u64 = 60_000;
/// Changes of a file within this time may have the same timestamp.
const SETTLED: Duration = Duration::from_secs(3);

/// Keeps an index up to date: it looks at the folder every two seconds, and reads files whose size
/// or time of change is new.
///
/// It needs no support of the operating system, so it also works for network file systems and
/// mounted folders of containers. A look at the folder lists the files and reads their metadata. In
/// a large folder, looks are rarer: they take at most a tenth of the time.
///
/// ```no_run
/// use levity_docs::{DocumentIndex, FolderWatch};
/// use levity_sandbox::Workspace;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let index = DocumentIndex::open("documents.db")?;
/// let workspace = Workspace::builder("guide").read_only().build()?;
/// FolderWatch::new(&index, &workspace)
///     .on_change(|report| println!("{} added, {} removed", report.added, report.removed))
///     .run()
///     .await?;
/// # Ok(())
/// # }
/// ```
pub struct FolderWatch<'a> {
    index: &'a DocumentIndex,
    workspace: Workspace,
    interval: Duration,
    #[cfg(feature = "formats")]
    reader: Option<crate::FormatReader>,
    max_file_bytes: Option<u64>,
    on_change: Box<dyn Fn(&FolderReport) + Send + Sync + 'a>,
}

impl std::fmt::Debug for FolderWatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FolderWatch")
            .field("workspace", &self.workspace)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

impl<'a> FolderWatch<'a> {
    /// Prepares a watch of this workspace.
    pub fn new(index: &'a DocumentIndex, workspace: &Workspace) -> Self {
        Self {
            index,
            workspace: workspace.clone(),
            interval: INTERVAL,
            #[cfg(feature = "formats")]
            reader: None,
            max_file_bytes: None,
            on_change: Box::new(|_| {}),
        }
    }

    /// Sets the time between two looks at the folder; two seconds by default.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets the maximum size of a text file, as [`FolderUpdate::max_file_bytes`].
    #[must_use]
    pub fn max_file_bytes(mut self, bytes: u64) -> Self {
        self.max_file_bytes = Some(bytes);
        self
    }

    /// Reads PDF, Office and other files with this reader. Without one, they are left out.
    #[cfg(feature = "formats")]
    #[must_use]
    pub fn reader(mut self, reader: &crate::FormatReader) -> Self {
        self.reader = Some(reader.clone());
        self
    }

    /// Calls a function after the first update, and after each one that changed the index.
    #[must_use]
    pub fn on_change(mut self, report: impl Fn(&FolderReport) + Send + Sync + 'a) -> Self {
        self.on_change = Box::new(report);
        self
    }

    /// Watches until an update fails. Drop the future to stop.
    ///
    /// # Errors
    /// As [`FolderUpdate::run`].
    pub async fn run(self) -> Result<(), DocumentError> {
        let stamps = Arc::new(Stamps::default());
        let mut is_first = true;
        loop {
            let world = self.index.world();
            let start = world.now();
            stamps.start(start);
            let update = FolderUpdate::new(self.index, &self.workspace).stamps(&stamps);
            let update = match self.max_file_bytes {
                Some(bytes) => update.max_file_bytes(bytes),
                None => update,
            };
            #[cfg(feature = "formats")]
            let update = match &self.reader {
                Some(reader) => update.reader(reader),
                None => update,
            };
            let report = update.run().await?;
            if is_first || report.added + report.removed > 0 {
                (self.on_change)(&report);
            }
            is_first = false;
            let took = world.now().as_millis().saturating_sub(start.as_millis());
            let took = Duration::from_millis(took.min(MAX_LOOK_MILLIS));
            world.sleep(self.interval.max(took * MAX_SHARE)).await;
        }
    }
}

/// The sizes and times of files that the last update has read.
#[derive(Debug, Default)]
pub(crate) struct Stamps(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    now: Option<Timestamp>,
    files: HashMap<String, (u64, SystemTime)>,
}

impl Stamps {
    /// Starts an update at this time.
    fn start(&self, now: Timestamp) {
        self.lock().now = Some(now);
    }

    /// Returns `true` if a file is the same as when it was read.
    pub(crate) fn is_known(&self, path: &str, size: u64, modified: SystemTime) -> bool {
        self.lock().files.get(path) == Some(&(size, modified))
    }

    /// Records a file that is read now. A file that has just changed may change again without
    /// another timestamp, so it is not recorded yet.
    pub(crate) fn set(&self, path: &str, size: u64, modified: SystemTime) {
        let mut state = self.lock();
        let now = state
            .now
            .and_then(|now| UNIX_EPOCH.checked_add(Duration::from_millis(now.as_millis())));
        let age = now.and_then(|now| now.duration_since(modified).ok());
        match age.is_some_and(|age| age > SETTLED) {
            true => drop(state.files.insert(path.to_owned(), (size, modified))),
            false => drop(state.files.remove(path)),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
