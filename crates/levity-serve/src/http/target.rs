//! What a request is about: ids in its path, as its caller means them.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use levity_core::{ConversationId, RunId};

use super::answer::{Answered, Problem};
use super::input::run_id;
use super::{Api, sessions};
use crate::access::Caller;

/// Who asks. The gate has noted it; where nothing is noted, nothing is allowed.
pub(super) fn caller(parts: &http::Extensions) -> Caller {
    parts
        .get::<Caller>()
        .cloned()
        .unwrap_or_else(Caller::nobody)
}

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Answered<Self> {
        Ok(caller(&parts.extensions))
    }
}

/// The gaps of a path, filled in.
async fn gaps(parts: &mut Parts, api: &Arc<Api>) -> Answered<HashMap<String, String>> {
    let read = Path::<HashMap<String, String>>::from_request_parts(parts, api).await;
    let wrong = |_| Problem::bad("bad_path", "the path has bytes that are not UTF-8");
    read.map(|Path(gaps)| gaps).map_err(wrong)
}

fn gap(gaps: &mut HashMap<String, String>, name: &str) -> Answered<String> {
    gaps.remove(name)
        .ok_or_else(|| Problem::bad("bad_path", format!("the path has no {name}")))
}

/// A run of the caller's.
pub(super) struct RunPath(pub(super) RunId);

impl FromRequestParts<Arc<Api>> for RunPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Answered<Self> {
        let mut gaps = gaps(parts, api).await?;
        own_run(&caller(&parts.extensions), &gap(&mut gaps, "run")?).map(Self)
    }
}

/// A question of one of the caller's runs.
pub(super) struct AskPath(pub(super) RunId, pub(super) String);

impl FromRequestParts<Arc<Api>> for AskPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Answered<Self> {
        let mut gaps = gaps(parts, api).await?;
        let run = own_run(&caller(&parts.extensions), &gap(&mut gaps, "run")?)?;
        Ok(Self(run, gap(&mut gaps, "ask")?))
    }
}

/// A conversation or a tool: the only gap of its path.
pub(super) struct NamePath(pub(super) String);

impl FromRequestParts<Arc<Api>> for NamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Answered<Self> {
        let name = gaps(parts, api).await?.into_values().next();
        name.map(Self)
            .ok_or_else(|| Problem::bad("bad_path", "the path has no name"))
    }
}

/// The run that a caller means.
pub(super) fn own_run(caller: &Caller, id: &str) -> Answered<RunId> {
    // What is no id is none of the caller's, either.
    run_id(id)?;
    run_id(&caller.own(id))
}

/// The conversation that a caller means.
pub(super) fn own_conversation(caller: &Caller, id: &str) -> Answered<ConversationId> {
    sessions::id(id)?;
    sessions::id(&caller.own(id))
}
