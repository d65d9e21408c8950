//! One client's connection, as the protocol's library uses it.
//!
//! Each method of the protocol is one function here; the work itself is in
//! [`requests`](super::requests) and [`lists`]. Code of providers runs with a
//! timeout, a permit and a panic guard. A session on stdio belongs to the owner; over HTTP, each
//! request carries its caller, so a session cannot gain scopes.

#![expect(
    deprecated,
    reason = "logging and subscriptions are deprecated in the protocol, but clients still use them"
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

use super::changes::{ChangeListener, ChangeSet};
use super::server::Inner;
use super::work;
use super::{ClientLogLevel, CompletionRequest, RequestError, lists, wire};
use crate::access::Caller;

/// The interval at which tool sources are checked for changes.
const SOURCE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The session of a client.
pub(super) struct Session {
    pub(super) inner: Arc<Inner>,
    /// The minimum level of log messages, for versions in which a client sets it once.
    pub(super) level: Arc<AtomicU8>,
    /// `true` if the client is the program that started this one.
    local: bool,
    listener: Mutex<Option<Arc<ChangeListener>>>,
    /// Notifies the client of changes, for as long as the session exists.
    tasks: Mutex<JoinSet<()>>,
}

impl Session {
    /// Creates a session of the owner, who started this program.
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        let level = Arc::new(AtomicU8::new(ClientLogLevel::Info as u8));
        Self {
            inner,
            level,
            local: true,
            listener: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// Creates a session of an HTTP client: each request names its caller.
    pub(super) fn remote(inner: Arc<Inner>) -> Self {
        Self {
            local: false,
            ..Self::new(inner)
        }
    }

    /// Returns the caller of a request, which access control attached to it. If there is none, the
    /// caller has no scopes.
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

    /// Starts to notify the client of changes, unless that has started.
    ///
    /// Clients of older versions have one listener for each session. It starts with the session, or
    /// with the first subscription.
    fn listen(
        &self,
        caller: &Caller,
        peer: Peer<RoleServer>,
    ) -> Result<Arc<ChangeListener>, RequestError> {
        let mut place = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = place.as_ref() {
            return Ok(listener.clone());
        }
        let listener = new_listener(&self.inner, caller)?;
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(notify_client(self.inner.clone(), peer, listener.clone()));
        Ok(place.insert(listener).clone())
    }

    /// Runs code of a provider: within a timeout and a limit, and with panics as errors.
    async fn run_provider<T>(
        &self,
        context: &RequestContext<RoleServer>,
        work: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, ErrorData> {
        let _permit = self
            .inner
            .call_permit(&self.caller(context))
            .map_err(error)?;
        let limit = self.inner.limits.tool;
        let done = tokio::select! {
            done = AssertUnwindSafe(work).catch_unwind() => {
                done.map_err(|_| RequestError::failed("the server's code panicked"))
            }
            () = context.ct.cancelled() => Err(RequestError::failed("the request was cancelled")),
            () = self.inner.world.sleep(limit) => Err(RequestError::failed(format!("the request \
                timed out after {limit:?}"))),
        };
        done.and_then(|done| done).map_err(error)
    }
}

/// Fails if the server does not offer a method.
fn require(has: bool, method: &str) -> Result<(), ErrorData> {
    if has { Ok(()) } else { Err(no_method(method)) }
}

/// Returns `true` if a request is of 2026-07-28 or later, where questions to clients are part of
/// results.
pub(super) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

pub(super) fn no_method(method: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None)
}

fn new_listener(inner: &Inner, caller: &Caller) -> Result<Arc<ChangeListener>, RequestError> {
    let listener = inner
        .listeners
        .take(caller)
        .map(|place| inner.changes.listen(place));
    // The current list of tools is the base for detecting changes.
    inner.tools();
    listener.map_err(|_| RequestError::busy("too many clients listen for changes; try again later"))
}

/// Waits for a change. Tool sources do not report changes, so they are polled.
async fn next_change(inner: &Inner, listener: &ChangeListener) -> ChangeSet {
    tokio::select! {
        () = listener.changed() => {}
        () = inner.world.sleep(SOURCE_POLL_INTERVAL), if inner.has_sources => { inner.tools(); }
    }
    listener.changes()
}

async fn notify_client(inner: Arc<Inner>, peer: Peer<RoleServer>, listener: Arc<ChangeListener>) {
    loop {
        let changes = next_change(&inner, &listener).await;
        let mut sent = Ok(());
        if changes.tools {
            sent = peer.notify_tool_list_changed().await;
        }
        if changes.prompts && sent.is_ok() {
            sent = peer.notify_prompt_list_changed().await;
        }
        if changes.resources && sent.is_ok() {
            sent = peer.notify_resource_list_changed().await;
        }
        for uri in changes.updated {
            if sent.is_ok() {
                sent = peer
                    .notify_resource_updated(ResourceUpdatedNotificationParam::new(uri))
                    .await;
            }
        }
        if sent.is_err() {
            return;
        }
    }
}

/// Sends the notifications that a client subscribed to; `false` if the client has disconnected.
async fn publish(sink: &SubscriptionSink, changes: ChangeSet) -> bool {
    let wants = sink.accepted();
    let is = |wanted: Option<bool>| wanted == Some(true);
    if changes.tools
        && is(wants.tools_list_changed)
        && sink.notify_tool_list_changed().await.is_err()
    {
        return false;
    }
    if changes.prompts
        && is(wants.prompts_list_changed)
        && sink.notify_prompt_list_changed().await.is_err()
    {
        return false;
    }
    if changes.resources
        && is(wants.resources_list_changed)
        && sink.notify_resource_list_changed().await.is_err()
    {
        return false;
    }
    for uri in changes.updated {
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
        // A client that cannot be notified of changes is served nevertheless.
        let _ = self.listen(&self.sender(&context.extensions), context.peer);
    }

    /// Rejects unknown methods. Requests that the library cannot parse arrive here as well: then
    /// the method is known, but its parameters are invalid.
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
            let text = format!("the parameters of `{}` are invalid", request.method);
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
        require(inner.info.capabilities.tools.is_some(), "tools/list")?;
        let cursor = request.and_then(|request| request.cursor);
        let page =
            lists::page(&inner.tools(), cursor.as_deref(), inner.limits.page).map_err(error)?;
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
        require(!all.is_empty(), "resources/list")?;
        let cursor = request.and_then(|request| request.cursor);
        let caller = self.caller(&context);
        let (mut at, mut cursor) =
            lists::parse_cursor(cursor.as_deref(), all.len()).map_err(error)?;
        let page = loop {
            let page = self
                .run_provider(&context, all[at].list_for(&caller, cursor.as_deref()))
                .await?;
            if !lists::is_skipped(&page, at, all.len()) {
                break page;
            }
            (at, cursor) = (at + 1, None);
        };
        let items = page.items.iter().filter_map(wire::convert).collect();
        let mut result = ListResourcesResult::with_all_items(items);
        result.next_cursor = lists::next_cursor(at, all.len(), page.next);
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let all = &self.inner.resources;
        require(!all.is_empty(), "resources/templates/list")?;
        let cursor = request.and_then(|request| request.cursor);
        let (mut at, mut cursor) =
            lists::parse_cursor(cursor.as_deref(), all.len()).map_err(error)?;
        let page = loop {
            let page = self
                .run_provider(&context, all[at].templates(cursor.as_deref()))
                .await?;
            if !lists::is_skipped(&page, at, all.len()) {
                break page;
            }
            (at, cursor) = (at + 1, None);
        };
        let items = page.items.iter().filter_map(wire::convert).collect();
        let mut result = ListResourceTemplatesResult::with_all_items(items);
        result.next_cursor = lists::next_cursor(at, all.len(), page.next);
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        require(!self.inner.resources.is_empty(), "resources/read")?;
        self.read(request, context).await
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let all = &self.inner.prompts;
        require(!all.is_empty(), "prompts/list")?;
        let cursor = request.and_then(|request| request.cursor);
        let (mut at, mut cursor) =
            lists::parse_cursor(cursor.as_deref(), all.len()).map_err(error)?;
        let page = loop {
            let page = self
                .run_provider(&context, all[at].list(cursor.as_deref()))
                .await?;
            if !lists::is_skipped(&page, at, all.len()) {
                break page;
            }
            (at, cursor) = (at + 1, None);
        };
        let items = page.items.iter().filter_map(wire::convert).collect();
        let mut result = ListPromptsResult::with_all_items(items);
        result.next_cursor = lists::next_cursor(at, all.len(), page.next);
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        require(!self.inner.prompts.is_empty(), "prompts/get")?;
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
                return Err(ErrorData::invalid_params("`ref` has an unknown type", None));
            }
        };
        let others = request
            .context
            .and_then(|context| context.arguments)
            .unwrap_or_default();
        let completing = CompletionRequest {
            of,
            is_resource,
            argument: request.argument.name,
            value: request.argument.value,
            others: others.into_iter().collect(),
        };
        let others = completing.others.iter();
        let bytes = completing.of.len()
            + completing.argument.len()
            + completing.value.len()
            + others
                .map(|(name, value)| name.len() + value.len())
                .sum::<usize>();
        let _memory = self
            .inner
            .reserve_memory(&self.caller(&context), bytes)
            .map_err(error)?;
        let mut found = self
            .run_provider(&context, completer.complete(completing))
            .await?;
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
            .store(work::level(request.level) as u8, Ordering::Relaxed);
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
        let listener = self
            .listen(&self.caller(&context), context.peer)
            .map_err(error)?;
        let limit = self.inner.limits.subscriptions;
        if listener.subscribe(request.uri, limit) {
            return Ok(());
        }
        Err(error(RequestError::busy(format!(
            "the limit of {limit} subscriptions is reached; unsubscribe from a resource first"
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
        let listener =
            new_listener(&self.inner, &self.caller(context.request_context())).map_err(error)?;
        for uri in context.accepted().resource_subscriptions.iter().flatten() {
            listener.subscribe(uri.clone(), self.inner.limits.subscriptions);
        }
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changes = next_change(&self.inner, &listener) => {
                    if !publish(context.sink(), changes).await {
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

/// Returns the arguments of a prompt as text, whatever type the client sent.
pub(super) fn text_arguments(args: Value) -> BTreeMap<String, String> {
    let word = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let Value::Object(args) = args else {
        return BTreeMap::new();
    };
    args.into_iter()
        .map(|(key, value)| (key, word(value)))
        .collect()
}
