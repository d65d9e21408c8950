//! What an agent remembers: conversations that outlive a process, windows that always fit, summaries of what has left
//! them, and facts that are recalled years later.

mod conversations;
mod file;
mod in_memory;
mod kept;
#[cfg(feature = "sqlite")]
mod recall;
#[cfg(feature = "sqlite")]
mod sqlite;
mod window;

pub use window::{Counter, Fit, Shown, View, Window};
mod words;

pub use conversations::{Cleaned, Conversations, Open};
pub use in_memory::InMemory;
