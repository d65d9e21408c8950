//! Commands on Linux.
//!
//! ```text
//!   host ── clone ──▶ watcher ── clone ──▶ the command ──▶ whatever it starts
//!    ▲                   │
//!    └── report pipe ────┘      control pipe: the watcher kills all when the host lets go of it
//! ```
//! The watcher is the first process of the command's own namespaces where there are any, and
//! otherwise takes in all orphans. Either way everything that the command leaves behind becomes its
//! child.

mod census;
mod filter;
mod hide;
mod host;
mod inside;
mod job;
mod mounts;
mod placeholders;
mod places;
mod probe;
mod reading;
mod running;
mod search_limit;
mod system;
mod watch;

pub(super) use system::System;
