//! One client's connection, as the protocol's library calls it.

#![expect(
    deprecated,
    reason = "logging and subscriptions are on their way out of the protocol, and clients have them"
)]

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use levity_rpc::mcp::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, CompletionInfo, CustomRequest, CustomResult, ErrorCode, ErrorData, Extensions,
    GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult,
    InitializeRequestParams, InitializeResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, NotificationContext, PaginatedRequestParams, Peer,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, Reference, RequestContext,
    ResourceUpdatedNotificationParam, RoleServer, ServerConfig, ServerHandler,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionContext, SubscriptionFilter,
    SubscriptionSink, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use serde_json::Value;
use tokio::task::JoinSet;

use super::changes::{Ear, News};
use super::drive;
use super::server::Inner;
use super::{ClientLogLevel, Completing, RequestError, lists, wire};
use crate::access::Caller;

/// How often sources are asked whether they have other tools.
const LOOK: Duration = Duration::from_secs(1);

/// What a session of a client is.
pub(super) struct Session {
    pub(super) inner: Arc<Inner>,
    /// From which level on the client wants to know things; for versions in which it is asked once.
    pub(super) level: Arc<AtomicU8>,
    /// Whether the client is the program that started this one.
    local: bool,
    ear: Mutex<Option<Arc<Ear>>>,
    /// Tells the client of changes, for as long as there is a session.
    tasks: Mutex<JoinSet<()>>,
}

impl Session {
    /// A session of the owner, who started this program.
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        let level = Arc::new(AtomicU8::new(ClientLogLevel::Info as u8));
        Self {
            inner,
            level,
            local: true,
            ear: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// A session of whoever comes by HTTP: each request says whose it is.
    pub(super) fn remote(inner: Arc<Inner>) -> Self {
        Self {
            local: false,
            ..Self::new(inner)
        }
    }

    /// Who sent a request. The gate has noted it; where nothing is noted, nothing is allowed.
    pub(super) fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        self.sender(&context.extensions)
    }

    fn sender(&self, extensions: &Extensions) -> Caller {
        if self.local {
            return Caller::owner();
        }
        let parts = extensions.get::<http::request::Parts>();
        parts
            .and_then(|parts| parts.extensions.get::<Caller>())
            .cloned()
            .unwrap_or_else(Caller::anonymous)
    }

    /// Begins to tell the client of changes, unless that has begun.
    fn listen(&self, caller: &Caller, peer: Peer<RoleServer>) -> Result<Arc<Ear>, RequestError> {
        let mut place = self.ear.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ear) = place.as_ref() {
            return Ok(ear.clone());
        }
        let ear = ear(&self.inner, caller)?;
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(tell(self.inner.clone(), peer, ear.clone()));
        Ok(place.insert(ear).clone())
    }

    /// Does what somebody else wrote: within its time, among so many, and a panic of it is an
    /// error.
    async fn own<T>(
        &self,
        context: &RequestContext<RoleServer>,
        work: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, ErrorData> {
        let _place = self.inner.place(&self.caller(context)).map_err(error)?;
        let limit = self.inner.limits.tool;
        let done = tokio::select! {
            done = AssertUnwindSafe(work).catch_unwind() => done.map_err(|_| RequestError::failed("it panicked")),
            () = context.ct.cancelled() => Err(RequestError::failed("the request was cancelled")),
            () = self.inner.world.sleep(limit) => Err(RequestError::failed(format!("it was not \
                done within {limit:?}"))),
        };
        done.and_then(|done| done).map_err(error)
    }
}

/// What is not there has no methods either.
fn gate(has: bool, method: &str) -> Result<(), ErrorData> {
    if has { Ok(()) } else { Err(no_method(method)) }
}

/// Whether a request is of 2026-07-28 or later, where clients are asked nothing but in results.
pub(super) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

pub(super) fn no_method(method: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None)
}

fn ear(inner: &Inner, caller: &Caller) -> Result<Arc<Ear>, RequestError> {
    let ear = inner
        .listeners
        .take(caller)
        .map(|place| inner.changes.listen(place));
    // The tools that there are now are those that the next are compared with.
    inner.tools();
    ear.map_err(|_| RequestError::busy("too many clients listen for changes; try again later"))
}

/// Waits for a change; sources do not tell by themselves.
async fn change(inner: &Inner, ear: &Ear) -> News {
    tokio::select! {
        () = ear.woken() => {}
        () = inner.world.sleep(LOOK), if inner.has_sources => { inner.tools(); }
    }
    ear.news()
}

async fn tell(inner: Arc<Inner>, peer: Peer<RoleServer>, ear: Arc<Ear>) {
    loop {
        let news = change(&inner, &ear).await;
        let mut told = Ok(());
        if news.tools {
            told = peer.notify_tool_list_changed().await;
        }
        if news.prompts && told.is_ok() {
            told = peer.notify_prompt_list_changed().await;
        }
        if news.resources && told.is_ok() {
            told = peer.notify_resource_list_changed().await;
        }
        for uri in news.updated {
            if told.is_ok() {
                told = peer
                    .notify_resource_updated(ResourceUpdatedNotificationParam::new(uri))
                    .await;
            }
        }
        if told.is_err() {
            return;
        }
    }
}

/// Tells what was asked for, and says whether anybody still listens.
async fn publish(sink: &SubscriptionSink, news: News) -> bool {
    let wants = sink.accepted();
    let is = |wanted: Option<bool>| wanted == Some(true);
    if news.tools && is(wants.tools_list_changed) && sink.notify_tool_list_changed().await.is_err()
    {
        return false;
    }
    if news.prompts
        && is(wants.prompts_list_changed)
        && sink.notify_prompt_list_changed().await.is_err()
    {
        return false;
    }
    if news.resources
        && is(wants.resources_list_changed)
        && sink.notify_resource_list_changed().await.is_err()
    {
        return false;
    }
    for uri in news.updated {
        if sink.notify_resource_updated(uri).await.is_err() {
            return false;
        }
    }
    true
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        self.inner.info.clone()
    }

    async fn initialize(
        &self,
        mut request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let result = self.negotiate_initialize(&request)?;
        request.protocol_version = result.protocol_version.clone();
        context.peer.set_peer_info(request);
        Ok(result)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // Who cannot be told of changes is served all the same.
        let _ = self.listen(&self.sender(&context.extensions), context.peer);
    }

    /// What the library cannot read comes here, too: then not the method is unknown, but what it
    /// was asked with is wrong.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let can = &self.inner.info.capabilities;
        let has = match &*request.method {
            "tools/call" => can.tools.is_some(),
            "resources/read" => can.resources.is_some(),
            "prompts/get" => can.prompts.is_some(),
            "completion/complete" => can.completions.is_some(),
            "subscriptions/listen" | "server/discover" => true,
            "initialize" | "logging/setLevel" => !is_modern(&context),
            "resources/subscribe" | "resources/unsubscribe" => {
                !is_modern(&context) && self.tells_updates()
            }
            _ => false,
        };
        if has {
            let text = format!(
                "`{}` was asked with parameters that it does not take",
                request.method
            );
            return Err(ErrorData::invalid_params(text, None));
        }
        Err(no_method(&request.method))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let inner = &self.inner;
        gate(inner.info.capabilities.tools.is_some(), "tools/list")?;
        let cursor = request.and_then(|request| request.cursor);
        let page =
            lists::part(&inner.tools(), cursor.as_deref(), inner.limits.page).map_err(error)?;
        let mut result = ListToolsResult::with_all_items(page.items);
        result.next_cursor = page.next;
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.inner
            .tools()
            .iter()
            .find(|tool| tool.name == name)
            .cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(request, context).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.inner
            .tasks
            .get(&self.caller(&context), &request.task_id)
            .map_err(error)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let caller = self.caller(&context);
        self.inner
            .tasks
            .update(&caller, &request.task_id, request.input_responses)
            .await
            .map_err(error)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.inner
            .tasks
            .cancel(&self.caller(&context), &request.task_id)
            .await
            .map_err(error)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let all = &self.inner.resources;
        gate(!all.is_empty(), "resources/list")?;
        let cursor = request.and_then(|request| request.cursor);
        let caller = self.caller(&context);
        let (mut at, mut cursor) = lists::place(cursor.as_deref(), all.len()).map_err(error)?;
        let page = loop {
            let page = self
                .own(&context, all[at].list_for(&caller, cursor.as_deref()))
                .await?;
            if !lists::is_passed_over(&page, at, all.len()) {
                break page;
            }
            (at, cursor) = (at + 1, None);
        };
        let items = page.items.iter().filter_map(wire::same).collect();
        let mut result = ListResourcesResult::with_all_items(items);
        result.next_cursor = lists::next(at, all.len(), page.next);
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let all = &self.inner.resources;
        gate(!all.is_empty(), "resources/templates/list")?;
        let cursor = request.and_then(|request| request.cursor);
        let (mut at, mut cursor) = lists::place(cursor.as_deref(), all.len()).map_err(error)?;
        let page = loop {
            let page = self
                .own(&context, all[at].templates(cursor.as_deref()))
                .await?;
            if !lists::is_passed_over(&page, at, all.len()) {
                break page;
            }
            (at, cursor) = (at + 1, None);
        };
        let items = page.items.iter().filter_map(wire::same).collect();
        let mut result = ListResourceTemplatesResult::with_all_items(items);
        result.next_cursor = lists::next(at, all.len(), page.next);
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        gate(!self.inner.resources.is_empty(), "resources/read")?;
        self.read(request, context).await
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let all = &self.inner.prompts;
        gate(!all.is_empty(), "prompts/list")?;
        let cursor = request.and_then(|request| request.cursor);
        let (mut at, mut cursor) = lists::place(cursor.as_deref(), all.len()).map_err(error)?;
        let page = loop {
            let page = self.own(&context, all[at].list(cursor.as_deref())).await?;
            if !lists::is_passed_over(&page, at, all.len()) {
                break page;
            }
            (at, cursor) = (at + 1, None);
        };
        let items = page.items.iter().filter_map(wire::same).collect();
        let mut result = ListPromptsResult::with_all_items(items);
        result.next_cursor = lists::next(at, all.len(), page.next);
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        gate(!self.inner.prompts.is_empty(), "prompts/get")?;
        self.prompt(request, context).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let completer = self
            .inner
            .completer
            .as_ref()
            .ok_or_else(|| no_method("completion/complete"))?;
        let (of, is_resource) = match request.r#ref {
            Reference::Prompt(prompt) => (prompt.name, false),
            Reference::Resource(resource) => (resource.uri, true),
            _ => {
                return Err(ErrorData::invalid_params(
                    "`ref` is of an unknown kind",
                    None,
                ));
            }
        };
        let others = request
            .context
            .and_then(|context| context.arguments)
            .unwrap_or_default();
        let completing = Completing {
            of,
            is_resource,
            argument: request.argument.name,
            value: request.argument.value,
            others: others.into_iter().collect(),
        };
        let mut found = self.own(&context, completer.complete(completing)).await?;
        let more = found.values.len() > CompletionInfo::MAX_VALUES;
        found.values.truncate(CompletionInfo::MAX_VALUES);
        let mut info = CompletionInfo::new(found.values)
            .map_err(|text| ErrorData::internal_error(text, None))?;
        info.total = found.total;
        info.has_more = Some(more);
        Ok(CompleteResult::new(info))
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if is_modern(&context) {
            return Err(no_method("logging/setLevel"));
        }
        self.level
            .store(drive::level(request.level) as u8, Ordering::Relaxed);
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if !self.tells_updates() {
            return Err(no_method("resources/subscribe"));
        }
        let ear = self
            .listen(&self.caller(&context), context.peer)
            .map_err(error)?;
        let most = self.inner.limits.subscriptions;
        if ear.subscribe(request.uri, most) {
            return Ok(());
        }
        Err(error(RequestError::busy(format!(
            "no more than {most} addresses can be subscribed to; give one up first"
        ))))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if !self.tells_updates() {
            return Err(no_method("resources/unsubscribe"));
        }
        self.listen(&self.caller(&context), context.peer)
            .map_err(error)?
            .unsubscribe(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = requested.clone();
        if let Some(uris) = &mut accepted.resource_subscriptions {
            uris.truncate(self.inner.limits.subscriptions);
        }
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let ear = ear(&self.inner, &self.caller(context.request_context())).map_err(error)?;
        for uri in context.accepted().resource_subscriptions.iter().flatten() {
            ear.subscribe(uri.clone(), self.inner.limits.subscriptions);
        }
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                news = change(&self.inner, &ear) => {
                    if !publish(context.sink(), news).await {
                        return Ok(());
                    }
                }
            }
        }
    }
}

impl Session {
    fn tells_updates(&self) -> bool {
        let resources = self.inner.info.capabilities.resources.as_ref();
        resources.is_some_and(|resources| resources.subscribe == Some(true))
    }
}

fn error(fault: RequestError) -> ErrorData {
    fault.into_error(true)
}

/// What a client filled into the gaps of a prompt: words, whatever it wrote.
pub(super) fn words(args: Option<serde_json::Map<String, Value>>) -> BTreeMap<String, String> {
    let word = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    args.unwrap_or_default()
        .into_iter()
        .map(|(key, value)| (key, word(value)))
        .collect()
}
