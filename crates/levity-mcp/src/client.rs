//! One live connection to a server.

mod asked;
mod call;
mod handler;
mod handshake;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use levity_core::{CancelToken, Progress, Timestamp, World};
use levity_rpc::mcp::{
    CancelledNotification, CancelledNotificationParam, ClientRequest, CustomRequest, CustomResult,
    ErrorCode, Peer, PeerRequestOptions, RequestHandle, RequestId, RoleClient, RunningService,
    ServerPeerInfo, ServerResult, ServiceError, Transport, serve_directly,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

pub(crate) use asked::Asked;
pub(crate) use call::ToolCall;
pub(crate) use handler::Handler;
pub(crate) use handshake::{Era, Handshake, Misunderstanding};

use crate::link::Lifeline;
use crate::redact::Redactor;
use crate::{Error, ErrorKind, Result};

/// How much of what a server says about a failure is told.
const MOST_WORDS: usize = 8 << 10;

/// One live connection to a server. Dropped, it ends at once.
pub(crate) struct Client {
    server: Arc<str>,
    /// What was sent and must not be shown, though the server may repeat it.
    secrets: Redactor,
    world: Arc<dyn World>,
    service: RunningService<RoleClient, Handler>,
    lifeline: Option<Arc<dyn Lifeline>>,
    info: ServerPeerInfo,
    ended: watch::Receiver<bool>,
    /// What nobody waits for any more.
    abandoned: mpsc::Sender<Abandoned>,
    abandons: tokio::sync::Mutex<mpsc::Receiver<Abandoned>>,
}

/// Something that nobody waits for any more.
enum Abandoned {
    Request(RequestId),
    Task(String),
}

/// How many of them the server is yet to be told about; more are not told.
const MOST_ABANDONED: usize = 1024;
/// How long telling it may take.
const TELLING: Duration = Duration::from_secs(5);

/// How long to wait for an answer, and who wants to hear of it meanwhile.
pub(crate) struct Patience<'a> {
    /// In all.
    pub(crate) total: Duration,
    /// Without a sign of life.
    pub(crate) idle: Duration,
    pub(crate) progress: Progress,
    pub(crate) cancel: Option<&'a CancelToken>,
    /// Whether it is no work for the server: a question whether it lives, or the stream of its
    /// changes.
    pub(crate) aside: bool,
}

impl Patience<'_> {
    pub(crate) fn of(limit: Duration) -> Self {
        Self {
            total: limit,
            idle: limit,
            progress: Progress::default(),
            cancel: None,
            aside: false,
        }
    }

    /// For what is no work for the server.
    pub(crate) fn aside(limit: Duration) -> Self {
        Self {
            aside: true,
            ..Self::of(limit)
        }
    }
}

impl Client {
    /// Speaks the first words on `transport` and goes on from there.
    pub(crate) async fn connect<T: Transport<RoleClient> + 'static>(
        server: Arc<str>,
        secrets: Redactor,
        transport: T,
        lifeline: Option<Arc<dyn Lifeline>>,
        handshake: Handshake<'_>,
        handler: Handler,
    ) -> Result<Self, (Error, Misunderstanding)> {
        let (ends, ended) = watch::channel(false);
        let mut transport = watched::Watched::new(transport, ends);
        let world = handshake.world.clone();
        let info = match handshake.shake(&mut transport).await {
            Ok(info) => info,
            Err(why) => {
                let mut error = start_error(&server, &secrets, &why);
                if let Some(lifeline) = &lifeline
                    && let Some(death) = lifeline.death().await
                {
                    error = error.with_death(death);
                }
                return Err((error.without(&secrets), why));
            }
        };
        let service = serve_directly(handler, transport, Some(info.clone()));
        let (abandoned, abandons) = mpsc::channel(MOST_ABANDONED);
        let abandons = tokio::sync::Mutex::new(abandons);
        Ok(Self {
            server,
            secrets,
            world,
            service,
            lifeline,
            info,
            ended,
            abandoned,
            abandons,
        })
    }

    /// What the server said about itself.
    pub(crate) fn info(&self) -> &ServerPeerInfo {
        &self.info
    }

    pub(crate) fn era(&self) -> Era {
        Era::of(&self.info.protocol_version)
    }

    /// Whether the connection has ended.
    pub(crate) fn is_over(&self) -> bool {
        *self.ended.borrow()
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Whether the server has been given work that it is not done with.
    pub(crate) fn is_busy(&self) -> bool {
        self.service.service().calls.is_busy()
    }

    /// Tells the server of requests that nobody waits for any more, and returns when the connection
    /// has ended.
    pub(crate) async fn tend(&self) {
        let mut ended = self.ended.clone();
        let mut abandons = self.abandons.lock().await;
        loop {
            let abandoned = tokio::select! {
                _ = ended.wait_for(|ended| *ended) => return,
                abandoned = abandons.recv() => abandoned,
            };
            let Some(abandoned) = abandoned else { return };
            tokio::select! {
                () = self.tell(abandoned) => {}
                () = self.world.sleep(TELLING) => {}
            }
        }
    }

    async fn tell(&self, abandoned: Abandoned) {
        match abandoned {
            Abandoned::Request(id) => {
                let reason = Some("nobody waits for it any more".into());
                let note =
                    CancelledNotification::new(CancelledNotificationParam::new(Some(id), reason));
                let _ = self.peer().send_notification(note.into()).await;
            }
            Abandoned::Task(id) => {
                let _ = self
                    .ask(
                        "tasks/cancel",
                        json!({"taskId": id}),
                        &Patience::of(TELLING),
                    )
                    .await;
            }
        }
    }

    fn end_task(&self, id: String) {
        let _ = self.abandoned.try_send(Abandoned::Task(id));
    }

    /// Sends a request of this method and waits for its answer.
    pub(crate) async fn ask(
        &self,
        method: &str,
        params: Value,
        patience: &Patience<'_>,
    ) -> Result<Value> {
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)));
        self.request(method, request, patience).await
    }

    /// Sends a request and waits for its answer. Its error shows nothing of the server's settings
    /// that is secret.
    pub(crate) async fn request(
        &self,
        method: &str,
        request: ClientRequest,
        patience: &Patience<'_>,
    ) -> Result<Value> {
        self.exchange(method, request, patience)
            .await
            .map_err(|error| error.without(&self.secrets))
    }

    async fn exchange(
        &self,
        method: &str,
        request: ClientRequest,
        patience: &Patience<'_>,
    ) -> Result<Value> {
        let started = self.world.now();
        // When a server does not read, this is where a message waits for room.
        let sent = self
            .peer()
            .send_request_with_option(request, PeerRequestOptions::no_options());
        let sent = tokio::select! {
            biased;
            sent = sent => sent,
            () = cancelled(patience.cancel) => return Err(self.cancelled(method)),
            () = self.world.sleep(patience.total) => return Err(self.late(method, patience.total).await),
        };
        let handle = match sent {
            Ok(handle) => handle,
            Err(error) => return Err(self.explain(method, error).await),
        };
        let mut abandon = Abandon {
            to: &self.abandoned,
            id: Some(handle.id.clone()),
        };
        let answer = self.answer(method, handle, patience, started).await;
        match &answer {
            Err(error) if matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Cancelled) => {}
            _ => abandon.id = None,
        }
        answer
    }

    async fn answer(
        &self,
        method: &str,
        mut handle: RequestHandle<RoleClient>,
        patience: &Patience<'_>,
        started: Timestamp,
    ) -> Result<Value> {
        let calls = &self.service.service().calls;
        let under_way = calls.begin(
            &handle.progress_token,
            patience.progress.clone(),
            patience.aside,
        );
        let mut alive = started;
        loop {
            let now = self.world.now();
            if calls.is_asked() {
                // It is the server that waits, for us.
                alive = now;
            }
            let left = patience.total.saturating_sub(now.since(started));
            let quiet = patience.idle.saturating_sub(now.since(alive));
            if left.is_zero() || quiet.is_zero() {
                let limit = if left.is_zero() {
                    patience.total
                } else {
                    patience.idle
                };
                return Err(self.late(method, limit).await);
            }
            tokio::select! {
                biased;
                answer = &mut handle.rx => {
                    return match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
                        Ok(result) => Ok(into_value(result)),
                        Err(error) => Err(self.explain(method, error).await),
                    };
                }
                () = cancelled(patience.cancel) => return Err(self.cancelled(method)),
                () = under_way.call.alive.notified() => alive = self.world.now(),
                () = self.world.sleep(left.min(quiet)) => {}
            }
        }
    }

    /// Does work that began at `started` and takes several requests, within the time that there is
    /// for all of them.
    pub(crate) async fn in_time<T>(
        &self,
        method: &str,
        started: Timestamp,
        patience: &Patience<'_>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let left = patience
            .total
            .saturating_sub(self.world.now().since(started));
        tokio::select! {
            biased;
            result = work => result,
            () = cancelled(patience.cancel) => Err(self.cancelled(method)),
            () = self.world.sleep(left) => Err(self.late(method, patience.total).await),
        }
    }

    fn cancelled(&self, method: &str) -> Error {
        Error::new(
            ErrorKind::Cancelled,
            self.server.clone(),
            format!("`{method}` was cancelled"),
        )
    }

    /// Ends the connection, without waiting for it; requests that are under way fail.
    pub(crate) fn end(&self) {
        self.service.cancellation_token().cancel();
    }

    /// Ends the connection in order, within `grace` and a little more.
    pub(crate) async fn close(&self, grace: Duration) {
        self.end();
        let mut ended = self.ended.clone();
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => {}
            () = self.world.sleep(grace) => {}
        }
        if let Some(lifeline) = &self.lifeline {
            lifeline.end(grace).await;
        }
    }

    async fn late(&self, method: &str, limit: Duration) -> Error {
        let error = Error::timeout(&self.server, &format!("`{method}`"), limit);
        self.with_last_words(error).await
    }

    async fn with_last_words(&self, error: Error) -> Error {
        match &self.lifeline {
            Some(lifeline) => match lifeline.death().await {
                Some(death) => error.with_death(death),
                None => error,
            },
            None => error,
        }
    }

    async fn explain(&self, method: &str, error: ServiceError) -> Error {
        let server = self.server.clone();
        match error {
            ServiceError::McpError(data) => {
                if let Some(error) = crate::link::failure::read(&server, &data) {
                    return match error.kind() {
                        ErrorKind::Closed | ErrorKind::Protocol => {
                            self.with_last_words(error).await
                        }
                        _ => error,
                    };
                }
                let kind = refusal_kind(data.code);
                let words = self.secrets.head(&data.message, MOST_WORDS);
                Error::new(kind, server, format!("`{method}` failed: {words}"))
            }
            ServiceError::Cancelled { reason } => {
                let reason = reason.unwrap_or_default();
                let message = format!(
                    "`{method}` was cancelled: {}",
                    self.secrets.head(&reason, MOST_WORDS)
                );
                Error::new(ErrorKind::Cancelled, server, message)
            }
            ServiceError::TransportSend(error) => match ours(&error) {
                Some(error) => error,
                None => {
                    let message = format!(
                        "`{method}` could not be sent: {}",
                        self.secrets.head(&chain(&error), MOST_WORDS)
                    );
                    self.with_last_words(Error::new(ErrorKind::Closed, server, message))
                        .await
                }
            },
            ServiceError::TransportClosed => {
                let message = format!("the connection ended before `{method}` was answered");
                self.with_last_words(Error::new(ErrorKind::Closed, server, message))
                    .await
            }
            other => Error::new(
                ErrorKind::Protocol,
                server,
                format!("`{method}` failed: {other}"),
            ),
        }
    }
}

/// Says, when dropped, that nobody waits for an answer.
struct Abandon<'a> {
    to: &'a mpsc::Sender<Abandoned>,
    id: Option<RequestId>,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let _ = self.to.try_send(Abandoned::Request(id));
        }
    }
}

async fn cancelled(token: Option<&CancelToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => std::future::pending().await,
    }
}

fn refusal_kind(code: ErrorCode) -> ErrorKind {
    match code {
        ErrorCode::METHOD_NOT_FOUND => ErrorKind::Unsupported,
        code => ErrorKind::Refused(code.0),
    }
}

/// Our own error, where a transport wrapped one.
fn ours(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(ours) = error.downcast_ref::<Error>() {
            return Some(ours.clone());
        }
        next = error.source();
    }
    None
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        next = cause.source();
    }
    text
}

fn start_error(server: &Arc<str>, secrets: &Redactor, why: &Misunderstanding) -> Error {
    let server = server.clone();
    match why {
        Misunderstanding::Closed => Error::new(
            ErrorKind::Start,
            server,
            "the connection ended before the server was ready",
        ),
        Misunderstanding::Unanswered => {
            Error::new(ErrorKind::Start, server, "the server does not answer")
        }
        Misunderstanding::Refused(data) => {
            let words = secrets.head(&data.message, MOST_WORDS);
            Error::new(
                ErrorKind::Start,
                server,
                format!("the server refused to start: {words}"),
            )
        }
        Misunderstanding::Odd(words) => Error::new(ErrorKind::Protocol, server, words.clone()),
        Misunderstanding::Send(error) => ours(&**error).unwrap_or_else(|| {
            let words = secrets.head(&chain(&**error), MOST_WORDS);
            Error::new(
                ErrorKind::Start,
                server,
                format!("the server cannot be reached: {words}"),
            )
        }),
    }
}

/// A result as JSON, whatever rmcp took it for.
pub(crate) fn value_of(result: &ServerResult) -> Value {
    match result {
        ServerResult::CustomResult(CustomResult(value)) => value.clone(),
        other => serde_json::to_value(other).unwrap_or_default(),
    }
}

fn into_value(result: ServerResult) -> Value {
    match result {
        ServerResult::CustomResult(CustomResult(value)) => value,
        other => serde_json::to_value(&other).unwrap_or_default(),
    }
}
