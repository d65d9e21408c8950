//! What a server sends without being asked: progress, log lines, word of changes, and questions of
//! its own.

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
use crate::text::cut;

/// How much of a log line or a word of progress is passed on.
const MOST_TEXT: usize = 4 << 10;

/// How many questions of a server are being answered at once; more are refused.
const MOST_QUESTIONS: usize = 16;

/// What is under way between a server and us.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<UnderWayAll>);

#[derive(Default)]
struct UnderWayAll {
    /// Our calls, by the token that their progress bears.
    calls: Mutex<HashMap<i64, Arc<Call>>>,
    /// How many questions of the server are being answered.
    questions: AtomicUsize,
}

/// A call that is under way.
pub(crate) struct Call {
    progress: Progress,
    aside: bool,
    /// A sign of life.
    pub(super) alive: Notify,
}

impl Calls {
    /// Listens for the progress of a call until what is returned is dropped.
    pub(super) fn begin(&self, token: &ProgressToken, progress: Progress, aside: bool) -> UnderWay {
        let call = Arc::new(Call {
            progress,
            aside,
            alive: Notify::new(),
        });
        let token = number(token);
        if let Some(token) = token {
            self.lock().insert(token, call.clone());
        }
        UnderWay {
            calls: self.clone(),
            token,
            call,
        }
    }

    fn get(&self, token: &ProgressToken) -> Option<Arc<Call>> {
        self.lock().get(&number(token)?).cloned()
    }

    /// The call that is under way, when it is the only one.
    fn only(&self) -> Option<Arc<Call>> {
        let calls = self.lock();
        let mut work = calls.values().filter(|call| !call.aside);
        let first = work.next();
        first.filter(|_| work.next().is_none()).cloned()
    }

    /// Whether the server has been given work.
    pub(super) fn is_busy(&self) -> bool {
        self.lock().values().any(|call| !call.aside)
    }

    /// Whether the server waits for an answer of ours.
    pub(super) fn is_asked(&self) -> bool {
        self.0.questions.load(Ordering::Acquire) > 0
    }

    /// Counts a question of the server until what is returned is dropped; none when there are too
    /// many.
    fn question(&self) -> Option<Question> {
        let question = Question(self.clone());
        (self.0.questions.fetch_add(1, Ordering::AcqRel) < MOST_QUESTIONS).then_some(question)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Arc<Call>>> {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question of the server that is being answered.
struct Question(Calls);

impl Drop for Question {
    fn drop(&mut self) {
        self.0.0.questions.fetch_sub(1, Ordering::AcqRel);
        // From here on it is the server's turn again.
        self.0
            .lock()
            .values()
            .for_each(|call| call.alive.notify_one());
    }
}

fn number(token: &ProgressToken) -> Option<i64> {
    match &token.0 {
        NumberOrString::Number(number) => Some(*number),
        NumberOrString::String(text) => text.parse().ok(),
    }
}

/// Takes a call out of the list at its end.
pub(super) struct UnderWay {
    calls: Calls,
    token: Option<i64>,
    pub(super) call: Arc<Call>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.calls.lock().remove(&token);
        }
    }
}

/// Answers a server on our behalf.
pub(crate) struct Handler {
    pub(crate) config: ClientConfig,
    pub(crate) events: Events,
    pub(crate) calls: Calls,
    /// Told when the server says that its tools have changed.
    pub(crate) tools_changed: Arc<Notify>,
    pub(crate) asked: super::asked::Asked,
}

impl Handler {
    /// Answers a question as long as the server waits for it.
    async fn answer<T>(
        &self,
        cx: &RequestContext<RoleClient>,
        work: impl Future<Output = Result<T, ErrorData>>,
    ) -> Result<T, ErrorData> {
        let Some(_question) = self.calls.question() else {
            let words = format!("{MOST_QUESTIONS} questions wait already; ask again later");
            return Err(ErrorData::internal_error(words, None));
        };
        tokio::select! {
            answer = work => answer,
            () = cx.ct.cancelled() => Err(ErrorData::internal_error("nobody waits for the \
                answer", None)),
        }
    }

    fn progressed(&self, params: &ProgressNotificationParam) {
        let Some(call) = self.calls.get(&params.progress_token) else {
            return;
        };
        call.alive.notify_one();
        let share = match params.total {
            Some(total) => format!("{} of {total}", params.progress),
            None => params.progress.to_string(),
        };
        match params.message.as_deref() {
            Some(message) => {
                let message = self.events.secrets().head(message, MOST_TEXT);
                call.progress.report(format!("{share}: {message}"));
            }
            None => call.progress.report(share),
        }
    }

    #[expect(deprecated, reason = "servers of the older protocol log like this")]
    fn logged(&self, params: &levity_rpc::mcp::LoggingMessageNotificationParam) {
        let text = match &params.data {
            serde_json::Value::String(text) => self.events.secrets().head(text, MOST_TEXT),
            other => self.events.secrets().head(&other.to_string(), MOST_TEXT),
        };
        // The protocol does not say which call a line belongs to; with one under way there is no
        // doubt.
        if let Some(call) = self.calls.only() {
            call.alive.notify_one();
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
    reason = "servers of the older protocol ask and log like this"
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
        self.progressed(&params);
    }

    async fn on_logging_message(
        &self,
        params: levity_rpc::mcp::LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.logged(&params);
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
        let uri = self.events.secrets().head(&params.uri, MOST_TEXT);
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
        Ok(self.asked.roots())
    }

    async fn create_message(
        &self,
        params: levity_rpc::mcp::CreateMessageRequestParams,
        cx: RequestContext<RoleClient>,
    ) -> Result<levity_rpc::mcp::CreateMessageResult, ErrorData> {
        self.answer(&cx, self.asked.sample(params)).await
    }

    async fn create_elicitation(
        &self,
        params: levity_rpc::mcp::ElicitRequestParams,
        cx: RequestContext<RoleClient>,
    ) -> Result<levity_rpc::mcp::ElicitResult, ErrorData> {
        self.answer(&cx, self.asked.elicit(params)).await
    }

    async fn on_custom_request(
        &self,
        request: levity_rpc::mcp::CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<levity_rpc::mcp::CustomResult, ErrorData> {
        let method = cut(&request.method, 64).to_owned();
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            format!("`{method}` is not served here"),
            None,
        ))
    }
}
