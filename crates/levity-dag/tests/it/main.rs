//! Graphs as a stranger would use them.
