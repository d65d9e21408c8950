//! An HTTP API for starting, following and controlling runs, for web pages and other programs.
//!
//! ```
//! use levity_loop::Agent;
//! use levity_serve::http::HttpApi;
//! use levity_serve::{AccessControl, Listener, Runs, Token};
//! use levity_test::ScriptedModel;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let agent = Agent::builder(ScriptedModel::new().reply("Paris.")).build()?;
//! let listener = Listener::bind("127.0.0.1:0", AccessControl::new(Token::generate()?)).await?;
//! println!("http://{}/v1", listener.address());
//! let serving = HttpApi::new(Runs::new(agent)).serve(listener); // an agent, a swarm or a team
//! # let _ = tokio::time::timeout(std::time::Duration::from_millis(1), serving).await;
//! # Ok(())
//! # }
//! ```
//!
//! [`openapi`] describes the API. The server also returns this description at `/v1/openapi.json`.
//!
//! # Start, follow, decide
//!
//! | request | effect |
//! |---|---|
//! | `POST /v1/runs` | starts a run; `Idempotency-Key` makes a repetition harmless |
//! | `GET /v1/runs/ID/events` | streams events; `Last-Event-ID` resumes after a disconnect |
//! | `POST /v1/runs/ID/pause`, `resume`, `cancel`, `message` | controls a run |
//! | `GET /v1/runs/ID/asks`, `POST /v1/runs/ID/asks/ASK` | decides questions of a run |
//! | `GET /v1/runs`, `/v1/sessions`, `/v1/tools` | lists, by page |
//! | `GET /v1/health` | answers without a token |
//!
//! Errors have the form `{"error": {"code": .., "message": ..}}`. Codes are stable; messages name
//! the next step. Responses with 429 or 503 have a `Retry-After` header.
//!
//! # Guarantees
//! - A run that was answered with 201 is in its journal. It continues if the client disconnects,
//!   and after a restart if the server calls [`Runs::resume_all`].
//! - A request repeated with the same id or `Idempotency-Key` and the same goal returns the
//!   existing run and starts no second one.
//! - An event stream misses events only if the client reads too slowly, and then says how many.
//! - A token reaches only the runs and conversations of its tenant; see [`Caller`](crate::Caller).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use levity_core::CancelToken;
use levity_memory::Conversations;
use levity_sandbox::Workspace;
use levity_tools::Dispatcher;

use crate::body::BodyReader;
use crate::error::Result;
use crate::listen::Listener;
use crate::quota::Quota;
use crate::runs::Runs;

mod asks;
mod commands;
mod content;
mod costs;
mod events;
mod extract;
mod fork;
mod inbox;
mod input;
mod list;
mod login;
mod openapi;
mod page;
mod problem;
mod routes;
mod run_view;
mod sessions;
mod snapshots;
mod start;
mod stream;
mod tools;
mod view;

pub(crate) use login::PATH as LOGIN_PATH;
pub use openapi::openapi;
pub(crate) use problem::runtime_error;

/// An HTTP server for runs.
///
/// ```
/// use levity_loop::Agent;
/// use levity_serve::http::HttpApi;
/// use levity_serve::{AccessControl, Listener, Runs, Token};
/// use levity_test::ScriptedModel;
/// use tokio::{io::{AsyncReadExt as _, AsyncWriteExt as _}, net::TcpStream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new()).build()?;
/// let listener = Listener::bind("127.0.0.1:0", AccessControl::new(Token::generate()?)).await?;
/// let address = listener.address();
/// let api = HttpApi::new(Runs::new(agent)).requests(100).readers(20);
/// # let client = async {
/// let mut stream = TcpStream::connect(address).await?;
/// let request = "GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// stream.write_all(request.as_bytes()).await?;
/// let mut response = String::new();
/// stream.read_to_string(&mut response).await?;
/// assert!(response.starts_with("HTTP/1.1 200") && response.contains("\"status\":\"ok\""));
/// # Ok::<(), std::io::Error>(())
/// # };
/// # tokio::select! { served = api.serve(listener) => served?, asked = client => asked? }
/// # Ok(())
/// # }
/// ```
#[must_use = "it accepts no clients until `serve` is called"]
pub struct HttpApi {
    runs: Runs,
    settings: Settings,
}

/// The settings of the API. `patience` is the time that a response waits for a run; see
/// [`HttpApi::command_timeout`].
struct Settings {
    conversations: Option<Conversations>,
    #[cfg(feature = "dag")]
    plans: Option<levity_observe::SessionFolder>,
    tools: Option<Dispatcher>,
    tool_calls: usize,
    requests: usize,
    body_limit: usize,
    body_time: Duration,
    answer_time: Duration,
    goal_limit: usize,
    readers: usize,
    heartbeat: Duration,
    patience: Duration,
    workspace: Option<Workspace>,
    page: bool,
    login: login::LoginSlot,
}

impl Settings {
    fn has_login(&self) -> bool {
        let login = self.login.lock();
        login.is_ok_and(|login| login.is_some())
    }
}

/// The state that all request handlers share.
struct Api {
    runs: Runs,
    settings: Settings,
    requests: Arc<Quota>,
    bodies: BodyReader,
    readers: Arc<Quota>,
    /// Limits the readers of old runs from the journal, because each holds its whole run in memory.
    old_readers: Arc<Quota>,
    tool_calls: Arc<Quota>,
    /// Distinguishes tool calls of this server from those of other servers.
    call_prefix: u64,
    calls: AtomicU64,
    /// Limits the files of runs that are being sent.
    artifacts: Arc<Quota>,
    /// The large events that streams send at the moment.
    shared: snapshots::SharedEvents,
    decisions: asks::DecisionsInProgress,
    stop: CancelToken,
}

impl HttpApi {
    /// The default maximum size of a request body: 1 MiB.
    pub const DEFAULT_BODY_LIMIT: usize = 1 << 20;
    /// The default timeout for receiving a request body: 20 seconds.
    pub const DEFAULT_BODY_TIME: Duration = Duration::from_secs(20);
    /// The default time in which a client must read a response: 60 seconds. It does not apply to
    /// event streams.
    pub const DEFAULT_ANSWER_TIME: Duration = Duration::from_secs(60);
    /// The default maximum length of a goal: 256 KiB, as for all [`Runs`].
    pub const DEFAULT_GOAL_LIMIT: usize = Runs::DEFAULT_PROMPT_LIMIT;
    /// The default maximum number of concurrent tool calls through the tool routes: 64.
    pub const DEFAULT_TOOL_CALLS: usize = 64;
    /// The default maximum number of requests in progress, until their responses are sent: 1,024.
    /// Event streams do not count.
    pub const DEFAULT_REQUESTS: usize = 1024;
    /// The default maximum number of concurrent event streams: 1,024.
    pub const DEFAULT_READERS: usize = 1024;
    /// The maximum number of event streams that read ended runs from the journal: 16. Each holds
    /// its whole run in memory.
    pub const OLD_READERS: usize = 16;
    /// The default interval without events after which an event stream gets a heartbeat: 15
    /// seconds.
    pub const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(15);
    /// The default time that a response waits for a run to start or to receive a command: 10
    /// seconds.
    pub const DEFAULT_COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

    /// The maximum size of a file that a run wrote and a client reads: 8 MiB.
    pub const MAX_ARTIFACT: u64 = 8 << 20;
    /// The maximum number of such files that are sent at the same time: 32. One named token gets
    /// the share that [`Runs::token_share`] sets.
    pub const ARTIFACTS: usize = 32;

    /// Creates an HTTP API for these runs.
    pub fn new(runs: Runs) -> Self {
        let settings = Settings {
            conversations: None,
            #[cfg(feature = "dag")]
            plans: None,
            tools: None,
            tool_calls: Self::DEFAULT_TOOL_CALLS,
            requests: Self::DEFAULT_REQUESTS,
            body_limit: Self::DEFAULT_BODY_LIMIT,
            body_time: Self::DEFAULT_BODY_TIME,
            answer_time: Self::DEFAULT_ANSWER_TIME,
            goal_limit: Self::DEFAULT_GOAL_LIMIT,
            readers: Self::DEFAULT_READERS,
            heartbeat: Self::DEFAULT_HEARTBEAT,
            patience: Self::DEFAULT_COMMAND_TIMEOUT,
            workspace: None,
            page: false,
            login: login::LoginSlot::default(),
        };
        Self { runs, settings }
    }

    /// Lets clients read and delete the conversations that the runs are part of. Disabled by
    /// default.
    ///
    /// Pass the same conversations that the agent uses. Deleting one fails with 409 while a run
    /// uses it.
    pub fn conversations(mut self, conversations: Conversations) -> Self {
        self.settings.conversations = Some(conversations);
        self
    }

    /// Lets clients read the files that runs wrote in this workspace. Disabled by default.
    ///
    /// A client can read only files that the list of a run's artifacts contains and that have not
    /// changed since the run wrote them. Pass the workspace that the agent's tools use: its rules
    /// apply, so denied files and links that lead out of it cannot be read.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_sandbox::Workspace;
    /// use levity_serve::{Runs, http::HttpApi};
    /// use levity_test::ScriptedModel;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let folder = folder.path();
    /// let workspace = Workspace::open(folder)?;
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new()).build()?);
    /// let api = HttpApi::new(runs).workspace(workspace);
    /// # drop(api);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn workspace(mut self, workspace: Workspace) -> Self {
        self.settings.workspace = Some(workspace);
        self
    }

    /// Serves a web page at `/` that shows and controls the runs. Disabled by default.
    ///
    /// The files of the page are part of this crate and require no token; the page asks its user
    /// for one. Its content security policy allows scripts, styles and requests only from this
    /// server. All its URLs are relative, so a reverse proxy may add a path.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{AccessControl, Listener, Runs, Token, http::HttpApi};
    /// use levity_test::ScriptedModel;
    /// use tokio::{io::{AsyncReadExt as _, AsyncWriteExt as _}, net::TcpStream};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new()).build()?;
    /// let listener = Listener::bind("127.0.0.1:0", AccessControl::new(Token::generate()?)).await?;
    /// let address = listener.address();
    /// let api = HttpApi::new(Runs::new(agent)).page();
    /// # let client = async {
    /// let mut stream = TcpStream::connect(address).await?;
    /// stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    /// let mut response = String::new();
    /// stream.read_to_string(&mut response).await?;
    /// assert!(response.starts_with("HTTP/1.1 200") && response.contains("<!doctype html>"));
    /// # Ok::<(), std::io::Error>(())
    /// # };
    /// # tokio::select! { served = api.serve(listener) => served?, asked = client => asked? }
    /// # Ok(())
    /// # }
    /// ```
    pub fn page(mut self) -> Self {
        self.settings.page = true;
        self
    }

    /// Lets one client exchange a code for this token, and returns the code. Disabled by default.
    ///
    /// The code is valid once and for five minutes from now. Pass it to the page in the fragment of
    /// its URL, as in `http://127.0.0.1:8787/#code=CODE`; `POST /v1/login` with
    /// `{"code": "CODE"}` returns `{"token": ".."}`. Wrong codes count as wrong tokens. A second
    /// call replaces the first code.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{Runs, Token, http::HttpApi};
    /// use levity_test::ScriptedModel;
    ///
    /// let token = Token::generate()?; // the token that the listener accepts
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new()).build()?);
    /// let (api, code) = HttpApi::new(runs).page().login_code(token)?;
    /// println!("http://127.0.0.1:8787/#code={code}");
    /// # drop(api);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the system provides no randomness.
    pub fn login_code(mut self, token: crate::Token) -> Result<(Self, String)> {
        let code = crate::Token::generate()?;
        let text = code.reveal().to_owned();
        let until = self.runs.runtime().world().now().after(login::VALID);
        let login = login::LoginCode { code, token, until };
        self.settings.login = login::LoginSlot::new(Some(login));
        Ok((self, text))
    }

    /// Lets clients read stored plans. Disabled by default.
    #[cfg(feature = "dag")]
    pub fn plans(mut self, sessions: levity_observe::SessionFolder) -> Self {
        self.settings.plans = Some(sessions);
        self
    }

    /// Lets clients list tools and call them under their policy. Disabled by default. Use
    /// `agent.dispatcher().clone()` to offer the tools of an agent.
    ///
    /// A tool that needs approval is rejected with 409, unless the client sends `"approved": true`
    /// with a token that has the scope `approve`.
    ///
    /// ```
    /// use levity_core::ToolOutput;
    /// use levity_loop::Agent;
    /// use levity_serve::{Runs, http::HttpApi};
    /// use levity_test::{RecordingTool, ScriptedModel};
    ///
    /// let look = RecordingTool::new("look", |_| Ok(ToolOutput::text("nothing")));
    /// let agent = Agent::builder(ScriptedModel::new()).tool(look).build()?;
    /// let tools = agent.dispatcher().clone();
    /// assert_eq!(tools.specs().len(), 1);
    /// let api = HttpApi::new(Runs::new(agent)).tools(tools).tool_calls(8);
    /// # drop(api);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tools(mut self, tools: Dispatcher) -> Self {
        self.settings.tools = Some(tools);
        self
    }

    /// Sets the maximum number of concurrent tool calls;
    /// [`DEFAULT_TOOL_CALLS`](Self::DEFAULT_TOOL_CALLS) by default. One named token gets the share
    /// that [`Runs::token_share`] sets.
    pub fn tool_calls(mut self, limit: usize) -> Self {
        self.settings.tool_calls = limit;
        self
    }

    /// Sets the maximum number of requests in progress;
    /// [`DEFAULT_REQUESTS`](Self::DEFAULT_REQUESTS) by default. One named token gets the share that
    /// [`Runs::token_share`] sets.
    pub fn requests(mut self, limit: usize) -> Self {
        self.settings.requests = limit;
        self
    }

    /// Sets the maximum size of a request body; [`DEFAULT_BODY_LIMIT`](Self::DEFAULT_BODY_LIMIT) by
    /// default.
    ///
    /// A larger body is rejected with 413, before it is read if its length is announced.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.settings.body_limit = bytes;
        self
    }

    /// Sets the timeout for receiving a request body;
    /// [`DEFAULT_BODY_TIME`](Self::DEFAULT_BODY_TIME) by default.
    pub fn body_time(mut self, time: Duration) -> Self {
        self.settings.body_time = time;
        self
    }

    /// Sets the time in which a client must read a response;
    /// [`DEFAULT_ANSWER_TIME`](Self::DEFAULT_ANSWER_TIME) by default. After that, the connection is
    /// closed. It does not apply to event streams.
    pub fn answer_time(mut self, time: Duration) -> Self {
        self.settings.answer_time = time;
        self
    }

    /// Sets the maximum length of a goal; [`DEFAULT_GOAL_LIMIT`](Self::DEFAULT_GOAL_LIMIT) by
    /// default. [`Runs::prompt_limit`] applies as well.
    pub fn goal_limit(mut self, bytes: usize) -> Self {
        self.settings.goal_limit = bytes;
        self
    }

    /// Sets the maximum number of concurrent event streams;
    /// [`DEFAULT_READERS`](Self::DEFAULT_READERS) by default. One named token gets the share that
    /// [`Runs::token_share`] sets.
    pub fn readers(mut self, limit: usize) -> Self {
        self.settings.readers = limit;
        self
    }

    /// Sets the interval without events after which an event stream gets a heartbeat;
    /// [`DEFAULT_HEARTBEAT`](Self::DEFAULT_HEARTBEAT) by default.
    ///
    /// Heartbeats are comments, which browsers ignore. They keep proxies from closing an idle
    /// stream, and show that a client has disconnected.
    pub fn heartbeat(mut self, time: Duration) -> Self {
        self.settings.heartbeat = time;
        self
    }

    /// Sets the time that a response waits for a run to start or to receive a command;
    /// [`DEFAULT_COMMAND_TIMEOUT`](Self::DEFAULT_COMMAND_TIMEOUT) by default. A command that was
    /// accepted by then is delivered in any case, and the response says so.
    pub fn command_timeout(mut self, time: Duration) -> Self {
        self.settings.patience = time;
        self
    }

    /// Serves until the listener must stop. Dropping the future closes all connections; the runs
    /// continue as long as a clone of their [`Runs`] exists.
    ///
    /// ```
    /// use levity_core::CancelToken;
    /// use levity_loop::Agent;
    /// use levity_serve::{AccessControl, Listener, Runs, Token, http::HttpApi};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new()).build()?);
    /// let stop = CancelToken::new();
    /// let listener = Listener::bind("127.0.0.1:0", AccessControl::new(Token::generate()?))
    ///     .await?
    ///     .stop_on(stop.clone());
    /// # stop.cancel();
    /// HttpApi::new(runs.clone()).serve(listener).await?; // until `stop` is cancelled
    /// assert_eq!(runs.running(), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the listener fails.
    pub async fn serve(self, listener: Listener) -> Result<()> {
        let mut listener = listener.open_at("/v1/health");
        if self.settings.has_login() {
            listener = listener.open_at(login::PATH);
        }
        if self.settings.page {
            listener = page::paths().fold(listener, Listener::open_at);
        }
        let share = self.runs.share();
        let api = Arc::new(Api {
            requests: Quota::new(self.settings.requests, share),
            bodies: BodyReader::new(self.settings.body_limit, self.settings.body_time, share),
            readers: Quota::new(self.settings.readers, share),
            old_readers: Quota::new(Self::OLD_READERS, share),
            tool_calls: Quota::new(self.settings.tool_calls, share),
            call_prefix: self.runs.runtime().world().random(),
            calls: AtomicU64::new(1),
            artifacts: Quota::new(Self::ARTIFACTS, share),
            shared: snapshots::SharedEvents::default(),
            decisions: asks::DecisionsInProgress::default(),
            stop: listener.stopped(),
            runs: self.runs,
            settings: self.settings,
        });
        listener.serve_callers(routes::router(&api)).await
    }
}

impl fmt::Debug for HttpApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpApi")
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}
