//! Messages that a server sends on its own initiative: progress, log lines, change notifications
//! and requests.
//!
//! Progress finds its call by a token, which some servers return as a text. Log lines have no
//! token, so they count as progress only if a single call is in progress. At most 16 requests of
//! the server run at once; while one runs, the server's silence does not count against its calls,
//! because it waits for levity.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::Progress;
use levity_rpc::mcp::{
    ClientConfig, ClientHandler, ErrorCode, ErrorData, NotificationContext, NumberOrString,
    ProgressNotificationParam, ProgressToken, RequestContext, ResourceUpdatedNotificationParam,
    RoleClient,
};
use tokio::sync::Notify;

use crate::event::{Events, ServerEventKind};
use crate::text::truncate;

/// The maximum length of a log line or progress message that is passed on, in bytes.
const MAX_TEXT: usize = 4 << 10;

/// The maximum number of concurrent server requests; further ones are rejected.
const MAX_SERVER_REQUESTS: usize = 16;

/// The requests in progress between a server and levity.
#[derive(Clone, Default)]
pub(crate) struct ActiveCalls(Arc<ActiveCallsInner>);

#[derive(Default)]
struct ActiveCallsInner {
    /// levity's calls, by their progress tokens.
    calls: Mutex<HashMap<i64, Arc<ActiveCall>>>,
    /// The number of server requests in progress.
    server_requests: AtomicUsize,
}

/// A call that is in progress.
pub(crate) struct ActiveCall {
    progress: Progress,
    background: bool,
    /// Notifies of activity of the server.
    pub(super) activity: Notify,
}

impl ActiveCalls {
    /// Registers a call for progress messages until the returned guard is dropped.
    pub(super) fn begin(
        &self,
        token: &ProgressToken,
        progress: Progress,
        background: bool,
    ) -> ActiveCallGuard {
        let call = Arc::new(ActiveCall {
            progress,
            background,
            activity: Notify::new(),
        });
        let token = number(token);
        if let Some(token) = token {
            self.lock().insert(token, call.clone());
        }
        ActiveCallGuard {
            calls: self.clone(),
            token,
            call,
        }
    }

    /// Returns the call with this progress token.
    fn get(&self, token: &ProgressToken) -> Option<Arc<ActiveCall>> {
        self.lock().get(&number(token)?).cloned()
    }

    /// Returns the call in progress, if it is the only one.
    fn sole_call(&self) -> Option<Arc<ActiveCall>> {
        let calls = self.lock();
        let mut work = calls.values().filter(|call| !call.background);
        let first = work.next();
        first.filter(|_| work.next().is_none()).cloned()
    }

    /// Returns `true` if the server has work in progress.
    pub(super) fn is_busy(&self) -> bool {
        self.lock().values().any(|call| !call.background)
    }

    /// Returns `true` if the server waits for a response from levity.
    pub(super) fn has_server_requests(&self) -> bool {
        self.0.server_requests.load(Ordering::Acquire) > 0
    }

    /// Counts a server request until the returned guard is dropped. Returns `None` if there are too
    /// many.
    fn begin_server_request(&self) -> Option<ServerRequestGuard> {
        let guard = ServerRequestGuard(self.clone());
        (self.0.server_requests.fetch_add(1, Ordering::AcqRel) < MAX_SERVER_REQUESTS)
            .then_some(guard)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Arc<ActiveCall>>> {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server request that is in progress.
struct ServerRequestGuard(ActiveCalls);

impl Drop for ServerRequestGuard {
    fn drop(&mut self) {
        self.0.0.server_requests.fetch_sub(1, Ordering::AcqRel);
        // The idle time of the server starts again here.
        self.0
            .lock()
            .values()
            .for_each(|call| call.activity.notify_one());
    }
}

/// Returns the token as levity sent it; a server may have converted it to a text.
fn number(token: &ProgressToken) -> Option<i64> {
    match &token.0 {
        NumberOrString::Number(number) => Some(*number),
        NumberOrString::String(text) => text.parse().ok(),
    }
}

/// Removes a call from the list when dropped.
pub(super) struct ActiveCallGuard {
    calls: ActiveCalls,
    token: Option<i64>,
    pub(super) call: Arc<ActiveCall>,
}

impl Drop for ActiveCallGuard {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.calls.lock().remove(&token);
        }
    }
}

/// Handles the messages of a server.
pub(crate) struct Handler {
    pub(crate) config: ClientConfig,
    pub(crate) events: Events,
    pub(crate) calls: ActiveCalls,
    /// Notifies when the server reports that its tools have changed.
    pub(crate) tools_changed: Arc<Notify>,
    pub(crate) host_services: super::host_services::HostServices,
}

impl Handler {
    /// Runs the work for a server request until the server cancels the request.
    async fn answer<T>(
        &self,
        cx: &RequestContext<RoleClient>,
        work: impl Future<Output = Result<T, ErrorData>>,
    ) -> Result<T, ErrorData> {
        let Some(_guard) = self.calls.begin_server_request() else {
            let message =
                format!("{MAX_SERVER_REQUESTS} requests are already pending; try again later");
            return Err(ErrorData::internal_error(message, None));
        };
        tokio::select! {
            answer = work => answer,
            () = cx.ct.cancelled() => Err(ErrorData::internal_error("the request was \
                cancelled", None)),
        }
    }

    /// Reports progress as text: `3 of 10: reading`.
    fn report_progress(&self, params: &ProgressNotificationParam) {
        let Some(call) = self.calls.get(&params.progress_token) else {
            return;
        };
        call.activity.notify_one();
        let share = match params.total {
            Some(total) => format!("{} of {total}", params.progress),
            None => params.progress.to_string(),
        };
        match params.message.as_deref() {
            Some(message) => {
                let message = self.events.secrets().head(message, MAX_TEXT);
                call.progress.report(format!("{share}: {message}"));
            }
            None => call.progress.report(share),
        }
    }

    /// Publishes a log line as an event, and as progress of the only call.
    #[expect(
        deprecated,
        reason = "servers of the older protocol send logs this way"
    )]
    fn report_log(&self, params: &levity_rpc::mcp::LoggingMessageNotificationParam) {
        let text = match &params.data {
            serde_json::Value::String(text) => self.events.secrets().head(text, MAX_TEXT),
            other => self.events.secrets().head(&other.to_string(), MAX_TEXT),
        };
        // The protocol does not connect a line to a call; with only one call in progress, it must
        // belong to that one.
        if let Some(call) = self.calls.sole_call() {
            call.activity.notify_one();
            call.progress.report(&text);
        }
        let level = serde_json::to_value(params.level).ok();
        let level = level
            .as_ref()
            .and_then(|level| level.as_str())
            .unwrap_or("info")
            .to_owned();
        self.events.send(ServerEventKind::Log { level, text });
    }
}

#[expect(
    deprecated,
    reason = "servers of the older protocol send requests and logs this way"
)]
impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.report_progress(&params);
    }

    async fn on_logging_message(
        &self,
        params: levity_rpc::mcp::LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.report_log(&params);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tools_changed.notify_one();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.events
            .send(ServerEventKind::ResourcesChanged { uri: None });
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let uri = self.events.secrets().head(&params.uri, MAX_TEXT);
        self.events
            .send(ServerEventKind::ResourcesChanged { uri: Some(uri) });
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.events.send(ServerEventKind::PromptsChanged);
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<levity_rpc::mcp::ListRootsResult, ErrorData> {
        Ok(self.host_services.roots())
    }

    async fn create_message(
        &self,
        params: levity_rpc::mcp::CreateMessageRequestParams,
        cx: RequestContext<RoleClient>,
    ) -> Result<levity_rpc::mcp::CreateMessageResult, ErrorData> {
        self.answer(&cx, self.host_services.sample(params)).await
    }

    async fn create_elicitation(
        &self,
        params: levity_rpc::mcp::ElicitRequestParams,
        cx: RequestContext<RoleClient>,
    ) -> Result<levity_rpc::mcp::ElicitResult, ErrorData> {
        self.answer(&cx, self.host_services.elicit(params)).await
    }

    async fn on_custom_request(
        &self,
        request: levity_rpc::mcp::CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<levity_rpc::mcp::CustomResult, ErrorData> {
        let method = truncate(&request.method, 64).to_owned();
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            format!("`{method}` is not supported"),
            None,
        ))
    }
}
