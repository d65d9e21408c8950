//! Keeping runs, and keeping them no longer.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use levity::prelude::*;
use levity::runtime::{export, import};

use super::list::Which;
use super::{Done, One};
use crate::store::{self, Where};
use crate::terminal::{chain, say};

#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    one: One,
}

impl Export {
    pub(super) async fn export(self) -> Done {
        let (journal, _) = self.one.records().await?;
        let bytes = export(&*journal, &self.one.id()).await.map_err(|error| chain(&error))?;
        io::stdout().lock().write_all(&bytes).map_err(|error| format!("it cannot be written: {error}"))?;
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
                fs::read(file).map_err(|error| format!("`{}` cannot be read: {error}", file.display()))?
            }
            None => {
                let mut bytes = Vec::new();
                let read = io::stdin().lock().read_to_end(&mut bytes);
                read.map(|_| bytes).map_err(|error| format!("the standard input cannot be read: {error}"))?
            }
        };
        let journal = store::open(&self.place.journal).map_err(|error| chain(&error))?;
        let runs = import(&*journal, &bytes).await.map_err(|error| chain(&error))?;
        runs.iter().for_each(|run| say(&format!("{run}\n")));
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub(crate) struct Remove {
    /// The runs' ids; or say which by the options.
    #[arg(required_unless_present_any = ["state", "older_than"])]
    runs: Vec<String>,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    which: Which,
}

impl Remove {
    pub(super) async fn remove(self) -> Done {
        let journal = self.place.open()?;
        let mut runs: Vec<RunId> = self.runs.iter().map(|run| RunId::new(run.as_str())).collect();
        if runs.is_empty() {
            let query = self.which.query().roots();
            let found = journal.list(&query).await.map_err(|error| chain(&error))?;
            runs.extend(found.into_iter().map(|summary| summary.run));
        }
        let mut code = ExitCode::SUCCESS;
        for run in runs {
            match journal.remove(&run).await {
                Ok(true) => say(&format!("removed {run}\n")),
                Ok(false) => code = crate::terminal::complain(&format!("there is no run `{run}`"), 1),
                Err(error) => code = crate::terminal::complain(&chain(&error), 1),
            }
        }
        Ok(code)
    }
}
