//! Checks of names and prose: how the sources and the book read.
//!
//! Each check has a bound. Lower it when the sources improve; never raise it.

mod names;
mod pages;
mod prose;
mod sources;
