//! Requests whose work may have to ask the client something first.
//!
//! Calls, resources and prompts share one way: their work may ask the client. Before 2026-07-28,
//! the question is a request to the client while the call is open. Since then, the call ends with
//! the questions, and the client repeats it with its answers. Plain tools that ask nothing and
//! report no progress take a short path without a channel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use levity_core::{CancelToken, EffectClass, RunId, ToolCall, ToolError, ToolErrorKind, World};
use levity_mcp::{ElicitForm, ElicitReply};
use levity_rpc::mcp::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ErrorData, GetPromptRequestParams,
    GetPromptResponse, InputRequiredResult, InputResponses, ReadResourceRequestParams,
    ReadResourceResponse, RequestContext, RoleServer,
};
use levity_tools::{CallCx, Dispatched, Dispatcher};
use serde::Serialize;
use serde_json::{Value, json};

use super::client_channel::{ClientChannel, WorkInbox};
use super::paused_calls::{PausedCall, RequestSubject};
use super::session::{Session, is_modern, text_arguments};
use super::work::{self, CallWork, Outcome, Product, Step};
use super::{
    Client, ClientAbilities, ClientInfo, HandlerCall, HandlerReply, PromptRequest, RequestError,
    ResourceRequest, TaskSupport, wire,
};
use crate::access::{Caller, TokenScope};
use crate::displayed_args::{DisplayedArgs, MAX_DISPLAYED_ARGS, visible};
use crate::quota::Permit;

/// The result of handling a request.
///
/// `Asks` and `Task` occur only on protocol 2026-07-28.
enum Answer {
    Product(Product),
    Asks(InputRequiredResult),
    Task(CallToolResponse),
}

/// The answers and the state that a client sent with a repeated request.
struct ClientInput {
    state: Option<String>,
    answers: Option<InputResponses>,
    /// `true` if the work may continue as a task.
    can_become_task: bool,
    /// The memory permit of the arguments, held until the work has ended.
    memory: Option<Permit>,
}

impl ClientInput {
    /// Before 2026-07-28, clients were asked with requests and sent neither state nor answers.
    fn new(modern: bool, state: Option<String>, answers: Option<InputResponses>) -> Self {
        let (state, answers) = (state.filter(|_| modern), answers.filter(|_| modern));
        Self {
            state,
            answers,
            can_become_task: false,
            memory: None,
        }
    }

    /// Returns the validated answers.
    fn answers(&mut self) -> Result<InputResponses, RequestError> {
        let answers = self.answers.take().unwrap_or_default();
        match answers.values().all(Value::is_object) {
            true => Ok(answers),
            false => Err(RequestError::invalid(
                "an answer in `inputResponses` is not a JSON object",
            )),
        }
    }
}

impl Session {
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let modern = is_modern(&context);
        let _permit = self
            .inner
            .call_permit(&self.caller(&context))
            .map_err(|error| error.into_error(modern))?;
        let CallToolRequestParams {
            name,
            arguments,
            input_responses,
            request_state,
            ..
        } = request;
        let mut input = ClientInput::new(modern, request_state, input_responses);
        let args = Value::Object(arguments.unwrap_or_default());
        self.reserve_memory(&mut input, memory_of(&args), &context)
            .map_err(|error| error.into_error(modern))?;
        let call = ToolCall::new(self.inner.call_id(), name, args);
        self.may_call(&call.name, &context)
            .map_err(|error| error.into_error(modern))?;
        let outcome = match self.inner.offers.contains_key(&call.name) {
            true => self.call_handler(call, input, &context).await,
            false => self.call_tool_only(call, input, &context).await,
        };
        match outcome {
            Ok(response) => Ok(response),
            Err(error) => error
                .into_tool_error(modern)
                .map(|error| wire::failed(&error).into()),
        }
    }

    /// Reserves memory for the arguments and the answers of a request, until its work has ended.
    fn reserve_memory(
        &self,
        input: &mut ClientInput,
        args: usize,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), RequestError> {
        let answers = input.answers.iter().flatten();
        let bytes = args + answers.map(|(_, value)| memory_of(value)).sum::<usize>();
        let memory = self.inner.reserve_memory(&self.caller(context), bytes)?;
        input.memory = Some(memory);
        Ok(())
    }

    /// Rejects a caller that may only read, unless the tool is read-only.
    fn may_call(
        &self,
        name: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), RequestError> {
        let caller = self.caller(context);
        let reads = match self.inner.offers.get(name) {
            Some(offer) => offer.handler.spec().hints.class == EffectClass::ReadOnly,
            None => self
                .inner
                .dispatcher
                .specs()
                .iter()
                .any(|spec| spec.name == name && spec.hints.class == EffectClass::ReadOnly),
        };
        let scope = if reads {
            TokenScope::Read
        } else {
            TokenScope::Run
        };
        if caller.has_scope(scope) {
            Ok(())
        } else {
            Err(RequestError::forbidden(caller.missing(scope)))
        }
    }

    async fn call_handler(
        &self,
        call: ToolCall,
        mut input: ClientInput,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, RequestError> {
        let Some(offer) = self.inner.offers.get(&call.name) else {
            return Err(no_tool(&call.name));
        };
        let args = offer.arguments.of(&call)?.into_owned();
        let (handler, limit, world) =
            (offer.handler.clone(), offer.limit, self.inner.world.clone());
        let (id, subject) = (call.id, ("tools/call", &*call.name, &call.args));
        let begin = |client: Client, cancel: CancelToken| async move {
            let call = HandlerCall {
                args,
                id,
                progress: client.listener(),
                client,
                cancel,
            };
            with_timeout(&*world, limit, handler.call(call))
                .await
                .map(Product::Tool)
        };
        let support = offer.handler.task_support();
        let supports_tasks_extension =
            is_modern(context).then(|| supports_tasks_extension(context));
        if supports_tasks_extension == Some(false) && support.is_required() {
            return Err(needs_tasks());
        }
        if supports_tasks_extension == Some(true) && support.is_immediate() && input.state.is_none()
        {
            let answers = input.answers()?;
            return self.inner.tasks.start(
                self.caller(context),
                self.new_work(context, answers, (false, input.memory), begin),
            );
        }
        input.can_become_task =
            supports_tasks_extension == Some(true) && support == TaskSupport::Deferred;
        tool_response(self.work(subject, input, context, begin).await?)
    }

    /// Calls a tool that does not talk to its client.
    async fn call_tool_only(
        &self,
        call: ToolCall,
        input: ClientInput,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, RequestError> {
        let dispatcher = &self.inner.dispatcher;
        if dispatcher.registry().get(&call.name).is_none() {
            return Err(no_tool(&call.name));
        }
        // Most calls report no progress and ask nothing, so this path is enough.
        if input.state.is_none() && context.meta.get_progress_token().is_none() {
            let cx = CallCx::new(run_of(&self.caller(context)), call.id.as_str());
            let dispatched = tokio::select! {
                dispatched = dispatcher.dispatch(&call, false, cx) => dispatched,
                () = context.ct.cancelled() => return Err(cancelled()),
            };
            match dispatched {
                Dispatched::Done(result) => return Ok(wire::dispatched(result).into()),
                Dispatched::Unknown { reason } => return Err(ToolError::failed(reason).into()),
                Dispatched::NeedsApproval { .. } => {}
            }
        }
        let (dispatcher, tool_call) = (dispatcher.clone(), call.clone());
        let begin =
            |client: Client, _: CancelToken| call_with_approval(dispatcher, tool_call, client);
        let subject = ("tools/call", &*call.name, &call.args);
        tool_response(self.work(subject, input, context, begin).await?)
    }

    pub(super) async fn read(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let modern = is_modern(&context);
        let _permit = self
            .inner
            .call_permit(&self.caller(&context))
            .map_err(|error| error.into_error(modern))?;
        let ReadResourceRequestParams {
            uri,
            input_responses,
            request_state,
            ..
        } = request;
        let mut input = ClientInput::new(modern, request_state, input_responses);
        self.reserve_memory(&mut input, uri.len(), &context)
            .map_err(|error| error.into_error(modern))?;
        let (all, wanted) = (self.inner.resources.clone(), uri.clone());
        let begin = |client: Client, _: CancelToken| async move {
            for resources in all {
                let ask = ResourceRequest {
                    uri: wanted.clone(),
                    client: client.clone(),
                };
                match resources.read(ask).await {
                    Err(error) if error.is_not_found() => {}
                    // The protocol requires an error if there is no content.
                    Ok(contents) if contents.is_empty() => {}
                    other => return other.map(Product::Read),
                }
            }
            let data = json!({ "uri": wanted });
            Err(
                RequestError::not_found(format!("no resource has the URI `{}`", short(&wanted)))
                    .with_data(data),
            )
        };
        match self
            .work(("resources/read", &uri, &()), input, &context, begin)
            .await
        {
            Ok(Answer::Product(Product::Read(contents))) => Ok(wire::read(contents).into()),
            Ok(Answer::Asks(asks)) => Ok(asks.into()),
            Ok(Answer::Product(_) | Answer::Task(_)) => Err(wrong_result().into_error(modern)),
            Err(error) => Err(error.into_error(modern)),
        }
    }

    pub(super) async fn prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let modern = is_modern(&context);
        let _permit = self
            .inner
            .call_permit(&self.caller(&context))
            .map_err(|error| error.into_error(modern))?;
        let GetPromptRequestParams {
            name,
            arguments,
            input_responses,
            request_state,
            ..
        } = request;
        let mut input = ClientInput::new(modern, request_state, input_responses);
        let args = Value::Object(arguments.unwrap_or_default());
        self.reserve_memory(&mut input, memory_of(&args), &context)
            .map_err(|error| error.into_error(modern))?;
        let args = text_arguments(args);
        let (all, wanted, given) = (self.inner.prompts.clone(), name.clone(), args.clone());
        let max_bytes = self.inner.limits.output;
        let begin = |client: Client, _: CancelToken| async move {
            for prompts in all {
                let ask = PromptRequest {
                    name: wanted.clone(),
                    args: given.clone(),
                    client: client.clone(),
                    max_bytes,
                };
                match prompts.get(ask).await {
                    Err(error) if error.is_not_found() => {}
                    Ok(reply) if reply.text_bytes() > max_bytes => {
                        return Err(RequestError::prompt_too_long(max_bytes));
                    }
                    other => return other.map(Product::Prompt),
                }
            }
            Err(RequestError::invalid(format!(
                "no prompt has the name `{}`",
                short(&wanted)
            )))
        };
        match self
            .work(("prompts/get", &name, &args), input, &context, begin)
            .await
        {
            Ok(Answer::Product(Product::Prompt(reply))) => Ok(wire::prompt(reply).into()),
            Ok(Answer::Asks(asks)) => Ok(asks.into()),
            Ok(Answer::Product(_) | Answer::Task(_)) => Err(wrong_result().into_error(modern)),
            Err(error) => Err(error.into_error(modern)),
        }
    }

    /// Starts or resumes the work for a request, until it is done or the client has to answer
    /// something.
    async fn work<F>(
        &self,
        subject: (&str, &str, &impl Serialize),
        mut input: ClientInput,
        context: &RequestContext<RoleServer>,
        begin: impl FnOnce(Client, CancelToken) -> F,
    ) -> Result<Answer, RequestError>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let inner = &self.inner;
        let answers = input.answers()?;
        if !is_modern(context) {
            let mut work = self.new_work(context, BTreeMap::new(), (false, input.memory), begin);
            let step = work
                .drive_with_requests(context, &*inner.world, inner.limits.answer)
                .await;
            return match step {
                Step::Done(outcome) => outcome.map(Answer::Product),
                Step::Cancelled => Err(cancelled()),
                Step::Open(_) | Step::Task => Err(wrong_result()),
            };
        }
        let subject = RequestSubject::new(&self.caller(context), subject.0, subject.1, subject.2);
        let mut waiting = match input.state {
            Some(state) => self.resume(&state, subject, answers, context)?,
            None => {
                let work = self.new_work(
                    context,
                    answers,
                    (input.can_become_task, input.memory),
                    begin,
                );
                inner.paused_calls.begin(work, subject)
            }
        };
        match waiting.call.drive_until_question(context).await {
            Step::Done(outcome) => outcome.map(Answer::Product),
            Step::Open(requests) => inner
                .paused_calls
                .pause(&self.caller(context), waiting, requests)
                .map(Answer::Asks),
            Step::Task => inner
                .tasks
                .start(self.caller(context), waiting.call)
                .map(Answer::Task),
            Step::Cancelled => Err(cancelled()),
        }
    }

    fn resume(
        &self,
        state: &str,
        subject: RequestSubject,
        answers: InputResponses,
        context: &RequestContext<RoleServer>,
    ) -> Result<PausedCall, RequestError> {
        let mut waiting = self.inner.paused_calls.take(state, subject)?;
        waiting
            .call
            .channel
            .level
            .store(requested_level(context), Ordering::Relaxed);
        waiting.call.answer(answers);
        Ok(waiting)
    }

    /// Creates the work for a request, with its channel to the client. The memory permit of the
    /// arguments is released when the work ends, not when its request does.
    fn new_work<F>(
        &self,
        context: &RequestContext<RoleServer>,
        early: InputResponses,
        (can_become_task, memory): (bool, Option<Permit>),
        begin: impl FnOnce(Client, CancelToken) -> F,
    ) -> CallWork
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let (channel, inbox): (Arc<ClientChannel>, WorkInbox) = ClientChannel::new(
            capabilities(context),
            info(context),
            self.level(context),
            early,
            can_become_task,
        );
        let client = Client::new(
            channel.clone(),
            self.inner.changes.clone(),
            self.caller(context),
        );
        let cancel = CancelToken::new();
        let work = begin(client, cancel.clone());
        let work = async move {
            let outcome = work.await;
            drop(memory);
            outcome
        };
        CallWork::new(channel, inbox, cancel.into_guard(), work)
    }

    /// Since 2026-07-28, a client sets the log level with each request.
    fn level(&self, context: &RequestContext<RoleServer>) -> Arc<AtomicU8> {
        match is_modern(context) {
            true => Arc::new(AtomicU8::new(requested_level(context))),
            false => self.level.clone(),
        }
    }
}

/// Estimates the memory that a value takes.
fn memory_of(value: &Value) -> usize {
    let own = size_of::<Value>();
    own + match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(memory_of).sum(),
        // A map entry has its key, and a place in a node that is half full on average.
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| key.len() + 2 * own + memory_of(value))
            .sum(),
        _ => 0,
    }
}

/// Returns the log level of a request; above all levels if it sets none.
fn requested_level(context: &RequestContext<RoleServer>) -> u8 {
    context
        .meta
        .log_level()
        .map_or(u8::MAX, |level| work::level(level) as u8)
}

/// Returns the run id for tool calls of a caller. Tools that store data per run thereby separate
/// tenants.
fn run_of(caller: &Caller) -> RunId {
    RunId::from(caller.own("mcp"))
}

/// Makes a call that may need approval under the policy.
async fn call_with_approval(dispatcher: Dispatcher, call: ToolCall, client: Client) -> Outcome {
    let run = run_of(client.caller());
    let cx = || CallCx::new(run.clone(), call.id.as_str()).with_progress(client.listener());
    let mut dispatched = dispatcher.dispatch(&call, false, cx()).await;
    if let Dispatched::NeedsApproval { reason } = &dispatched {
        approve(&client, &call, reason).await?;
        dispatched = dispatcher.dispatch(&call, true, cx()).await;
    }
    match dispatched {
        Dispatched::Done(result) => match result.is_error() {
            true => Err(ToolError::new(ToolErrorKind::Failed, result.text()).into()),
            false => {
                let content = result.content.into_iter().map(Into::into).collect();
                Ok(Product::Tool(HandlerReply {
                    content,
                    value: result.value,
                }))
            }
        },
        Dispatched::NeedsApproval { reason } | Dispatched::Unknown { reason } => {
            Err(ToolError::failed(reason).into())
        }
    }
}

/// Asks the client's user for approval.
async fn approve(client: &Client, call: &ToolCall, reason: &str) -> Result<(), RequestError> {
    if !client.caller().has_scope(TokenScope::Approve) {
        let message = format!(
            "{reason}, but {}",
            client.caller().missing(TokenScope::Approve)
        );
        return Err(ToolError::new(ToolErrorKind::Denied, message).into());
    }
    let schema = json!({
        "type": "object",
        "properties": {"allow": {"type": "boolean", "title": "Allow this call"}},
        "required": ["allow"],
    });
    let args = DisplayedArgs::new(&call.args);
    if !args.is_complete {
        let message = format!(
            "{reason}, but only calls of up to {MAX_DISPLAYED_ARGS} bytes can be approved; make a \
                shorter call"
        );
        return Err(ToolError::new(ToolErrorKind::Denied, message).into());
    }
    let (name, args, reason) = (visible(&call.name), args.text, visible(reason));
    let question =
        format!("`{name}` is about to be called with {args}: {reason}. Do you allow it?");
    let form = ElicitForm::new(question, schema);
    match client.elicit(form).await? {
        ElicitReply::Accept(content) if content.get("allow") == Some(&Value::Bool(true)) => Ok(()),
        _ => Err(ToolError::new(ToolErrorKind::Denied, "the user did not allow this call").into()),
    }
}

/// Runs a handler within its timeout, if it has one.
async fn with_timeout(
    world: &dyn World,
    limit: Option<Duration>,
    work: impl Future<Output = Result<HandlerReply, RequestError>>,
) -> Result<HandlerReply, RequestError> {
    let Some(limit) = limit else {
        return work.await;
    };
    tokio::select! {
        outcome = work => outcome,
        () = world.sleep(limit) => {
            let text = format!("the tool timed out after {limit:?}");
            Err(ToolError::new(ToolErrorKind::Timeout, text).into())
        }
    }
}

fn tool_response(answer: Answer) -> Result<CallToolResponse, RequestError> {
    match answer {
        Answer::Product(Product::Tool(reply)) => Ok(wire::replied(reply).into()),
        Answer::Asks(asks) => Ok(asks.into()),
        Answer::Task(task) => Ok(task),
        Answer::Product(_) => Err(wrong_result()),
    }
}

fn supports_tasks_extension(context: &RequestContext<RoleServer>) -> bool {
    context
        .client_capabilities()
        .is_some_and(|can| can.supports_tasks())
}

fn needs_tasks() -> RequestError {
    let needed = ClientCapabilities::builder().enable_tasks().build();
    RequestError::lacks(needed)
}

fn capabilities(context: &RequestContext<RoleServer>) -> ClientAbilities {
    let Some(can) = context.client_capabilities() else {
        return ClientAbilities::default();
    };
    let elicit = can.elicitation.as_ref();
    let url = elicit.is_some_and(|elicit| elicit.url.is_some());
    ClientAbilities {
        // A client that names no mode supports forms.
        elicit: elicit.is_some_and(|elicit| elicit.form.is_some() || !url),
        elicit_url: url,
        sample: can.sampling.is_some(),
        sample_tools: can
            .sampling
            .as_ref()
            .is_some_and(|sampling| sampling.tools.is_some()),
        roots: can.roots.is_some(),
    }
}

fn info(context: &RequestContext<RoleServer>) -> Option<ClientInfo> {
    let info = context.client_info()?;
    Some(ClientInfo {
        name: info.name,
        version: info.version,
        title: info.title,
    })
}

fn no_tool(name: &str) -> RequestError {
    RequestError::invalid(format!(
        "no tool has the name `{}`; `tools/list` lists the available ones",
        short(name)
    ))
}

/// Cuts a name of a client before it becomes part of an error message.
fn short(name: &str) -> String {
    name.chars().take(128).collect()
}

fn cancelled() -> RequestError {
    RequestError::failed("the request was cancelled")
}

/// Returns the error for a state that cannot occur: a paused call belongs to one request, so it
/// ends with that request's result.
fn wrong_result() -> RequestError {
    RequestError::failed("the request ended with the result of another request")
}
