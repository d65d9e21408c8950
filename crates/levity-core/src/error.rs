use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Intervention;

/// What an error came from: any error while the process lives, its text after a trip through a
/// journal.
#[derive(Clone)]
pub struct SharedError(Arc<dyn Error + Send + Sync>);

impl SharedError {
    /// Wraps an error.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Arc::from(error.into()))
    }

    /// The error inside.
    pub fn as_error(&self) -> &(dyn Error + 'static) {
        &*self.0
    }

    fn chain(&self) -> String {
        crate::text::chain(&*self.0)
    }
}

impl fmt::Debug for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.chain())
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for SharedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl PartialEq for SharedError {
    fn eq(&self, other: &Self) -> bool {
        self.chain() == other.chain()
    }
}

impl Serialize for SharedError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.chain())
    }
}

impl<'de> Deserialize<'de> for SharedError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::new(String::deserialize(deserializer)?))
    }
}

/// What went wrong with a model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// Too many requests; `retry_after` is the provider's own word on when to come back.
    RateLimited {
        /// How long the provider asks to wait, if it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Duration>,
    },
    /// The provider has no capacity now.
    Overloaded,
    /// The key is missing, wrong or not allowed to do this.
    Auth,
    /// The provider refuses the request as it stands.
    BadRequest,
    /// The request does not fit the model's window.
    ContextTooLong,
    /// The provider withheld the reply.
    ContentFiltered,
    /// No reply within the time limit.
    Timeout,
    /// The connection failed.
    Transport,
    /// The reply could not be understood.
    Malformed,
    /// A fault of the provider that none of the other kinds describes.
    Server,
    /// The run's money is limited, and nobody knows what the model costs; it was not called.
    Unpriced,
}

impl ModelErrorKind {
    /// Whether the same request may succeed later.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::RateLimited { .. }
                | Self::Overloaded
                | Self::Timeout
                | Self::Transport
                | Self::Server
        )
    }
}

impl ModelErrorKind {
    /// Whether the provider may charge for the request all the same. One that it turned down costs
    /// nothing; one that was cut off, or answered with something else than a refusal, may.
    pub fn may_cost(self) -> bool {
        !matches!(
            self,
            Self::RateLimited { .. }
                | Self::Auth
                | Self::BadRequest
                | Self::ContextTooLong
                | Self::Unpriced
        )
    }
}

/// Why a model gave no reply.
///
/// ```
/// # use levity_core::{ModelError, ModelErrorKind};
/// let error = ModelError::new(ModelErrorKind::Overloaded, "the service is busy");
/// assert!(error.is_retryable());
/// assert_eq!(error.to_string(), "the service is busy");
/// let error = error.with_target("openai:gpt-4o", "https://api.openai.com/v1").with_status(503);
/// assert_eq!(
///     error.to_string(),
///     "request to https://api.openai.com/v1 failed (model openai:gpt-4o, status 503): the service is busy"
/// );
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelError {
    kind: ModelErrorKind,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<Box<Target>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// As short as it can be held: errors are returned by value and are to stay small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    charged: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<SharedError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guarded: Option<Box<Guarded>>,
}

/// Behind a pointer, since errors are returned by value and are to stay small.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Guarded(Vec<Intervention>);

/// What was asked: a model, and the address of its server where the request was to leave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Target {
    model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// Whether there was no connection to the server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unreachable: bool,
}

impl ModelError {
    /// An error of this kind; the message is one lowercase clause without payload.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            kind,
            message,
            target: None,
            status: None,
            request_id: None,
            charged: false,
            retry_after: None,
            cause: None,
            guarded: None,
        }
    }

    /// Says that the provider may charge whatever the [kind](ModelErrorKind::may_cost) is: a part
    /// of the reply was there already, or the request was sent before.
    #[must_use]
    pub fn with_charge(mut self) -> Self {
        // Only what the kind does not say is written down.
        self.charged = !self.kind.may_cost();
        self
    }

    /// Says it in other words.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Adds which model was asked at which address. The address must hold no secret: no query, user
    /// or password.
    #[must_use]
    pub fn with_target(mut self, model: impl Into<String>, address: impl Into<String>) -> Self {
        let unreachable = self.target.is_some_and(|target| target.unreachable);
        let (model, address) = (model.into(), Some(address.into()));
        self.target = Some(Box::new(Target {
            model,
            address,
            unreachable,
        }));
        self
    }

    /// Adds which model was to be asked, of a request that never left.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        let model = model.into();
        self.target = Some(Box::new(Target {
            model,
            address: None,
            unreachable: false,
        }));
        self
    }

    /// Says that there was no connection to the server.
    #[must_use]
    pub fn with_unreachable(mut self) -> Self {
        let empty = || {
            Box::new(Target {
                model: String::new(),
                address: None,
                unreachable: true,
            })
        };
        self.target.get_or_insert_with(empty).unreachable = true;
        self
    }

    /// Leaves out which model was asked, and where.
    #[must_use]
    pub fn without_target(mut self) -> Self {
        self.target = None;
        self
    }

    /// Adds what it came from.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(SharedError::new(source));
        self
    }

    /// Leaves out what it came from.
    #[must_use]
    pub fn without_source(mut self) -> Self {
        self.cause = None;
        self
    }

    /// Adds the HTTP status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds the provider's id of the request.
    #[must_use]
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into().into_boxed_str());
        self
    }

    /// Adds how long the provider asks to wait, whatever the kind.
    ///
    /// ```
    /// # use levity_core::{ModelError, ModelErrorKind};
    /// # use std::time::Duration;
    /// let time = Duration::from_secs(30);
    /// let busy = ModelError::new(ModelErrorKind::Overloaded, "the service is busy").with_retry_after(time);
    /// assert_eq!(busy.retry_after(), Some(time));
    /// ```
    #[must_use]
    pub fn with_retry_after(mut self, time: Duration) -> Self {
        match &mut self.kind {
            ModelErrorKind::RateLimited { retry_after } => *retry_after = Some(time),
            _ => self.retry_after = Some(time),
        }
        self
    }

    /// The message alone: what the provider or the connection says, without model, address and
    /// status.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The model that was asked, as `provider:model`, where that is known.
    pub fn model(&self) -> Option<&str> {
        self.target
            .as_ref()
            .map(|target| &*target.model)
            .filter(|model| !model.is_empty())
    }

    /// The address of the server that was asked, without anything secret, where that is known.
    pub fn address(&self) -> Option<&str> {
        self.target.as_ref()?.address.as_deref()
    }

    /// Whether there was no connection to the server.
    pub fn is_unreachable(&self) -> bool {
        self.target
            .as_ref()
            .is_some_and(|target| target.unreachable)
    }

    /// The error as the reason why a run ended, on one line.
    ///
    /// ```
    /// # use levity_core::{ModelError, ModelErrorKind};
    /// let error = ModelError::new(ModelErrorKind::Overloaded, "the service is busy");
    /// assert_eq!(error.report(), "the model gave no reply: the service is busy");
    /// ```
    pub fn report(&self) -> String {
        match self.model() {
            Some(_) => self.to_string(),
            None => format!("the model gave no reply: {self}"),
        }
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ModelErrorKind {
        self.kind
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    /// How long the provider asks to wait, where it says so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            ModelErrorKind::RateLimited { retry_after } => retry_after,
            _ => self.retry_after,
        }
    }

    /// Whether the provider may charge for the request all the same.
    pub fn may_cost(&self) -> bool {
        self.charged || self.kind.may_cost()
    }

    /// The HTTP status, where there was one.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// Says which guards stepped in on what the provider said.
    #[must_use]
    pub fn with_guarded(mut self, guarded: Vec<Intervention>) -> Self {
        self.guarded = (!guarded.is_empty()).then(|| Box::new(Guarded(guarded)));
        self
    }

    /// The guards that stepped in on what the provider said.
    pub fn guarded(&self) -> &[Intervention] {
        self.guarded.as_ref().map_or(&[], |guarded| &guarded.0)
    }

    /// The provider's id of the request, where it gave one.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }
}

/// The message; with the model, the address and the status before it where they are known.
impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(model) = self.model() else {
            return f.write_str(&self.message);
        };
        match self.address() {
            None => return write!(f, "{} (model {model})", self.message),
            Some(address) if self.is_unreachable() => {
                write!(f, "cannot reach {address} (model {model}")?;
            }
            Some(address) => write!(f, "request to {address} failed (model {model}")?,
        }
        self.status
            .map_or(Ok(()), |status| write!(f, ", status {status}"))?;
        write!(f, "): {}", self.message)
    }
}

/// The kind, then the message and its causes on one line: a `main` that returns the error prints
/// this.
impl fmt::Debug for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, crate::text::chain(self))
    }
}

impl Error for ModelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(SharedError::as_error)
    }
}

/// What went wrong with a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolErrorKind {
    /// No tool has this name.
    NotFound,
    /// The arguments do not match the tool's schema.
    InvalidArgs,
    /// Policy, a person or a limit forbade the call.
    Denied,
    /// The tool took longer than it may.
    Timeout,
    /// The tool ran and failed.
    Failed,
    /// The tool returned what its output schema forbids.
    InvalidOutput,
    /// The call was cancelled; it may have taken effect in part.
    Cancelled,
    /// The process ended while the tool ran; nobody knows whether it took effect.
    Unknown,
}

/// Why a tool gave no output; the model reads the message, so it should say what to do next.
///
/// ```
/// # use levity_core::{ToolError, ToolErrorKind};
/// let error = ToolError::failed("no such city; try the English name");
/// assert_eq!(error.kind(), ToolErrorKind::Failed);
/// assert!(!error.is_retryable());
/// assert!(ToolError::transient("connection reset").is_retryable());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolError {
    kind: ToolErrorKind,
    message: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    retryable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<SharedError>,
}

impl ToolError {
    /// An error of this kind that a retry does not mend.
    pub fn new(kind: ToolErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retryable: false,
            cause: None,
        }
    }

    /// The tool ran and failed, and would fail again.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Failed, message)
    }

    /// The tool failed for a reason that may pass; a call that is safe to repeat is repeated.
    pub fn transient(message: impl Into<String>) -> Self {
        Self {
            retryable: true,
            ..Self::failed(message)
        }
    }

    /// Adds what it came from.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(SharedError::new(source));
        self
    }

    /// Says whether a retry may help.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ToolErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// The text the model is shown: the message and, behind colons, what it came from.
    pub fn explain(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {}", self.message, cause.chain()),
            None => self.message.clone(),
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ToolError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(SharedError::as_error)
    }
}
