//! The journal that stores runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use levity::core::{Journal, JournalError};
use levity::runtime::{FileJournal, SqliteJournal};

use crate::marks::{OwnJournal, Trust};
use crate::terminal::{chain, note};

/// The option that names the journal.
#[derive(Args)]
pub(crate) struct JournalArg {
    /// Folder or SQLite file (`*.db`) of the stored runs.
    #[arg(long, value_name = "PATH", default_value = "runs")]
    pub(crate) journal: PathBuf,
}

impl JournalArg {
    /// Opens the journal, which must exist: listing runs does not create one. Use
    /// [`open_own`](Self::open_own) to resume runs.
    pub(crate) fn open(&self) -> Result<Arc<dyn Journal>, String> {
        if !self.journal.exists() {
            return Err(format!(
                "there is no journal `{}`; name one with `--journal`, or start a run with `levity \
                    run --journal`",
                self.journal.display()
            ));
        }
        open(&self.journal).map_err(|error| chain(&error))
    }

    /// Opens the journal to drive or resume runs of this user.
    pub(crate) fn open_own(&self, trust: Trust) -> Result<Arc<OwnJournal>, String> {
        Ok(Arc::new(OwnJournal::new(
            self.open()?,
            &self.journal,
            trust,
        )))
    }
}

/// Opens a journal to drive runs of this user, and creates it if it does not exist.
pub(crate) fn open_own(path: &Path, trust: Trust) -> Result<Arc<OwnJournal>, JournalError> {
    Ok(Arc::new(OwnJournal::new(open(path)?, path, trust)))
}

/// Opens a journal to read it, and creates it if it does not exist.
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
