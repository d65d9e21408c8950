//! What an agent remembers: conversations that outlive a process, windows that always fit, summaries of what has left
//! them, and facts that are recalled years later.

mod conversations;
mod file;
mod in_memory;
#[cfg(feature = "sqlite")]
mod recall;
#[cfg(feature = "sqlite")]
mod sqlite;
mod window;

#[cfg(feature = "sqlite")]
pub use recall::{FactId, Filled, Found, Noted, Recall, RecallContext, Recalled, Scope};
