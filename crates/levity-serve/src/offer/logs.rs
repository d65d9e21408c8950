use async_trait::async_trait;
use levity_core::{RunId, RunQuery, RunSummary};

use crate::mcp::{Fault, Page, Resource, ResourceAsk, ResourceContent, ResourceTemplate, Resources};
use crate::runs::Runs;

/// What addresses of runs begin with.
const URL: &str = "levity://runs/";
/// How many runs are listed, the newest.
const LISTED: usize = 50;
/// How much of a log is given, its end.
const MOST: usize = 1 << 20;
const KIND: &str = "application/x-ndjson";

/// What runs have told, to be read.
pub(super) struct RunLogs {
    runs: Runs,
}

impl RunLogs {
    pub(super) fn new(runs: Runs) -> Self {
        Self { runs }
    }

    async fn log(&self, run: &RunId) -> Result<String, Fault> {
        let events = self.runs.history(run).await.map_err(|_| gone(run))?;
        let mut lines: Vec<String> = Vec::new();
        let mut room = MOST;
        for event in events.iter().rev() {
            let line = serde_json::to_string(event).unwrap_or_default();
            match room.checked_sub(line.len() + 1) {
                Some(left) => room = left,
                None => break,
            }
            lines.push(line);
        }
        lines.reverse();
        Ok(lines.iter().flat_map(|line| [line, "\n"]).collect())
    }
}

fn gone(run: &RunId) -> Fault {
    Fault::not_found(format!("there is no log of a run `{run}` here"))
}

#[async_trait]
impl Resources for RunLogs {
    async fn list(&self, _: Option<&str>) -> Result<Page<Resource>, Fault> {
        let query = RunQuery::new().roots().newest_first().limit(LISTED);
        let runs = self.runs.list(&query).await.map_err(|_| Fault::failed("the runs cannot be listed"))?;
        Ok(Page::all(runs.iter().map(shown)))
    }

    async fn templates(&self, _: Option<&str>) -> Result<Page<ResourceTemplate>, Fault> {
        let template = ResourceTemplate::new(format!("{URL}{{run}}"), "run")
            .with_description("What a run has told, one JSON object on a line.")
            .with_mime(KIND);
        Ok(Page::all([template]))
    }

    async fn read(&self, ask: ResourceAsk) -> Result<Vec<ResourceContent>, Fault> {
        let Some(run) = ask.uri.strip_prefix(URL) else {
            return Err(Fault::not_found(format!("there is nothing at `{}`", ask.uri)));
        };
        let text = self.log(&RunId::new(run)).await?;
        Ok(vec![ResourceContent::text(ask.uri, text).with_mime(KIND)])
    }
}

fn shown(run: &RunSummary) -> Resource {
    let state = match &run.status {
        Some(status) => status.to_string(),
        None => "under way".to_owned(),
    };
    Resource::new(format!("{URL}{}", run.run), format!("run {}", run.run))
        .with_description(format!("Begun {}; {state}.", run.opened))
        .with_mime(KIND)
}
