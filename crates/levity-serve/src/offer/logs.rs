use async_trait::async_trait;
use levity_core::{RunId, RunQuery, RunSummary};

use crate::access::Caller;
use crate::error::Error;
use crate::mcp::{
    Page, RequestError, Resource, ResourceAsk, ResourceContent, ResourceTemplate, Resources,
};
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

    async fn log(&self, caller: &Caller, run: &RunId) -> Result<String, RequestError> {
        let told = self
            .runs
            .told(caller, run, MOST)
            .await
            .map_err(|error| match error {
                Error::JournalBusy { .. } => RequestError::busy(error.to_string()),
                _ => gone(run),
            })?;
        let mut text = Vec::new();
        for line in &told {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        String::from_utf8(text).map_err(|_| RequestError::failed("the log is not text"))
    }
}

fn gone(run: &RunId) -> RequestError {
    RequestError::not_found(format!("there is no log of a run `{run}` here"))
}

#[async_trait]
impl Resources for RunLogs {
    async fn list(&self, cursor: Option<&str>) -> Result<Page<Resource>, RequestError> {
        self.list_for(&Caller::owner(), cursor).await
    }

    async fn list_for(
        &self,
        caller: &Caller,
        _: Option<&str>,
    ) -> Result<Page<Resource>, RequestError> {
        let query = RunQuery::new().roots().newest_first();
        let whose = caller.clone();
        let runs = self
            .runs
            .newest(caller, query, LISTED, move |run| {
                whose.owns(run.run.as_str())
            })
            .await;
        let runs = runs.map_err(|error| match error {
            Error::JournalBusy { .. } => RequestError::busy(error.to_string()),
            _ => RequestError::failed("the runs cannot be listed"),
        })?;
        Ok(Page::all(runs.iter().map(shown)))
    }

    async fn templates(&self, _: Option<&str>) -> Result<Page<ResourceTemplate>, RequestError> {
        let template = ResourceTemplate::new(format!("{URL}{{run}}"), "run")
            .with_description("What a run has told, one JSON object on a line.")
            .with_mime(KIND);
        Ok(Page::all([template]))
    }

    async fn read(&self, ask: ResourceAsk) -> Result<Vec<ResourceContent>, RequestError> {
        let Some(run) = ask.uri.strip_prefix(URL) else {
            return Err(RequestError::not_found(format!(
                "there is nothing at `{}`",
                ask.uri
            )));
        };
        let caller = ask.client.caller();
        let text = self.log(caller, &RunId::new(caller.own(run))).await?;
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
