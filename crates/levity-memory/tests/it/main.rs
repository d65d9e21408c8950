//! Memory over real files and real processes.

mod conversations;
mod stores;
