//! Tool calls, including input requests of the server and tasks that are polled for a result.
//!
//! Three forms of an answer exist. Most servers return the result at once. A server of the newer
//! protocol may return `input_required`: levity answers the questions through the sampler, the
//! elicitor or the roots, and repeats the call with the answers, at most 16 times. A task is polled
//! until it ends, every 50 ms to 30 s as the server wishes; a dropped task is cancelled. All forms
//! share the total timeout of the call.

use std::time::Duration;

use levity_rpc::mcp::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ClientResult, InputRequest,
    InputRequests, InputResponses, JsonObject, RequestContext, RequestId, ServerRequest, Service,
};
use serde_json::{Value, json};

use super::{Client, RequestLimits};
use crate::{Error, ErrorKind, Result};

/// The maximum number of times a server may request input before it must respond.
const MAX_ROUNDS: u32 = 16;
/// The default interval for polling a task if the server sets none.
const DEFAULT_POLL: Duration = Duration::from_secs(1);
/// The timeout of a request about a task.
const TASK_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A call of a tool.
pub(crate) struct ToolCall {
    pub(crate) name: String,
    pub(crate) arguments: JsonObject,
    /// Requests a task in place of the result, because the server requires it.
    pub(crate) as_task: bool,
}

impl Client {
    /// Calls a tool and returns the result as the server wrote it.
    pub(crate) async fn call_tool(
        &self,
        call: ToolCall,
        limits: &RequestLimits<'_>,
    ) -> Result<Value> {
        let started = self.world.now();
        let ToolCall {
            name,
            arguments,
            as_task,
        } = call;
        let (first, retry_params) = if as_task {
            let ttl = u64::try_from(limits.total.as_millis()).unwrap_or(u64::MAX);
            let params = json!({"name": name, "arguments": arguments, "task": {"ttl": ttl}});
            (self.send_request("tools/call", params, limits).await?, None)
        } else {
            let params = CallToolRequestParams::new(name).with_arguments(arguments);
            // The arguments are cloned only for servers that may request input.
            let retry_params = (self.era() == super::Era::Modern).then(|| params.clone());
            (self.call_once(params, limits).await?, retry_params)
        };
        if !as_task && !matches!(kind(&first), Some("input_required" | "task")) {
            return Ok(first);
        }
        let rest = Box::pin(async {
            if as_task {
                self.task(first, limits).await
            } else {
                self.run_rounds(first, retry_params, limits).await
            }
        });
        self.in_time("tools/call", started, limits, rest).await
    }

    /// Sends `tools/call` once and returns any kind of result.
    async fn call_once(
        &self,
        params: CallToolRequestParams,
        limits: &RequestLimits<'_>,
    ) -> Result<Value> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        self.request("tools/call", request, limits).await
    }

    /// Continues from a result that is not final.
    async fn run_rounds(
        &self,
        first: Value,
        retry_params: Option<CallToolRequestParams>,
        limits: &RequestLimits<'_>,
    ) -> Result<Value> {
        let mut result = first;
        for round in 0..MAX_ROUNDS {
            match kind(&result) {
                Some("input_required") => {}
                Some("task") => return self.task(result, limits).await,
                _ => return Ok(result),
            }
            let Some(mut params) = retry_params.clone() else {
                return Err(
                    self.protocol_error("it requests input where the protocol does not allow it")
                );
            };
            (params.input_responses, params.request_state) =
                self.answer_inputs(&result, round).await?;
            result = self.call_once(params, limits).await?;
        }
        Err(self.protocol_error("it requested input too many times"))
    }

    /// Sends a request that may lead to input requests before the final response.
    pub(crate) async fn request_in_rounds(
        &self,
        method: &str,
        params: Value,
        limits: &RequestLimits<'_>,
    ) -> Result<Value> {
        let started = self.world.now();
        self.in_time(
            method,
            started,
            limits,
            self.repeat_request(method, params, limits),
        )
        .await
    }

    /// Repeats a request with the answers to its input requests until the result is final.
    async fn repeat_request(
        &self,
        method: &str,
        params: Value,
        limits: &RequestLimits<'_>,
    ) -> Result<Value> {
        let mut next = params.clone();
        for round in 0..MAX_ROUNDS {
            let result = self.send_request(method, next, limits).await?;
            if kind(&result) != Some("input_required") {
                return Ok(result);
            }
            let (answers, state) = self.answer_inputs(&result, round).await?;
            next = params.clone();
            next["inputResponses"] = json!(answers);
            next["requestState"] = json!(state);
            if let Value::Object(next) = &mut next {
                next.retain(|_, value| !value.is_null());
            }
        }
        Err(self.protocol_error("it requested input too many times"))
    }

    /// Answers the input requests of an unfinished result, and returns the data for the next
    /// attempt.
    pub(super) async fn answer_inputs(
        &self,
        result: &Value,
        round: u32,
    ) -> Result<(Option<InputResponses>, Option<String>)> {
        let state = result
            .get("requestState")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let input_requests: InputRequests = match result.get("inputRequests") {
            Some(requests) => serde_json::from_value(requests.clone())
                .map_err(|_| self.protocol_error("it requests an unknown type of input"))?,
            None => InputRequests::default(),
        };
        if input_requests.is_empty() {
            if state.is_none() {
                return Err(self.protocol_error("it requests input without naming any"));
            }
            // The server only requests a repetition.
            self.world
                .sleep(Duration::from_millis(50 << round.min(5)))
                .await;
            return Ok((None, state));
        }
        let mut answers = InputResponses::default();
        for (key, request) in input_requests {
            let answer = self.answer_input(&key, request).await?;
            answers.insert(key, answer);
        }
        Ok((Some(answers), state))
    }

    /// Answers one input request with the handler for requests of servers, so that both versions of
    /// the protocol have the same limits.
    async fn answer_input(&self, key: &str, request: InputRequest) -> Result<Value> {
        let request = match request {
            InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
            InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
            InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
            _ => return Err(self.protocol_error("it requests an unknown type of input")),
        };
        let id = RequestId::String(key.into());
        let cx = RequestContext::new(id, self.peer().clone());
        let answer: ClientResult = self
            .service
            .service()
            .handle_request(request, cx)
            .await
            .map_err(|error| {
                let message = format!(
                    "its input request was rejected: {}",
                    self.secrets.head(&error.message, 1024)
                );
                Error::new(
                    ErrorKind::Rejected(error.code.0),
                    self.server.clone(),
                    message,
                )
            })?;
        Ok(serde_json::to_value(answer).unwrap_or_default())
    }

    /// Polls a task until it has finished. Both versions of tasks are supported: the older one
    /// stores the result separately, and the newer one returns it with the last status.
    async fn task(&self, created: Value, limits: &RequestLimits<'_>) -> Result<Value> {
        let mut task = created;
        // A server may respond without a task.
        let Some(id) = field(&task, "taskId")
            .and_then(Value::as_str)
            .map(str::to_owned)
        else {
            return Ok(task);
        };
        let mut guard = CancelTaskOnDrop {
            client: self,
            id: Some(id.clone()),
        };
        loop {
            let status_message = field(&task, "statusMessage").and_then(Value::as_str);
            if let Some(status_message) = status_message {
                limits
                    .progress
                    .report(self.secrets.head(status_message, 1024));
            }
            match field(&task, "status")
                .and_then(Value::as_str)
                .unwrap_or("working")
            {
                "completed" => {
                    guard.id = None;
                    return self.task_result(&id, task).await;
                }
                "failed" | "cancelled" => {
                    guard.id = None;
                    return Err(self.task_failed(&task, status_message));
                }
                "input_required" => {
                    if let Some(result) = self.task_input(&id, &task, limits).await? {
                        guard.id = None;
                        return Ok(result);
                    }
                }
                _ => {}
            }
            self.world.sleep(poll_interval(&task)).await;
            task = self
                .send_request(
                    "tasks/get",
                    json!({"taskId": id}),
                    &RequestLimits::within(TASK_REQUEST_TIMEOUT),
                )
                .await?;
        }
    }

    /// Returns the result of a finished task: from its last status, or by a request of the older
    /// version.
    async fn task_result(&self, id: &str, task: Value) -> Result<Value> {
        if let Some(result) = task.get("result") {
            return Ok(result.clone());
        }
        self.send_request(
            "tasks/result",
            json!({"taskId": id}),
            &RequestLimits::within(TASK_REQUEST_TIMEOUT),
        )
        .await
    }

    /// Answers input requests of a task. The older version sends them as separate requests while
    /// the client waits for the result, which is then the response.
    async fn task_input(
        &self,
        id: &str,
        task: &Value,
        limits: &RequestLimits<'_>,
    ) -> Result<Option<Value>> {
        if task.get("inputRequests").is_none() {
            let result_limits = RequestLimits::within(limits.total);
            return match self
                .send_request("tasks/result", json!({"taskId": id}), &result_limits)
                .await
            {
                Ok(result) => Ok(Some(result)),
                // The server sends its own requests, and reports when the result is available.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Rejected(_) | ErrorKind::Unsupported
                    ) =>
                {
                    Ok(None)
                }
                Err(error) => Err(error),
            };
        }
        let (answers, _) = self.answer_inputs(task, 0).await?;
        let params = json!({"taskId": id, "inputResponses": answers});
        self.send_request(
            "tasks/update",
            params,
            &RequestLimits::within(TASK_REQUEST_TIMEOUT),
        )
        .await
        .map(|_| None)
    }

    /// Creates the error of a failed task, with the reason of the server, masked and truncated.
    fn task_failed(&self, task: &Value, status_message: Option<&str>) -> Error {
        let reason = task
            .get("error")
            .and_then(|error| error.get("message")?.as_str())
            .or(status_message);
        let reason = self.secrets.head(
            reason.unwrap_or("the server gave no reason"),
            super::MAX_ERROR_TEXT,
        );
        let message = format!("the task failed: {reason}");
        Error::new(ErrorKind::Rejected(0), self.server.clone(), message)
    }

    /// Creates the error of a server that violates the protocol.
    fn protocol_error(&self, message: &str) -> Error {
        Error::new(ErrorKind::Protocol, self.server.clone(), message)
    }
}

/// Returns the type of a result, if it has one.
fn kind(result: &Value) -> Option<&str> {
    result.get("resultType").and_then(Value::as_str)
}

/// Returns a field of a task, which one version nests in a separate object.
fn field<'a>(task: &'a Value, name: &str) -> Option<&'a Value> {
    task.get(name).or_else(|| task.get("task")?.get(name))
}

/// Returns the time until the next poll: the server's wish between 50 ms and 30 s, or 1 s.
fn poll_interval(task: &Value) -> Duration {
    let interval = field(task, "pollInterval")
        .or_else(|| field(task, "pollIntervalMs"))
        .and_then(Value::as_u64);
    interval.map_or(DEFAULT_POLL, |millis| {
        Duration::from_millis(millis.clamp(50, 30_000))
    })
}

/// Cancels the task on the server when dropped.
struct CancelTaskOnDrop<'a> {
    client: &'a Client,
    id: Option<String>,
}

impl Drop for CancelTaskOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.client.queue_task_cancellation(id);
        }
    }
}
