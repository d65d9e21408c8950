//! Where runs are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use levity::core::{Journal, JournalError};
use levity::prelude::*;

use crate::terminal::note;

/// Which journal is meant.
#[derive(Args)]
pub(crate) struct Where {
    /// The folder, or the SQLite file (`*.db`), that the runs are kept in.
    #[arg(long, value_name = "PATH", default_value = "runs")]
    pub(crate) journal: PathBuf,
}

impl Where {
    /// The journal, which must be there: looking for runs makes none.
    pub(crate) fn open(&self) -> Result<Arc<dyn Journal>, String> {
        if !self.journal.exists() {
            return Err(format!(
                "there is no journal `{}`; name one with `--journal`, or make a run with `levity run --journal`",
                self.journal.display()
            ));
        }
        open(&self.journal).map_err(|error| crate::terminal::chain(&error))
    }
}

/// Opens a journal, and makes it if it is not there.
pub(crate) fn open(path: &Path) -> Result<Arc<dyn Journal>, JournalError> {
    if path.is_file() || path.extension().is_some_and(|extension| extension == "db") {
        let journal = SqliteJournal::new(path)?;
        journal.problems().iter().for_each(|problem| note(problem));
        return Ok(Arc::new(journal));
    }
    let journal = FileJournal::new(path)?;
    journal.problems().iter().for_each(|problem| note(problem));
    Ok(Arc::new(journal))
}
