//! Exports, imports and deletes runs.
//!
//! A run with all its child runs becomes a text of JSON Lines, for archives, bug reports and other
//! machines. An import creates runs that are not marked as this user's own, even if a removed run
//! with the same id was: they can be read and shown, and are resumed only with an explicit option,
//! because they contain calls that a stranger may have written.
//!
//! An input of an import has a limit (`MAX_SIZE`). Deleting is final; a run that another process
//! drives cannot be deleted. Exit codes: 0, 1 if one of the runs could not be handled (the others
//! are) or if long texts of deleted runs remain, 2 for a wrong call.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use levity::core::{Journal, JournalErrorKind, RunId, RunQuery};
use levity::runtime::{FileJournal, export, import};
use levity_system::files::{MAX_SIZE, read_at_most};

use super::list::RunFilter;
use super::{CommandResult, RunArg};
use crate::marks::{ImportJournal, Trust};
use crate::store::{self, JournalArg};
use crate::terminal::{advise, chain, print_text, read_stdin, write_json};

#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    run_arg: RunArg,
}

impl Export {
    /// Prints the bytes unchanged to a file or a pipe; on a terminal, unsafe characters are
    /// escaped. The records are read first, so a missing run fails with levity's usual message.
    pub(super) async fn export(self) -> CommandResult {
        let (journal, _) = self.run_arg.records().await?;
        let bytes = export(&*journal, &self.run_arg.id())
            .await
            .map_err(|error| chain(&error))?;
        write_json(&bytes).map_err(|error| format!("cannot write the run: {error}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub(crate) struct Import {
    /// File to read; by default, the standard input.
    file: Option<PathBuf>,
    #[command(flatten)]
    place: JournalArg,
}

impl Import {
    /// Prints the id of each new run on its own line. Unlike other commands on runs, it creates the
    /// journal, since importing into a new one is a usual use.
    pub(super) async fn import(self) -> CommandResult {
        let bytes = match &self.file {
            Some(file) => {
                let read = read_at_most(file, MAX_SIZE);
                read.map_err(|error| format!("cannot read `{}`: {error}", file.display()))?
            }
            None => read_stdin(MAX_SIZE)?,
        };
        self.place.check_link()?;
        let journal = store::open_own(&self.place.journal, Trust::NONE);
        let journal = ImportJournal(journal.map_err(|error| chain(&error))?);
        let runs = import(&journal, &bytes)
            .await
            .map_err(|error| advise(chain(&error), "export the run again"))?;
        runs.iter().for_each(|run| print_text(&format!("{run}\n")));
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub(crate) struct Remove {
    /// Ids of the runs; or select runs with the options.
    #[arg(
        required_unless_present_any = ["state", "older_than"],
        conflicts_with_all = ["state", "roots", "below", "older_than", "due"],
    )]
    runs: Vec<String>,
    #[command(flatten)]
    place: JournalArg,
    #[command(flatten)]
    filter: RunFilter,
}

impl Remove {
    /// Returns the runs that the options select. Deleting a run also deletes the runs whose ids
    /// extend its id. A run therefore remains unless all of these are selected.
    ///
    /// Runs that must remain are reported, and the exit code is then 1.
    async fn selected(
        &self,
        journal: &dyn Journal,
        code: &mut ExitCode,
    ) -> Result<Vec<RunId>, String> {
        let query = self.filter.query();
        let roots = journal
            .list(&RunQuery::new().roots())
            .await
            .map_err(|error| chain(&error))?;
        let (selected_runs, remaining): (Vec<_>, Vec<_>) =
            roots.into_iter().partition(|run| query.matches(run));
        let mut runs = Vec::with_capacity(selected_runs.len());
        for run in selected_runs.into_iter().map(|summary| summary.run) {
            match remaining
                .iter()
                .find(|remaining| remaining.run.is_within(&run))
            {
                Some(remaining) => {
                    let problem = format!(
                        "run `{run}` is not deleted, because run `{}` would be deleted \
                            with it",
                        remaining.run
                    );
                    *code = crate::terminal::report_error(&problem, 1);
                }
                None => runs.push(run),
            }
        }
        Ok(runs)
    }

    /// Goes on after a failure and returns 1 at the end. A run that was deleted together with an
    /// earlier one of the list counts as removed and not as missing.
    pub(super) async fn remove(self) -> CommandResult {
        let journal = self.place.open_own(Trust::NONE)?;
        let mut code = ExitCode::SUCCESS;
        let runs = match &*self.runs {
            [] => self.selected(&*journal, &mut code).await?,
            named => named.iter().map(|run| RunId::new(run.as_str())).collect(),
        };
        let mut removed: Vec<RunId> = Vec::new();
        for run in runs {
            match journal.remove(&run).await {
                Ok(existed) if existed || removed.iter().any(|above| run.is_within(above)) => {
                    print_text(&format!("removed {run}\n"));
                    removed.push(run);
                }
                Ok(_) => {
                    code = crate::terminal::report_error(
                        &format!(
                            "there is no run `{run}`; \
                    `levity runs list` shows all runs"
                        ),
                        1,
                    );
                }
                Err(error) => code = crate::terminal::report_error(&chain(&error), 1),
            }
        }
        if !removed.is_empty()
            && let Err(problem) = self.remove_unused_texts().await
        {
            code = crate::terminal::report_error(&problem, 1);
        }
        Ok(code)
    }

    /// Removes the long texts that only deleted runs needed, from a journal that is a folder. Other
    /// processes may drive runs meanwhile.
    async fn remove_unused_texts(&self) -> Result<(), String> {
        let folder = &self.place.journal;
        if !folder.is_dir() {
            return Ok(());
        }
        let swept = async { FileJournal::new(folder)?.remove_unused_texts().await }.await;
        swept.map(drop).map_err(|error| {
            let reason = match error.kind() {
                JournalErrorKind::Busy => "a run is just writing one".to_owned(),
                _ => chain(&error),
            };
            let texts = folder.join("bodies");
            let problem = format!(
                "long texts of deleted runs may remain in `{}`: {reason}",
                texts.display()
            );
            advise(
                problem,
                "the next `levity runs rm` that deletes a run removes them",
            )
        })
    }
}
