//! Commands on Linux.
//!
//! ```text
//!   host ── clone ──▶ watcher ── clone ──▶ the command ──▶ whatever it starts
//!    ▲                   │
//!    └── report pipe ────┘      control pipe: the watcher kills all when the host closes it
//! ```
//!
//! The watcher is the first process of the command's namespaces if there are any, and otherwise
//! adopts all orphans. In both cases every process that the command leaves behind becomes its
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
mod read_only_run;
mod running;
mod search_limit;
mod system;
mod watch;

pub(super) use system::System;
