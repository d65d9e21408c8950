//! Memory over real files and real processes.

mod conversations;
#[cfg(feature = "sqlite")]
mod recall;
mod stores;
