//! Export to an OpenTelemetry collector: the handle and its settings.
//!
//! The wire format is OTLP over HTTP as JSON; gRPC is not supported. `encode` writes it
//! without an SDK.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::Secrets;

use crate::error::{Error, Result};

mod encode;
mod env;
mod export;
mod layer;
mod metrics;
mod span;

use export::{Endpoint, Exporter, SpanQueue};
pub use layer::OtlpLayer;

/// A sender of spans and metrics to an OpenTelemetry collector, by OTLP over HTTP as JSON.
///
/// Tracing never blocks: spans go through a bounded queue to a sending thread. Spans that do not
/// fit are counted in the metric `levity.otlp.dropped`. Dropping the last handle waits up to 2
/// seconds for pending spans.
///
/// ```no_run
/// use levity_log::Otlp;
/// use tracing_subscriber::layer::SubscriberExt as _;
/// use tracing_subscriber::util::SubscriberInitExt as _;
///
/// # fn main() -> levity_log::Result<()> {
/// let otlp = Otlp::builder("http://127.0.0.1:4318").service("my-agent").open()?;
/// tracing_subscriber::registry().with(otlp.layer()).init();
/// // .. runs ..
/// otlp.flush(std::time::Duration::from_secs(5));
/// # Ok(())
/// # }
/// ```
///
/// | metric | meaning |
/// |---|---|
/// | `gen_ai.client.token.usage` | input and output tokens of each model call |
/// | `gen_ai.client.operation.duration` | duration of model calls |
/// | `gen_ai.execute_tool.duration` | duration of tool calls |
/// | `gen_ai.invoke_agent.duration` | duration of agent runs |
/// | `gen_ai.workflow.duration` | duration of swarm and graph runs |
/// | `levity.runs` | number of ended runs, by status |
/// | `levity.otlp.dropped` | number of spans that did not fit, or could not be sent |
#[derive(Clone)]
pub struct Otlp {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Arc<SpanQueue>,
    /// The address of the collector, without credentials.
    redacted: String,
}

impl Otlp {
    /// Returns a builder for the collector at this address, such as `http://127.0.0.1:4318`.
    ///
    /// The paths `v1/traces` and `v1/metrics` are appended to the address.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use levity_log::Otlp;
    ///
    /// let otlp = Otlp::builder("http://127.0.0.1:9").timeout(Duration::from_millis(200)).open()?;
    /// // No collector listens there, which is no error: nothing blocks, and the flush reports it.
    /// assert!(!otlp.flush(Duration::from_secs(5)));
    /// # Ok::<(), levity_log::Error>(())
    /// ```
    pub fn builder(endpoint: impl AsRef<str>) -> OtlpBuilder {
        OtlpBuilder::new(endpoint.as_ref())
    }

    /// Configures the exporter from the standard variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`;
    /// returns `None` if they disable it.
    ///
    /// # Errors
    /// If a variable has an invalid value.
    pub fn from_env() -> Result<Option<Self>> {
        match OtlpBuilder::from_vars(|name| std::env::var(name).ok())? {
            Some(builder) => builder.open().map(Some),
            None => Ok(None),
        }
    }

    /// Returns a layer for a `tracing` subscriber, which exports spans and the events within them.
    ///
    /// Several layers of one handle share its queue.
    pub fn layer(&self) -> OtlpLayer {
        OtlpLayer::new(self.inner.queue.clone())
    }

    /// Waits up to `time` until all ended spans and their metrics are sent, and returns `true` if
    /// the collector accepted them.
    pub fn flush(&self, time: Duration) -> bool {
        self.inner.queue.flush(time)
    }

    /// Returns the number of spans that did not fit or could not be sent.
    pub fn dropped(&self) -> u64 {
        self.inner.queue.dropped()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.flush(Duration::from_secs(2));
    }
}

/// A builder for [`Otlp`], with the settings of the export.
///
/// ```
/// use levity_log::{ErrorKind, Otlp};
///
/// let error = Otlp::builder("localhost:4318").open().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Setting);
/// let text = "invalid setting `endpoint`: expected an address like `http://127.0.0.1:4318`";
/// assert_eq!(error.to_string(), text);
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `open`"]
pub struct OtlpBuilder {
    traces: Option<Endpoint>,
    metrics: Option<Endpoint>,
    timeout: Duration,
    delay: Duration,
    interval: Duration,
    resource: Vec<(String, String)>,
    secrets: Secrets,
}

impl OtlpBuilder {
    /// The default timeout of a request: 10 seconds.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
    /// The default time to collect spans into a batch: 5 seconds.
    pub const DEFAULT_DELAY: Duration = Duration::from_secs(5);
    /// The default interval between metric exports: 60 seconds.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
    /// The number of spans that may wait to be sent: 2,048, with at most 16 MiB.
    pub const QUEUE: usize = 2_048;

    fn new(endpoint: &str) -> Self {
        Self {
            traces: Some(Endpoint::of(endpoint, "v1/traces")),
            metrics: Some(Endpoint::of(endpoint, "v1/metrics")),
            timeout: Self::DEFAULT_TIMEOUT,
            delay: Self::DEFAULT_DELAY,
            interval: Self::DEFAULT_INTERVAL,
            resource: vec![("service.name".to_owned(), "levity".to_owned())],
            secrets: Secrets::new(),
        }
    }

    /// Adds a header to every request, such as an API key.
    ///
    /// Values are not shown by `Debug` or in errors.
    ///
    /// ```
    /// use levity_log::Otlp;
    ///
    /// let builder = Otlp::builder("https://collector.example");
    /// let builder = builder.header("x-api-key", "correct-horse");
    /// assert!(!format!("{builder:?}").contains("correct-horse"));
    /// ```
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        for endpoint in [&mut self.traces, &mut self.metrics].into_iter().flatten() {
            endpoint.headers.push((name.clone(), value.clone()));
        }
        self
    }

    /// Sets the service name; `levity` by default.
    pub fn service(self, name: impl Into<String>) -> Self {
        self.attribute("service.name", name)
    }

    /// Sets an attribute of all spans and metrics, such as `deployment.environment.name`.
    ///
    /// A second value for the same name replaces the first.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.resource.retain(|(existing, _)| *existing != name);
        self.resource.push((name, value));
        self
    }

    /// Sets the timeout of a request.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Sets how long to collect spans into a batch.
    pub fn delay(mut self, time: Duration) -> Self {
        self.delay = time;
        self
    }

    /// Sets the interval between metric exports.
    pub fn interval(mut self, time: Duration) -> Self {
        self.interval = time;
        self
    }

    /// Sets the secrets to redact in everything that is sent; common secret patterns by default.
    /// Add the secrets that you know.
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = secrets;
        self
    }

    /// Starts the exporter thread.
    ///
    /// # Errors
    /// If an address or a header is invalid, or if no thread can be started.
    pub fn open(self) -> Result<Otlp> {
        let redacted = self
            .traces
            .as_ref()
            .or(self.metrics.as_ref())
            .map(Endpoint::redacted)
            .unwrap_or_default();
        let exporter = Exporter::new(self)?;
        let (queue, receiver) = SpanQueue::new();
        let (queue, state) = (Arc::new(queue.0), queue.1);
        let thread = std::thread::Builder::new().name("levity-otlp".to_owned());
        thread
            .spawn(move || exporter.run(&receiver, &state))
            .map_err(Error::Thread)?;
        Ok(Otlp {
            inner: Arc::new(Inner { queue, redacted }),
        })
    }
}

// Headers contain keys, and addresses may contain some.
impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Otlp")
            .field("traces", &self.inner.redacted)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OtlpBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |endpoint: &Option<Endpoint>| endpoint.as_ref().map(Endpoint::redacted);
        let mut debug = f.debug_struct("OtlpBuilder");
        debug
            .field("traces", &address(&self.traces))
            .field("metrics", &address(&self.metrics));
        debug.finish_non_exhaustive()
    }
}
