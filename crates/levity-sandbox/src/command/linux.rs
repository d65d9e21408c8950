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
//!
//! The modules in the order in which a command uses them:
//!
//! - `probe` tries all mechanisms when a sandbox is built, and writes the report.
//! - `hide` finds denied files, `mounts` their other paths, and `running` checks that no file moved
//!   meanwhile.
//! - `placeholders` and `read_only_run` prepare what depends on the run.
//! - `places` and `filter` hold the rights: Landlock rules and seccomp programs.
//! - `system` puts everything into a `job`, starts the watcher, and turns its records into a
//!   result.
//! - `inside` is the code of the child before the program, `watch` that of the watcher, and
//!   `census` counts its processes, and `checks` looks after its mounts.
//! - `host` reads output and records.

mod census;
mod checks;
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
