//! System access for levity's own crates: the real clock and randomness, private files and secrets,
//! atomic replacement of files, and owners whose end other processes detect.
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
//! This crate deliberately does not interpret files, and has no processes or network access.
//!
//! # Features
//! This crate has no features. On systems other than Unix, permissions and inode numbers are not
//! checked.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod files;
mod owner;
mod replace;
pub mod secret;
mod world;

pub use owner::{Owner, WithoutLocks};
pub use replace::{Replace, sync_name};
pub use world::SystemWorld;
