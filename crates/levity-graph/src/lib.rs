//! The engine of plans and swarms: the order of work that depends on other work.
//!
//! ```
//! use levity_graph::{Edges, Schedule, sorted};
//!
//! // 0 and 1 come before 2.
//! let edges = Edges::new(vec![vec![], vec![], vec![0, 1]]);
//! assert_eq!(sorted(&edges, |at| at), Ok(vec![0, 1, 2]));
//!
//! let mut schedule = Schedule::new(edges.before.len());
//! for at in schedule.open(&edges) {
//!     schedule.ready(at, 0);
//! }
//! assert_eq!((schedule.next(), schedule.next(), schedule.next()), (Some(0), Some(1), None));
//! for at in [0, 1] {
//!     schedule.settle(at);
//!     schedule.release(at, &edges, |_| Some(0));
//! }
//! assert_eq!(schedule.next(), Some(2));
//! ```
//!
//! A piece of work has a number in `0..len`. The engine decides which pieces may begin, and what
//! follows a failure. The machines of `levity-dag` and `levity-swarm` define the pieces and create
//! their effects.
//!
//! This crate deliberately has no effects, clocks, models, names or JSON. It has no dependencies
//! except those of its features.
//!
//! # Features
//! - `serde`: `Serialize` and `Deserialize` for [`Drafts`].
//!
//! # Where to go next
//! - [`Edges`] and [`Links`] describe dependencies; [`sorted`] orders them, and [`find_cycle`]
//!   explains why there is no order.
//! - [`Schedule`] releases pieces one after the other while work completes.
//! - [`after_failure`] decides between a retry, a fallback and the end.
//! - [`Drafts`] counts the answers of a model that cannot be used.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod drafts;
mod failure;
mod links;
mod order;
mod schedule;

pub use drafts::Drafts;
pub use failure::{Next, Remedy, after_failure};
pub use links::{Edges, Links};
pub use order::{find_cycle, sorted};
pub use schedule::Schedule;
