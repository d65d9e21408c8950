//! The journal that stores runs.
//!
//! A journal is a folder with one file for each run, or one SQLite file. The path alone decides: an
//! existing file or a name that ends with `.db` is SQLite, all else is a folder. The rule also
//! holds for a journal that does not exist yet, so the same option works for the first and for
//! every later call.
//!
//! Two ways of opening differ in trust. `open` reads runs, which is safe for every journal.
//! `open_own` wraps the journal so that only runs which this user marked (or trusts by an option)
//! are driven: a stored run contains calls that would be executed, and a journal may come from a
//! stranger. See `marks`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use levity::core::{Journal, JournalError};
use levity::runtime::{FileJournal, SqliteJournal};

use crate::marks::{OwnJournal, Trust};
use crate::terminal::{chain, note};

/// The journal of commands on stored runs, if the user names none.
const DEFAULT_JOURNAL: &str = "runs";

/// The option that names the journal.
#[derive(Args)]
pub(crate) struct JournalArg {
    /// Folder or SQLite file (`*.db`) of the stored runs.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_JOURNAL)]
    pub(crate) journal: PathBuf,
}

impl JournalArg {
    /// Rejects the default journal if it is a link: the user did not name it, so the folder may
    /// have brought the link along.
    pub(crate) fn check_link(&self) -> Result<(), String> {
        match self.journal == Path::new(DEFAULT_JOURNAL) && self.journal.is_symlink() {
            true => Err(format!(
                "`{DEFAULT_JOURNAL}` is a link, which may lead to any folder; name the journal \
                    with `--journal`"
            )),
            false => Ok(()),
        }
    }

    /// Opens the journal, which must exist: listing runs does not create one. Use
    /// [`open_own`](Self::open_own) to resume runs.
    ///
    /// # Errors
    /// The path does not exist, or the journal cannot be opened. The message suggests `--journal`,
    /// because the default `runs` is relative to the current folder.
    pub(crate) fn open(&self) -> Result<Arc<dyn Journal>, String> {
        self.check_link()?;
        if !self.journal.exists() {
            return Err(format!(
                "there is no journal `{}`; name one with `--journal`, or start a run with `levity \
                    run --journal`",
                self.journal.display()
            ));
        }
        open(&self.journal).map_err(|error| chain(&error))
    }

    /// Opens the journal to send requests that only stop something, to runs of anyone.
    pub(crate) fn open_any(&self) -> Result<OwnJournal, String> {
        let journal = OwnJournal::new(self.open()?, &self.journal, Trust::NONE);
        Ok(journal.for_any_run())
    }

    /// Opens the journal to drive or resume runs of this user.
    ///
    /// Like `open`, it does not create a journal: a run to resume must exist already.
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

/// Creates the folder of a file that is about to be opened, private to the user.
///
/// The folder for data of `levity init` is not part of a repository, so clones of it have none. If
/// the folder cannot be created, opening the file reports why.
pub(crate) fn create_parent(path: &Path) {
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        let _ = levity_system::files::make_dir(above);
    }
}

/// Opens a journal to read it, and creates it if it does not exist.
///
/// Damaged entries that the journal could skip are printed as notes; they do not fail the command.
pub(crate) fn open(path: &Path) -> Result<Arc<dyn Journal>, JournalError> {
    if path.is_file() || path.extension().is_some_and(|extension| extension == "db") {
        create_parent(path);
        let journal = SqliteJournal::new(path)?;
        journal.problems().iter().for_each(|problem| note(problem));
        return Ok(Arc::new(journal));
    }
    let journal = FileJournal::new(path)?;
    journal.problems().iter().for_each(|problem| note(problem));
    Ok(Arc::new(journal))
}
