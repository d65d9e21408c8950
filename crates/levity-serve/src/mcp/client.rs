//! The client as handlers see it: questions, progress, logs and its model.

use std::fmt;
use std::sync::Arc;

use levity_core::Progress;
use levity_mcp::{ElicitForm, ElicitReply, ElicitUrl, SampleReply, SampleRequest};
use serde_json::Value;

use super::ask::{AskError, Root};
use super::ask_wire;
use super::client_channel::{ClientChannel, ClientNotification};
use super::{Changes, ClientModel};
use crate::access::Caller;

/// The calling client, as a [`Handler`](super::Handler) sees it. Cheap to clone.
///
/// Questions reach the client in the form of its protocol version. Before 2026-07-28 they are
/// requests to the client. Since then they are an interim result of the call, which the client
/// repeats with its answers. The handler simply waits in both cases, and questions asked at the
/// same time are sent together.
///
/// A question fails at once if the client cannot answer it; see
/// [`capabilities`](Self::capabilities).
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::ToolSpec;
/// use levity_serve::mcp::{
///     ClientLogLevel, Handler, HandlerCall, HandlerReply, McpServer, RequestError,
/// };
///
/// struct Who(ToolSpec);
///
/// #[async_trait]
/// impl Handler for Who {
///     fn spec(&self) -> &ToolSpec {
///         &self.0
///     }
///
///     async fn call(&self, call: HandlerCall) -> Result<HandlerReply, RequestError> {
///         call.client.log(ClientLogLevel::Debug, "somebody asks");
///         call.client.progress(1.0, Some(1.0), "done".to_owned());
///         let asks = if call.client.capabilities().elicit { "can" } else { "cannot" };
///         Ok(HandlerReply::text(format!("Your program {asks} ask you.")))
///     }
/// }
///
/// # async fn ask(server: &McpServer, asked: &'static str) -> std::io::Result<String> {
/// #     use tokio::io::AsyncReadExt as _;
/// #     let (mut there, here) = tokio::io::duplex(1 << 16);
/// #     server.serve(asked.as_bytes(), here).await.map_err(std::io::Error::other)?;
/// #     let mut answered = String::new();
/// #     there.read_to_string(&mut answered).await?;
/// #     Ok(answered)
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let spec = ToolSpec::new("who", "Describes you.")
///     .with_input(serde_json::json!({"type": "object"}));
/// let server = McpServer::builder("who", "1.0").handler(Who(spec)).build()?;
/// let asked = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"who"}}"#;
/// assert!(ask(&server, asked).await?.contains("Your program cannot ask you."));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    channel: Arc<ClientChannel>,
    changes: Changes,
    name: Option<Arc<str>>,
    caller: Caller,
}

/// The identity of a client.
///
/// Clients report it themselves, so do not base a permission on it; use [`Client::caller`].
///
/// ```
/// use levity_serve::mcp::Client;
/// fn greeting(client: &Client) -> String {
///     let name = client.info().map_or("stranger", |info| &info.name);
///     format!("Hello, {name}.")
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientInfo {
    /// The name of the client.
    pub name: String,
    /// The version of the client.
    pub version: String,
    /// The title of the client, for people.
    pub title: Option<String>,
}

/// The requests that a client supports.
///
/// ```
/// use levity_serve::mcp::ClientAbilities;
/// let none = ClientAbilities::default();
/// assert!(!none.elicit && !none.sample && !none.roots);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientAbilities {
    /// The client can show a form to its user.
    pub elicit: bool,
    /// The client can send its user to a URL.
    pub elicit_url: bool,
    /// The client's model can be sampled.
    pub sample: bool,
    /// The client's model can call tools when sampled.
    pub sample_tools: bool,
    /// The client can list its root folders.
    pub roots: bool,
}

/// The severity of a log message.
///
/// ```
/// use levity_serve::mcp::ClientLogLevel;
/// assert!(ClientLogLevel::Error > ClientLogLevel::Warning);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ClientLogLevel {
    /// Detailed information for debugging.
    Debug,
    /// General information about normal operation.
    Info,
    /// A normal but significant event.
    Notice,
    /// A condition that may lead to errors.
    Warning,
    /// A condition in which an operation failed.
    Error,
    /// A critical condition that affects other components.
    Critical,
    /// A condition that requires immediate action.
    Alert,
    /// The system is unusable.
    Emergency,
}

impl Client {
    pub(super) fn new(channel: Arc<ClientChannel>, changes: Changes, caller: Caller) -> Self {
        Self {
            channel,
            changes,
            name: None,
            caller,
        }
    }

    /// Returns the holder of the token that the client presented; the owner of the server on stdio.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the identity that the client reports.
    pub fn info(&self) -> Option<&ClientInfo> {
        self.channel.info.as_ref()
    }

    /// Returns the requests that the client supports.
    pub fn capabilities(&self) -> ClientAbilities {
        self.channel.capabilities
    }

    /// Returns the same client, whose questions have this name. On 2026-07-28, a client that knows
    /// the name may answer in advance.
    #[must_use]
    pub fn named(&self, name: impl Into<Arc<str>>) -> Self {
        Self {
            name: Some(name.into()),
            ..self.clone()
        }
    }

    /// Shows a form to the user. Accepted content matches the form, with defaults for missing
    /// fields.
    ///
    /// The form is the JSON Schema of an object whose properties are not nested. The answer comes
    /// from a person and is untrusted, but it matches the form.
    ///
    /// # Errors
    /// Fails if the client does not support it, refuses it, does not answer in time, or sends an
    /// invalid response.
    pub async fn elicit(&self, form: ElicitForm) -> Result<ElicitReply, AskError> {
        if !self.channel.capabilities.elicit {
            return Err(AskError::unsupported("elicitation", "cannot ask its user"));
        }
        let answer = self.ask(ask_wire::form(&form)?).await?;
        ask_wire::parse_elicit(Some(&form), &answer)
    }

    /// Sends the user to a URL.
    ///
    /// Use it for secrets, such as a sign-in, which must not pass through the client. The reply
    /// only says that the user agreed to visit the URL.
    ///
    /// # Errors
    /// Fails if the client does not support it, refuses it, or does not answer in time.
    pub async fn elicit_url(&self, url: ElicitUrl) -> Result<ElicitReply, AskError> {
        if !self.channel.capabilities.elicit_url {
            return Err(AskError::unsupported(
                "elicitation.url",
                "cannot send its user to a URL",
            ));
        }
        let answer = self.ask(ask_wire::url(&url)?).await?;
        ask_wire::parse_elicit(None, &answer)
    }

    /// Samples the client's model.
    ///
    /// Prefer [`model`](Self::model) if you want to use it as a levity model, for example in an
    /// agent.
    ///
    /// # Errors
    /// Fails if the client does not support it, refuses it, does not answer in time, or sends an
    /// invalid response.
    pub async fn sample(&self, ask: SampleRequest) -> Result<SampleReply, AskError> {
        if !self.channel.capabilities.sample {
            return Err(AskError::unsupported("sampling", "offers no model"));
        }
        if !ask.tools.is_empty() && !self.channel.capabilities.sample_tools {
            return Err(AskError::unsupported(
                "sampling.tools",
                "offers no model that calls tools",
            ));
        }
        let answer = self.ask(ask_wire::sample(&ask)?).await?;
        ask_wire::parse_sample(&answer)
    }

    /// Returns the root folders of the client.
    ///
    /// # Errors
    /// Fails if the client does not support it, refuses it, or does not answer in time.
    pub async fn roots(&self) -> Result<Vec<Root>, AskError> {
        if !self.channel.capabilities.roots {
            return Err(AskError::unsupported(
                "roots",
                "does not list its root folders",
            ));
        }
        let answer = self.ask(ask_wire::roots()?).await?;
        ask_wire::parse_roots(&answer)
    }

    /// Sends a log message, if the client wants messages of this level. The call does not wait; if
    /// the client does not read, messages are dropped.
    ///
    /// At most 256 notifications wait for a client; further ones are dropped.
    pub fn log(&self, level: ClientLogLevel, data: impl Into<Value>) {
        if self.channel.is_enabled(level) {
            self.channel.notify(ClientNotification::Log {
                level,
                logger: None,
                data: data.into(),
            });
        }
    }

    /// Reports progress, if the client wants it: `done` of `total`. The reported value never
    /// decreases.
    pub fn progress(&self, done: f64, total: Option<f64>, text: impl Into<Option<String>>) {
        self.channel.progress(Some(done), total, text.into());
    }

    /// Returns the handle that notifies all listeners of changes.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Continues the call as a task from here, for a handler whose
    /// [`TaskSupport`](super::TaskSupport) is `Deferred`. The client gets the id of the task now,
    /// and the result from the task. Returns at once if the call is already a task, or if the
    /// client does not support tasks.
    pub async fn become_task(&self) {
        self.channel.become_task().await;
    }

    /// Returns the client's model as a levity model.
    pub fn model(&self) -> ClientModel {
        ClientModel::new(self.clone())
    }

    /// Returns a sink that forwards a tool's progress.
    pub(super) fn listener(&self) -> Progress {
        let channel = self.channel.clone();
        Progress::new(move |text| channel.progress(None, None, Some(text.to_owned())))
    }

    async fn ask(&self, request: levity_rpc::mcp::InputRequest) -> Result<Value, AskError> {
        self.channel.ask(self.name.clone(), request).await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("info", &self.channel.info)
            .field("capabilities", &self.channel.capabilities)
            .finish()
    }
}
