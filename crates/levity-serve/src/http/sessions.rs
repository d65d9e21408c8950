//! Conversations, and plans that were kept.

use std::sync::Arc;

use axum::extract::State;
use http::Uri;
use levity_core::text::is_blank;
use levity_core::{ConversationId, ConversationInfo, ConversationQuery, MemoryStore};
use levity_memory::{Conversations, conversation_id_fits};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::answer::{Answered, Problem, ok};
use super::input::query;
use super::list::{Cursor, gone, limit};
use super::target::{NamePath, own_conversation};
use super::{Api, HttpApi};
use crate::access::{Caller, TokenScope};

#[cfg(feature = "dag")]
mod plans;

/// How many sessions or messages a page has by default, and at most.
const PAGE: (usize, usize) = (50, 500);

/// How many bytes of messages a page has, as JSON: 1 MiB. One message may be larger.
const PAGE_BYTES: usize = 1 << 20;

/// How many messages are read at once: each may be as large as a page.
const READ_AT_ONCE: usize = 8;

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Conversation,
    Plan,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    #[serde(default)]
    kind: Kind,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    #[serde(default)]
    kind: Kind,
    from: Option<u64>,
    limit: Option<usize>,
}

/// Whether a character moves what is shown beside it: a control character, or one that turns the
/// direction of text.
fn acts_on_terminal(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

/// The id of a conversation that a client names.
pub(super) fn id(id: &str) -> Answered<ConversationId> {
    match !is_blank(id) && conversation_id_fits(id) && !id.chars().any(acts_on_terminal) {
        true => Ok(ConversationId::from(id)),
        false => Err(Problem::invalid(
            "bad_id",
            "the id of a conversation has 1 to 200 bytes, where each that is no small letter, \
                digit, `-`, `_` or `.` counts \
             three times, and none that act on a terminal",
        )),
    }
}

fn conversations(api: &Api) -> Answered<&Conversations> {
    api.settings
        .conversations
        .as_ref()
        .ok_or_else(|| Problem::not_found("no_sessions", "this server keeps no conversations"))
}

pub(super) async fn list(State(api): State<Arc<Api>>, caller: Caller, uri: Uri) -> Answered {
    let wanted: Listed = query(&uri)?;
    let most = limit(wanted.limit, PAGE)?;
    if matches!(wanted.kind, Kind::Plan) {
        may_see_plans(&caller)?;
        return plans_of(&api, most).await;
    }
    let cursor = wanted.cursor.as_deref().map(Cursor::read).transpose()?;
    let store = conversations(&api)?.clone();
    let listing = async move { Ok(store.list(&ConversationQuery::new()).await) };
    let mut found = api.runs.with_list(&caller, listing).await??;
    found.retain(|info| caller.owns(info.id.as_str()));
    // A store tells those first that were changed longest ago; whoever looks wants the others.
    found.sort_by(|one, other| (other.changed, &other.id).cmp(&(one.changed, &one.id)));
    found.retain(|info| {
        cursor
            .as_ref()
            .is_none_or(|cursor| cursor.is_before(info.changed, info.id.as_str()))
    });
    let more = found.len() > most;
    found.truncate(most);
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

/// Plans are kept by commands on this machine, for its owner.
fn may_see_plans(caller: &Caller) -> Answered<()> {
    let admin = TokenScope::Admin;
    if caller.may(admin) {
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
) -> Answered {
    let wanted: Read = query(&uri)?;
    if matches!(wanted.kind, Kind::Plan) {
        may_see_plans(&caller)?;
        return plan_of(&api, &name).await;
    }
    let id = own_conversation(&caller, &name)?;
    let (store, most) = (conversations(&api)?.store(), limit(wanted.limit, PAGE)?);
    let remembered = store.load(&id, 0).await?;
    if remembered.end == 0 {
        return Err(Problem::not_found(
            "no_session",
            "there is no such conversation",
        ));
    }
    let last = remembered.end.saturating_sub(most as u64);
    let from = wanted.from.unwrap_or(last).max(remembered.first);
    let (messages, next) = page(&**store, &id, from, most).await?;
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

/// Messages from a place on: so many at most, and no more bytes than a page has unless the first
/// message is larger. With the place behind them.
async fn page(
    store: &dyn MemoryStore,
    id: &ConversationId,
    mut from: u64,
    most: usize,
) -> Answered<(Vec<Value>, Option<u64>)> {
    let (mut told, mut room): (Vec<Value>, usize) = (Vec::new(), PAGE_BYTES);
    while told.len() < most {
        let few = store
            .read(id, from, READ_AT_ONCE.min(most - told.len()))
            .await?;
        if few.is_empty() {
            return Ok((told, None));
        }
        for (at, message) in &few {
            let json = json!({"at": at, "message": message});
            let left = room.checked_sub(json.to_string().len());
            if left.is_none() && !told.is_empty() {
                return Ok((told, Some(*at)));
            }
            room = left.unwrap_or_default();
            from = at.saturating_add(1);
            told.push(json);
        }
    }
    Ok((told, Some(from)))
}

pub(super) async fn forget(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamePath(name): NamePath,
) -> Answered {
    let id = own_conversation(&caller, &name)?;
    let forgotten = conversations(&api)?.forget(&id);
    match timeout(HttpApi::PATIENCE / 5, forgotten).await {
        Ok(Ok(true)) => Ok(gone()),
        Ok(Ok(false)) => Err(Problem::not_found(
            "no_session",
            "there is no such conversation",
        )),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Problem::conflict(
            "session_busy",
            "a run is part of this conversation; wait for its end",
        )),
    }
}

#[cfg(feature = "dag")]
use plans::{list as plans_of, show as plan_of};

#[cfg(not(feature = "dag"))]
async fn plans_of(_: &Api, _: usize) -> Answered {
    Err(no_plans())
}

#[cfg(not(feature = "dag"))]
async fn plan_of(_: &Api, _: &str) -> Answered {
    Err(no_plans())
}

fn no_plans() -> Problem {
    Problem::not_found("no_sessions", "this server keeps no plans")
}
