//! Where conversations are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use levity::core::{ConversationId, MemoryError, MemoryStore};
use levity::memory::{Conversations, FileMemory, SqliteMemory};
use levity::prelude::*;

use crate::terminal::{chain, note};

/// Which store is meant.
#[derive(Args)]
pub(crate) struct Where {
    /// The folder, the SQLite file (`*.db`) or the one JSON file (`*.json`) that the conversations
    /// are kept in.
    #[arg(long, value_name = "PATH", default_value = "conversations")]
    memory: PathBuf,
}

impl Where {
    /// The store, which must be there: looking for conversations makes none.
    pub(crate) fn open(&self) -> Result<Arc<dyn MemoryStore>, String> {
        if !self.memory.exists() {
            return Err(format!(
                "there are no conversations in `{}`; name a store with `--memory`, or make one \
                    with `levity chat --memory`",
                self.memory.display()
            ));
        }
        open(&self.memory)
    }
}

/// Opens a store, and makes it if it is not there.
pub(crate) fn open(path: &Path) -> Result<Arc<dyn MemoryStore>, String> {
    let says = |error: MemoryError| chain(&error);
    let warn = |problems: Vec<String>| problems.iter().for_each(|problem| note(problem));
    if ending(path) != Some("json") && (path.is_file() || ending(path) == Some("db")) {
        let store = SqliteMemory::new(path).map_err(says)?;
        warn(store.problems());
        return Ok(Arc::new(store));
    }
    let store = if ending(path) == Some("json") {
        FileMemory::at(path)
    } else {
        FileMemory::new(path)
    };
    let store = store.map_err(says)?;
    warn(store.problems());
    Ok(Arc::new(store))
}

/// Conversations that stay until they are forgotten.
pub(crate) fn conversations(store: Arc<dyn MemoryStore>, runtime: &Runtime) -> Conversations {
    Conversations::new(store)
        .world(runtime.world().clone())
        .never_expire()
}

/// The conversation that is meant: the one of this name, the only one of a JSON file, or a new one.
pub(crate) fn conversation(
    path: Option<&Path>,
    name: Option<&str>,
    agent: &Agent,
) -> ConversationId {
    let only = path
        .filter(|path| ending(path) == Some("json"))
        .and_then(Path::file_stem);
    match name
        .map(Into::into)
        .or_else(|| only.map(|name| name.to_string_lossy()))
    {
        Some(name) => ConversationId::new(&*name),
        None => ConversationId::random(&**agent.runtime().world()),
    }
}

/// The name of a conversation as it is given.
pub(crate) fn named(name: &str) -> Result<String, String> {
    match name.is_empty() {
        true => Err("a conversation without a name would be everybody's".to_owned()),
        false => Ok(name.to_owned()),
    }
}

fn ending(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}
