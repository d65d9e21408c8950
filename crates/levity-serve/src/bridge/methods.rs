//! What a client can ask for.

use std::sync::Arc;

use levity_core::CancelToken;
use serde_json::{Value, json};

use super::error::{Error, ErrorKind, Result};
use super::host::Inner;
use super::wire::params;
use super::{files, status, tasks, wait};
use crate::feed::Reader;

/// The answer to a request, and the events that the client reads from then on.
pub(super) struct Done {
    pub(super) value: Value,
    pub(super) follow: Option<(String, Reader)>,
}

impl From<Value> for Done {
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

/// Whether a method changes something. One that has begun with that goes on to its end, whoever
/// takes it back: its answer says what was done.
pub(super) fn changes(method: &str) -> bool {
    matches!(method, "fs/write" | "agent/dispatch" | "agent/cancel")
}

pub(super) async fn call(
    host: &Arc<Inner>,
    client: u64,
    method: &str,
    given: Value,
    cancel: &CancelToken,
) -> Result<Done> {
    Ok(match method {
        "ping" => json!({}).into(),
        "host/info" => info(host).into(),
        "fs/read" => files::read(host, params(method, given)?).await?.into(),
        "fs/write" => files::write(host, client, params(method, given)?, cancel)
            .await?
            .into(),
        "fs/list" => files::list(host, params(method, given)?).await?.into(),
        "fs/wait" => wait::wait(host, params(method, given)?).await?.into(),
        "agent/dispatch" => tasks::dispatch(host, client, params(method, given)?).await?,
        "agent/status" => status::status(host, params(method, given)?).await?.into(),
        "agent/list" => status::list(host)?.into(),
        "agent/subscribe" => status::subscribe(host, params(method, given)?).await?,
        "agent/cancel" => status::cancel(host, params(method, given)?).await?.into(),
        other => {
            let known = METHODS.map(|method| format!("`{method}`")).join(", ");
            let other: String = other.chars().take(100).collect();
            let words = format!("there is no method `{other}`; there are {known}");
            return Err(Error::new(ErrorKind::Method, words));
        }
    })
}

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
            "read": limits.read, "write": limits.write, "message": limits.message, "prompt": limits.prompt,
            "requests": limits.requests, "subscriptions": limits.subscriptions,
        },
    })
}
