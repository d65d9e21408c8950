//! One connection to a host.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

use super::address::Address;
use super::challenge;
use super::error::{Error, ErrorKind, Result};
use super::wire;
use crate::proof::{self, Exchange};
use crate::token::Token;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a host may be silent: it asks every 20 seconds whether we are there.
const SILENCE: Duration = Duration::from_secs(90);
/// The longest message that is taken.
const MAX_MESSAGE: usize = 64 << 20;
/// How many messages wait to be sent.
const WAITING: usize = 64;

pub(super) struct Link {
    send: mpsc::Sender<Sent>,
    calls: Arc<Calls>,
    next: AtomicU64,
    /// The longest message that the host takes.
    pub(super) most: usize,
    _task: JoinSet<()>,
}

/// What waits for an answer; nothing more does once the connection is gone.
#[derive(Default)]
struct Calls(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    gone: bool,
    calls: HashMap<u64, Call>,
}

struct Call {
    answer: oneshot::Sender<Result<Value>>,
    /// Whether any of it may have left this process.
    sent: bool,
}

/// What is to be sent, and the call that it is of.
struct Sent {
    call: Option<u64>,
    text: String,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a call is being sent.
    fn sending(&self, call: Option<u64>) {
        if let Some(call) = call
            && let Some(call) = self.lock().calls.get_mut(&call)
        {
            call.sent = true;
        }
    }

    /// Tells all who wait that nothing more comes.
    fn close(&self) {
        let mut waiting = self.lock();
        waiting.gone = true;
        let calls = std::mem::take(&mut waiting.calls);
        drop(waiting);
        for call in calls.into_values() {
            let _ = call.answer.send(Err(if call.sent { lost() } else { unsent() }));
        }
    }
}

impl Link {
    pub(super) async fn connect(
        address: &Address,
        token: impl Fn() -> Result<Token>,
        told: broadcast::Sender<Arc<Value>>,
    ) -> Result<Self> {
        let connected = tokio::time::timeout(CONNECT, open(address, token)).await;
        let stream = connected.map_err(|_| {
            let words = format!("something listens at {address} and does not answer as a bridge host does");
            Error::new(ErrorKind::Absent, words)
        })??;
        let (send, waiting) = mpsc::channel(WAITING);
        let calls = Arc::new(Calls::default());
        let mut task = JoinSet::new();
        task.spawn(drive(stream, waiting, calls.clone(), told));
        let mut link = Self { send, calls, next: AtomicU64::new(1), most: usize::MAX, _task: task };
        let info = tokio::time::timeout(CONNECT, link.call("host/info", &json!({}))).await;
        // Nothing else was asked for yet, so nothing else was done.
        let info = info.map_err(|_| unsent())?.map_err(|error| match error.kind() {
            ErrorKind::Lost => unsent(),
            _ => error,
        })?;
        let most = info.pointer("/limits/message").and_then(Value::as_u64).unwrap_or(u64::MAX);
        link.most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(link)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.calls.lock().gone
    }

    /// Asks, and waits for the answer. Dropping the future takes the request back.
    pub(super) async fn call(&self, method: &str, params: &Value) -> Result<Value> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let text = wire::request(id, method, params);
        if text.len() > self.most {
            let words = format!(
                "the message has {} bytes, and the host takes at most {}; send less at once, such as several smaller files",
                text.len(),
                self.most
            );
            return Err(Error::new(ErrorKind::TooLarge, words));
        }
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.calls.lock();
            if waiting.gone {
                return Err(unsent());
            }
            waiting.calls.insert(id, Call { answer, sent: false });
        }
        let _back = TakeBack { link: self, id };
        self.send.send(Sent { call: Some(id), text }).await.map_err(|_| unsent())?;
        answered.await.unwrap_or_else(|_| Err(lost()))
    }
}

/// Tells the host that nobody waits for an answer any more.
struct TakeBack<'a> {
    link: &'a Link,
    id: u64,
}

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        if self.link.calls.lock().calls.remove(&self.id).is_some() {
            let text = wire::notification("$/cancelRequest", &json!({"id": self.id}));
            let _ = self.link.send.try_send(Sent { call: None, text });
        }
    }
}

fn lost() -> Error {
    let words = "the connection to the host broke before there was an answer; ask again, it is made anew";
    Error::new(ErrorKind::Lost, words)
}

/// What was never sent can be asked for again, whatever it is.
fn unsent() -> Error {
    let words = "the host went away before it was asked; nothing was done. Ask again when it is there";
    Error::new(ErrorKind::Absent, words)
}

/// Connects to a host, which proves that it has the token before this side does. Neither side sends it.
async fn open(address: &Address, token: impl Fn() -> Result<Token>) -> Result<WebSocketStream<TcpStream>> {
    let absent = |error: std::io::Error| {
        let words = format!(
            "no bridge host answers at {address} ({error}); start one with `levity bridge host --workspace DIR`, or name where it is with `--url`"
        );
        Error::new(ErrorKind::Absent, words)
    };
    let mut stream = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(absent)?;
    let _ = stream.set_nodelay(true);
    let to = stream.peer_addr().map_err(absent)?;
    // Only now: a host that is not there yet makes the token when it is started.
    let token = token()?;
    let client = proof::nonce().ok_or_else(|| Error::failed("the system has no randomness"))?;
    let answer = challenge::ask(&mut stream, address, &client).await?;
    let exchange = Exchange { to, client: &client, server: &answer.server };
    if !exchange.is_of_server(&token, &answer.proof) {
        let words = format!(
            "what listens at {address} does not have the token of your host, so nothing was sent to it; it may be another program, \
             or a host with another token: give the bridge the one that the host printed when it was made, by `--token-file` or \
             `LEVITY_BRIDGE_TOKEN`"
        );
        return Err(Error::new(ErrorKind::Unauthorized, words));
    }
    let odd = || Error::invalid("the host's URL cannot be sent");
    let mut request = address.to_string().into_client_request().map_err(|_| odd())?;
    let mut shown = HeaderValue::from_str(&exchange.authorization(&token)).map_err(|_| odd())?;
    shown.set_sensitive(true);
    request.headers_mut().insert(AUTHORIZATION, shown);
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .read_buffer_size(16 << 10);
    let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
    opened.map(|(stream, _)| stream).map_err(|error| refused(address, &error))
}

/// What the host's refusal means, and what to do about it.
fn refused(address: &Address, error: &WsError) -> Error {
    match error {
        WsError::Http(answer) => challenge::refused(address, answer.status()),
        _ => challenge::stranger(address),
    }
}

/// Sends and receives until the connection is gone.
async fn drive(
    stream: WebSocketStream<TcpStream>,
    mut waiting: mpsc::Receiver<Sent>,
    calls: Arc<Calls>,
    told: broadcast::Sender<Arc<Value>>,
) {
    let (mut sink, mut stream) = stream.split();
    let sending = async {
        while let Some(Sent { call, text }) = waiting.recv().await {
            calls.sending(call);
            if sink.send(Message::Text(text.into())).await.is_err() {
                return;
            }
        }
    };
    let receiving = async {
        while let Ok(Some(Ok(message))) = tokio::time::timeout(SILENCE, stream.next()).await {
            match message {
                Message::Text(text) => take(&text, &calls, &told),
                Message::Close(_) => return,
                _ => {}
            }
        }
    };
    tokio::select! {
        () = sending => {}
        () = receiving => {}
    }
    calls.close();
}

fn take(text: &str, calls: &Calls, told: &broadcast::Sender<Arc<Value>>) {
    let Ok(mut message) = serde_json::from_str::<Value>(text) else { return };
    let Some(id) = message.get("id").and_then(Value::as_u64) else {
        if message.get("method").is_some() && told.receiver_count() > 0 {
            let _ = told.send(Arc::new(message));
        }
        return;
    };
    let Some(Call { answer, .. }) = calls.lock().calls.remove(&id) else { return };
    let result = match message.get("error") {
        Some(error) => Err(Error::from_json(error)),
        None => Ok(message.get_mut("result").map(Value::take).unwrap_or_default()),
    };
    let _ = answer.send(result);
}
