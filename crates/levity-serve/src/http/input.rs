//! What clients send, looked at before anything is done with it.

use axum::body::Body;
use axum::extract::{Query, Request};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, StatusCode, Uri};
use levity_core::text::{json_problem, serde_problem};
use levity_core::{ControlError, JournalErrorKind, RunId, RunSummary};
use serde::de::DeserializeOwned;

use super::Api;
use super::answer::{Answered, Problem};
use super::target::caller;
use crate::access::Caller;
use crate::body::BodyError;

/// How long an id may be.
pub(super) const ID_LIMIT: usize = 128;

/// The run that a path means, be it one that was started or one below it.
pub(super) fn run_id(id: &str) -> Answered<RunId> {
    let parts = |id: &str| {
        id.split('.')
            .all(|part| !part.is_empty() && part.bytes().all(is_plain))
    };
    match !id.is_empty() && id.len() <= ID_LIMIT && parts(id) {
        true => Ok(RunId::from(id)),
        false => Err(Problem::bad("bad_id", WRONG_ID)),
    }
}

/// The id of a run that is to begin.
pub(super) fn new_run_id(id: &str) -> Answered<RunId> {
    match !id.is_empty() && id.len() <= ID_LIMIT && id.bytes().all(is_plain) {
        true => Ok(RunId::from(id)),
        false => Err(Problem::invalid("bad_id", WRONG_ID)),
    }
}

const WRONG_ID: &str = "the id of a run has 1 to 128 letters, digits, `-` and `_`";

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// The run that was started, above all.
pub(super) fn root(run: &RunId) -> RunId {
    let id = run.as_str();
    RunId::from(id.split_once('.').map_or(id, |(root, _)| root))
}

/// What a query says. A parameter that there is not, or twice, is refused.
pub(super) fn query<T: DeserializeOwned>(uri: &Uri) -> Answered<T> {
    let read = Query::try_from_uri(uri).map(|Query(query)| query);
    read.map_err(|refused| {
        Problem::bad(
            "bad_query",
            format!("the query: {}", fault(&refused.body_text())),
        )
    })
}

/// What is wrong with a query, without the name that stands before it: a client may have sent
/// anything as one.
fn fault(said: &str) -> String {
    let faults = [
        "unknown field ",
        "duplicate field ",
        "missing field ",
        "invalid type",
        "invalid value",
        "invalid digit",
    ];
    match faults.iter().filter_map(|fault| said.find(fault)).min() {
        Some(at) => serde_problem(&said[at..]),
        None => "a value has another form".to_owned(),
    }
}

/// Whether a parameter says yes: `1` or `true`.
pub(super) fn yes(name: &str, value: Option<&str>, default: bool) -> Answered<bool> {
    match value {
        None => Ok(default),
        Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        Some(_) => Err(Problem::bad("bad_query", format!("`{name}` is `1` or `0`"))),
    }
}

/// A header that may be there once, as text.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Answered<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(http::HeaderValue::to_str), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => Err(Problem::bad(
            "bad_header",
            format!("`{name}` is given more than once, or is no text"),
        )),
    }
}

/// The body of a request, as JSON.
pub(super) async fn body<T: DeserializeOwned>(api: &Api, request: Request) -> Answered<T> {
    let (parts, body) = request.into_parts();
    let bytes = bytes(api, &caller(&parts.extensions), &parts.headers, body).await?;
    read(&parts.headers, &bytes)
}

/// The same, or what there is by default when nothing was sent.
pub(super) async fn body_or_default<T: DeserializeOwned + Default>(
    api: &Api,
    request: Request,
) -> Answered<T> {
    let (parts, body) = request.into_parts();
    let bytes = bytes(api, &caller(&parts.extensions), &parts.headers, body).await?;
    if bytes.is_empty() {
        Ok(T::default())
    } else {
        read(&parts.headers, &bytes)
    }
}

fn read<T: DeserializeOwned>(headers: &HeaderMap, bytes: &Bytes) -> Answered<T> {
    let kind = header(headers, &CONTENT_TYPE)?.unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = "send JSON, and say so: `Content-Type: application/json`";
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not_json",
            message,
        ));
    }
    // A list would do for the fields of an object, in their order; nobody means that.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(Problem::invalid(
            "invalid",
            "send an object, and not a list",
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let message = json_problem(&error);
        match error.classify() {
            // It is JSON, and does not say what it should.
            serde_json::error::Category::Data => Problem::invalid("invalid", message),
            _ => Problem::bad("bad_json", message),
        }
    })
}

/// All of a body, as far as it is no larger than it may be and comes in time.
async fn bytes(api: &Api, caller: &Caller, headers: &HeaderMap, body: Body) -> Answered<Bytes> {
    let read = api.bodies.read(caller, headers, body).await;
    read.map_err(|error| {
        let problem = Problem::new(
            error.status(),
            error.code(),
            error.message(api.bodies.limit()),
        );
        if error == BodyError::Busy {
            problem.later(1)
        } else {
            problem
        }
    })
}

/// What the journal lists of a run, which must be there. Its records are not read for that.
pub(super) async fn summary(api: &Api, caller: &Caller, id: &RunId) -> Answered<RunSummary> {
    if let Some(found) = api.runs.summary(caller, id).await? {
        return Ok(found);
    }
    // A run that is damaged is in no list, and reading it tells why.
    let (runtime, run) = (api.runs.runtime().clone(), id.clone());
    let read = api.runs.with_journal(caller, async move {
        Ok(RunSummary::of(&run, &runtime.journal().read(&run).await?))
    });
    read.await?
        .ok_or_else(|| Problem::not_found("no_run", format!("there is no run `{id}`")))
}

/// The same for a run that is to be told something, and so must not have ended.
pub(super) async fn not_ended(api: &Api, caller: &Caller, id: &RunId) -> Answered<()> {
    match summary(api, caller, id).await?.status {
        Some(_) => Err(ControlError::NotRunning(id.clone()).into()),
        None => Ok(()),
    }
}

/// Whether a run of the journal is driven by somebody. It is opened for a moment to find out, so it
/// must be there.
pub(super) async fn is_driven(api: &Api, caller: &Caller, id: &RunId) -> Answered<bool> {
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
    fn ids_are_plain() {
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
