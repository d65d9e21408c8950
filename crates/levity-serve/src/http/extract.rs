//! Extractors for the ids in a request's path, in the caller's namespace.
//!
//! A handler that takes a [`RunPath`] gets an id that is valid and belongs to its caller, so no
//! handler can forget the check. An id without the caller's prefix gets it here; an id of another
//! tenant thereby becomes an unknown id, and clients cannot probe which ids exist.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use levity_core::{ConversationId, RunId};

use super::input::run_id;
use super::problem::{HandlerResult, Problem};
use super::{Api, sessions};
use crate::access::Caller;

/// Returns the caller that access control attached to the request. If there is none, the caller has
/// no scopes.
pub(super) fn caller(parts: &http::Extensions) -> Caller {
    parts
        .get::<Caller>()
        .cloned()
        .unwrap_or_else(Caller::anonymous)
}

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> HandlerResult<Self> {
        Ok(caller(&parts.extensions))
    }
}

/// Returns the parameters of a path.
async fn params(parts: &mut Parts, api: &Arc<Api>) -> HandlerResult<HashMap<String, String>> {
    let read = Path::<HashMap<String, String>>::from_request_parts(parts, api).await;
    let wrong = |_| Problem::bad("bad_path", "the path is not valid UTF-8");
    read.map(|Path(params)| params).map_err(wrong)
}

/// Takes one parameter out of a path. It is missing only if a route is declared wrongly.
fn param(params: &mut HashMap<String, String>, name: &str) -> HandlerResult<String> {
    params
        .remove(name)
        .ok_or_else(|| Problem::bad("bad_path", format!("the path has no {name}")))
}

/// A run id in the caller's namespace.
pub(super) struct RunPath(pub(super) RunId);

impl FromRequestParts<Arc<Api>> for RunPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> HandlerResult<Self> {
        let mut params = params(parts, api).await?;
        own_run(&caller(&parts.extensions), &param(&mut params, "run")?).map(Self)
    }
}

/// A question of one of the caller's runs.
pub(super) struct AskPath(pub(super) RunId, pub(super) String);

impl FromRequestParts<Arc<Api>> for AskPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> HandlerResult<Self> {
        let mut params = params(parts, api).await?;
        let run = own_run(&caller(&parts.extensions), &param(&mut params, "run")?)?;
        Ok(Self(run, param(&mut params, "ask")?))
    }
}

/// A conversation or tool name: the only parameter of its path.
pub(super) struct NamePath(pub(super) String);

impl FromRequestParts<Arc<Api>> for NamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> HandlerResult<Self> {
        let name = params(parts, api).await?.into_values().next();
        name.map(Self)
            .ok_or_else(|| Problem::bad("bad_path", "the path has no name"))
    }
}

/// Returns the id of a run in the caller's namespace.
pub(super) fn own_run(caller: &Caller, id: &str) -> HandlerResult<RunId> {
    // An invalid id stays invalid with the caller's prefix, so it is checked first.
    run_id(id)?;
    run_id(&caller.own(id))
}

/// Returns the id of a conversation in the caller's namespace.
pub(super) fn own_conversation(caller: &Caller, id: &str) -> HandlerResult<ConversationId> {
    sessions::id(id)?;
    sessions::id(&caller.own(id))
}
