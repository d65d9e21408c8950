//! Drives the work for a request until it is done, or until the client has to answer something.
//!
//! The same work can be driven in three ways: in the foreground of a request with questions as
//! requests, in the foreground until a question, and in the background as a task. [`CallWork`]
//! holds the work and its open questions, and dropping it cancels the work. A panic of the work
//! becomes an error.

#![expect(
    deprecated,
    reason = "logging is deprecated in the protocol, but clients still use it"
)]

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use levity_core::{CancelGuard, ToolError, World};
use levity_mcp::ResourceContent;
use levity_rpc::mcp::{
    ClientResult, CustomRequest, InputRequest, InputRequests, InputResponses, LoggingLevel,
    LoggingMessageNotification, LoggingMessageNotificationParam, PeerRequestOptions,
    ProgressNotification, ProgressNotificationParam, RequestContext, RoleServer,
    ServerNotification, ServerRequest, ServiceError,
};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::ask::{AskError, AskErrorKind};
use super::client_channel::{ClientChannel, ClientNotification, Question, WorkInbox};
use super::{ClientLogLevel, HandlerReply, PromptReply, RequestError};

/// The result of the work.
#[derive(Debug)]
pub(super) enum Product {
    Tool(HandlerReply),
    Prompt(PromptReply),
    Read(Vec<ResourceContent>),
}

pub(super) type Outcome = Result<Product, RequestError>;

/// The work for one request, and its pending questions to the client.
pub(super) struct CallWork {
    work: Work,
    inbox: WorkInbox,
    pub(super) channel: Arc<ClientChannel>,
    /// Questions that were sent to the client, or are about to be.
    open: BTreeMap<String, Question>,
    next: u32,
    /// Dropped once the work is a task.
    became_task: Option<oneshot::Sender<()>>,
    /// Cancels the work when no request waits for it any more.
    _cancel: CancelGuard,
}

enum Work {
    /// Runs only while its request is being handled.
    Foreground(BoxFuture<'static, Outcome>),
    /// Runs in the background, between requests as well.
    Background(JoinSet<Outcome>),
}

/// The state in which a call stops.
pub(super) enum Step {
    Done(Outcome),
    /// The client has to answer first.
    Open(InputRequests),
    /// The work continues as a task.
    Task,
    /// The client cancelled the request.
    Cancelled,
}

/// An event of a call that runs without a request.
pub(super) enum Event {
    Done(Outcome),
    /// There is another question.
    Question,
    Notification(ClientNotification),
}

impl CallWork {
    pub(super) fn new(
        channel: Arc<ClientChannel>,
        inbox: WorkInbox,
        cancel: CancelGuard,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) -> Self {
        let work = AssertUnwindSafe(work)
            .catch_unwind()
            .map(|ended| ended.unwrap_or_else(|_| Err(panicked())));
        Self {
            work: Work::Foreground(work.boxed()),
            inbox,
            channel,
            open: BTreeMap::new(),
            next: 1,
            became_task: None,
            _cancel: cancel,
        }
    }

    /// Drives the work until it is done; questions are sent to the client as requests. For versions
    /// before 2026-07-28.
    pub(super) async fn drive_with_requests(
        &mut self,
        context: &RequestContext<RoleServer>,
        world: &dyn World,
        limit: Duration,
    ) -> Step {
        let mut pending = FuturesUnordered::new();
        let mut sender = NotificationSender::default();
        loop {
            tokio::select! {
                biased;
                done = &mut self.work => {
                    // Open questions are cancelled.
                    while let Some(Some(())) = pending.next().now_or_never() {}
                    return self.done(done, sender, context).await;
                }
                () = context.ct.cancelled() => return Step::Cancelled,
                Some(()) = pending.next(), if !pending.is_empty() => {}
                () = &mut sender, if sender.is_busy() => {}
                Some(note) = self.inbox.notifications.recv(), if !sender.is_busy() => {
                    sender.start(note, context);
                }
                Some(question) = self.inbox.asks.recv() => {
                    pending.push(send_question(question, context, world, limit));
                }
            }
        }
    }

    /// Drives the work until it is done or the client has to answer something. For versions since
    /// 2026-07-28.
    pub(super) async fn drive_until_question(
        &mut self,
        context: &RequestContext<RoleServer>,
    ) -> Step {
        let mut sender = NotificationSender::default();
        loop {
            if !self.open.is_empty() {
                if let Some(done) = self.collect_questions().await {
                    return self.done(done, sender, context).await;
                }
                let requests = self.open_requests();
                if !requests.is_empty() {
                    sender.finish(&mut self.inbox, context).await;
                    return Step::Open(requests);
                }
            }
            tokio::select! {
                biased;
                done = &mut self.work => return self.done(done, sender, context).await,
                () = context.ct.cancelled() => return Step::Cancelled,
                Some(waiter) = self.inbox.task.recv() => {
                    self.became_task = Some(waiter);
                    sender.finish(&mut self.inbox, context).await;
                    return Step::Task;
                }
                () = &mut sender, if sender.is_busy() => {}
                Some(note) = self.inbox.notifications.recv(), if !sender.is_busy() => {
                    sender.start(note, context);
                }
                Some(question) = self.inbox.asks.recv() => self.open(question),
            }
        }
    }

    /// Drives the work as a task until the next event. Do not call it again after the work is done.
    pub(super) async fn next(&mut self) -> Event {
        // Dropping the sender wakes the work that waits to become a task.
        drop(self.became_task.take());
        loop {
            tokio::select! {
                biased;
                done = &mut self.work => return Event::Done(done),
                Some(question) = self.inbox.asks.recv() => {
                    self.open(question);
                    return Event::Question;
                }
                Some(note) = self.inbox.notifications.recv() => return Event::Notification(note),
                // The call is already a task.
                Some(waiter) = self.inbox.task.recv() => drop(waiter),
            }
        }
    }

    /// Returns the questions that the work still waits for.
    pub(super) fn open_requests(&mut self) -> InputRequests {
        self.open.retain(|_, question| !question.reply.is_closed());
        self.requests()
    }

    /// Delivers the client's answers. Answers without a question are ignored.
    pub(super) fn answer(&mut self, answers: InputResponses) {
        for (key, answer) in answers {
            if let Some(question) = self.open.remove(&key) {
                question.answer(answer);
            }
        }
    }

    /// Moves the work to the background, for as long as the call exists.
    pub(super) fn move_to_background(&mut self) {
        let Work::Foreground(work) = &mut self.work else {
            return;
        };
        let work = std::mem::replace(work, std::future::pending().boxed());
        let mut tasks = JoinSet::new();
        tasks.spawn(work);
        self.work = Work::Background(tasks);
    }

    /// Collects questions that are asked at the same time; some arrive a few steps after the first.
    ///
    /// Handlers often ask several questions with `join!`. They arrive within a few polls of each
    /// other, so the work is polled eight times before the questions are sent together.
    async fn collect_questions(&mut self) -> Option<Outcome> {
        for _ in 0..8 {
            tokio::select! {
                biased;
                done = &mut self.work => return Some(done),
                () = tokio::task::yield_now() => {}
            }
            while let Ok(question) = self.inbox.asks.try_recv() {
                self.open(question);
            }
        }
        None
    }

    /// Registers a question under its name, or under `ask-1`, `ask-2`, ..
    fn open(&mut self, question: Question) {
        let mut key = question.name.as_ref().map(ToString::to_string);
        // Each open question has a unique name.
        while key.as_ref().is_none_or(|key| self.open.contains_key(key)) {
            key = Some(match &question.name {
                Some(name) => format!("{name}-{}", self.next),
                None => format!("ask-{}", self.next),
            });
            self.next = self.next.wrapping_add(1);
        }
        self.open.insert(key.unwrap_or_default(), question);
    }

    fn requests(&self) -> InputRequests {
        self.open
            .iter()
            .map(|(key, question)| (key.clone(), (*question.request).clone()))
            .collect()
    }

    async fn done(
        &mut self,
        done: Outcome,
        sender: NotificationSender,
        context: &RequestContext<RoleServer>,
    ) -> Step {
        sender.finish(&mut self.inbox, context).await;
        Step::Done(done)
    }
}

impl Future for Work {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        match &mut *self {
            Self::Foreground(work) => work.as_mut().poll(cx),
            Self::Background(tasks) => tasks.poll_join_next(cx).map(|ended| match ended {
                Some(Ok(outcome)) => outcome,
                _ => Err(panicked()),
            }),
        }
    }
}

fn panicked() -> RequestError {
    ToolError::failed("the tool panicked").into()
}

/// Sends a question to a client as a request. If the answer is no longer needed, the request is
/// cancelled.
async fn send_question(
    question: Question,
    context: &RequestContext<RoleServer>,
    world: &dyn World,
    limit: Duration,
) {
    let Question {
        request, mut reply, ..
    } = question;
    let timed_out = || AskError::new(AskErrorKind::Timeout, "the client did not answer in time");
    let answer = {
        let mut over = pin!(async {
            tokio::select! {
                () = world.sleep(limit) => {}
                () = reply.closed() => {}
            }
        });
        let options = PeerRequestOptions::no_options();
        let sent = tokio::select! {
            sent = context.peer.send_cancellable_request(server_request(*request), options) => {
                Some(sent)
            }
            () = &mut over => None,
        };
        match sent {
            None => Err(timed_out()),
            Some(Err(error)) => parse_response(Err(error)),
            Some(Ok(mut pending)) => tokio::select! {
                answer = &mut pending.rx => {
                    parse_response(answer.unwrap_or(Err(ServiceError::TransportClosed)))
                }
                () = &mut over => {
                    let _ = pending.cancel(Some("the answer is no longer needed".to_owned())).await;
                    Err(timed_out())
                }
            },
        }
    };
    // The work may have stopped waiting.
    let _ = reply.send(answer);
}

fn server_request(request: InputRequest) -> ServerRequest {
    match request {
        InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
        InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
        InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
        other => unreachable_request(&other),
    }
}

/// Handles other kinds of requests, which `ask_wire` never creates.
fn unreachable_request(request: &InputRequest) -> ServerRequest {
    let value = serde_json::to_value(request).unwrap_or_default();
    let method = value
        .get("method")
        .and_then(Value::as_str)
        .unwrap_or_default();
    ServerRequest::CustomRequest(CustomRequest::new(method, value.get("params").cloned()))
}

/// An error message of the client is cut to 512 characters, because it may reach the model.
fn parse_response(answer: Result<ClientResult, ServiceError>) -> Result<Value, AskError> {
    match answer {
        Ok(result) => serde_json::to_value(result)
            .map_err(|_| AskError::bad("the client's answer is not valid JSON")),
        Err(ServiceError::McpError(error)) => {
            let message: String = error.message.chars().take(512).collect();
            Err(AskError::new(
                AskErrorKind::Refused,
                format!("the client refused: {message}"),
            ))
        }
        Err(ServiceError::UnexpectedResponse) => {
            Err(AskError::bad("the client sent another kind of response"))
        }
        Err(_) => Err(AskError::gone()),
    }
}

/// Sends notifications to the client one at a time, while the work continues: a client that does
/// not read does not delay it.
#[derive(Default)]
struct NotificationSender(Option<BoxFuture<'static, ()>>);

impl NotificationSender {
    fn is_busy(&self) -> bool {
        self.0.is_some()
    }

    fn start(&mut self, note: ClientNotification, context: &RequestContext<RoleServer>) {
        let Some(notification) = notification(note, context) else {
            return;
        };
        let peer = context.peer.clone();
        self.0 = Some(async move { drop(peer.send_notification(notification).await) }.boxed());
    }

    /// Sends all pending notifications, so that they arrive before the result.
    async fn finish(mut self, inbox: &mut WorkInbox, context: &RequestContext<RoleServer>) {
        loop {
            if let Some(sender) = self.0.take() {
                sender.await;
            }
            match inbox.notifications.try_recv() {
                Ok(note) => self.start(note, context),
                Err(_) => return,
            }
        }
    }
}

impl Future for NotificationSender {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let done = self
            .0
            .as_mut()
            .map_or(Poll::Ready(()), |sender| sender.as_mut().poll(cx));
        if done.is_ready() {
            self.0 = None;
        }
        done
    }
}

fn notification(
    note: ClientNotification,
    context: &RequestContext<RoleServer>,
) -> Option<ServerNotification> {
    Some(match note {
        ClientNotification::Progress { done, total, text } => {
            let mut params =
                ProgressNotificationParam::new(context.meta.get_progress_token()?, done);
            (params.total, params.message) = (total, text);
            ServerNotification::ProgressNotification(ProgressNotification::new(params))
        }
        ClientNotification::Log {
            level,
            logger,
            data,
        } => {
            let mut params = LoggingMessageNotificationParam::new(logging(level), data);
            params.logger = logger;
            ServerNotification::LoggingMessageNotification(LoggingMessageNotification::new(params))
        }
    })
}

fn logging(level: ClientLogLevel) -> LoggingLevel {
    match level {
        ClientLogLevel::Debug => LoggingLevel::Debug,
        ClientLogLevel::Info => LoggingLevel::Info,
        ClientLogLevel::Notice => LoggingLevel::Notice,
        ClientLogLevel::Warning => LoggingLevel::Warning,
        ClientLogLevel::Error => LoggingLevel::Error,
        ClientLogLevel::Critical => LoggingLevel::Critical,
        ClientLogLevel::Alert => LoggingLevel::Alert,
        ClientLogLevel::Emergency => LoggingLevel::Emergency,
    }
}

/// Converts the protocol's log level.
pub(super) fn level(level: LoggingLevel) -> ClientLogLevel {
    match level {
        LoggingLevel::Debug => ClientLogLevel::Debug,
        LoggingLevel::Info => ClientLogLevel::Info,
        LoggingLevel::Notice => ClientLogLevel::Notice,
        LoggingLevel::Warning => ClientLogLevel::Warning,
        LoggingLevel::Error => ClientLogLevel::Error,
        LoggingLevel::Critical => ClientLogLevel::Critical,
        LoggingLevel::Alert => ClientLogLevel::Alert,
        LoggingLevel::Emergency => ClientLogLevel::Emergency,
    }
}
