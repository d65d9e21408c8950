//! Graphs as a stranger would use them.

mod agents;
mod catalogue;
