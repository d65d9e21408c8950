//! Stored conversations and plans.
//!
//! Clients see conversations and plans as sessions. A page of messages is limited by number and by
//! bytes, because a single message may be large. Plans belong to the owner of the machine, so they
//! need the scope `admin`.

use std::sync::Arc;

use axum::extract::State;
use http::Uri;
use levity_core::text::is_blank;
use levity_core::{ConversationId, ConversationInfo, ConversationQuery, MemoryStore};
use levity_memory::{Conversations, is_valid_conversation_id};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::extract::{NamePath, own_conversation};
use super::input::query;
use super::list::{Cursor, limit, no_content};
use super::problem::{HandlerResult, Problem, ok};
use super::{Api, HttpApi};
use crate::access::{Caller, TokenScope};

#[cfg(feature = "dag")]
mod plans;

/// The default and maximum number of sessions or messages in a page.
const PAGE: (usize, usize) = (50, 500);

/// The maximum number of bytes of messages in a page, as JSON: 1 MiB. A single message may be
/// larger.
const PAGE_BYTES: usize = 1 << 20;

/// The number of messages that are read at once, because each may be as large as a page.
const READ_BATCH: usize = 8;

/// The kinds of sessions; `conversation` by default.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Conversation,
    Plan,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(default)]
    kind: Kind,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// The parameters of a page of messages. Without `from`, the latest messages are shown.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowQuery {
    #[serde(default)]
    kind: Kind,
    from: Option<u64>,
    limit: Option<usize>,
}

/// Returns `true` if a character affects the text around it: a control character, or one that
/// changes the direction of text.
fn acts_on_terminal(c: char) -> bool {
    let turns = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || turns
}

/// Validates the id of a conversation from a client.
pub(super) fn id(id: &str) -> HandlerResult<ConversationId> {
    match !is_blank(id) && is_valid_conversation_id(id) && !id.chars().any(acts_on_terminal) {
        true => Ok(ConversationId::from(id)),
        false => Err(Problem::invalid(
            "bad_id",
            "the id of a conversation must have 1 to 200 bytes and no control characters; bytes \
                other than lower-case letters, digits, `-`, `_` and `.` count three times",
        )),
    }
}

fn conversations(api: &Api) -> HandlerResult<&Conversations> {
    api.settings
        .conversations
        .as_ref()
        .ok_or_else(|| Problem::not_found("no_sessions", "this server stores no conversations"))
}

/// `GET /v1/sessions`: one page of conversations, the most recently changed first.
pub(super) async fn list(State(api): State<Arc<Api>>, caller: Caller, uri: Uri) -> HandlerResult {
    let wanted: ListQuery = query(&uri)?;
    let limit = limit(wanted.limit, PAGE)?;
    if matches!(wanted.kind, Kind::Plan) {
        may_see_plans(&caller)?;
        return plans_of(&api, limit).await;
    }
    let cursor = wanted.cursor.as_deref().map(Cursor::read).transpose()?;
    let store = conversations(&api)?.clone();
    let listing = async move { Ok(store.list(&ConversationQuery::new()).await) };
    let mut found = api.runs.with_list(&caller, listing).await??;
    found.retain(|info| caller.owns(info.id.as_str()));
    // A store lists the least recently changed first; clients want the most recent.
    found.sort_by(|one, other| (other.changed, &other.id).cmp(&(one.changed, &one.id)));
    found.retain(|info| {
        cursor
            .as_ref()
            .is_none_or(|cursor| cursor.is_before(info.changed, info.id.as_str()))
    });
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found
        .last()
        .filter(|_| more)
        .map(|last| Cursor(last.changed, last.id.to_string()).write());
    let sessions: Vec<Value> = found.iter().map(info_json).collect();
    Ok(ok(&json!({"sessions": sessions, "next": next})))
}

fn info_json(info: &ConversationInfo) -> Value {
    json!({
        "kind": "conversation",
        "id": info.id,
        "changed": info.changed.as_millis(),
        "first": info.first,
        "end": info.end,
    })
}

/// Only the owner sees plans, because commands on the owner's machine store them.
fn may_see_plans(caller: &Caller) -> HandlerResult<()> {
    let admin = TokenScope::Admin;
    if caller.has_scope(admin) {
        Ok(())
    } else {
        Err(Problem::forbidden(caller.missing(admin)))
    }
}

pub(super) async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamePath(name): NamePath,
    uri: Uri,
) -> HandlerResult {
    let wanted: ShowQuery = query(&uri)?;
    if matches!(wanted.kind, Kind::Plan) {
        may_see_plans(&caller)?;
        return plan_of(&api, &name).await;
    }
    let id = own_conversation(&caller, &name)?;
    let (store, limit) = (conversations(&api)?.store(), limit(wanted.limit, PAGE)?);
    let remembered = store.load(&id, 0).await?;
    if remembered.end == 0 {
        return Err(Problem::not_found("no_session", "no such conversation"));
    }
    let last = remembered.end.saturating_sub(limit as u64);
    let from = wanted.from.unwrap_or(last).max(remembered.first);
    let (messages, next) = page(&**store, &id, from, limit).await?;
    Ok(ok(&json!({
        "kind": "conversation",
        "id": id,
        "changed": remembered.changed.as_millis(),
        "first": remembered.first,
        "end": remembered.end,
        "summary": remembered.summary,
        "messages": messages,
        "next": next.filter(|next| *next < remembered.end),
    })))
}

/// Returns messages from a position on, and the position after them. At most `limit` messages are
/// returned, and at most a page of bytes unless the first message is larger.
async fn page(
    store: &dyn MemoryStore,
    id: &ConversationId,
    mut from: u64,
    limit: usize,
) -> HandlerResult<(Vec<Value>, Option<u64>)> {
    let (mut page, mut room): (Vec<Value>, usize) = (Vec::new(), PAGE_BYTES);
    while page.len() < limit {
        let batch = store
            .read(id, from, READ_BATCH.min(limit - page.len()))
            .await?;
        if batch.is_empty() {
            return Ok((page, None));
        }
        for (at, message) in &batch {
            let json = json!({"at": at, "message": message});
            let left = room.checked_sub(json.to_string().len());
            if left.is_none() && !page.is_empty() {
                return Ok((page, Some(*at)));
            }
            room = left.unwrap_or_default();
            from = at.saturating_add(1);
            page.push(json);
        }
    }
    Ok((page, Some(from)))
}

/// `DELETE /v1/sessions/ID`: removes a conversation. It waits up to two seconds for a run that uses
/// it.
pub(super) async fn forget(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamePath(name): NamePath,
) -> HandlerResult {
    let id = own_conversation(&caller, &name)?;
    let forgotten = conversations(&api)?.forget(&id);
    match timeout(HttpApi::DEFAULT_COMMAND_TIMEOUT / 5, forgotten).await {
        Ok(Ok(true)) => Ok(no_content()),
        Ok(Ok(false)) => Err(Problem::not_found("no_session", "no such conversation")),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Problem::conflict(
            "session_busy",
            "a run is using this conversation; wait for it to end",
        )),
    }
}

#[cfg(feature = "dag")]
use plans::{list as plans_of, show as plan_of};

#[cfg(not(feature = "dag"))]
async fn plans_of(_: &Api, _: usize) -> HandlerResult {
    Err(no_plans())
}

#[cfg(not(feature = "dag"))]
async fn plan_of(_: &Api, _: &str) -> HandlerResult {
    Err(no_plans())
}

fn no_plans() -> Problem {
    Problem::not_found("no_sessions", "this server stores no plans")
}
