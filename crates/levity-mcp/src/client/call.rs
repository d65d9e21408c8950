//! Calls of tools, with what may happen on the way to their result: questions back to us, and tasks
//! that are asked after.

use std::time::Duration;

use levity_rpc::mcp::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ClientResult, InputRequest,
    InputRequests, InputResponses, JsonObject, RequestContext, RequestId, ServerRequest, Service,
};
use serde_json::{Value, json};

use super::{Client, Patience};
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
        let started = self.world.now();
        let ToolCall {
            name,
            arguments,
            as_task,
        } = call;
        let (first, kept) = if as_task {
            let ttl = u64::try_from(patience.total.as_millis()).unwrap_or(u64::MAX);
            let params = json!({"name": name, "arguments": arguments, "task": {"ttl": ttl}});
            (self.ask("tools/call", params, patience).await?, None)
        } else {
            let params = CallToolRequestParams::new(name).with_arguments(arguments);
            // The arguments are copied only for servers that come back with questions.
            let kept = (self.era() == super::Era::Modern).then(|| params.clone());
            (self.call_once(params, patience).await?, kept)
        };
        if !as_task && !matches!(kind(&first), Some("input_required" | "task")) {
            return Ok(first);
        }
        let rest = Box::pin(async {
            if as_task {
                self.task(first, patience).await
            } else {
                self.rounds(first, kept, patience).await
            }
        });
        self.in_time("tools/call", started, patience, rest).await
    }

    async fn call_once(
        &self,
        params: CallToolRequestParams,
        patience: &Patience<'_>,
    ) -> Result<Value> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        self.request("tools/call", request, patience).await
    }

    /// Goes on from a result that is not the last.
    async fn rounds(
        &self,
        first: Value,
        kept: Option<CallToolRequestParams>,
        patience: &Patience<'_>,
    ) -> Result<Value> {
        let mut result = first;
        for round in 0..MOST_ROUNDS {
            match kind(&result) {
                Some("input_required") => {}
                Some("task") => return self.task(result, patience).await,
                _ => return Ok(result),
            }
            let Some(mut params) = kept.clone() else {
                return Err(self.odd("it asks for more input than the protocol lets it"));
            };
            (params.input_responses, params.request_state) = self.inputs(&result, round).await?;
            result = self.call_once(params, patience).await?;
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
        let started = self.world.now();
        self.in_time(
            method,
            started,
            patience,
            self.ask_again(method, params, patience),
        )
        .await
    }

    async fn ask_again(
        &self,
        method: &str,
        params: Value,
        patience: &Patience<'_>,
    ) -> Result<Value> {
        let mut next = params.clone();
        for round in 0..MOST_ROUNDS {
            let result = self.ask(method, next, patience).await?;
            if kind(&result) != Some("input_required") {
                return Ok(result);
            }
            let (answers, state) = self.inputs(&result, round).await?;
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
    ) -> Result<(Option<InputResponses>, Option<String>)> {
        let state = result
            .get("requestState")
            .and_then(Value::as_str)
            .map(str::to_owned);
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
            self.world
                .sleep(Duration::from_millis(50 << round.min(5)))
                .await;
            return Ok((None, state));
        }
        let mut answers = InputResponses::default();
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
        let id = RequestId::String(key.into());
        let cx = RequestContext::new(id, self.peer().clone());
        let answer: ClientResult = self
            .service
            .service()
            .handle_request(request, cx)
            .await
            .map_err(|error| {
                let words = format!(
                    "its question was refused: {}",
                    self.secrets.head(&error.message, 1024)
                );
                Error::new(ErrorKind::Refused(error.code.0), self.server.clone(), words)
            })?;
        Ok(serde_json::to_value(answer).unwrap_or_default())
    }

    /// Asks after a task until it is done. Both forms there are of tasks are understood: the older
    /// keeps the result aside, the newer hands it out with the last word.
    async fn task(&self, created: Value, patience: &Patience<'_>) -> Result<Value> {
        let mut task = created;
        // A server may do without a task after all.
        let Some(id) = field(&task, "taskId")
            .and_then(Value::as_str)
            .map(str::to_owned)
        else {
            return Ok(task);
        };
        let mut guard = EndTask {
            client: self,
            id: Some(id.clone()),
        };
        loop {
            let word = field(&task, "statusMessage").and_then(Value::as_str);
            if let Some(word) = word {
                patience.progress.report(self.secrets.head(word, 1024));
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
                    return Err(self.task_failed(&task, word));
                }
                "input_required" => {
                    if let Some(result) = self.task_input(&id, &task, patience).await? {
                        guard.id = None;
                        return Ok(result);
                    }
                }
                _ => {}
            }
            self.world.sleep(poll_interval(&task)).await;
            task = self
                .ask("tasks/get", json!({"taskId": id}), &Patience::of(TASK_WORD))
                .await?;
        }
    }

    async fn task_result(&self, id: &str, task: Value) -> Result<Value> {
        if let Some(result) = task.get("result") {
            return Ok(result.clone());
        }
        self.ask(
            "tasks/result",
            json!({"taskId": id}),
            &Patience::of(TASK_WORD),
        )
        .await
    }

    /// Answers what a task asks. The older form asks by requests of its own, once somebody waits
    /// for the result, which is then the answer.
    async fn task_input(
        &self,
        id: &str,
        task: &Value,
        patience: &Patience<'_>,
    ) -> Result<Option<Value>> {
        if task.get("inputRequests").is_none() {
            let waits = Patience::of(patience.total);
            return match self
                .ask("tasks/result", json!({"taskId": id}), &waits)
                .await
            {
                Ok(result) => Ok(Some(result)),
                // It asks by itself, and tells when it has the result.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Refused(_) | ErrorKind::Unsupported) =>
                {
                    Ok(None)
                }
                Err(error) => Err(error),
            };
        }
        let (answers, _) = self.inputs(task, 0).await?;
        let params = json!({"taskId": id, "inputResponses": answers});
        self.ask("tasks/update", params, &Patience::of(TASK_WORD))
            .await
            .map(|_| None)
    }

    fn task_failed(&self, task: &Value, word: Option<&str>) -> Error {
        let told = task
            .get("error")
            .and_then(|error| error.get("message")?.as_str())
            .or(word);
        let told = self
            .secrets
            .head(told.unwrap_or("it does not say why"), super::MOST_WORDS);
        let words = format!("the task did not succeed: {told}");
        Error::new(ErrorKind::Refused(0), self.server.clone(), words)
    }

    fn odd(&self, words: &str) -> Error {
        Error::new(ErrorKind::Protocol, self.server.clone(), words)
    }
}

/// What kind of result it is, where it says so.
fn kind(result: &Value) -> Option<&str> {
    result.get("resultType").and_then(Value::as_str)
}

/// A field of a task, which one form puts into an object of its own.
fn field<'a>(task: &'a Value, name: &str) -> Option<&'a Value> {
    task.get(name).or_else(|| task.get("task")?.get(name))
}

fn poll_interval(task: &Value) -> Duration {
    let told = field(task, "pollInterval")
        .or_else(|| field(task, "pollIntervalMs"))
        .and_then(Value::as_u64);
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
