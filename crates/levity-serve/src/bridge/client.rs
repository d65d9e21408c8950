//! The client of a bridge host: one shared connection, retries and notifications.
//!
//! A request is repeated only if that is harmless: reads, and dispatches with an id. A write that
//! may have arrived is never repeated; the error says that the outcome is unknown.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use levity_core::World;
use levity_runtime::SystemWorld;
use serde_json::{Value, json};
use tokio::sync::{Mutex, broadcast};

use super::address::Address;
use super::error::{Error, ErrorKind, Result};
use super::link::Link;
use crate::token::Token;

/// A client of a [`BridgeHost`](super::BridgeHost). Cloning is cheap, and all clones share a
/// connection.
///
/// It connects at the first request, and reconnects if the connection breaks.
///
/// - If the host is absent or still loading, the client retries for
///   [`DEFAULT_RETRY_TIME`](Self::DEFAULT_RETRY_TIME).
/// - If the connection breaks during a read-only request, the client repeats it. It also repeats a
///   dispatch, because the task id prevents a second start. It does not repeat a write unless it
///   was never sent: the error then states that the outcome is unknown.
/// - Dropping the future of a request cancels it.
///
/// ```
/// use levity_serve::Token;
/// use levity_serve::bridge::{BridgeClient, ErrorKind};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let free = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let url = format!("ws://{}", free.local_addr()?);
/// # drop(free);
/// let client = BridgeClient::new(&url, Token::generate()?)?.retry_time(Duration::ZERO);
/// let error = client.request("ping", serde_json::json!({})).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Absent); // no host is running
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct BridgeClient {
    address: Address,
    token: TokenSource,
    patience: Duration,
    shared: Arc<Shared>,
}

/// The source of the token.
#[derive(Clone)]
enum TokenSource {
    Token(Token),
    /// Read again for each connection, because the host may not have created it yet.
    File(Arc<Path>),
}

impl TokenSource {
    fn token(&self) -> Result<Token> {
        match self {
            Self::Token(token) => Ok(token.clone()),
            Self::File(path) => Token::from_file(path).map_err(|error| {
                let message = format!(
                    "a host is running, but its token is not available: {error}; pass the token \
                        that the host printed when it was created, with `--token-file` or \
                        `LEVITY_BRIDGE_TOKEN`"
                );
                Error::new(ErrorKind::Unauthorized, message)
            }),
        }
    }
}

struct Shared {
    link: Mutex<Option<Arc<Link>>>,
    notifications: broadcast::Sender<Arc<Value>>,
}

/// The first pause between two attempts; each pause is twice as long as the previous one, up to a
/// second.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The maximum time for a response, in addition to the time that a request waits for a file.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of notifications that are buffered for a slow reader.
const NOTIFICATION_BUFFER: usize = 1024;

impl BridgeClient {
    /// The default time for which the client retries if the host is absent or still loading: 4
    /// seconds.
    pub const DEFAULT_RETRY_TIME: Duration = Duration::from_secs(4);

    /// Creates a client for the host at a URL such as `ws://127.0.0.1:8888`, on this machine.
    ///
    /// ```
    /// use levity_serve::{Token, bridge::BridgeClient};
    /// let token = Token::generate()?;
    /// assert!(BridgeClient::new("ws://127.0.0.1:8888", token.clone()).is_ok());
    /// assert!(BridgeClient::new("http://127.0.0.1:8888", token.clone()).is_err());
    /// assert!(BridgeClient::new("ws://10.0.0.7:8888", token).is_err(), "another machine");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the URL is invalid, or names another machine.
    pub fn new(url: &str, token: Token) -> Result<Self> {
        Ok(Self::to(
            Address::parse(url, false)?,
            TokenSource::Token(token),
        ))
    }

    /// Creates a client for a host on another machine. The connection is not encrypted.
    ///
    /// Prefer a tunnel, such as `ssh -L 8888:127.0.0.1:8888 machine`, which encrypts. The token is
    /// not sent in any case, but files and prompts are readable on the network.
    ///
    /// ```
    /// use levity_serve::{Token, bridge::BridgeClient};
    /// assert!(BridgeClient::remote("ws://10.0.0.7:8888", Token::generate()?).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the URL is invalid.
    pub fn remote(url: &str, token: Token) -> Result<Self> {
        Ok(Self::to(
            Address::parse(url, true)?,
            TokenSource::Token(token),
        ))
    }

    /// Reads the token from this file instead, each time the client connects.
    #[must_use]
    pub fn token_file(mut self, path: impl AsRef<Path>) -> Self {
        self.token = TokenSource::File(path.as_ref().into());
        self
    }

    fn to(address: Address, token: TokenSource) -> Self {
        let shared = Shared {
            link: Mutex::default(),
            notifications: broadcast::Sender::new(NOTIFICATION_BUFFER),
        };
        Self {
            address,
            token,
            patience: Self::DEFAULT_RETRY_TIME,
            shared: Arc::new(shared),
        }
    }

    /// Sets the time for which the client retries if the host is absent or still loading.
    ///
    /// Pauses grow from 50 ms to one second. Zero disables retries.
    #[must_use]
    pub fn retry_time(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }

    /// Sends a request and waits for the response.
    ///
    /// A response is awaited for 60 seconds, and for the `timeout` of `fs/wait` in addition.
    ///
    /// ```
    /// use levity_sandbox::Workspace;
    /// use levity_serve::bridge::{BridgeClient, BridgeHost};
    /// use levity_serve::{AccessControl, Listener, Token};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let host = BridgeHost::builder(Workspace::open(folder.path())?).build()?;
    /// # let token = Token::generate()?;
    /// # let listener = Listener::bind("127.0.0.1:0", AccessControl::new(token.clone())).await?;
    /// # let url = format!("ws://{}", listener.address());
    /// # let work = async {
    /// let client = BridgeClient::new(&url, token)?;
    /// client.request("fs/write", json!({"path": "notes.md", "content": "Hello."})).await?;
    /// let read = client.request("fs/read", json!({"path": "notes.md"})).await?;
    /// assert_eq!(read["content"], "Hello.");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # };
    /// # tokio::select! { served = host.serve(listener) => served?, done = work => done? }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the host rejects the request or is absent, or if the connection breaks.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value> {
        let mut pauses = Pauses::new(self.patience);
        let mut may_repeat = is_idempotent(method, &params);
        loop {
            let result = match self.link().await {
                Ok(link) => self.timed(&link, method, &params).await,
                Err(error) => Err(error),
            };
            let error = match result {
                Err(error) => error,
                answer => return answer,
            };
            match error.kind() {
                ErrorKind::Absent | ErrorKind::NotReady if pauses.pause().await => {}
                ErrorKind::Lost if std::mem::take(&mut may_repeat) => {}
                ErrorKind::Lost | ErrorKind::TimedOut if method == "fs/write" => {
                    return Err(unknown_outcome(&error));
                }
                _ => return Err(error),
            }
        }
    }

    /// Sends a request on a connection and limits the time until its response.
    async fn timed(&self, link: &Link, method: &str, params: &Value) -> Result<Value> {
        let wait = params
            .get("timeout")
            .and_then(Value::as_f64)
            .filter(|_| method == "fs/wait");
        let wait = Duration::try_from_secs_f64(wait.unwrap_or(0.0)).unwrap_or_default();
        let answer = tokio::time::timeout(
            RESPONSE_TIMEOUT.saturating_add(wait),
            link.call(method, params),
        )
        .await;
        answer.unwrap_or_else(|_| {
            let message = format!(
                "the host at {} did not answer in time; check that it is still running",
                self.address
            );
            Err(Error::new(ErrorKind::TimedOut, message))
        })
    }

    /// Returns the connection, and connects if there is none.
    async fn link(&self) -> Result<Arc<Link>> {
        let mut link = self.shared.link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        *link = None;
        let link_arc = Link::connect(
            &self.address,
            || self.token.token(),
            self.shared.notifications.clone(),
        )
        .await?;
        let link_arc = Arc::new(link_arc);
        *link = Some(link_arc.clone());
        Ok(link_arc)
    }

    /// Returns the notifications of the host from now on: `fs/changed`, `agent/event`. They arrive
    /// only while there is a connection.
    ///
    /// Up to 1,024 are buffered for a slow reader; after that, it misses the oldest ones.
    pub fn notifications(&self) -> Notifications {
        Notifications(self.shared.notifications.subscribe())
    }

    /// Dispatches a task under an id that this client generates, and returns the id.
    ///
    /// `done` names the signal file for an answer; `DONE_` and the task's id by default. The result
    /// has the fields `task`, `known` and `signal`. The id makes a repetition harmless: the host
    /// starts a task once.
    ///
    /// # Errors
    /// Fails under the same conditions as [`request`](Self::request).
    pub async fn dispatch(&self, prompt: &str, done: Option<&str>) -> Result<Value> {
        let task = format!("{:016x}", SystemWorld.random());
        let mut params = json!({"prompt": prompt, "task": task, "events": false});
        if let Some(done) = done {
            params["done"] = done.into();
        }
        self.request("agent/dispatch", params)
            .await
            .map_err(|error| match error.kind() {
                ErrorKind::Lost | ErrorKind::TimedOut => {
                    let message = format!(
                        "{error}; the task may have started: check the status of task {task}"
                    );
                    Error::new(error.kind(), message)
                }
                _ => error,
            })
    }
}

/// Replaces the error of a write that may have arrived. The new message asks to read the file
/// first.
fn unknown_outcome(error: &Error) -> Error {
    let what = match error.kind() {
        ErrorKind::TimedOut => "the host did not answer in time",
        _ => "the connection to the host broke before the response",
    };
    let message = format!(
        "{what}, so the file may or may not have been written; read it before you write it again"
    );
    Error::new(error.kind(), message)
}

/// Returns `true` if the request is idempotent.
fn is_idempotent(method: &str, params: &Value) -> bool {
    match method {
        "agent/dispatch" => params.get("task").is_some(),
        "fs/read" | "fs/list" | "fs/wait" | "agent/status" | "agent/list" | "host/info"
        | "ping" => true,
        _ => false,
    }
}

/// Increasing pauses between attempts, until the time limit is used up.
struct Pauses {
    next: Duration,
    remaining: Duration,
}

impl Pauses {
    fn new(patience: Duration) -> Self {
        Self {
            next: MIN_PAUSE,
            remaining: patience,
        }
    }

    /// Waits for the next pause; `false` if no time is left.
    async fn pause(&mut self) -> bool {
        if self.remaining.is_zero() {
            return false;
        }
        let pause = self.next.min(self.remaining);
        SystemWorld.sleep(pause).await;
        self.remaining -= pause;
        self.next = (self.next * 2).min(MAX_PAUSE);
        true
    }
}

impl fmt::Debug for BridgeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BridgeClient")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// The notifications of a host.
///
/// ```
/// use levity_serve::{Token, bridge::BridgeClient};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = BridgeClient::new("ws://127.0.0.1:8888", Token::generate()?)?;
/// let mut notifications = client.notifications();
/// drop(client);
/// assert!(notifications.next().await.is_none(), "the client is gone");
/// # Ok(())
/// # }
/// ```
pub struct Notifications(broadcast::Receiver<Arc<Value>>);

impl Notifications {
    /// Waits for the next notification, with its `method` and `params`; a slow reader misses some.
    /// Returns `None` if the client was dropped.
    pub async fn next(&mut self) -> Option<Arc<Value>> {
        loop {
            match self.0.recv().await {
                Ok(notifications) => return Some(notifications),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notifications(..)")
    }
}
