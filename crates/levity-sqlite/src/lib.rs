//! A SQLite file that several processes share safely, for levity's own stores: runs, conversations,
//! facts.
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
//! let (file, connection) = SharedFile::open_or_create(&path, &NOTES)?;
//! connection.execute("INSERT INTO notes VALUES ('hello')", [])?;
//! assert!(file.check_place().is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - A missing file is created atomically. A file of another program, of a newer version or with
//!   corruption is rejected and left unchanged, byte for byte.
//! - Readers never wait; writers wait for each other up to five seconds.
//! - On Unix, the removal or replacement of a file in use is detected.
//!
//! This crate deliberately does not interpret the tables.
//!
//! # Security
//! A file may come from a stranger. Before it is used, its header and every object of its schema
//! are compared with the expected ones, and triggers, views and foreign functions are disabled. A
//! rollback journal beside the file is rejected, because SQLite would apply it.
//!
//! # Features
//! This crate has no features. It builds on `rusqlite`, whose types appear in its signatures.
//!
//! # Where to go next
//! [`SharedFile`] opens files, [`Format`] describes them, and [`in_memory`] creates the same tables
//! for tests. [`Store`] adds transactions for stores with one connection.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod file;
mod open;
mod store;

pub use error::{Error, ErrorKind};
pub use file::{Format, SharedFile};
pub use open::{BUSY_TIMEOUT, PAUSE, in_memory, is_busy, try_again};
pub use store::{Store, WriteError};
