//! Lists and calls tools directly.
//!
//! Tools are called under the policy of their dispatcher, with the run id `TENANT-http`. Tools that
//! store data per run thereby separate tenants. A failed tool is status 200 with `"failed": true`:
//! the request succeeded, the tool did not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Request, State};
use http::StatusCode;
use levity_core::{EffectClass, RunId, ToolCall, ToolSpec};
use levity_tools::{CallCx, Dispatched, Dispatcher};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Api;
use super::extract::NamePath;
use super::input::body_or_default;
use super::problem::{HandlerResult, Problem, ok};
use crate::access::{Caller, TokenScope};
use crate::quota::QuotaFull;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallBody {
    #[serde(default)]
    args: Map<String, Value>,
    /// `true` if the caller has approved the call.
    #[serde(default)]
    approved: bool,
}

fn tools(api: &Api) -> HandlerResult<&Dispatcher> {
    let none = || {
        Problem::not_found(
            "no_tools",
            "this server offers no tools; start it with `--tool-routes`",
        )
    };
    api.settings.tools.as_ref().ok_or_else(none)
}

pub(super) async fn list(State(api): State<Arc<Api>>) -> HandlerResult {
    let specs = tools(&api)?.specs();
    Ok(ok(
        &json!({"tools": specs.iter().map(|spec| tool_json(spec)).collect::<Value>()}),
    ))
}

fn tool_json(spec: &ToolSpec) -> Value {
    json!({
        "name": spec.name,
        "description": spec.description,
        "input": spec.input,
        "output": spec.output,
        "read_only": spec.hints.class == EffectClass::ReadOnly,
    })
}

/// `POST /v1/tools/NAME`: calls a tool. Read-only tools need the scope `read`, all others `run`.
pub(super) async fn call(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamePath(name): NamePath,
    request: Request,
) -> HandlerResult {
    let dispatcher = tools(&api)?;
    let Some(spec) = dispatcher
        .specs()
        .iter()
        .find(|spec| spec.name == name)
        .cloned()
    else {
        return Err(Problem::not_found(
            "no_tool",
            "no such tool; `/v1/tools` lists the available ones",
        ));
    };
    let reads = spec.hints.class == EffectClass::ReadOnly;
    let scope = if reads {
        TokenScope::Read
    } else {
        TokenScope::Run
    };
    if !caller.has_scope(scope) {
        return Err(Problem::forbidden(caller.missing(scope)));
    }
    let body: CallBody = body_or_default(&api, request).await?;
    if body.approved && !caller.has_scope(TokenScope::Approve) {
        return Err(Problem::forbidden(caller.missing(TokenScope::Approve)));
    }
    let full = |full: QuotaFull| {
        let message = format!(
            "{} tool calls are in progress, which is the limit; try again later",
            full.limit
        );
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "full", message).retry_after(1)
    };
    let _permit = api.tool_calls.take(&caller).map_err(full)?;
    let number = api.calls.fetch_add(1, Ordering::Relaxed);
    let id = format!("http-{:016x}-{number}", api.call_prefix);
    let call = ToolCall::new(id.as_str(), name, Value::Object(body.args));
    let cx = CallCx::new(RunId::from(caller.own("http")), id.as_str());
    match dispatcher.dispatch(&call, body.approved, cx).await {
        Dispatched::Done(result) => {
            let failed = result.is_error();
            let text = result.text();
            Ok(ok(
                &json!({"tool": call.name, "failed": failed, "text": text, "value": result.value}),
            ))
        }
        Dispatched::NeedsApproval { reason } => {
            let message = format!(
                "{reason}; call again with `approved`: true and a token with the scope `approve`"
            );
            Err(Problem::conflict("needs_approval", message))
        }
        // The call may have taken effect, so the status must not invite a repetition.
        Dispatched::Unknown { reason } => Err(Problem::failed("unknown_outcome", reason)),
    }
}
