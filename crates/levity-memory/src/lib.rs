//! What an agent remembers: conversations that outlive a process, windows that always fit, summaries of what has left
//! them, and facts that are recalled years later.

mod blocking;
mod conversations;
mod durability;
mod file;
mod in_memory;
mod json;
mod kept;
mod owner;
#[cfg(feature = "sqlite")]
mod recall;
mod sessions;
#[cfg(feature = "sqlite")]
mod sqlite;
mod window;
mod words;

pub use conversations::{Cleaned, Conversations, Open};
pub use durability::Durability;
pub use file::FileMemory;
pub use in_memory::InMemory;
#[cfg(feature = "sqlite")]
pub use recall::{FactId, Found, Noted, Recall, RecallContext, RecallSessions, Recalled, Scope};
pub use sessions::Sessions;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteMemory;
pub use window::{Counter, Fit, Shown, View, Window};
