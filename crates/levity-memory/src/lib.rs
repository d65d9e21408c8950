//! Memory for agents: conversations that outlive a process, context windows that always fit,
//! summaries of older messages, and facts that an agent can recall years later.
//!
//! ```
//! use levity_core::Message;
//! use levity_memory::{Counter, Window};
//!
//! let messages: Vec<_> = (1..=10_000)
//!     .map(|n| Message::user(format!("message {n}")).into())
//!     .collect();
//! let window = Window::new().tokens(2_000);
//! let shown = window.contents(&messages, Some("They counted."), &Counter::new());
//! assert!(shown.fits && shown.tokens <= 2_000);
//! ```
//!
//! - **Stores** save conversations: [`InMemory`], [`FileMemory`] (one JSON file per conversation)
//!   and `SqliteMemory` (one database file for all). A save is atomic, and two writers never
//!   interleave. [`KeyValueMemory`] turns any database with [four operations](KeyValueStore) into a
//!   store.
//! - [`Conversations`] runs one run at a time on each conversation, and removes conversations that
//!   are no longer used.
//! - A [`Window`] defines how much of a conversation a model receives. Its contents fit, form a
//!   history that every provider accepts, and cost what the window shows, not what the conversation
//!   holds.
//! - `Recall` stores facts and past sessions by user, project or session. It finds them by their
//!   words and, with an [`Embedder`](levity_core::Embedder), by their meaning.
//!
//! This crate deliberately contains neither the agent loop, which is in `levity-loop`, nor any
//! model call. [`World`](levity_core::World) provides the time.
//!
//! # Features
//! - `sqlite`: enables `SqliteMemory` and `Recall`.
//!
//! # Choosing a store
//! | store | conversations | processes | survives |
//! |---|---|---|---|
//! | [`InMemory`] | any number, optionally bounded | one | nothing |
//! | [`FileMemory`] | a small number, readable as JSON | several | a power failure |
//! | `SqliteMemory` | any number | several | a power failure |
//! | [`KeyValueMemory`] | any number | several machines | what the database promises |
//!
//! All of them pass the same conformance suite, `levity_test::conformance::memory_store`.
//!
//! # Where to go next
//! - [`Conversations`] adds queues and expiry to a store; agents use it.
//! - [`Window`] and [`Counter`] decide what a model sees; [`WindowView`] is the result.
//! - `docs/memory.md` and `docs/recall.md` describe the formats of the files.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod blocking;
mod conversations;
mod file;
mod in_memory;
mod json;
mod key_value;
mod query_words;
#[cfg(feature = "sqlite")]
mod recall;
mod sessions;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod sqlite_error;
mod stored;
mod window;

pub use conversations::{Conversations, MemoryCleanup, OpenConversation};
pub use file::{FileMemory, is_valid_conversation_id};
pub use in_memory::InMemory;
pub use key_value::{KeyValueMemory, KeyValueStore, Version, Versioned};
pub use levity_core::Durability;
#[cfg(feature = "sqlite")]
pub use recall::{
    EmbeddingReport, FactId, Recall, RecallContext, RecallResult, RecallSessionNotes, RecalledFact,
    SavedFact, Scope,
};
pub use sessions::SessionNotes;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteMemory;
pub use window::{Counter, Window, WindowContents, WindowFit, WindowView};
