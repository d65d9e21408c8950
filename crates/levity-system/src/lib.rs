//! The system as levity's own crates use it: the real clock and randomness, and files that only their owner can read.
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
mod world;

pub use world::SystemWorld;
