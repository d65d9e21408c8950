//! Event logs of runs as resources with URIs such as `levity://runs/r1`: one JSON object per line.
//! The list has the 50 newest runs of the caller, and a log has its last megabyte. A run of another
//! tenant does not exist for the caller.

use async_trait::async_trait;
use levity_core::{RunId, RunQuery, RunSummary};

use crate::access::Caller;
use crate::error::Error;
use crate::mcp::{
    Page, RequestError, Resource, ResourceContent, ResourceRequest, ResourceTemplate, Resources,
};
use crate::runs::Runs;

/// The prefix of the URIs of runs.
const URL: &str = "levity://runs/";
/// The number of runs that are listed, newest first.
const LISTED: usize = 50;
/// The maximum number of bytes of a log that are returned, from its end.
const MAX_BYTES: usize = 1 << 20;
const KIND: &str = "application/x-ndjson";

/// The event logs of runs, as MCP resources.
pub(super) struct RunLogs {
    runs: Runs,
}

impl RunLogs {
    pub(super) fn new(runs: Runs) -> Self {
        Self { runs }
    }

    /// Errors other than a busy journal are reported as "not found", so that a client cannot
    /// distinguish foreign runs from missing ones.
    async fn log(&self, caller: &Caller, run: &RunId) -> Result<String, RequestError> {
        let events = self
            .runs
            .recent_events(caller, run, MAX_BYTES)
            .await
            .map_err(|error| match error {
                Error::JournalBusy { .. } => RequestError::busy(error.to_string()),
                _ => not_found(run),
            })?;
        let mut text = Vec::new();
        for line in &events {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        String::from_utf8(text).map_err(|_| RequestError::failed("the log is not valid UTF-8"))
    }
}

fn not_found(run: &RunId) -> RequestError {
    RequestError::not_found(format!("this server has no log of a run `{run}`"))
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
        let owner = caller.clone();
        let runs = self
            .runs
            .newest(caller, query, LISTED, move |run| {
                owner.owns(run.run.as_str())
            })
            .await;
        let runs = runs.map_err(|error| match error {
            Error::JournalBusy { .. } => RequestError::busy(error.to_string()),
            _ => RequestError::failed("cannot list the runs"),
        })?;
        Ok(Page::all(runs.iter().map(resource)))
    }

    async fn templates(&self, _: Option<&str>) -> Result<Page<ResourceTemplate>, RequestError> {
        let template = ResourceTemplate::new(format!("{URL}{{run}}"), "run")
            .with_description("The events of a run, one JSON object per line.")
            .with_mime(KIND);
        Ok(Page::all([template]))
    }

    async fn read(&self, ask: ResourceRequest) -> Result<Vec<ResourceContent>, RequestError> {
        let Some(run) = ask.uri.strip_prefix(URL) else {
            return Err(RequestError::not_found(format!(
                "no resource has the URI `{}`",
                ask.uri
            )));
        };
        let caller = ask.client.caller();
        let text = self.log(caller, &RunId::new(caller.own(run))).await?;
        Ok(vec![ResourceContent::text(ask.uri, text).with_mime(KIND)])
    }
}

fn resource(run: &RunSummary) -> Resource {
    let state = match &run.status {
        Some(status) => status.to_string(),
        None => "in progress".to_owned(),
    };
    Resource::new(format!("{URL}{}", run.run), format!("run {}", run.run))
        .with_description(format!("Started {}; {state}.", run.opened))
        .with_mime(KIND)
}
