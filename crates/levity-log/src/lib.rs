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
