//! Keeping runs, and keeping them no longer.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use levity::core::{Journal, RunId, RunQuery};
use levity::runtime::{export, import};
use levity_system::files::{LARGEST, read_at_most};

use super::list::Which;
use super::{Done, One};
use crate::store::{self, Where};
use crate::terminal::{chain, read_stdin, say, write_json};

#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    one: One,
}

impl Export {
    pub(super) async fn export(self) -> Done {
        let (journal, _) = self.one.records().await?;
        let bytes = export(&*journal, &self.one.id())
            .await
            .map_err(|error| chain(&error))?;
        write_json(&bytes).map_err(|error| format!("it cannot be written: {error}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub(crate) struct Import {
    /// The file to read; the standard input when there is none.
    file: Option<PathBuf>,
    #[command(flatten)]
    place: Where,
}

impl Import {
    pub(super) async fn import(self) -> Done {
        let bytes = match &self.file {
            Some(file) => {
                let read = read_at_most(file, LARGEST);
                read.map_err(|error| format!("`{}` cannot be read: {error}", file.display()))?
            }
            None => read_stdin(LARGEST)?,
        };
        let journal = store::open(&self.place.journal).map_err(|error| chain(&error))?;
        let runs = import(&*journal, &bytes)
            .await
            .map_err(|error| chain(&error))?;
        runs.iter().for_each(|run| say(&format!("{run}\n")));
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub(crate) struct Remove {
    /// The runs' ids; or say which by the options.
    #[arg(
        required_unless_present_any = ["state", "older_than"],
        conflicts_with_all = ["state", "roots", "below", "older_than", "due"],
    )]
    runs: Vec<String>,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    which: Which,
}

impl Remove {
    /// The runs that the options say. A run is removed together with those whose ids go on from its
    /// own, so one stays if not all of these are meant.
    async fn found(
        &self,
        journal: &dyn Journal,
        code: &mut ExitCode,
    ) -> Result<Vec<RunId>, String> {
        let query = self.which.query();
        let roots = journal
            .list(&RunQuery::new().roots())
            .await
            .map_err(|error| chain(&error))?;
        let (meant, kept): (Vec<_>, Vec<_>) =
            roots.into_iter().partition(|run| query.asks_for(run));
        let mut runs = Vec::with_capacity(meant.len());
        for run in meant.into_iter().map(|summary| summary.run) {
            match kept.iter().find(|kept| kept.run.is_within(&run)) {
                Some(kept) => {
                    let problem =
                        format!("`{run}` stays, since run `{}` would go with it", kept.run);
                    *code = crate::terminal::complain(&problem, 1);
                }
                None => runs.push(run),
            }
        }
        Ok(runs)
    }

    pub(super) async fn remove(self) -> Done {
        let journal = self.place.open()?;
        let mut code = ExitCode::SUCCESS;
        let runs = match &*self.runs {
            [] => self.found(&*journal, &mut code).await?,
            named => named.iter().map(|run| RunId::new(run.as_str())).collect(),
        };
        let mut removed: Vec<RunId> = Vec::new();
        for run in runs {
            match journal.remove(&run).await {
                Ok(there) if there || removed.iter().any(|above| run.is_within(above)) => {
                    say(&format!("removed {run}\n"));
                    removed.push(run);
                }
                Ok(_) => code = crate::terminal::complain(&format!("there is no run `{run}`"), 1),
                Err(error) => code = crate::terminal::complain(&chain(&error), 1),
            }
        }
        Ok(code)
    }
}
