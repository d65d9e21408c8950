//! Carries the work for a request on until it is done, or until the client has to say something
//! first.

#![expect(
    deprecated,
    reason = "logging is on its way out of the protocol, and clients have it"
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
use super::desk::{Asked, Desk, Inbox, Note};
use super::{ClientLogLevel, HandlerReply, PromptReply, RequestError};

/// What work ends with.
#[derive(Debug)]
pub(super) enum Product {
    Tool(HandlerReply),
    Prompt(PromptReply),
    Read(Vec<ResourceContent>),
}

pub(super) type Outcome = Result<Product, RequestError>;

/// The work for one request, and what it wants of the client.
pub(super) struct Case {
    work: Work,
    inbox: Inbox,
    pub(super) desk: Arc<Desk>,
    /// Questions that the client has been asked, or is about to be.
    open: BTreeMap<String, Asked>,
    next: u32,
    /// Let go once the work is a task.
    became_task: Option<oneshot::Sender<()>>,
    /// Tells the work that nobody waits for it any more, however that comes about.
    _cancel: CancelGuard,
}

enum Work {
    /// Goes on only while its request is there.
    Here(BoxFuture<'static, Outcome>),
    /// Goes on by itself, between requests too.
    Away(JoinSet<Outcome>),
}

/// How far a case has come.
pub(super) enum Step {
    Done(Outcome),
    /// The client has to answer first.
    Open(InputRequests),
    /// The work wants to go on as a task.
    Task,
    /// Nobody wants it any more.
    Cancelled,
}

/// What happened in a case that goes on without a request.
pub(super) enum Event {
    Done(Outcome),
    /// There is a question more.
    Asked,
    Note(Note),
}

impl Case {
    pub(super) fn new(
        desk: Arc<Desk>,
        inbox: Inbox,
        cancel: CancelGuard,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) -> Self {
        let work = AssertUnwindSafe(work)
            .catch_unwind()
            .map(|ended| ended.unwrap_or_else(|_| Err(panicked())));
        Self {
            work: Work::Here(work.boxed()),
            inbox,
            desk,
            open: BTreeMap::new(),
            next: 1,
            became_task: None,
            _cancel: cancel,
        }
    }

    /// Goes on until it is done; the client is asked by requests. For versions before 2026-07-28.
    pub(super) async fn ask_along(
        &mut self,
        context: &RequestContext<RoleServer>,
        world: &dyn World,
        limit: Duration,
    ) -> Step {
        let mut asking = FuturesUnordered::new();
        let mut telling = Telling::default();
        loop {
            tokio::select! {
                biased;
                done = &mut self.work => {
                    // Questions that are still open are taken back.
                    while let Some(Some(())) = asking.next().now_or_never() {}
                    return self.done(done, telling, context).await;
                }
                () = context.ct.cancelled() => return Step::Cancelled,
                Some(()) = asking.next(), if !asking.is_empty() => {}
                () = &mut telling, if telling.is_busy() => {}
                Some(note) = self.inbox.notes.recv(), if !telling.is_busy() => telling.tell(note, context),
                Some(asked) = self.inbox.asks.recv() => asking.push(put(asked, context, world, limit)),
            }
        }
    }

    /// Goes on until it is done or the client has to answer something. Since 2026-07-28.
    pub(super) async fn ask_at_end(&mut self, context: &RequestContext<RoleServer>) -> Step {
        let mut telling = Telling::default();
        loop {
            if !self.open.is_empty() {
                if let Some(done) = self.gather().await {
                    return self.done(done, telling, context).await;
                }
                let requests = self.open_requests();
                if !requests.is_empty() {
                    telling.finish(&mut self.inbox, context).await;
                    return Step::Open(requests);
                }
            }
            tokio::select! {
                biased;
                done = &mut self.work => return self.done(done, telling, context).await,
                () = context.ct.cancelled() => return Step::Cancelled,
                Some(became) = self.inbox.task.recv() => {
                    self.became_task = Some(became);
                    telling.finish(&mut self.inbox, context).await;
                    return Step::Task;
                }
                () = &mut telling, if telling.is_busy() => {}
                Some(note) = self.inbox.notes.recv(), if !telling.is_busy() => telling.tell(note, context),
                Some(asked) = self.inbox.asks.recv() => self.open(asked),
            }
        }
    }

    /// Goes on as a task, until something happens. Not to be called again after it is done.
    pub(super) async fn next(&mut self) -> Event {
        // Whoever waits for that it becomes a task is let go.
        drop(self.became_task.take());
        loop {
            tokio::select! {
                biased;
                done = &mut self.work => return Event::Done(done),
                Some(asked) = self.inbox.asks.recv() => {
                    self.open(asked);
                    return Event::Asked;
                }
                Some(note) = self.inbox.notes.recv() => return Event::Note(note),
                // It is a task already.
                Some(became) = self.inbox.task.recv() => drop(became),
            }
        }
    }

    /// The questions that somebody still waits for an answer to.
    pub(super) fn open_requests(&mut self) -> InputRequests {
        self.open.retain(|_, asked| !asked.reply.is_closed());
        self.requests()
    }

    /// Hands over what the client has answered. Answers to what nobody asked are left alone.
    pub(super) fn answer(&mut self, answers: InputResponses) {
        for (key, answer) in answers {
            if let Some(asked) = self.open.remove(&key) {
                asked.answer(answer);
            }
        }
    }

    /// Lets the work go on by itself, for as long as the case is there.
    pub(super) fn send_away(&mut self) {
        let Work::Here(work) = &mut self.work else {
            return;
        };
        let work = std::mem::replace(work, std::future::pending().boxed());
        let mut tasks = JoinSet::new();
        tasks.spawn(work);
        self.work = Work::Away(tasks);
    }

    /// Questions that are asked at the same time belong together; some are a few steps behind the
    /// first.
    async fn gather(&mut self) -> Option<Outcome> {
        for _ in 0..8 {
            tokio::select! {
                biased;
                done = &mut self.work => return Some(done),
                () = tokio::task::yield_now() => {}
            }
            while let Ok(asked) = self.inbox.asks.try_recv() {
                self.open(asked);
            }
        }
        None
    }

    fn open(&mut self, asked: Asked) {
        let mut key = asked.name.as_ref().map(ToString::to_string);
        // No two questions are open under one name.
        while key.as_ref().is_none_or(|key| self.open.contains_key(key)) {
            key = Some(match &asked.name {
                Some(name) => format!("{name}-{}", self.next),
                None => format!("ask-{}", self.next),
            });
            self.next = self.next.wrapping_add(1);
        }
        self.open.insert(key.unwrap_or_default(), asked);
    }

    fn requests(&self) -> InputRequests {
        self.open
            .iter()
            .map(|(key, asked)| (key.clone(), (*asked.request).clone()))
            .collect()
    }

    async fn done(
        &mut self,
        done: Outcome,
        telling: Telling,
        context: &RequestContext<RoleServer>,
    ) -> Step {
        telling.finish(&mut self.inbox, context).await;
        Step::Done(done)
    }
}

impl Future for Work {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        match &mut *self {
            Self::Here(work) => work.as_mut().poll(cx),
            Self::Away(tasks) => tasks.poll_join_next(cx).map(|ended| match ended {
                Some(Ok(outcome)) => outcome,
                _ => Err(panicked()),
            }),
        }
    }
}

fn panicked() -> RequestError {
    ToolError::failed("it panicked").into()
}

/// Puts a question to a client as a request of its own. The client is told when nobody wants its
/// answer any more.
async fn put(
    asked: Asked,
    context: &RequestContext<RoleServer>,
    world: &dyn World,
    limit: Duration,
) {
    let Asked {
        request, mut reply, ..
    } = asked;
    let in_vain = || AskError::new(AskErrorKind::Timeout, "the client did not answer in time");
    let answer = {
        let mut over = pin!(async {
            tokio::select! {
                () = world.sleep(limit) => {}
                () = reply.closed() => {}
            }
        });
        let options = PeerRequestOptions::no_options();
        let sent = tokio::select! {
            sent = context.peer.send_cancellable_request(server_request(*request), options) => Some(sent),
            () = &mut over => None,
        };
        match sent {
            None => Err(in_vain()),
            Some(Err(error)) => told(Err(error)),
            Some(Ok(mut asking)) => tokio::select! {
                answer = &mut asking.rx => told(answer.unwrap_or(Err(ServiceError::TransportClosed))),
                () = &mut over => {
                    let _ = asking.cancel(Some("the answer is not waited for any \
                        more".to_owned())).await;
                    Err(in_vain())
                }
            },
        }
    };
    // Who asked may have stopped waiting.
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

/// There are three kinds of questions, and `answer` makes no other.
fn unreachable_request(request: &InputRequest) -> ServerRequest {
    let value = serde_json::to_value(request).unwrap_or_default();
    let method = value
        .get("method")
        .and_then(Value::as_str)
        .unwrap_or_default();
    ServerRequest::CustomRequest(CustomRequest::new(method, value.get("params").cloned()))
}

fn told(answer: Result<ClientResult, ServiceError>) -> Result<Value, AskError> {
    match answer {
        Ok(result) => serde_json::to_value(result)
            .map_err(|_| AskError::bad("the client's answer cannot be read")),
        Err(ServiceError::McpError(error)) => {
            let message: String = error.message.chars().take(512).collect();
            Err(AskError::new(
                AskErrorKind::Refused,
                format!("the client refused: {message}"),
            ))
        }
        Err(ServiceError::UnexpectedResponse) => {
            Err(AskError::bad("the client answered something else"))
        }
        Err(_) => Err(AskError::gone()),
    }
}

/// Tells the client one thing at a time. The work goes on meanwhile: who does not read does not
/// hold it up.
#[derive(Default)]
struct Telling(Option<BoxFuture<'static, ()>>);

impl Telling {
    fn is_busy(&self) -> bool {
        self.0.is_some()
    }

    fn tell(&mut self, note: Note, context: &RequestContext<RoleServer>) {
        let Some(notification) = notification(note, context) else {
            return;
        };
        let peer = context.peer.clone();
        self.0 = Some(async move { drop(peer.send_notification(notification).await) }.boxed());
    }

    /// Tells all that is left, so that it comes before the result.
    async fn finish(mut self, inbox: &mut Inbox, context: &RequestContext<RoleServer>) {
        loop {
            if let Some(telling) = self.0.take() {
                telling.await;
            }
            match inbox.notes.try_recv() {
                Ok(note) => self.tell(note, context),
                Err(_) => return,
            }
        }
    }
}

impl Future for Telling {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let done = self
            .0
            .as_mut()
            .map_or(Poll::Ready(()), |telling| telling.as_mut().poll(cx));
        if done.is_ready() {
            self.0 = None;
        }
        done
    }
}

fn notification(note: Note, context: &RequestContext<RoleServer>) -> Option<ServerNotification> {
    Some(match note {
        Note::Progress { done, total, text } => {
            let mut params =
                ProgressNotificationParam::new(context.meta.get_progress_token()?, done);
            (params.total, params.message) = (total, text);
            ServerNotification::ProgressNotification(ProgressNotification::new(params))
        }
        Note::Log {
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

/// The level from which on a client wants to know things.
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
