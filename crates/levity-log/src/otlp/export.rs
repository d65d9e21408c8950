//! The thread that sends.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::text::bare_url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use serde_json::Value as Json;

use super::OtlpBuilder;
use super::encode::Envelope;
use super::metrics::Metrics;
use super::span::Span;
use crate::clock;
use crate::error::{Error, Result};

/// How many spans are sent at once: 512.
const BATCH: usize = 512;

/// How many bytes of spans may wait: 16 MiB.
const MAX_BYTES: usize = 16 << 20;

thread_local! {
    static EXPORTS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is the thread that sends.
pub(super) fn is_exporter() -> bool {
    EXPORTS.get()
}

/// An address and the headers of what is sent there.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) address: String,
    pub(super) headers: Vec<(String, String)>,
}

impl Place {
    pub(super) fn of(base: &str, path: &str) -> Self {
        Self {
            address: format!("{}/{path}", base.trim_end_matches('/')),
            headers: Vec::new(),
        }
    }

    /// The address without a name, a password or what stands behind a question mark.
    pub(super) fn shown(&self) -> String {
        bare_url(&self.address)
    }
}

/// The near end of the queue: spans go in, and nobody waits.
pub(super) struct Line {
    sender: SyncSender<Option<(Span, usize)>>,
    state: Arc<State>,
}

/// What both ends know.
#[derive(Default)]
pub(super) struct State {
    bytes: AtomicUsize,
    dropped: AtomicU64,
    asked: AtomicU64,
    /// How many times all was sent that was asked for, and whether it was taken the last time.
    sent: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl State {
    fn sent(&self) -> MutexGuard<'_, (u64, bool)> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Waiting = Receiver<Option<(Span, usize)>>;

impl Line {
    pub(super) fn new() -> ((Self, Arc<State>), Waiting) {
        let (sender, waiting) = sync_channel(OtlpBuilder::QUEUE);
        let state = Arc::new(State::default());
        (
            (
                Self {
                    sender,
                    state: state.clone(),
                },
                state,
            ),
            waiting,
        )
    }

    pub(super) fn push(&self, span: Span) {
        let size = span.size();
        let waiting = self.state.bytes.fetch_add(size, Ordering::AcqRel);
        if waiting.saturating_add(size) > MAX_BYTES
            || self.sender.try_send(Some((span, size))).is_err()
        {
            self.state.bytes.fetch_sub(size, Ordering::AcqRel);
            self.state.dropped.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Acquire)
    }

    pub(super) fn flush(&self, time: Duration) -> bool {
        let asked = self.state.asked.fetch_add(1, Ordering::AcqRel) + 1;
        // It wakes the other end; one that has much to do looks by itself.
        let _ = self.sender.try_send(None);
        let waited = self
            .state
            .changed
            .wait_timeout_while(self.state.sent(), time, |sent| sent.0 < asked);
        let (sent, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out() && sent.1
    }
}

/// Where one sort of data goes.
struct Target {
    url: Url,
    headers: HeaderMap,
}

pub(super) struct Exporter {
    traces: Option<Target>,
    metrics: Option<Target>,
    client: Client,
    runtime: Waiter,
    envelope: Envelope,
    delay: Duration,
    interval: Duration,
    begun: u64,
    measured: Metrics,
    /// Spans that are to be sent, and those that could not be sent yet.
    batch: Vec<Span>,
}

/// Waits for requests. A runtime that is dropped within another one panics, which happens here when
/// no thread could be started.
struct Waiter(Option<tokio::runtime::Runtime>);

impl Waiter {
    fn block_on(&self, sent: impl Future<Output = Came>) -> Came {
        self.0
            .as_ref()
            .map_or(Came::Later, |runtime| runtime.block_on(sent))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// What came of a request.
enum Came {
    Taken,
    /// It may be taken later.
    Later,
    Refused,
}

impl Exporter {
    pub(super) fn new(builder: OtlpBuilder) -> Result<Self> {
        // Another part of the program may have chosen one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .timeout(builder.timeout)
            // A redirect would take keys to another place.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("levity/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = client.map_err(|error| wrong("endpoint", &error.without_url().to_string()))?;
        let traces = builder.traces.map(target).transpose()?;
        let metrics = builder.metrics.map(target).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = Waiter(Some(runtime.map_err(Error::Thread)?));
        Ok(Self {
            traces,
            metrics,
            client,
            runtime,
            envelope: Envelope::new(&builder.resource, builder.secrets),
            delay: builder.delay,
            interval: builder.interval,
            begun: nanos(),
            measured: Metrics::default(),
            batch: Vec::new(),
        })
    }

    /// Sends what comes until nobody is left from whom something could.
    pub(super) fn work(mut self, waiting: &Waiting, state: &State) {
        EXPORTS.set(true);
        let (mut due, mut measure) = (clock::now() + self.delay, clock::now() + self.interval);
        loop {
            let (mut full, mut over) = (false, false);
            match waiting.recv_timeout(due.saturating_sub(clock::now())) {
                Ok(Some(span)) => full = self.take(span, state),
                Ok(None) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => over = true,
            }
            let asked = state.asked.load(Ordering::Acquire);
            let flush = over || asked > state.sent().0;
            if flush {
                for span in waiting.try_iter().flatten() {
                    self.take(span, state);
                }
            }
            let now = clock::now();
            let mut taken = true;
            if full || flush || now >= due {
                taken = self.send_spans(state, flush);
                due = clock::now() + self.delay;
            }
            if flush || now >= measure {
                taken &= self.send_metrics(state);
                measure = clock::now() + self.interval;
            }
            if flush {
                *state.sent() = (asked, taken);
                state.changed.notify_all();
            }
            if over {
                return;
            }
        }
    }

    /// Takes a span in, and says whether it is time to send.
    fn take(&mut self, (span, size): (Span, usize), state: &State) -> bool {
        state.bytes.fetch_sub(size, Ordering::AcqRel);
        self.measured.take(&span);
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

    /// Sends all spans, in batches. What may be taken later is kept for the next time, as far as
    /// there is room.
    fn send_spans(&mut self, state: &State, all: bool) -> bool {
        let Some(target) = &self.traces else {
            return true;
        };
        let mut taken = true;
        while !self.batch.is_empty() {
            let count = self.batch.len().min(BATCH);
            let body = self
                .envelope
                .spans(self.batch.get(..count).unwrap_or_default());
            match self.runtime.block_on(post(&self.client, target, &body)) {
                Came::Taken => drop(self.batch.drain(..count)),
                Came::Later => return false,
                Came::Refused => {
                    state.dropped.fetch_add(count as u64, Ordering::AcqRel);
                    drop(self.batch.drain(..count));
                    taken = false;
                    if !all {
                        break;
                    }
                }
            }
        }
        taken
    }

    fn send_metrics(&self, state: &State) -> bool {
        let Some(target) = &self.metrics else {
            return true;
        };
        let dropped = state.dropped.load(Ordering::Acquire);
        let body = self
            .measured
            .encode(&self.envelope, self.begun, nanos(), dropped);
        matches!(
            self.runtime.block_on(post(&self.client, target, &body)),
            Came::Taken
        )
    }
}

async fn post(client: &Client, target: &Target, body: &Json) -> Came {
    let request = client
        .post(target.url.clone())
        .headers(target.headers.clone());
    match request.body(body.to_string()).send().await {
        Ok(reply) if reply.status().is_success() => Came::Taken,
        Ok(reply) => match reply.status() {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Came::Later,
            _ => Came::Refused,
        },
        Err(_) => Came::Later,
    }
}

fn target(place: Place) -> Result<Target> {
    // What only a lenient reader takes for an address is none: `http:///v1/traces` would go to the
    // host `v1`.
    let is_plain = place
        .shown()
        .split_once("://")
        .is_some_and(|(_, rest)| !rest.starts_with('*'));
    let url = Url::parse(&place.address).ok().filter(|_| is_plain);
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    let url =
        url.ok_or_else(|| wrong("endpoint", "it is an address like `http://127.0.0.1:4318`"))?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in place.headers {
        let wrong = || {
            wrong(
                "header",
                "a header's name or value has letters that no header has",
            )
        };
        let name = HeaderName::try_from(name).map_err(|_| wrong())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(Target { url, headers })
}

fn wrong(setting: &'static str, reason: &str) -> Error {
    Error::Setting {
        setting,
        reason: reason.to_owned(),
    }
}

fn nanos() -> u64 {
    u64::try_from(clock::now().as_nanos()).unwrap_or(u64::MAX)
}
