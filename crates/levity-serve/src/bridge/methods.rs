//! The methods of the protocol.
//!
//! One function dispatches all methods. Methods with side effects run to their end even if the
//! client cancels them, and their response says what was done; all others are dropped on
//! cancellation.

use std::sync::Arc;

use levity_core::CancelToken;
use serde_json::{Value, json};

use super::error::{Error, ErrorKind, Result};
use super::host::Inner;
use super::wire::params;
use super::{files, status, tasks, wait};
use crate::feed::EventReader;

/// The result of a request, and the events that the client reads from then on.
pub(super) struct MethodReply {
    pub(super) value: Value,
    pub(super) follow: Option<(String, EventReader)>,
}

impl From<Value> for MethodReply {
    fn from(value: Value) -> Self {
        Self {
            value,
            follow: None,
        }
    }
}

const METHODS: [&str; 11] = [
    "ping",
    "host/info",
    "fs/read",
    "fs/write",
    "fs/list",
    "fs/wait",
    "agent/dispatch",
    "agent/status",
    "agent/list",
    "agent/subscribe",
    "agent/cancel",
];

/// Returns `true` if a method changes something. Once it has begun, it runs to its end even if the
/// client cancels it: its response says what was done.
pub(super) fn has_side_effects(method: &str) -> bool {
    matches!(method, "fs/write" | "agent/dispatch" | "agent/cancel")
}

pub(super) async fn call(
    host: &Arc<Inner>,
    client: u64,
    method: &str,
    raw: Value,
    cancel: &CancelToken,
) -> Result<MethodReply> {
    Ok(match method {
        "ping" => json!({}).into(),
        "host/info" => info(host).into(),
        "fs/read" => files::read(host, params(method, raw)?).await?.into(),
        "fs/write" => files::write(host, client, params(method, raw)?, cancel)
            .await?
            .into(),
        "fs/list" => files::list(host, params(method, raw)?).await?.into(),
        "fs/wait" => wait::wait(host, params(method, raw)?).await?.into(),
        "agent/dispatch" => tasks::dispatch(host, client, params(method, raw)?).await?,
        "agent/status" => status::status(host, params(method, raw)?).await?.into(),
        "agent/list" => status::list(host)?.into(),
        "agent/subscribe" => status::subscribe(host, params(method, raw)?).await?,
        "agent/cancel" => status::cancel(host, params(method, raw)?).await?.into(),
        other => {
            let known = METHODS.map(|method| format!("`{method}`")).join(", ");
            let other: String = other.chars().take(100).collect();
            let message = format!("no method has the name `{other}`; use one of {known}");
            return Err(Error::new(ErrorKind::Method, message));
        }
    })
}

/// The information a client needs before its first request: the folder, the methods and the limits.
/// `ready` is false until the host has a commander.
fn info(host: &Inner) -> Value {
    let limits = &host.limits;
    json!({
        "name": "levity",
        "version": env!("CARGO_PKG_VERSION"),
        "workspace": host.space.root().to_string_lossy(),
        "read_only": host.space.is_read_only(),
        "ready": host.runs.get().is_some(),
        "methods": METHODS,
        "limits": {
            "read": limits.read, "write": limits.write, "message": limits.message,
            "prompt": limits.prompt,
            "requests": limits.requests, "subscriptions": limits.subscriptions,
        },
    })
}
