//! The stores for conversations.
//!
//! Three forms of a store are selected by the path: a folder with one file for each conversation,
//! an SQLite file (`*.db`, or any existing file), and a single JSON file (`*.json`) that holds
//! exactly one conversation. The rules resemble those of journals in `store`, so both options can
//! be used alike.
//!
//! Conversations of the command line never expire; those of servers without `--memory` do.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use levity::core::{ConversationId, MemoryError, MemoryStore};
use levity::memory::{Conversations, FileMemory, SqliteMemory};
use levity::prelude::*;

use crate::store;
use crate::terminal::{chain, note};

/// The option that names the store.
#[derive(Args)]
pub(crate) struct MemoryArg {
    /// Folder, SQLite file (`*.db`) or single JSON file (`*.json`) of the stored conversations.
    #[arg(long, value_name = "PATH", default_value = "conversations")]
    memory: PathBuf,
}

impl MemoryArg {
    /// Opens the store, which must exist: listing conversations does not create one.
    pub(crate) fn open(&self) -> Result<Arc<dyn MemoryStore>, String> {
        if !self.memory.exists() {
            return Err(format!(
                "there are no conversations in `{}`; name a store with `--memory`, or create one \
                    with `levity chat --memory`",
                self.memory.display()
            ));
        }
        open(&self.memory)
    }
}

/// Opens a store, and creates it if it does not exist.
///
/// Warnings, such as skipped damaged files, become notes.
///
/// # Errors
/// The store cannot be created or opened, for example because of permissions or an unknown format.
pub(crate) fn open(path: &Path) -> Result<Arc<dyn MemoryStore>, String> {
    let message = |error: MemoryError| chain(&error);
    let warn = |problems: Vec<String>| problems.iter().for_each(|problem| note(problem));
    store::create_parent(path);
    if extension(path) != Some("json") && (path.is_file() || extension(path) == Some("db")) {
        let store = SqliteMemory::new(path).map_err(message)?;
        warn(store.warnings());
        return Ok(Arc::new(store));
    }
    let store = if extension(path) == Some("json") {
        FileMemory::single_file(path)
    } else {
        FileMemory::new(path)
    };
    let store = store.map_err(message)?;
    warn(store.warnings());
    Ok(Arc::new(store))
}

/// Returns conversations that remain until they are deleted.
///
/// The clock comes from the runtime, so tests control the times that are stored.
pub(crate) fn conversations(store: Arc<dyn MemoryStore>, runtime: &Runtime) -> Conversations {
    Conversations::new(store)
        .world(runtime.world().clone())
        .never_expire()
}

/// Returns the id of the conversation: the given name, the only one of a JSON file, or a new one.
///
/// A JSON file holds one conversation whose id is the name of the file without its extension:
/// `notes.json` is the conversation `notes`.
pub(crate) fn conversation(
    path: Option<&Path>,
    name: Option<&str>,
    agent: &Agent,
) -> ConversationId {
    conversation_id(path, name, agent.runtime())
}

/// As [`conversation`], for runs that are not those of one agent.
pub(crate) fn conversation_id(
    path: Option<&Path>,
    name: Option<&str>,
    runtime: &Runtime,
) -> ConversationId {
    let only = path
        .filter(|path| extension(path) == Some("json"))
        .and_then(Path::file_stem);
    match name
        .map(Into::into)
        .or_else(|| only.map(|name| name.to_string_lossy()))
    {
        Some(name) => ConversationId::new(&*name),
        None => ConversationId::random(&**runtime.world()),
    }
}

/// Parses the name of a conversation.
///
/// An empty name often comes from an unset variable in a script, such as `--conversation "$ID"`.
pub(crate) fn parse_name(name: &str) -> Result<String, String> {
    match name.is_empty() {
        true => Err(
            "the name is empty, so all users would share the conversation; use a \
            name"
                .to_owned(),
        ),
        false => Ok(name.to_owned()),
    }
}

/// Returns the extension of a path, if it is UTF-8.
fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}
