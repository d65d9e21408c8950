//! Run events in log files and as OpenTelemetry data.
//!
//! ```
//! use levity_core::{Event, EventKind, RunId, Timestamp};
//! use levity_log::LogFiles;
//! use std::time::Duration;
//!
//! # fn main() -> levity_log::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let folder = dir.path();
//! let logs = LogFiles::open(folder)?;
//! // `agent.run("..").conversation("c1").on_event(logs.session("c1"))`
//! let watch = logs.session("c1");
//! watch(&Event::new(RunId::new("r1"), 1, Timestamp::default(), EventKind::Paused));
//! assert!(logs.flush(Duration::from_secs(5)));
//! let general = std::fs::read_to_string(folder.join("c1/general.log")).unwrap();
//! assert_eq!(general, "1970-01-01T00:00:00.000Z INFO  r1 paused\n");
//! # Ok(())
//! # }
//! ```
//!
//! - [`LogFiles`] writes `general.log` and `reasoning.log` into a folder for each session, and
//!   rotates full files. Its [layer](LogFiles::layer) logs `tracing` events. [`clean`] removes old
//!   logs.
//! - `Otlp` sends spans and metrics to a collector; it requires the feature `otlp`.
//! - Logging never blocks a run: queues are bounded, and entries that do not fit are counted and
//!   reported.
//! - All output is redacted by [`Secrets`](levity_core::Secrets) first, and each entry is one line.
//!
//! # Features
//! - `otlp`: enables `Otlp`, for traces and metrics by OTLP over HTTP.
//!
//! # Where to go next
//!
//! - Log the runs of a program: [`LogFiles::session`] for conversations, [`LogFiles::runs`] for
//!   single runs.
//! - Log `tracing` events of the whole program: [`LogFiles::layer`] for files, [`LineLayer`] for
//!   the terminal.
//! - Bound the disk: [`LogFilesBuilder::max_file`] and [`LogFilesBuilder::keep`] per session,
//!   [`Retention`] over all.
//!
//! # Format of a line
//!
//! A line has the time, the level, the run or `-`, the event, and fields as `name=value`. Values
//! that are not a single word are quoted, and control characters are escaped, so one line is always
//! one entry:
//!
//! ```
//! # use levity_core::{Event, EventKind, RunId, Timestamp};
//! # use levity_log::LogFiles;
//! # let dir = tempfile::tempdir().unwrap();
//! # let folder = dir.path();
//! let logs = LogFiles::open(folder)?;
//! let goal = EventKind::Goal { text: "Sum up\nthe week".into() };
//! logs.runs()(&Event::new(RunId::new("r1"), 1, Timestamp::default(), goal));
//! logs.flush(std::time::Duration::from_secs(5));
//! let general = std::fs::read_to_string(folder.join("r1/general.log")).unwrap();
//! assert_eq!(general, "1970-01-01T00:00:00.000Z INFO  r1 goal text=\"Sum up\\nthe week\"\n");
//! # Ok::<(), levity_log::Error>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod entry;
mod error;
mod files;
mod layer;
mod lines;
#[cfg(feature = "otlp")]
mod otlp;
mod sanitize;

pub use error::{Error, ErrorKind, Result};
pub use files::{LogCleanup, LogFiles, LogFilesBuilder, LogLayer, Retention, clean};
pub use lines::LineLayer;
#[cfg(feature = "otlp")]
pub use otlp::{Otlp, OtlpBuilder, OtlpLayer};
