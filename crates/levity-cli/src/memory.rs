//! Where conversations are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use levity::core::MemoryStore;

/// Which store is meant.
#[derive(Args)]
pub(crate) struct Where {
    /// The folder, or the SQLite file (`*.db`), that the conversations are kept in.
    #[arg(long, value_name = "PATH", default_value = "conversations")]
    memory: PathBuf,
}

impl Where {
    /// The store, which must be there: looking for conversations makes none.
    pub(crate) fn open(&self) -> Result<Arc<dyn MemoryStore>, String> {
        if !self.memory.exists() {
            return Err(format!(
                "there are no conversations in `{}`; name a store with `--memory`, or make one with `levity chat --memory`",
                self.memory.display()
            ));
        }
        open(&self.memory)
    }
}

/// Opens a store, and makes it if it is not there.
pub(crate) fn open(path: &Path) -> Result<Arc<dyn MemoryStore>, String> {
    Err(format!("conversations cannot be kept in `{}` yet", path.display()))
}
