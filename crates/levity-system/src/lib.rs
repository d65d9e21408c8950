//! The system as levity's own crates use it: the real clock and randomness, files that only their
//! owner can read, files that are replaced whole, and owners whose end others notice.
//!
//! ```
//! use levity_core::World as _;
//! use levity_system::{SystemWorld, files};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("notes");
//! let name = SystemWorld.random();
//! let file = files::open(&path, files::options().write(true).create_new(true))?;
//! assert!(files::is_at(&file, &path));
//! # let _ = name;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! What is deliberately absent: what files mean, processes, the network.

pub mod files;
mod owner;
mod replace;
mod world;

pub use owner::{Owner, WithoutLocks};
pub use replace::{Replace, sync_name};
pub use world::SystemWorld;
