//! Where runs are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use levity::core::{Journal, JournalError};
use levity::runtime::{FileJournal, SqliteJournal};

use crate::marks::{OwnJournal, Trust};
use crate::terminal::{chain, note};

/// Which journal is meant.
#[derive(Args)]
pub(crate) struct Where {
    /// The folder, or the SQLite file (`*.db`), that the runs are kept in.
    #[arg(long, value_name = "PATH", default_value = "runs")]
    pub(crate) journal: PathBuf,
}

impl Where {
    /// The journal, which must be there: looking for runs makes none. Whoever resumes runs opens it
    /// as their [own](Self::open_own).
    pub(crate) fn open(&self) -> Result<Arc<dyn Journal>, String> {
        if !self.journal.exists() {
            return Err(format!(
                "there is no journal `{}`; name one with `--journal`, or make a run with `levity \
                    run --journal`",
                self.journal.display()
            ));
        }
        open(&self.journal).map_err(|error| chain(&error))
    }

    /// The same, for whoever drives runs or lets them go on.
    pub(crate) fn open_own(&self, trust: Trust) -> Result<Arc<OwnJournal>, String> {
        Ok(Arc::new(OwnJournal::new(
            self.open()?,
            &self.journal,
            trust,
        )))
    }
}

/// Opens a journal to drive runs of this user's, and makes it if it is not there.
pub(crate) fn open_own(path: &Path, trust: Trust) -> Result<Arc<OwnJournal>, JournalError> {
    Ok(Arc::new(OwnJournal::new(open(path)?, path, trust)))
}

/// Opens a journal to look at, and makes it if it is not there.
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
