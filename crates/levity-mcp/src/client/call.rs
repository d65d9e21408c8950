//! Calls of tools, with what may happen on the way to their result: questions back to us, and tasks that are asked after.

use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ClientResult, InputRequest, InputRequests,
    JsonObject, ServerRequest,
};
use rmcp::service::{RequestContext, Service};
use serde_json::{Value, json};

use super::{Client, Patience};
use crate::text::cut;
use crate::{Error, ErrorKind, Result};

/// How often a server may come back with questions before it must answer.
const MOST_ROUNDS: u32 = 16;
/// How often a task is asked after when its server does not say.
const POLL: Duration = Duration::from_secs(1);
/// How long an answer to a question about a task may take.
const TASK_WORD: Duration = Duration::from_secs(30);

/// A call of a tool.
pub(crate) struct ToolCall {
    pub(crate) name: String,
    pub(crate) arguments: JsonObject,
    /// Whether the server wants to be asked for a task instead of the result.
    pub(crate) as_task: bool,
}

impl Client {
    /// Calls a tool; the result is as the server wrote it.
    pub(crate) async fn call_tool(&self, call: ToolCall, patience: &Patience<'_>) -> Result<Value> {
        let ToolCall { name, arguments, as_task } = call;
        if as_task {
            let ttl = u64::try_from(patience.total.as_millis()).unwrap_or(u64::MAX);
            let params = json!({"name": name, "arguments": arguments, "task": {"ttl": ttl}});
            let created = self.ask("tools/call", params, patience).await?;
            return self.task(created, patience).await;
        }
        let mut params = CallToolRequestParams::new(name).with_arguments(arguments);
        for round in 0..MOST_ROUNDS {
            // The arguments are copied only for servers that come back with questions.
            let kept = (round > 0 || self.era() == super::Era::Modern).then(|| params.clone());
            let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
            let result = self.request("tools/call", request, patience).await?;
            match result.get("resultType").and_then(Value::as_str) {
                Some("input_required") => {}
                Some("task") => return self.task(result, patience).await,
                _ => return Ok(result),
            }
            let Some(kept) = kept else {
                return Err(self.odd("it asks for more input than the protocol lets it"));
            };
            params = kept;
            (params.input_responses, params.request_state) = self.inputs(&result, round, patience).await?;
        }
        Err(self.odd("it asks for input again and again"))
    }

    /// Asks for something that may come back with questions before it is answered.
    pub(crate) async fn ask_in_rounds(
        &self,
        method: &str,
        params: Value,
        patience: &Patience<'_>,
    ) -> Result<Value> {
        let mut next = params.clone();
        for round in 0..MOST_ROUNDS {
            let result = self.ask(method, next, patience).await?;
            if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
                return Ok(result);
            }
            let (answers, state) = self.inputs(&result, round, patience).await?;
            next = params.clone();
            next["inputResponses"] = json!(answers);
            next["requestState"] = json!(state);
            if let Value::Object(next) = &mut next {
                next.retain(|_, value| !value.is_null());
            }
        }
        Err(self.odd("it asks for input again and again"))
    }

    /// Answers the questions in an unfinished result: what goes back with the next try.
    pub(super) async fn inputs(
        &self,
        result: &Value,
        round: u32,
        patience: &Patience<'_>,
    ) -> Result<(Option<rmcp::model::InputResponses>, Option<String>)> {
        let state = result.get("requestState").and_then(Value::as_str).map(str::to_owned);
        let asked: InputRequests = match result.get("inputRequests") {
            Some(requests) => serde_json::from_value(requests.clone())
                .map_err(|_| self.odd("it asks for input of a kind that is not known here"))?,
            None => InputRequests::default(),
        };
        if asked.is_empty() {
            if state.is_none() {
                return Err(self.odd("it asks for input without saying which"));
            }
            // It only wants to be asked again.
            let pause = Duration::from_millis(50 << round.min(5));
            self.pause(pause, patience).await?;
            return Ok((None, state));
        }
        let mut answers = rmcp::model::InputResponses::default();
        for (key, request) in asked {
            let answer = self.input(&key, request).await?;
            answers.insert(key, answer);
        }
        Ok((Some(answers), state))
    }

    async fn input(&self, key: &str, request: InputRequest) -> Result<Value> {
        let request = match request {
            InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
            InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
            InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
            _ => return Err(self.odd("it asks for input of a kind that is not known here")),
        };
        let id = rmcp::model::RequestId::String(key.into());
        let cx = RequestContext::new(id, self.peer().clone());
        let answer: ClientResult =
            self.service.service().handle_request(request, cx).await.map_err(|error| {
                let words = format!("its question was refused: {}", cut(&error.message, 1024));
                Error::new(ErrorKind::Refused(error.code.0), self.server.clone(), words)
            })?;
        Ok(serde_json::to_value(answer).unwrap_or_default())
    }

    /// Asks after a task until it is done. Both forms there are of tasks are understood: the older keeps the result aside, the
    /// newer hands it out with the last word.
    async fn task(&self, created: Value, patience: &Patience<'_>) -> Result<Value> {
        let started = self.world.now();
        let mut task = created;
        // A server may do without a task after all.
        let Some(id) = field(&task, "taskId").and_then(Value::as_str).map(str::to_owned) else {
            return Ok(task);
        };
        let mut guard = EndTask { client: self, id: Some(id.clone()) };
        loop {
            let word = field(&task, "statusMessage").and_then(Value::as_str);
            if let Some(word) = word {
                patience.progress.report(cut(word, 1024));
            }
            match field(&task, "status").and_then(Value::as_str).unwrap_or("working") {
                "completed" => {
                    guard.id = None;
                    return self.task_result(&id, task).await;
                }
                "failed" | "cancelled" => {
                    guard.id = None;
                    return Err(self.task_failed(&task, word));
                }
                "input_required" => self.task_input(&id, &task, patience).await?,
                _ => {}
            }
            if self.world.now().since(started) >= patience.total {
                return Err(self.late("tools/call", patience.total).await);
            }
            self.pause(poll_interval(&task), patience).await?;
            task = self.ask("tasks/get", json!({"taskId": id}), &Patience::of(TASK_WORD)).await?;
        }
    }

    async fn task_result(&self, id: &str, task: Value) -> Result<Value> {
        if let Some(result) = task.get("result") {
            return Ok(result.clone());
        }
        self.ask("tasks/result", json!({"taskId": id}), &Patience::of(TASK_WORD)).await
    }

    async fn task_input(&self, id: &str, task: &Value, patience: &Patience<'_>) -> Result<()> {
        if task.get("inputRequests").is_none() {
            // The older form asks by requests of its own.
            return Ok(());
        }
        let (answers, _) = self.inputs(task, 0, patience).await?;
        let params = json!({"taskId": id, "inputResponses": answers});
        self.ask("tasks/update", params, &Patience::of(TASK_WORD)).await.map(drop)
    }

    fn task_failed(&self, task: &Value, word: Option<&str>) -> Error {
        let told = task.get("error").and_then(|error| error.get("message")?.as_str()).or(word);
        let words =
            format!("the task did not succeed: {}", cut(told.unwrap_or("it does not say why"), 8 << 10));
        Error::new(ErrorKind::Refused(0), self.server.clone(), words)
    }

    async fn pause(&self, time: Duration, patience: &Patience<'_>) -> Result<()> {
        tokio::select! {
            () = self.world.sleep(time) => Ok(()),
            () = super::cancelled(patience.cancel) => {
                Err(Error::new(ErrorKind::Cancelled, self.server.clone(), "the call was cancelled"))
            }
        }
    }

    fn odd(&self, words: &str) -> Error {
        Error::new(ErrorKind::Protocol, self.server.clone(), words)
    }
}

/// A field of a task, which one form puts into an object of its own.
fn field<'a>(task: &'a Value, name: &str) -> Option<&'a Value> {
    task.get(name).or_else(|| task.get("task")?.get(name))
}

fn poll_interval(task: &Value) -> Duration {
    let told = field(task, "pollInterval").or_else(|| field(task, "pollIntervalMs")).and_then(Value::as_u64);
    told.map_or(POLL, |told| Duration::from_millis(told.clamp(50, 30_000)))
}

/// Tells the server, when dropped, that a task is wanted no more.
struct EndTask<'a> {
    client: &'a Client,
    id: Option<String>,
}

impl Drop for EndTask<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.client.end_task(id);
        }
    }
}
