//! Graphs as a stranger would use them.

mod agents;
mod flow;
mod replan;
mod support;
mod catalogue;
