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

/// Asks a [`BridgeHost`](super::BridgeHost). Cloning costs nothing, and all clones share a
/// connection.
///
/// It connects when it is first asked something, and again when the connection broke.
///
/// - While the host is not there or still loading, it tries again for [`PATIENCE`](Self::PATIENCE).
/// - What only reads is asked a second time when the connection breaks under it, and so is a
///   dispatch, which its id keeps from being done twice. What writes is not, unless it was never
///   sent: the caller is told that nobody knows.
/// - Dropping the future of a request takes it back.
#[derive(Clone)]
pub struct BridgeClient {
    address: Address,
    token: Secret,
    patience: Duration,
    shared: Arc<Shared>,
}

/// Where the token is from.
#[derive(Clone)]
enum Secret {
    Token(Token),
    /// Read anew for each connection: the host may not have made it yet.
    File(Arc<Path>),
}

impl Secret {
    fn token(&self) -> Result<Token> {
        match self {
            Self::Token(token) => Ok(token.clone()),
            Self::File(path) => Token::from_file(path).map_err(|error| {
                let words = format!(
                    "a host is there, and its token is not: {error}; give the bridge the one that \
                        the host printed when it was made, by `--token-file` or \
                        `LEVITY_BRIDGE_TOKEN`"
                );
                Error::new(ErrorKind::Unauthorized, words)
            }),
        }
    }
}

struct Shared {
    link: Mutex<Option<Arc<Link>>>,
    told: broadcast::Sender<Arc<Value>>,
}

/// How long the first pause between two attempts is; each is twice as long as the one before, up to
/// a second.
const PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// How long an answer may take, beside the time that a request waits for a file.
const ANSWER: Duration = Duration::from_secs(60);
/// How many notifications wait for a reader that is slow.
const TOLD: usize = 1024;

impl BridgeClient {
    /// How long it tries again while the host is not there or still loading, unless told otherwise:
    /// 4 seconds.
    pub const PATIENCE: Duration = Duration::from_secs(4);

    /// Asks the host at a URL such as `ws://127.0.0.1:8888`, on this machine.
    ///
    /// # Errors
    /// When the URL makes no sense, or leads to another machine.
    pub fn new(url: &str, token: Token) -> Result<Self> {
        Ok(Self::to(Address::parse(url, false)?, Secret::Token(token)))
    }

    /// Asks a host on another machine. Nothing on the way is encrypted, the token included.
    ///
    /// # Errors
    /// When the URL makes no sense.
    pub fn remote(url: &str, token: Token) -> Result<Self> {
        Ok(Self::to(Address::parse(url, true)?, Secret::Token(token)))
    }

    /// Takes the token from this file instead, each time that it connects.
    #[must_use]
    pub fn token_file(mut self, path: impl AsRef<Path>) -> Self {
        self.token = Secret::File(path.as_ref().into());
        self
    }

    fn to(address: Address, token: Secret) -> Self {
        let shared = Shared {
            link: Mutex::default(),
            told: broadcast::Sender::new(TOLD),
        };
        Self {
            address,
            token,
            patience: Self::PATIENCE,
            shared: Arc::new(shared),
        }
    }

    /// How long it tries again while the host is not there or still loading.
    #[must_use]
    pub fn patience(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }

    /// Asks for something, and waits for the answer.
    ///
    /// # Errors
    /// When the host refuses, is not there, or the connection breaks.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value> {
        let mut pauses = Pauses::new(self.patience);
        let mut again = may_be_repeated(method, &params);
        loop {
            let asked = match self.link().await {
                Ok(link) => self.timed(&link, method, &params).await,
                Err(error) => Err(error),
            };
            let error = match asked {
                Err(error) => error,
                answer => return answer,
            };
            match error.kind() {
                ErrorKind::Absent | ErrorKind::NotReady if pauses.pause().await => {}
                ErrorKind::Lost if std::mem::take(&mut again) => {}
                ErrorKind::Lost | ErrorKind::TimedOut if method == "fs/write" => {
                    return Err(unknown(&error));
                }
                _ => return Err(error),
            }
        }
    }

    async fn timed(&self, link: &Link, method: &str, params: &Value) -> Result<Value> {
        let waits = params
            .get("timeout")
            .and_then(Value::as_f64)
            .filter(|_| method == "fs/wait");
        let waits = Duration::try_from_secs_f64(waits.unwrap_or(0.0)).unwrap_or_default();
        let answer =
            tokio::time::timeout(ANSWER.saturating_add(waits), link.call(method, params)).await;
        answer.unwrap_or_else(|_| {
            let words = format!(
                "the host at {} did not answer in time; look whether it still works",
                self.address
            );
            Err(Error::new(ErrorKind::TimedOut, words))
        })
    }

    /// The connection; made if there is none.
    async fn link(&self) -> Result<Arc<Link>> {
        let mut link = self.shared.link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| !link.is_gone()) {
            return Ok(link.clone());
        }
        *link = None;
        let made = Link::connect(
            &self.address,
            || self.token.token(),
            self.shared.told.clone(),
        )
        .await?;
        let made = Arc::new(made);
        *link = Some(made.clone());
        Ok(made)
    }

    /// What the host tells without being asked, from now on: `fs/changed`, `agent/event`. It is
    /// heard while there is a connection.
    pub fn notifications(&self) -> Notifications {
        Notifications(self.shared.told.subscribe())
    }

    /// Dispatches a task under an id of this client's making, and says which.
    ///
    /// # Errors
    /// As for [`request`](Self::request).
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
                    let words = format!(
                        "{error}. It may have been begun: ask for the status of task {task}"
                    );
                    Error::new(error.kind(), words)
                }
                _ => error,
            })
    }
}

fn unknown(error: &Error) -> Error {
    let what = match error.kind() {
        ErrorKind::TimedOut => "the host did not answer in time",
        _ => "the connection to the host broke before there was an answer",
    };
    let words = format!(
        "{what}, and nobody knows whether the file was written: read it before you write it again"
    );
    Error::new(error.kind(), words)
}

/// Whether asking twice does no more than asking once.
fn may_be_repeated(method: &str, params: &Value) -> bool {
    match method {
        "agent/dispatch" => params.get("task").is_some(),
        "fs/read" | "fs/list" | "fs/wait" | "agent/status" | "agent/list" | "host/info"
        | "ping" => true,
        _ => false,
    }
}

/// Pauses that become longer, until patience is at its end.
struct Pauses {
    next: Duration,
    left: Duration,
}

impl Pauses {
    fn new(patience: Duration) -> Self {
        Self {
            next: PAUSE,
            left: patience,
        }
    }

    /// Waits a moment; false if there is no patience left.
    async fn pause(&mut self) -> bool {
        if self.left.is_zero() {
            return false;
        }
        let pause = self.next.min(self.left);
        SystemWorld.sleep(pause).await;
        self.left -= pause;
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

/// What a host tells without being asked.
pub struct Notifications(broadcast::Receiver<Arc<Value>>);

impl Notifications {
    /// The next one, with its `method` and `params`; a reader that is slow misses some. `None` when
    /// the client is gone.
    pub async fn next(&mut self) -> Option<Arc<Value>> {
        loop {
            match self.0.recv().await {
                Ok(told) => return Some(told),
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
