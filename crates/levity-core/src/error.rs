use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Intervention;

/// The cause of an error: the original error in this process, or its text after it was read from a
/// journal.
///
/// It serializes as its text with all causes, so the type of the original error does not survive a
/// journal. Two shared errors are equal if their texts are.
///
/// ```
/// # use levity_core::SharedError;
/// let cause = SharedError::new(std::io::Error::other("the disk is full"));
/// assert!(cause.as_error().downcast_ref::<std::io::Error>().is_some());
/// let read: SharedError = serde_json::from_str(&serde_json::to_string(&cause)?)?;
/// assert_eq!(read, cause);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedError(Arc<dyn Error + Send + Sync>);

impl SharedError {
    /// Wraps an error as a shared cause.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Arc::from(error.into()))
    }

    /// Returns the wrapped error.
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

/// The kind of a failed model call.
///
/// ```
/// # use levity_core::ModelErrorKind;
/// let limited = ModelErrorKind::RateLimited { retry_after: None };
/// assert!(limited.is_retryable() && !limited.may_cost());
/// assert!(ModelErrorKind::Timeout.may_cost(), "the provider may have replied in full");
/// assert!(!ModelErrorKind::Auth.is_retryable());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// The provider received too many requests; `retry_after` is the provider's own delay.
    RateLimited {
        /// The delay that the provider requests, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Duration>,
    },
    /// The provider has no capacity now.
    Overloaded,
    /// The API key is missing, invalid or lacks permission.
    Auth,
    /// The provider rejects the request as invalid.
    BadRequest,
    /// The request does not fit the model's window.
    ContextTooLong,
    /// The provider withheld the reply.
    ContentFiltered,
    /// No reply arrived within the time limit.
    Timeout,
    /// The connection to the provider failed.
    Transport,
    /// The reply could not be parsed.
    Malformed,
    /// The provider failed in a way that no other kind describes.
    Server,
    /// The run has a limit on money or tokens and the maximum cost of the call is unknown; the
    /// model was not called.
    Unpriced,
}

impl ModelErrorKind {
    /// Returns `true` if the same request may succeed later.
    ///
    /// ```
    /// # use levity_core::ModelErrorKind;
    /// assert!(ModelErrorKind::Overloaded.is_retryable());
    /// assert!(!ModelErrorKind::Auth.is_retryable());
    /// ```
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
    /// Returns `true` if the provider may charge for the failed request. A rejected request costs
    /// nothing. A request that was cut off, or whose reply was not a rejection, may cost.
    ///
    /// ```
    /// # use levity_core::ModelErrorKind;
    /// assert!(ModelErrorKind::Timeout.may_cost()); // the reply may have been written
    /// assert!(!ModelErrorKind::BadRequest.may_cost());
    /// ```
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

/// The error of a model that gave no reply.
///
/// ```
/// # use levity_core::{ModelError, ModelErrorKind};
/// let error = ModelError::new(ModelErrorKind::Overloaded, "the service is busy");
/// assert!(error.is_retryable());
/// assert_eq!(error.to_string(), "the service is busy");
/// let error = error.with_target("openai:gpt-4o", "https://api.openai.com/v1").with_status(503);
/// assert_eq!(
///     error.to_string(),
///     "request to https://api.openai.com/v1 failed (model openai:gpt-4o, status 503): \
///      the service is busy; try again later"
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
    /// Boxed as `str`, because errors are returned by value and must stay small.
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

/// Behind a pointer, because errors are returned by value and must stay small.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Guarded(Vec<Intervention>);

/// The model and the address of the server that received the request, if it was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Target {
    model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// `true` if there was no connection to the server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unreachable: bool,
}

impl ModelError {
    /// Creates an error of this kind; the message is one lowercase clause without payload.
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

    /// Marks the request as possibly charged, whatever its [kind](ModelErrorKind::may_cost): part
    /// of the reply had arrived, or the request was sent before.
    ///
    /// ```
    /// # use levity_core::{ModelError, ModelErrorKind};
    /// let error = ModelError::new(ModelErrorKind::RateLimited { retry_after: None }, "too many");
    /// assert!(!error.may_cost());
    /// assert!(error.with_charge().may_cost());
    /// ```
    #[must_use]
    pub fn with_charge(mut self) -> Self {
        // Store only what the kind does not already imply.
        self.charged = !self.kind.may_cost();
        self
    }

    /// Replaces the message of the error.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Adds the model and the address of its server. The address must not contain secrets: no
    /// query, user or password.
    ///
    /// ```
    /// # use levity_core::{ModelError, ModelErrorKind};
    /// let error = ModelError::new(ModelErrorKind::Overloaded, "the service is busy")
    ///     .with_target("openai:gpt-5", "https://api.openai.com/v1");
    /// assert_eq!(error.model(), Some("openai:gpt-5"));
    /// assert_eq!(error.address(), Some("https://api.openai.com/v1"));
    /// ```
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

    /// Adds the model of a request that was never sent.
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

    /// Marks the error as a failure to connect to the server.
    ///
    /// ```
    /// # use levity_core::{ModelError, ModelErrorKind};
    /// let error = ModelError::new(ModelErrorKind::Transport, "connection refused")
    ///     .with_target("ollama:qwen3", "http://localhost:11434")
    ///     .with_unreachable();
    /// assert!(error.is_unreachable());
    /// assert!(error.to_string().starts_with("cannot reach http://localhost:11434"));
    /// ```
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

    /// Removes the model and the address.
    #[must_use]
    pub fn without_target(mut self) -> Self {
        self.target = None;
        self
    }

    /// Adds the cause of the error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(SharedError::new(source));
        self
    }

    /// Removes the cause of the error.
    #[must_use]
    pub fn without_source(mut self) -> Self {
        self.cause = None;
        self
    }

    /// Adds the HTTP status of the response.
    ///
    /// ```
    /// # use levity_core::{ModelError, ModelErrorKind};
    /// let error = ModelError::new(ModelErrorKind::Auth, "invalid key").with_status(401);
    /// assert_eq!(error.status(), Some(401));
    /// ```
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds the provider's id of the request.
    ///
    /// ```
    /// # use levity_core::{ModelError, ModelErrorKind};
    /// let error = ModelError::new(ModelErrorKind::Server, "internal error");
    /// let error = error.with_request_id("req_42");
    /// assert_eq!(error.request_id(), Some("req_42")); // quote it to the provider's support
    /// ```
    #[must_use]
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into().into_boxed_str());
        self
    }

    /// Adds the delay that the provider requests, for any kind.
    ///
    /// ```
    /// # use levity_core::{ModelError, ModelErrorKind};
    /// # use std::time::Duration;
    /// let time = Duration::from_secs(30);
    /// let busy = ModelError::new(ModelErrorKind::Overloaded, "the service is busy");
    /// assert_eq!(busy.with_retry_after(time).retry_after(), Some(time));
    /// ```
    #[must_use]
    pub fn with_retry_after(mut self, time: Duration) -> Self {
        match &mut self.kind {
            ModelErrorKind::RateLimited { retry_after } => *retry_after = Some(time),
            _ => self.retry_after = Some(time),
        }
        self
    }

    /// Returns the message of the provider or the connection, without model, address and status.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the model as `provider:model`, if known.
    pub fn model(&self) -> Option<&str> {
        self.target
            .as_ref()
            .map(|target| &*target.model)
            .filter(|model| !model.is_empty())
    }

    /// Returns the address of the server without secrets, if known.
    pub fn address(&self) -> Option<&str> {
        self.target.as_ref()?.address.as_deref()
    }

    /// Returns `true` if there was no connection to the server.
    pub fn is_unreachable(&self) -> bool {
        self.target
            .as_ref()
            .is_some_and(|target| target.unreachable)
    }

    /// Returns the error on one line, as the reason why a run ended.
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

    /// Returns the kind of the error.
    pub fn kind(&self) -> ModelErrorKind {
        self.kind
    }

    /// Returns `true` if the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    /// Returns the delay that the provider requests, if any.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            ModelErrorKind::RateLimited { retry_after } => retry_after,
            _ => self.retry_after,
        }
    }

    /// Returns `true` if the provider may charge for the failed request.
    pub fn may_cost(&self) -> bool {
        self.charged || self.kind.may_cost()
    }

    /// Returns the HTTP status, if there was a response.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// Sets the interventions of guards in the provider's message.
    #[must_use]
    pub fn with_guarded(mut self, guarded: Vec<Intervention>) -> Self {
        self.guarded = (!guarded.is_empty()).then(|| Box::new(Guarded(guarded)));
        self
    }

    /// Returns the interventions of guards in the provider's message.
    pub fn guarded(&self) -> &[Intervention] {
        self.guarded.as_ref().map_or(&[], |guarded| &guarded.0)
    }

    /// Returns the provider's id of the request, if any.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }
}

/// Shows the model, the address and the status, if known, then the message and the next step.
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
        write!(f, "): {}", self.message)?;
        // The message of a provider may already contain the next step, and a cause comes last.
        let complete = self.message.contains("; ") || self.cause.is_some();
        match self.status.filter(|_| !complete).and_then(next_step) {
            Some(step) => write!(f, "; {step}"),
            None => Ok(()),
        }
    }
}

/// Returns what a user can do about a reply with this HTTP status.
fn next_step(status: u16) -> Option<&'static str> {
    Some(match status {
        401 => "check the key",
        402 => "check the account's balance",
        403 => "check the permissions of the key",
        404 => "check the model's name and the address",
        413 => "send a shorter request",
        429 => "wait, or send fewer requests",
        408 | 500.. => "try again later",
        _ => return None,
    })
}

/// Shows the kind, the message and its causes on one line, as printed by a `main` that returns the
/// error.
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

/// The kind of a failed tool call.
///
/// ```
/// # use levity_core::{ToolError, ToolErrorKind};
/// let error = ToolError::new(ToolErrorKind::NotFound, "no tool is named `ad`; use `add`");
/// assert_eq!(serde_json::to_value(error.kind())?, "not_found");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolErrorKind {
    /// No tool has this name.
    NotFound,
    /// The arguments do not match the tool's schema.
    InvalidArgs,
    /// The policy, a person or a limit denied the call.
    Denied,
    /// The tool exceeded its time limit.
    Timeout,
    /// The tool ran and failed.
    Failed,
    /// The output does not match the tool's output schema.
    InvalidOutput,
    /// The call was cancelled; it may have taken effect in part.
    Cancelled,
    /// The process ended while the tool ran; the call may have taken effect.
    Unknown,
}

/// The error of a tool call. The model reads the message, so include the next step in it.
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
    /// Creates an error of this kind that a retry does not fix.
    pub fn new(kind: ToolErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retryable: false,
            cause: None,
        }
    }

    /// Creates the error of a tool that ran and failed, and would fail again.
    ///
    /// ```
    /// # use levity_core::{ToolError, ToolErrorKind};
    /// let error = ToolError::failed("no such city; try the English name");
    /// assert_eq!(error.kind(), ToolErrorKind::Failed);
    /// ```
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Failed, message)
    }

    /// Creates a temporary error; a call that is safe to repeat is repeated.
    ///
    /// ```
    /// # use levity_core::ToolError;
    /// assert!(ToolError::transient("connection reset").is_retryable());
    /// ```
    pub fn transient(message: impl Into<String>) -> Self {
        Self {
            retryable: true,
            ..Self::failed(message)
        }
    }

    /// Adds the cause of the error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(SharedError::new(source));
        self
    }

    /// Sets whether a retry may help.
    ///
    /// ```
    /// # use levity_core::{ToolError, ToolErrorKind};
    /// let error = ToolError::new(ToolErrorKind::Timeout, "no answer").with_retryable(true);
    /// assert!(error.is_retryable());
    /// ```
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ToolErrorKind {
        self.kind
    }

    /// Returns `true` if the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Returns the text for the model: the message and, after colons, its causes.
    ///
    /// ```
    /// # use levity_core::ToolError;
    /// let error = ToolError::failed("the file cannot be read").with_source("no such file");
    /// assert_eq!(error.explain(), "the file cannot be read: no such file");
    /// ```
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
