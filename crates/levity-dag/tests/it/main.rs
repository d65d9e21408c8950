//! Graphs as a stranger would use them.

mod networkx;
mod session;
mod stream;
mod view;
