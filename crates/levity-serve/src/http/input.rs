//! Parses and validates the input of clients.
//!
//! Input is rejected early and strictly: unknown fields, repeated parameters, wrong content types
//! and arrays in place of objects are errors. A client with a typo thereby gets an error instead of
//! a default. Messages do not repeat arbitrary client input.

use axum::body::Body;
use axum::extract::{Query, Request};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, StatusCode, Uri};
use levity_core::text::{json_problem, serde_problem};
use levity_core::{ControlError, JournalErrorKind, RunId, RunSummary};
use serde::de::DeserializeOwned;

use super::Api;
use super::extract::caller;
use super::problem::{HandlerResult, Problem};
use crate::access::Caller;
use crate::body::BodyError;

/// The maximum length of an id in bytes. For a child run, it applies to the id of its root run.
pub(super) const ID_LIMIT: usize = 128;
/// The maximum length of the id of a child run in bytes. Each level adds a dot and a number.
const CHILD_ID_LIMIT: usize = 512;

/// Parses the id of a run in a path, either a root run or a child run.
pub(super) fn run_id(id: &str) -> HandlerResult<RunId> {
    let parts = |id: &str| {
        id.split('.')
            .all(|part| !part.is_empty() && part.bytes().all(is_plain))
    };
    let root = id.split_once('.').map_or(id, |(root, _)| root);
    match root.len() <= ID_LIMIT && id.len() <= CHILD_ID_LIMIT && parts(id) {
        true => Ok(RunId::from(id)),
        false => Err(Problem::bad("bad_id", INVALID_ID)),
    }
}

/// Validates the id of a run that is about to start.
pub(super) fn new_run_id(id: &str) -> HandlerResult<RunId> {
    match !id.is_empty() && id.len() <= ID_LIMIT && id.bytes().all(is_plain) {
        true => Ok(RunId::from(id)),
        false => Err(Problem::invalid("bad_id", INVALID_ID)),
    }
}

const INVALID_ID: &str = "the id of a run must have 1 to 128 letters, digits, `-` and `_`";

/// Returns `true` for letters, digits, `-` and `_`, which are valid in URLs and file names of every
/// system.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Returns the root run of a run.
pub(super) fn root(run: &RunId) -> RunId {
    let id = run.as_str();
    RunId::from(id.split_once('.').map_or(id, |(root, _)| root))
}

/// Parses the query of a URI. Unknown and repeated parameters are rejected.
pub(super) fn query<T: DeserializeOwned>(uri: &Uri) -> HandlerResult<T> {
    let read = Query::try_from_uri(uri).map(|Query(query)| query);
    read.map_err(|rejection| {
        Problem::bad(
            "bad_query",
            format!(
                "the query is invalid: {}",
                query_problem(&rejection.body_text())
            ),
        )
    })
}

/// Returns the problem in a query without the parameter name before it, which may be arbitrary
/// client input.
fn query_problem(text: &str) -> String {
    let faults = [
        "unknown field ",
        "duplicate field ",
        "missing field ",
        "invalid type",
        "invalid value",
        "invalid digit",
    ];
    match faults.iter().filter_map(|fault| text.find(fault)).min() {
        Some(at) => serde_problem(&text[at..]),
        None => "a value has the wrong format".to_owned(),
    }
}

/// Parses a boolean parameter: `1`, `true`, `0` or `false`.
pub(super) fn bool_param(name: &str, value: Option<&str>, default: bool) -> HandlerResult<bool> {
    match value {
        None => Ok(default),
        Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        Some(_) => Err(Problem::bad(
            "bad_query",
            format!("`{name}` must be `1` or `0`"),
        )),
    }
}

/// Returns a header that may occur once, as text.
pub(super) fn header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> HandlerResult<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(http::HeaderValue::to_str), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => Err(Problem::bad(
            "bad_header",
            format!("`{name}` occurs more than once, or is not text; send it once"),
        )),
    }
}

/// Reads the body of a request as JSON.
pub(super) async fn body<T: DeserializeOwned>(api: &Api, request: Request) -> HandlerResult<T> {
    let (parts, body) = request.into_parts();
    let bytes = bytes(api, &caller(&parts.extensions), &parts.headers, body).await?;
    read(&parts.headers, &bytes)
}

/// Same as [`body`], with the default value for an empty body.
pub(super) async fn body_or_default<T: DeserializeOwned + Default>(
    api: &Api,
    request: Request,
) -> HandlerResult<T> {
    let (parts, body) = request.into_parts();
    let bytes = bytes(api, &caller(&parts.extensions), &parts.headers, body).await?;
    if bytes.is_empty() {
        Ok(T::default())
    } else {
        read(&parts.headers, &bytes)
    }
}

/// Parses a body. Status 415 means that it is not declared as JSON, 400 that it is not JSON, and
/// 422 that the content is wrong.
pub(super) fn read<T: DeserializeOwned>(headers: &HeaderMap, bytes: &Bytes) -> HandlerResult<T> {
    let kind = header(headers, &CONTENT_TYPE)?.unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = "send JSON with `Content-Type: application/json`";
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not_json",
            message,
        ));
    }
    // Serde also accepts an array for the fields of an object, in order; no client means that.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(Problem::invalid(
            "invalid",
            "send a JSON object instead of an array",
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let message = json_problem(&error);
        match error.classify() {
            // The body is JSON with the wrong content.
            serde_json::error::Category::Data => Problem::invalid("invalid", message),
            _ => Problem::bad("bad_json", message),
        }
    })
}

/// Reads a whole body within the size limit and the timeout.
async fn bytes(
    api: &Api,
    caller: &Caller,
    headers: &HeaderMap,
    body: Body,
) -> HandlerResult<Bytes> {
    let read = api.bodies.read(caller, headers, body).await;
    read.map_err(|error| {
        let problem = Problem::new(
            error.status(),
            error.code(),
            error.message(api.bodies.limit()),
        );
        if error == BodyError::Busy {
            problem.retry_after(1)
        } else {
            problem
        }
    })
}

/// Returns the journal's summary of a run, which must exist, without reading its records.
pub(super) async fn summary(api: &Api, caller: &Caller, id: &RunId) -> HandlerResult<RunSummary> {
    if let Some(found) = api.runs.summary(caller, id).await? {
        return Ok(found);
    }
    // A damaged run is in no list, and reading it reports the cause.
    let (runtime, run) = (api.runs.runtime().clone(), id.clone());
    let read = api.runs.with_journal(caller, async move {
        Ok(RunSummary::of(&run, &runtime.journal().read(&run).await?))
    });
    read.await?
        .ok_or_else(|| Problem::not_found("no_run", format!("no run has the id `{id}`")))
}

/// Fails if a run does not exist or has ended, so that it cannot receive a command.
pub(super) async fn ensure_not_ended(api: &Api, caller: &Caller, id: &RunId) -> HandlerResult<()> {
    match summary(api, caller, id).await?.status {
        Some(_) => Err(ControlError::NotRunning(id.clone()).into()),
        None => Ok(()),
    }
}

/// Returns `true` if a process drives a run of the journal. The run must exist, because this opens
/// it for a moment.
pub(super) async fn is_driven(api: &Api, caller: &Caller, id: &RunId) -> HandlerResult<bool> {
    let (runtime, run) = (api.runs.runtime().clone(), id.clone());
    let opened = api.runs.with_journal(caller, async move {
        match runtime.journal().open(&run).await {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == JournalErrorKind::Busy => Ok(true),
            Err(error) => Err(error.into()),
        }
    });
    Ok(opened.await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_id_accepts_only_plain_characters() {
        for good in ["a", "A-1_b", "r.1.22", &"x".repeat(128)] {
            assert!(run_id(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a..1",
            ".a",
            "a.",
            "a b",
            "é",
            "a\0",
            "a%2f",
            "~",
            &"x".repeat(129),
        ] {
            assert!(run_id(bad).is_err(), "{bad}");
            assert!(new_run_id(bad).is_err(), "{bad}");
        }
        assert!(new_run_id("r.1").is_err());
        assert_eq!(root(&RunId::new("r.1.2")), RunId::new("r"));
    }
}
