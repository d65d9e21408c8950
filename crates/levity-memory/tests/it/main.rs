//! Memory over real files and real processes.

#[cfg(feature = "sqlite")]
mod recall;
