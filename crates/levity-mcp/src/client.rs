//! A connection to one server.
//!
//! rmcp's service numbers and routes messages; this module adds what levity promises beside that.
//! Each request has a total timeout and one without activity. A request that its caller drops is
//! cancelled on the server: `Drop` cannot await, so the id goes into a bounded queue that the
//! supervisor empties (`process_cancellations`). Errors get the exit status of the process or its
//! last stderr output, and are masked before they leave.

mod call;
mod handler;
mod handshake;
mod host_services;
mod observed_transport;

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

pub(crate) use call::ToolCall;
pub(crate) use handler::Handler;
pub(crate) use handshake::{Era, Handshake, HandshakeError};
pub(crate) use host_services::HostServices;

use crate::link::ServerProcess;
use crate::redact::Redactor;
use crate::{Error, ErrorKind, Result};

/// The maximum length of a server's error text that levity reports, in bytes.
const MAX_ERROR_TEXT: usize = 8 << 10;

/// A connection to one server. Dropping it closes the connection at once.
pub(crate) struct Client {
    server: Arc<str>,
    /// The secrets that were sent to the server; the server may repeat them.
    secrets: Redactor,
    world: Arc<dyn World>,
    service: RunningService<RoleClient, Handler>,
    process: Option<Arc<dyn ServerProcess>>,
    info: ServerPeerInfo,
    ended: watch::Receiver<bool>,
    /// The requests and tasks that no caller waits for any more.
    cancellations: mpsc::Sender<Cancellation>,
    cancellation_queue: tokio::sync::Mutex<mpsc::Receiver<Cancellation>>,
}

/// A request or task that no caller waits for any more.
enum Cancellation {
    Request(RequestId),
    Task(String),
}

/// The maximum number of queued cancellations; further ones are not sent.
const MAX_CANCELLATIONS: usize = 1024;
/// The timeout for sending one cancellation.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeouts of a request, and its progress and cancellation.
pub(crate) struct RequestLimits<'a> {
    /// The timeout for the whole request.
    pub(crate) total: Duration,
    /// The maximum time without activity of the server.
    pub(crate) idle: Duration,
    pub(crate) progress: Progress,
    pub(crate) cancel: Option<&'a CancelToken>,
    /// Marks a request that is not work for the server: a ping, or the stream of changes.
    pub(crate) background: bool,
}

impl RequestLimits<'_> {
    /// Creates limits with one timeout for both the whole request and its silence.
    pub(crate) fn within(limit: Duration) -> Self {
        Self {
            total: limit,
            idle: limit,
            progress: Progress::default(),
            cancel: None,
            background: false,
        }
    }

    /// Creates limits for a request that is not work for the server.
    pub(crate) fn background(limit: Duration) -> Self {
        Self {
            background: true,
            ..Self::within(limit)
        }
    }
}

impl Client {
    /// Performs the handshake on `transport` and starts the connection.
    pub(crate) async fn connect<T: Transport<RoleClient> + 'static>(
        server: Arc<str>,
        secrets: Redactor,
        transport: T,
        process: Option<Arc<dyn ServerProcess>>,
        handshake: Handshake<'_>,
        handler: Handler,
    ) -> Result<Self, (Error, HandshakeError)> {
        let (ends, ended) = watch::channel(false);
        let mut transport = observed_transport::ObservedTransport::new(transport, ends);
        let world = handshake.world.clone();
        let info = match handshake.perform(&mut transport).await {
            Ok(info) => info,
            Err(failure) => {
                let mut error = start_error(&server, &secrets, &failure);
                if let Some(process) = &process
                    && let Some(death) = process.exit_status().await
                {
                    error = error.with_exit(death);
                }
                return Err((error.redacted(&secrets), failure));
            }
        };
        let service = serve_directly(handler, transport, Some(info.clone()));
        let (cancellations, cancellation_queue) = mpsc::channel(MAX_CANCELLATIONS);
        let cancellation_queue = tokio::sync::Mutex::new(cancellation_queue);
        Ok(Self {
            server,
            secrets,
            world,
            service,
            process,
            info,
            ended,
            cancellations,
            cancellation_queue,
        })
    }

    /// Returns the information that the server sent about itself.
    pub(crate) fn info(&self) -> &ServerPeerInfo {
        &self.info
    }

    /// Returns the generation of the protocol that the handshake agreed on.
    pub(crate) fn era(&self) -> Era {
        Era::of(&self.info.protocol_version)
    }

    /// Returns `true` if the connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Returns rmcp's handle for sending messages.
    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Returns `true` if the server has unfinished work.
    pub(crate) fn is_busy(&self) -> bool {
        self.service.service().calls.is_busy()
    }

    /// Sends cancellations for requests that no caller waits for, until the connection ends.
    pub(crate) async fn process_cancellations(&self) {
        let mut ended = self.ended.clone();
        let mut cancellation_queue = self.cancellation_queue.lock().await;
        loop {
            let cancellation = tokio::select! {
                _ = ended.wait_for(|ended| *ended) => return,
                cancellation = cancellation_queue.recv() => cancellation,
            };
            let Some(cancellation) = cancellation else {
                return;
            };
            tokio::select! {
                () = self.send_cancellation(cancellation) => {}
                () = self.world.sleep(CANCEL_TIMEOUT) => {}
            }
        }
    }

    /// Sends one cancellation: a notification for a request, or a request for a task.
    async fn send_cancellation(&self, cancellation: Cancellation) {
        match cancellation {
            Cancellation::Request(id) => {
                let reason = Some("the caller no longer waits for it".into());
                let note =
                    CancelledNotification::new(CancelledNotificationParam::new(Some(id), reason));
                let _ = self.peer().send_notification(note.into()).await;
            }
            Cancellation::Task(id) => {
                let _ = self
                    .send_request(
                        "tasks/cancel",
                        json!({"taskId": id}),
                        &RequestLimits::within(CANCEL_TIMEOUT),
                    )
                    .await;
            }
        }
    }

    /// Queues the cancellation of a task; it is lost if 1,024 others wait.
    fn queue_task_cancellation(&self, id: String) {
        let _ = self.cancellations.try_send(Cancellation::Task(id));
    }

    /// Sends a request with this method and waits for the response.
    pub(crate) async fn send_request(
        &self,
        method: &str,
        params: Value,
        limits: &RequestLimits<'_>,
    ) -> Result<Value> {
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)));
        self.request(method, request, limits).await
    }

    /// Sends a request and waits for the response. Errors contain no secrets of the server's
    /// settings.
    pub(crate) async fn request(
        &self,
        method: &str,
        request: ClientRequest,
        limits: &RequestLimits<'_>,
    ) -> Result<Value> {
        self.exchange(method, request, limits)
            .await
            .map_err(|error| error.redacted(&self.secrets))
    }

    /// Sends a request and waits for its answer. From the moment the request is sent, dropping the
    /// future queues its cancellation.
    async fn exchange(
        &self,
        method: &str,
        request: ClientRequest,
        limits: &RequestLimits<'_>,
    ) -> Result<Value> {
        let started = self.world.now();
        // If a server does not read, the message waits here for space.
        let sent = self
            .peer()
            .send_request_with_option(request, PeerRequestOptions::no_options());
        let sent = tokio::select! {
            biased;
            sent = sent => sent,
            () = cancelled(limits.cancel) => return Err(self.cancelled(method)),
            () = self.world.sleep(limits.total) => {
                return Err(self.timeout_error(method, limits.total).await);
            }
        };
        let handle = match sent {
            Ok(handle) => handle,
            Err(error) => return Err(self.convert_error(method, error).await),
        };
        let mut cancel_guard = CancelOnDrop {
            to: &self.cancellations,
            id: Some(handle.id.clone()),
        };
        let answer = self.answer(method, handle, limits, started).await;
        match &answer {
            Err(error) if matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Cancelled) => {}
            _ => cancel_guard.id = None,
        }
        answer
    }

    /// Waits for the answer within both limits. Activity resets the idle time: progress, log lines
    /// of the only call, and requests of the server while levity works on them.
    async fn answer(
        &self,
        method: &str,
        mut handle: RequestHandle<RoleClient>,
        limits: &RequestLimits<'_>,
        started: Timestamp,
    ) -> Result<Value> {
        let calls = &self.service.service().calls;
        let active_call = calls.begin(
            &handle.progress_token,
            limits.progress.clone(),
            limits.background,
        );
        let mut last_activity = started;
        loop {
            let now = self.world.now();
            if calls.has_server_requests() {
                // The server is waiting for a response from levity, so its silence does not count.
                last_activity = now;
            }
            let remaining = limits.total.saturating_sub(now.since(started));
            let idle_remaining = limits.idle.saturating_sub(now.since(last_activity));
            if remaining.is_zero() || idle_remaining.is_zero() {
                let limit = if remaining.is_zero() {
                    limits.total
                } else {
                    limits.idle
                };
                return Err(self.timeout_error(method, limit).await);
            }
            tokio::select! {
                biased;
                answer = &mut handle.rx => {
                    return match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
                        Ok(result) => Ok(into_value(result)),
                        Err(error) => Err(self.convert_error(method, error).await),
                    };
                }
                () = cancelled(limits.cancel) => return Err(self.cancelled(method)),
                () = active_call.call.activity.notified() => last_activity = self.world.now(),
                () = self.world.sleep(remaining.min(idle_remaining)) => {}
            }
        }
    }

    /// Runs `work`, which started at `started` and takes several requests, within the total
    /// timeout.
    pub(crate) async fn in_time<T>(
        &self,
        method: &str,
        started: Timestamp,
        limits: &RequestLimits<'_>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let remaining = limits.total.saturating_sub(self.world.now().since(started));
        tokio::select! {
            biased;
            result = work => result,
            () = cancelled(limits.cancel) => Err(self.cancelled(method)),
            () = self.world.sleep(remaining) => Err(self.timeout_error(method, limits.total).await),
        }
    }

    /// Creates the error of a call that its caller cancelled.
    fn cancelled(&self, method: &str) -> Error {
        Error::new(
            ErrorKind::Cancelled,
            self.server.clone(),
            format!("`{method}` was cancelled"),
        )
    }

    /// Closes the connection without waiting; running requests fail.
    pub(crate) fn end(&self) {
        self.service.cancellation_token().cancel();
    }

    /// Closes the connection gracefully, within `grace` and a little more.
    pub(crate) async fn close(&self, grace: Duration) {
        self.end();
        let mut ended = self.ended.clone();
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => {}
            () = self.world.sleep(grace) => {}
        }
        if let Some(process) = &self.process {
            process.stop(grace).await;
        }
    }

    /// Creates the error of a request without a response, with the state of the process.
    async fn timeout_error(&self, method: &str, limit: Duration) -> Error {
        let error = Error::timeout(&self.server, &format!("`{method}`"), limit);
        self.with_exit_status(error).await
    }

    /// Adds the exit status of the process, if the server has one.
    async fn with_exit_status(&self, error: Error) -> Error {
        match &self.process {
            Some(process) => match process.exit_status().await {
                Some(death) => error.with_exit(death),
                None => error,
            },
            None => error,
        }
    }

    /// Converts an error of rmcp's service. Errors of the transport arrive as marked JSON-RPC
    /// errors (`link::failure`) and get their own kind back.
    async fn convert_error(&self, method: &str, error: ServiceError) -> Error {
        let server = self.server.clone();
        match error {
            ServiceError::McpError(data) => {
                if let Some(error) = crate::link::failure::read(&server, &data) {
                    return match error.kind() {
                        ErrorKind::Closed | ErrorKind::Protocol => {
                            self.with_exit_status(error).await
                        }
                        _ => error,
                    };
                }
                let kind = refusal_kind(data.code);
                let detail = self.secrets.head(&data.message, MAX_ERROR_TEXT);
                Error::new(kind, server, format!("`{method}` failed: {detail}"))
            }
            ServiceError::Cancelled { reason } => {
                let reason = reason.unwrap_or_default();
                let message = format!(
                    "`{method}` was cancelled: {}",
                    self.secrets.head(&reason, MAX_ERROR_TEXT)
                );
                Error::new(ErrorKind::Cancelled, server, message)
            }
            ServiceError::TransportSend(error) => match find_own_error(&error) {
                Some(error) => error,
                None => {
                    let message = format!(
                        "cannot send `{method}`: {}",
                        self.secrets.head(&chain(&error), MAX_ERROR_TEXT)
                    );
                    self.with_exit_status(Error::new(ErrorKind::Closed, server, message))
                        .await
                }
            },
            ServiceError::TransportClosed => {
                let message = format!("the connection ended before `{method}` was answered");
                self.with_exit_status(Error::new(ErrorKind::Closed, server, message))
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

/// Cancels the request when dropped.
struct CancelOnDrop<'a> {
    to: &'a mpsc::Sender<Cancellation>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let _ = self.to.try_send(Cancellation::Request(id));
        }
    }
}

/// Waits until the token is cancelled; forever without one.
async fn cancelled(token: Option<&CancelToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => std::future::pending().await,
    }
}

/// Returns the kind for an error code of the server.
fn refusal_kind(code: ErrorCode) -> ErrorKind {
    match code {
        ErrorCode::METHOD_NOT_FOUND => ErrorKind::Unsupported,
        code => ErrorKind::Rejected(code.0),
    }
}

/// Returns levity's own error if a transport wrapped one.
fn find_own_error(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(own) = error.downcast_ref::<Error>() {
            return Some(own.clone());
        }
        next = error.source();
    }
    None
}

/// Formats an error and its causes on one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let detail = cause.to_string();
        if !text.contains(&detail) {
            text = format!("{text}: {detail}");
        }
        next = cause.source();
    }
    text
}

/// Converts the failure of a handshake to an error for people, with secrets masked.
fn start_error(server: &Arc<str>, secrets: &Redactor, failure: &HandshakeError) -> Error {
    let server = server.clone();
    match failure {
        HandshakeError::Closed => Error::new(
            ErrorKind::Start,
            server,
            "the connection ended before the server was ready",
        ),
        HandshakeError::NoResponse => {
            Error::new(ErrorKind::Start, server, "the server does not respond")
        }
        HandshakeError::Refused(data) => {
            let detail = secrets.head(&data.message, MAX_ERROR_TEXT);
            Error::new(
                ErrorKind::Start,
                server,
                format!("the server refused to start: {detail}"),
            )
        }
        HandshakeError::Invalid(detail) => Error::new(ErrorKind::Protocol, server, detail.clone()),
        HandshakeError::Send(error) => find_own_error(&**error).unwrap_or_else(|| {
            let detail = secrets.head(&chain(&**error), MAX_ERROR_TEXT);
            Error::new(
                ErrorKind::Start,
                server,
                format!("the server cannot be reached: {detail}"),
            )
        }),
    }
}

/// Converts a result to JSON, regardless of the type that rmcp chose for it.
pub(crate) fn value_of(result: &ServerResult) -> Value {
    match result {
        ServerResult::CustomResult(CustomResult(value)) => value.clone(),
        other => serde_json::to_value(other).unwrap_or_default(),
    }
}

/// Works like `value_of`, without a copy.
fn into_value(result: ServerResult) -> Value {
    match result {
        ServerResult::CustomResult(CustomResult(value)) => value,
        other => serde_json::to_value(&other).unwrap_or_default(),
    }
}
