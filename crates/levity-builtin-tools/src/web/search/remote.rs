//! The request code that providers share, with a key that is never printed.
//!
//! A response has at most 4 MiB. Every error is written for the model, which can only rephrase the
//! query, wait, or continue without a search. The key is in a type of its own, so that it cannot
//! reach a log by a derived `Debug`.

use std::fmt;

use levity_core::ToolError;
use levity_sandbox::AddressError;
use serde_json::Value;
use url::Url;

use super::super::client::Client;
use super::super::failure;

/// The maximum size of a response, in bytes.
const MAX_REPLY: usize = 4 * 1024 * 1024;

/// A key that `Debug` does not print.
#[derive(Clone)]
pub(super) struct Key(String);

impl Key {
    pub(super) fn new(key: &str) -> Self {
        Self(key.trim().to_owned())
    }

    /// The name makes each use of the key visible in a review.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(***)")
    }
}

/// The address and HTTP client of a provider.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) base: String,
    pub(super) client: Client,
}

impl Remote {
    pub(super) fn new(base: impl Into<String>) -> Self {
        Self {
            base: base.into(),
            client: Client::default(),
        }
    }

    /// Sends a query and returns the JSON of the response.
    ///
    /// `key` is the name of a header with the key.
    ///
    /// # Errors
    /// Fails if the guard refuses the address, the status is not 200, or the response is not JSON.
    /// Only a failure of the server or of the connection is retryable.
    pub(super) async fn ask(
        &self,
        path: &str,
        query: &[(&str, &str)],
        key: Option<(&str, &Key)>,
    ) -> Result<Value, ToolError> {
        let url = self.url(path, query)?;
        let client = self.client.get()?;
        let mut get = client
            .get(url.as_str())
            .map_err(|error| refused(&error))?
            .header("accept", "application/json");
        if let Some((name, key)) = key {
            get = get.header(name, key.expose());
        }
        let mut reply = get.send().await.map_err(failure::net)?;
        check(reply.status())?;
        let body = reply.read(MAX_REPLY).await.map_err(failure::net)?;
        serde_json::from_slice(&body.bytes).map_err(|_| {
            ToolError::failed("the search service did not respond with JSON; continue without it")
        })
    }

    /// Appends the path and the encoded query to the base address.
    fn url(&self, path: &str, query: &[(&str, &str)]) -> Result<Url, ToolError> {
        let base = format!("{}{path}", self.base.trim_end_matches('/'));
        let unread = |_| {
            ToolError::failed("the address of the search service is invalid; continue without it")
        };
        Url::parse_with_params(&base, query).map_err(unread)
    }
}

/// A limit on requests (429) is not retryable here: an immediate retry would make it worse.
fn check(status: u16) -> Result<(), ToolError> {
    let (text, may_pass) = match status {
        200 => return Ok(()),
        401 | 403 => (
            "the search service rejects the key or this use; continue without it",
            false,
        ),
        400 | 422 => ("the search service rejects the query; rephrase it", false),
        429 => (
            "the search service requires fewer requests; continue without it for a while",
            false,
        ),
        500..=599 => ("the search service failed; try again later", true),
        _ => (
            "the search service returned an unexpected status; continue without it",
            false,
        ),
    };
    Err(ToolError::failed(format!("{text} (status {status})")).with_retryable(may_pass))
}

/// The model cannot change the guard, so the advice is to continue without a search.
fn refused(error: &AddressError) -> ToolError {
    ToolError::failed(format!(
        "the network guard does not allow the search service, so continue without it: {error}"
    ))
}
