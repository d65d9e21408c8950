//! Requests whose work may have to ask the client something first.

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

use super::desk::{Desk, Inbox};
use super::drive::{self, Case, Outcome, Product, Step};
use super::parked::{Subject, Waiting};
use super::session::{Session, is_modern, words};
use super::{
    Client, ClientAbilities, ClientInfo, HandlerCall, HandlerReply, PromptAsk, RequestError,
    ResourceAsk, TaskSupport, wire,
};
use crate::access::{Caller, TokenScope};
use crate::displayed_args::{DisplayedArgs, MAX_DISPLAYED_ARGS, visible};
use crate::quota::Permit;

/// What a request came to.
enum Answer {
    Product(Product),
    Asks(InputRequiredResult),
    Task(CallToolResponse),
}

/// What a client sent along because it was asked for it.
struct Sent {
    state: Option<String>,
    answers: Option<InputResponses>,
    /// Whether the work may go on as a task.
    can_become_task: bool,
    /// The room that the arguments take, which they do until the work has ended.
    held: Option<Permit>,
}

impl Sent {
    /// Before 2026-07-28 clients were asked by requests, and sent nothing along.
    fn new(modern: bool, state: Option<String>, answers: Option<InputResponses>) -> Self {
        let (state, answers) = (state.filter(|_| modern), answers.filter(|_| modern));
        Self {
            state,
            answers,
            can_become_task: false,
            held: None,
        }
    }

    /// The answers, looked at.
    fn answers(&mut self) -> Result<InputResponses, RequestError> {
        let answers = self.answers.take().unwrap_or_default();
        match answers.values().all(Value::is_object) {
            true => Ok(answers),
            false => Err(RequestError::invalid(
                "an answer in `inputResponses` is no object",
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
        let _place = self
            .inner
            .place(&self.caller(&context))
            .map_err(|fault| fault.into_error(modern))?;
        let CallToolRequestParams {
            name,
            arguments,
            input_responses,
            request_state,
            ..
        } = request;
        let mut sent = Sent::new(modern, request_state, input_responses);
        let args = Value::Object(arguments.unwrap_or_default());
        let bytes = memory_of(&args)
            + sent
                .answers
                .iter()
                .flatten()
                .map(|(_, value)| memory_of(value))
                .sum::<usize>();
        let held = self.inner.hold(&self.caller(&context), bytes);
        sent.held = Some(held.map_err(|fault| fault.into_error(modern))?);
        let call = ToolCall::new(self.inner.call_id(), name, args);
        self.may_call(&call.name, &context)
            .map_err(|fault| fault.into_error(modern))?;
        let outcome = match self.inner.offers.contains_key(&call.name) {
            true => self.offered(call, sent, &context).await,
            false => self.plain(call, sent, &context).await,
        };
        match outcome {
            Ok(response) => Ok(response),
            Err(fault) => fault
                .into_tool_error(modern)
                .map(|error| wire::failed(&error).into()),
        }
    }

    /// Refuses a caller that may only read, unless the tool only reads.
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
        if caller.may(scope) {
            Ok(())
        } else {
            Err(RequestError::forbidden(caller.missing(scope)))
        }
    }

    async fn offered(
        &self,
        call: ToolCall,
        mut sent: Sent,
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
            within(&*world, limit, handler.call(call))
                .await
                .map(Product::Tool)
        };
        let support = offer.handler.task_support();
        let knows_tasks = is_modern(context).then(|| knows_tasks(context));
        if knows_tasks == Some(false) && support.is_required() {
            return Err(needs_tasks());
        }
        if knows_tasks == Some(true) && support.is_immediate() && sent.state.is_none() {
            let answers = sent.answers()?;
            return self.inner.tasks.start(
                self.caller(context),
                self.case(context, answers, (false, sent.held), begin),
            );
        }
        sent.can_become_task = knows_tasks == Some(true) && support == TaskSupport::Deferred;
        tool_response(self.work(subject, sent, context, begin).await?)
    }

    /// A tool that does not talk to its client.
    async fn plain(
        &self,
        call: ToolCall,
        sent: Sent,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, RequestError> {
        let dispatcher = &self.inner.dispatcher;
        if dispatcher.registry().get(&call.name).is_none() {
            return Err(no_tool(&call.name));
        }
        // Most calls tell nothing and ask nothing, and need no more than this.
        if sent.state.is_none() && context.meta.get_progress_token().is_none() {
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
        let (dispatcher, made) = (dispatcher.clone(), call.clone());
        let begin = |client: Client, _: CancelToken| permitted(dispatcher, made, client);
        let subject = ("tools/call", &*call.name, &call.args);
        tool_response(self.work(subject, sent, context, begin).await?)
    }

    pub(super) async fn read(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let modern = is_modern(&context);
        let _place = self
            .inner
            .place(&self.caller(&context))
            .map_err(|fault| fault.into_error(modern))?;
        let ReadResourceRequestParams {
            uri,
            input_responses,
            request_state,
            ..
        } = request;
        let sent = Sent::new(modern, request_state, input_responses);
        let (all, wanted) = (self.inner.resources.clone(), uri.clone());
        let begin = |client: Client, _: CancelToken| async move {
            for resources in all {
                let ask = ResourceAsk {
                    uri: wanted.clone(),
                    client: client.clone(),
                };
                match resources.read(ask).await {
                    Err(fault) if fault.is_not_found() => {}
                    // The protocol wants an error where there is nothing.
                    Ok(contents) if contents.is_empty() => {}
                    other => return other.map(Product::Read),
                }
            }
            let data = json!({ "uri": wanted });
            Err(
                RequestError::not_found(format!("there is no resource `{}`", short(&wanted)))
                    .with_data(data),
            )
        };
        match self
            .work(("resources/read", &uri, &()), sent, &context, begin)
            .await
        {
            Ok(Answer::Product(Product::Read(contents))) => Ok(wire::read(contents).into()),
            Ok(Answer::Asks(asks)) => Ok(asks.into()),
            Ok(Answer::Product(_) | Answer::Task(_)) => Err(mixed_up().into_error(modern)),
            Err(fault) => Err(fault.into_error(modern)),
        }
    }

    pub(super) async fn prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let modern = is_modern(&context);
        let _place = self
            .inner
            .place(&self.caller(&context))
            .map_err(|fault| fault.into_error(modern))?;
        let GetPromptRequestParams {
            name,
            arguments,
            input_responses,
            request_state,
            ..
        } = request;
        let sent = Sent::new(modern, request_state, input_responses);
        let args = words(arguments);
        let (all, wanted, given) = (self.inner.prompts.clone(), name.clone(), args.clone());
        let begin = |client: Client, _: CancelToken| async move {
            for prompts in all {
                let ask = PromptAsk {
                    name: wanted.clone(),
                    args: given.clone(),
                    client: client.clone(),
                };
                match prompts.get(ask).await {
                    Err(fault) if fault.is_not_found() => {}
                    other => return other.map(Product::Prompt),
                }
            }
            Err(RequestError::invalid(format!(
                "there is no prompt `{}`",
                short(&wanted)
            )))
        };
        match self
            .work(("prompts/get", &name, &args), sent, &context, begin)
            .await
        {
            Ok(Answer::Product(Product::Prompt(reply))) => Ok(wire::prompt(reply).into()),
            Ok(Answer::Asks(asks)) => Ok(asks.into()),
            Ok(Answer::Product(_) | Answer::Task(_)) => Err(mixed_up().into_error(modern)),
            Err(fault) => Err(fault.into_error(modern)),
        }
    }

    /// Begins the work for a request, or goes on with it, until it is done or the client has to say
    /// something.
    async fn work<F>(
        &self,
        subject: (&str, &str, &impl Serialize),
        mut sent: Sent,
        context: &RequestContext<RoleServer>,
        begin: impl FnOnce(Client, CancelToken) -> F,
    ) -> Result<Answer, RequestError>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let inner = &self.inner;
        let answers = sent.answers()?;
        if !is_modern(context) {
            let mut case = self.case(context, BTreeMap::new(), (false, sent.held), begin);
            let step = case
                .ask_along(context, &*inner.world, inner.limits.answer)
                .await;
            return match step {
                Step::Done(outcome) => outcome.map(Answer::Product),
                Step::Cancelled => Err(cancelled()),
                Step::Open(_) | Step::Task => Err(mixed_up()),
            };
        }
        let subject = Subject::new(&self.caller(context), subject.0, subject.1, subject.2);
        let mut waiting = match sent.state {
            Some(state) => self.resume(&state, subject, answers, context)?,
            None => {
                let case = self.case(context, answers, (sent.can_become_task, sent.held), begin);
                inner.parked.begin(case, subject)
            }
        };
        match waiting.case.ask_at_end(context).await {
            Step::Done(outcome) => outcome.map(Answer::Product),
            Step::Open(requests) => inner
                .parked
                .park(&self.caller(context), waiting, requests)
                .map(Answer::Asks),
            Step::Task => inner
                .tasks
                .start(self.caller(context), waiting.case)
                .map(Answer::Task),
            Step::Cancelled => Err(cancelled()),
        }
    }

    fn resume(
        &self,
        state: &str,
        subject: Subject,
        answers: InputResponses,
        context: &RequestContext<RoleServer>,
    ) -> Result<Waiting, RequestError> {
        let mut waiting = self.inner.parked.take(state, subject)?;
        waiting
            .case
            .desk
            .level
            .store(asked_level(context), Ordering::Relaxed);
        waiting.case.answer(answers);
        Ok(waiting)
    }

    fn case<F>(
        &self,
        context: &RequestContext<RoleServer>,
        early: InputResponses,
        (can_become_task, held): (bool, Option<Permit>),
        begin: impl FnOnce(Client, CancelToken) -> F,
    ) -> Case
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let (desk, inbox): (Arc<Desk>, Inbox) = Desk::new(
            able(context),
            info(context),
            self.level(context),
            early,
            can_become_task,
        );
        let client = Client::new(
            desk.clone(),
            self.inner.changes.clone(),
            self.caller(context),
        );
        let cancel = CancelToken::new();
        let work = begin(client, cancel.clone());
        let work = async move {
            let outcome = work.await;
            drop(held);
            outcome
        };
        Case::new(desk, inbox, cancel.into_guard(), work)
    }

    /// Since 2026-07-28 a client says with each request what it wants to know.
    fn level(&self, context: &RequestContext<RoleServer>) -> Arc<AtomicU8> {
        match is_modern(context) {
            true => Arc::new(AtomicU8::new(asked_level(context))),
            false => self.level.clone(),
        }
    }
}

/// How much memory a value takes, about.
fn memory_of(value: &Value) -> usize {
    let own = size_of::<Value>();
    own + match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(memory_of).sum(),
        // An entry of a map has its key, and its place in a node that is half full.
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| key.len() + 2 * own + memory_of(value))
            .sum(),
        _ => 0,
    }
}

/// The level of a request; above all there are where it says none.
fn asked_level(context: &RequestContext<RoleServer>) -> u8 {
    context
        .meta
        .log_level()
        .map_or(u8::MAX, |level| drive::level(level) as u8)
}

/// The run that calls of tools are made for. Tools that keep something for a run keep it apart for
/// each tenant.
fn run_of(caller: &Caller) -> RunId {
    RunId::from(caller.own("mcp"))
}

/// Makes a call that policy may want somebody to be asked about.
async fn permitted(dispatcher: Dispatcher, call: ToolCall, client: Client) -> Outcome {
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

/// Asks the person at the client.
async fn approve(client: &Client, call: &ToolCall, reason: &str) -> Result<(), RequestError> {
    if !client.caller().may(TokenScope::Approve) {
        let message = format!(
            "{reason}, and {}",
            client.caller().missing(TokenScope::Approve)
        );
        return Err(ToolError::new(ToolErrorKind::Denied, message).into());
    }
    let schema = json!({"type": "object", "properties": {"allow": {"type": "boolean", "title": "Allow this call"}}, "required": ["allow"]});
    let args = DisplayedArgs::new(&call.args);
    if !args.is_complete {
        let message = format!(
            "{reason}, and a person is asked only about calls of {MAX_DISPLAYED_ARGS} bytes at \
                most; make \
                a shorter call"
        );
        return Err(ToolError::new(ToolErrorKind::Denied, message).into());
    }
    let (name, args, reason) = (visible(&call.name), args.text, visible(reason));
    let question =
        format!("`{name}` is about to be called with {args}: {reason}. Is that all right?");
    let form = ElicitForm::new(question, schema);
    match client.elicit(form).await? {
        ElicitReply::Accept(content) if content.get("allow") == Some(&Value::Bool(true)) => Ok(()),
        _ => Err(ToolError::new(
            ToolErrorKind::Denied,
            "the person at the client did not allow this call",
        )
        .into()),
    }
}

/// A handler's outcome, within its time where it has one.
async fn within(
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
            let text = format!("the tool was not done within {limit:?}");
            Err(ToolError::new(ToolErrorKind::Timeout, text).into())
        }
    }
}

fn tool_response(answer: Answer) -> Result<CallToolResponse, RequestError> {
    match answer {
        Answer::Product(Product::Tool(reply)) => Ok(wire::replied(reply).into()),
        Answer::Asks(asks) => Ok(asks.into()),
        Answer::Task(task) => Ok(task),
        Answer::Product(_) => Err(mixed_up()),
    }
}

fn knows_tasks(context: &RequestContext<RoleServer>) -> bool {
    context
        .client_capabilities()
        .is_some_and(|can| can.supports_tasks())
}

fn needs_tasks() -> RequestError {
    let needed = ClientCapabilities::builder().enable_tasks().build();
    RequestError::lacks(needed)
}

fn able(context: &RequestContext<RoleServer>) -> ClientAbilities {
    let Some(can) = context.client_capabilities() else {
        return ClientAbilities::default();
    };
    let elicit = can.elicitation.as_ref();
    let url = elicit.is_some_and(|elicit| elicit.url.is_some());
    ClientAbilities {
        // A client that names no kind means forms.
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
        "there is no tool `{}`; `tools/list` names those there are",
        short(name)
    ))
}

fn short(name: &str) -> String {
    name.chars().take(128).collect()
}

fn cancelled() -> RequestError {
    RequestError::failed("the request was cancelled")
}

/// A ticket is about one request, so its case ends with what that request asked for.
fn mixed_up() -> RequestError {
    RequestError::failed("the request ended with what another asked for")
}
