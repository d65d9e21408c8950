//! What an agent remembers: conversations that outlive a process, windows that always fit,
//! summaries of what has left them, and facts that are recalled years later.
//!
//! ```
//! use levity_core::Message;
//! use levity_memory::{Counter, Window};
//!
//! let messages: Vec<_> = (1..=10_000).map(|n| Message::user(format!("message {n}")).into()).collect();
//! let shown = Window::new().tokens(2_000).show(&messages, Some("They counted."), &Counter::new());
//! assert!(shown.fits && shown.tokens <= 2_000);
//! ```
//!
//! - **Stores** keep conversations: [`InMemory`], [`FileMemory`] (a JSON file each), `SqliteMemory`
//!   (all in one file). A save is whole or not at all, and two writers never interleave.
//!   [`KeyValueMemory`] makes a store of any database that has [four operations](KeyValueStore).
//! - [`Conversations`] sees to it that runs of one conversation follow one another, and that what
//!   nobody uses any more goes.
//! - A [`Window`] says how much of a conversation a model is shown. What it shows fits, is a
//!   history that a provider accepts, and costs what is shown, not what the conversation holds.
//! - `Recall` keeps facts and past sessions by user, project or session, and finds them by their
//!   words and, with an [`Embedder`](levity_core::Embedder), by what they mean.
//!
//! What is deliberately absent: the loop that uses all this, which is `levity-loop`, and any call
//! of a model. Time comes in through [`World`](levity_core::World).
//!
//! # Features
//! - `sqlite`: `SqliteMemory` and `Recall`.

mod blocking;
mod conversations;
mod file;
#[cfg(feature = "sqlite")]
mod flaw;
mod in_memory;
mod json;
mod kept;
mod key_value;
#[cfg(feature = "sqlite")]
mod recall;
mod sessions;
#[cfg(feature = "sqlite")]
mod sqlite;
mod window;
mod words;

pub use conversations::{Conversations, MemoryCleanup, Open};
pub use file::{FileMemory, conversation_id_fits};
pub use in_memory::InMemory;
pub use key_value::{KeyValueMemory, KeyValueStore, Version, Versioned};
pub use levity_core::Durability;
#[cfg(feature = "sqlite")]
pub use recall::{
    EmbeddingReport, FactId, Recall, RecallContext, RecallResult, RecallSessions, Recalled,
    SavedFact, Scope,
};
pub use sessions::Sessions;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteMemory;
pub use window::{Counter, Window, WindowContents, WindowFit, WindowView};
