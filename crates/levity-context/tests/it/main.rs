//! Context over real files.
