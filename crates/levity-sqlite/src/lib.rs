//! One SQLite file that several processes share, opened with care. It is for levity's own stores:
//! runs, conversations, facts.
//!
//! ```
//! use levity_sqlite::{Format, SharedFile};
//!
//! static NOTES: Format = Format {
//!     what: "notes",
//!     application: 0x6e6f_7465,
//!     version: 1,
//!     tables: "CREATE TABLE notes (text TEXT NOT NULL);",
//!     earlier: &[],
//!     columns: &["SELECT text FROM notes"],
//!     log_pages: 1_000,
//!     overwrites: true,
//! };
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("notes.db");
//! let (file, connection) = SharedFile::make(&path, &NOTES)?;
//! connection.execute("INSERT INTO notes VALUES ('hello')", [])?;
//! assert!(file.check_place().is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - A file that is not there is made, all at once. One of another program, of a newer version or
//!   with flaws is refused and left as it is, to the byte.
//! - Readers wait for nobody, and writers for one another, up to five seconds.
//! - A file that was removed or replaced while it is in use is noticed; on Unix.
//!
//! What is deliberately absent: what the tables mean, threads, transactions.

mod error;
mod file;
mod open;

pub use error::{Error, ErrorKind};
pub use file::{Format, SharedFile};
pub use open::{PATIENCE, PAUSE, in_memory, is_busy, try_again};
