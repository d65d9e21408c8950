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

use export::{Exporter, Line, Place};
pub use layer::OtlpLayer;

/// Sends spans and metrics to an OpenTelemetry collector, by OTLP over HTTP as JSON.
///
/// Whoever is traced never waits: spans go through a bounded queue to a thread that sends them, and
/// what does not fit is counted in the metric `levity.otlp.dropped`. Dropping the last handle waits
/// for what is left, for 2 seconds at most.
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
/// | metric | what |
/// |---|---|
/// | `gen_ai.client.token.usage` | tokens of each call of a model, in and out |
/// | `gen_ai.client.operation.duration` | how long calls of models took |
/// | `gen_ai.execute_tool.duration` | how long calls of tools took |
/// | `gen_ai.invoke_agent.duration` | how long runs took |
/// | `levity.runs` | how many runs ended, and how |
/// | `levity.otlp.dropped` | how many spans did not fit, or could not be sent |
#[derive(Clone)]
pub struct Otlp {
    inner: Arc<Inner>,
}

struct Inner {
    line: Arc<Line>,
    /// Where spans go, without a name or a password in it.
    shown: String,
}

impl Otlp {
    /// Begins to say how spans and metrics are sent to the collector at this address, such as
    /// `http://127.0.0.1:4318`.
    pub fn builder(endpoint: impl AsRef<str>) -> OtlpBuilder {
        OtlpBuilder::new(endpoint.as_ref())
    }

    /// Sends what the standard variables say, such as `OTEL_EXPORTER_OTLP_ENDPOINT`; nothing where
    /// they say that.
    ///
    /// # Errors
    /// When a variable holds what cannot be used.
    pub fn from_env() -> Result<Option<Self>> {
        match OtlpBuilder::from_vars(|name| std::env::var(name).ok())? {
            Some(builder) => builder.open().map(Some),
            None => Ok(None),
        }
    }

    /// Takes spans and what is logged within them, for a subscriber of `tracing`.
    pub fn layer(&self) -> OtlpLayer {
        OtlpLayer::new(self.inner.line.clone())
    }

    /// Waits until the spans that have ended so far and the metrics of them are sent, and says
    /// whether they were taken; not longer than `time`.
    pub fn flush(&self, time: Duration) -> bool {
        self.inner.line.flush(time)
    }

    /// How many spans did not fit or could not be sent.
    pub fn dropped(&self) -> u64 {
        self.inner.line.dropped()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.line.flush(Duration::from_secs(2));
    }
}

/// How spans and metrics are sent.
#[derive(Clone)]
#[must_use = "a builder does nothing until `open`"]
pub struct OtlpBuilder {
    traces: Option<Place>,
    metrics: Option<Place>,
    timeout: Duration,
    delay: Duration,
    interval: Duration,
    resource: Vec<(String, String)>,
    secrets: Secrets,
}

impl OtlpBuilder {
    /// How long a request may take: 10 seconds.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
    /// How long spans wait for more, to be sent together: 5 seconds.
    pub const DEFAULT_DELAY: Duration = Duration::from_secs(5);
    /// How often metrics are sent: every 60 seconds.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
    /// How many spans may wait to be sent: 2,048, and 16 MiB of them.
    pub const QUEUE: usize = 2_048;

    fn new(endpoint: &str) -> Self {
        Self {
            traces: Some(Place::of(endpoint, "v1/traces")),
            metrics: Some(Place::of(endpoint, "v1/metrics")),
            timeout: Self::DEFAULT_TIMEOUT,
            delay: Self::DEFAULT_DELAY,
            interval: Self::DEFAULT_INTERVAL,
            resource: vec![("service.name".to_owned(), "levity".to_owned())],
            secrets: Secrets::new(),
        }
    }

    /// A header of every request, such as a key.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        for place in [&mut self.traces, &mut self.metrics].into_iter().flatten() {
            place.headers.push((name.clone(), value.clone()));
        }
        self
    }

    /// What the program is called; `levity` by default.
    pub fn service(self, name: impl Into<String>) -> Self {
        self.attribute("service.name", name)
    }

    /// Something that is said of all spans and metrics, such as `deployment.environment.name`.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.resource.retain(|(known, _)| *known != name);
        self.resource.push((name, value));
        self
    }

    /// How long a request may take.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// How long spans wait for more, to be sent together.
    pub fn delay(mut self, time: Duration) -> Self {
        self.delay = time;
        self
    }

    /// How often metrics are sent.
    pub fn interval(mut self, time: Duration) -> Self {
        self.interval = time;
        self
    }

    /// What is left out of all that is sent: what usually is a secret, by default. Tell it those
    /// that you know.
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = secrets;
        self
    }

    /// Begins.
    ///
    /// # Errors
    /// When an address or a header cannot be used, or there is no thread left.
    pub fn open(self) -> Result<Otlp> {
        let shown = self
            .traces
            .as_ref()
            .or(self.metrics.as_ref())
            .map(Place::shown)
            .unwrap_or_default();
        let exporter = Exporter::new(self)?;
        let (line, waiting) = Line::new();
        let (line, far) = (Arc::new(line.0), line.1);
        let thread = std::thread::Builder::new().name("levity-otlp".to_owned());
        thread
            .spawn(move || exporter.work(&waiting, &far))
            .map_err(Error::Thread)?;
        Ok(Otlp {
            inner: Arc::new(Inner { line, shown }),
        })
    }
}

// Keys are in headers, and may be in addresses.
impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Otlp")
            .field("traces", &self.inner.shown)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OtlpBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |place: &Option<Place>| place.as_ref().map(Place::shown);
        let mut debug = f.debug_struct("OtlpBuilder");
        debug
            .field("traces", &place(&self.traces))
            .field("metrics", &place(&self.metrics));
        debug.finish_non_exhaustive()
    }
}
