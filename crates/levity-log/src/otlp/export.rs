//! The thread that sends spans and metrics.
//!
//! The thread collects spans until a batch of 512 is full or the delay has passed, and then posts
//! them. A collector that is busy or unreachable gets them again later, while at most 2,048 wait;
//! one that rejects them does not. Metrics are cumulative, so a lost request loses nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::text::bare_url;
use levity_http::NoCertificates;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use serde_json::Value as Json;

use super::OtlpBuilder;
use super::encode::Envelope;
use super::metrics::Metrics;
use super::span::Span;
use crate::clock;
use crate::error::{Error, Result};

/// The maximum number of spans in one request: 512.
const BATCH: usize = 512;

/// The maximum number of queued bytes: 16 MiB.
const MAX_BYTES: usize = 16 << 20;

thread_local! {
    static IS_EXPORTER: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` on the sending thread.
pub(super) fn is_exporter_thread() -> bool {
    IS_EXPORTER.get()
}

/// An address and its request headers.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) address: String,
    pub(super) headers: Vec<(String, String)>,
}

impl Endpoint {
    pub(super) fn of(base: &str, path: &str) -> Self {
        Self {
            address: format!("{}/{path}", base.trim_end_matches('/')),
            headers: Vec::new(),
        }
    }

    /// Returns the address without credentials and without the query string.
    pub(super) fn redacted(&self) -> String {
        bare_url(&self.address)
    }
}

/// The sending half of the queue, which never blocks.
///
/// `None` in the channel only wakes the thread, for a flush.
pub(super) struct SpanQueue {
    sender: SyncSender<Option<(Span, usize)>>,
    state: Arc<State>,
}

/// The state that both halves share.
#[derive(Default)]
pub(super) struct State {
    bytes: AtomicUsize,
    dropped: AtomicU64,
    flush_requests: AtomicU64,
    /// The number of completed flushes, and whether the last one was accepted.
    completed: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl State {
    fn completed(&self) -> MutexGuard<'_, (u64, bool)> {
        self.completed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

type SpanReceiver = Receiver<Option<(Span, usize)>>;

impl SpanQueue {
    pub(super) fn new() -> ((Self, Arc<State>), SpanReceiver) {
        let (sender, receiver) = sync_channel(OtlpBuilder::QUEUE);
        let state = Arc::new(State::default());
        (
            (
                Self {
                    sender,
                    state: state.clone(),
                },
                state,
            ),
            receiver,
        )
    }

    /// Queues a span, or counts it as dropped if the queue has no room.
    pub(super) fn push(&self, span: Span) {
        let size = span.size();
        let queued = self.state.bytes.fetch_add(size, Ordering::AcqRel);
        if queued.saturating_add(size) > MAX_BYTES
            || self.sender.try_send(Some((span, size))).is_err()
        {
            self.state.bytes.fetch_sub(size, Ordering::AcqRel);
            self.state.dropped.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Acquire)
    }

    /// Requests a flush and waits for it. Flushes are numbered, so a waiter is not woken by an
    /// earlier one.
    pub(super) fn flush(&self, time: Duration) -> bool {
        let flush_requests = self.state.flush_requests.fetch_add(1, Ordering::AcqRel) + 1;
        // This wakes the exporter; a busy exporter checks for flushes itself.
        let _ = self.sender.try_send(None);
        let waited =
            self.state
                .changed
                .wait_timeout_while(self.state.completed(), time, |completed| {
                    completed.0 < flush_requests
                });
        let (completed, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out() && completed.1
    }
}

/// The destination of one signal.
struct Target {
    url: Url,
    headers: HeaderMap,
}

pub(super) struct Exporter {
    traces: Option<Target>,
    metrics: Option<Target>,
    client: Client,
    runtime: RequestRuntime,
    envelope: Envelope,
    delay: Duration,
    interval: Duration,
    started: u64,
    metrics_data: Metrics,
    /// Spans to be sent, including those whose last attempt failed.
    batch: Vec<Span>,
}

/// Runs requests. Dropping a runtime within another one panics, which would happen here if the
/// thread cannot be started.
struct RequestRuntime(Option<tokio::runtime::Runtime>);

impl RequestRuntime {
    fn block_on(&self, request: impl Future<Output = SendOutcome>) -> SendOutcome {
        self.0
            .as_ref()
            .map_or(SendOutcome::Retry, |runtime| runtime.block_on(request))
    }
}

impl Drop for RequestRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The outcome of a request.
enum SendOutcome {
    Accepted,
    /// A later attempt may succeed.
    Retry,
    Rejected,
}

impl Exporter {
    pub(super) fn new(builder: OtlpBuilder) -> Result<Self> {
        let client = levity_http::client(|client| client.timeout(builder.timeout));
        let client =
            client.map_err(|error| invalid("endpoint", &error.without_url().to_string()))?;
        let traces = builder.traces.map(to_target).transpose()?;
        let metrics = builder.metrics.map(to_target).transpose()?;
        let mut targets = traces.iter().chain(&metrics);
        if targets.any(|target| target.url.scheme() == "https") {
            // Otherwise every request would fail, without a message.
            NoCertificates::check().map_err(|error| invalid("endpoint", &error.to_string()))?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = RequestRuntime(Some(runtime.map_err(Error::Thread)?));
        Ok(Self {
            traces,
            metrics,
            client,
            runtime,
            envelope: Envelope::new(&builder.resource, builder.secrets),
            delay: builder.delay,
            interval: builder.interval,
            started: nanos(),
            metrics_data: Metrics::default(),
            batch: Vec::new(),
        })
    }

    /// Sends queued spans until all senders are dropped.
    pub(super) fn run(mut self, receiver: &SpanReceiver, state: &State) {
        IS_EXPORTER.set(true);
        let (mut spans_due, mut metrics_due) =
            (clock::now() + self.delay, clock::now() + self.interval);
        loop {
            let (mut full, mut disconnected) = (false, false);
            match receiver.recv_timeout(spans_due.saturating_sub(clock::now())) {
                Ok(Some(span)) => full = self.add_span(span, state),
                Ok(None) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => disconnected = true,
            }
            let flush_requests = state.flush_requests.load(Ordering::Acquire);
            let flush = disconnected || flush_requests > state.completed().0;
            if flush {
                for span in receiver.try_iter().flatten() {
                    self.add_span(span, state);
                }
            }
            let now = clock::now();
            let mut accepted = true;
            if full || flush || now >= spans_due {
                accepted = self.send_spans(state, flush);
                spans_due = clock::now() + self.delay;
            }
            if flush || now >= metrics_due {
                accepted &= self.send_metrics(state);
                metrics_due = clock::now() + self.interval;
            }
            if flush {
                *state.completed() = (flush_requests, accepted);
                state.changed.notify_all();
            }
            if disconnected {
                return;
            }
        }
    }

    /// Adds a span, and returns `true` if a batch is full.
    fn add_span(&mut self, (span, size): (Span, usize), state: &State) -> bool {
        state.bytes.fetch_sub(size, Ordering::AcqRel);
        self.metrics_data.record(&span);
        if self.traces.is_none() {
            return false;
        }
        if self.batch.len() >= OtlpBuilder::QUEUE {
            state.dropped.fetch_add(1, Ordering::AcqRel);
            return false;
        }
        self.batch.push(span);
        self.batch.len().is_multiple_of(BATCH)
    }

    /// Sends all spans in batches. Spans that may be accepted later are retained for the next
    /// attempt, as far as there is room.
    fn send_spans(&mut self, state: &State, all: bool) -> bool {
        let Some(target) = &self.traces else {
            return true;
        };
        let mut accepted = true;
        while !self.batch.is_empty() {
            let count = self.batch.len().min(BATCH);
            let body = self
                .envelope
                .spans(self.batch.get(..count).unwrap_or_default());
            match self.runtime.block_on(post(&self.client, target, &body)) {
                SendOutcome::Accepted => drop(self.batch.drain(..count)),
                SendOutcome::Retry => return false,
                SendOutcome::Rejected => {
                    state.dropped.fetch_add(count as u64, Ordering::AcqRel);
                    drop(self.batch.drain(..count));
                    accepted = false;
                    if !all {
                        break;
                    }
                }
            }
        }
        accepted
    }

    fn send_metrics(&self, state: &State) -> bool {
        let Some(target) = &self.metrics else {
            return true;
        };
        let dropped = state.dropped.load(Ordering::Acquire);
        let body = self
            .metrics_data
            .encode(&self.envelope, self.started, nanos(), dropped);
        matches!(
            self.runtime.block_on(post(&self.client, target, &body)),
            SendOutcome::Accepted
        )
    }
}

/// Sends one request. Busy and gateway statuses (429, 502, 503, 504) and connection errors can be
/// retried.
async fn post(client: &Client, target: &Target, body: &Json) -> SendOutcome {
    let request = client
        .post(target.url.clone())
        .headers(target.headers.clone());
    match request.body(body.to_string()).send().await {
        Ok(reply) if reply.status().is_success() => SendOutcome::Accepted,
        Ok(reply) => match reply.status() {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => SendOutcome::Retry,
            _ => SendOutcome::Rejected,
        },
        Err(_) => SendOutcome::Retry,
    }
}

/// Validates the address and the headers; header values are marked as sensitive for debug output.
fn to_target(endpoint: Endpoint) -> Result<Target> {
    // Addresses that only a lenient parser accepts are rejected: `http:///v1/traces` would go to
    // the host `v1`.
    let is_strict = endpoint
        .redacted()
        .split_once("://")
        .is_some_and(|(_, rest)| !rest.starts_with('*'));
    let url = Url::parse(&endpoint.address).ok().filter(|_| is_strict);
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or_else(|| {
        invalid(
            "endpoint",
            "expected an address like `http://127.0.0.1:4318`",
        )
    })?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in endpoint.headers {
        let invalid = || {
            invalid(
                "header",
                "the name or value of a header has invalid characters",
            )
        };
        let name = HeaderName::try_from(name).map_err(|_| invalid())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| invalid())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(Target { url, headers })
}

fn invalid(setting: &'static str, reason: &str) -> Error {
    Error::Setting {
        setting,
        reason: reason.to_owned(),
    }
}

fn nanos() -> u64 {
    u64::try_from(clock::now().as_nanos()).unwrap_or(u64::MAX)
}
