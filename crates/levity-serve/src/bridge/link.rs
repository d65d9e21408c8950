//! One connection to a host.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use levity_rpc::{self as rpc, CallError, Peer, PeerOutbox};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::broadcast;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

use super::address::Address;
use super::challenge;
use super::error::{Error, ErrorKind, Result};
use super::session::CANCEL;
use crate::proof::{self, Exchange};
use crate::token::Token;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a host may be silent: it asks every 20 seconds whether we are there.
const SILENCE: Duration = Duration::from_secs(90);
/// The longest message that is taken.
const MAX_MESSAGE: usize = 64 << 20;

/// A connection, and the task that keeps it.
pub(super) struct Link {
    peer: Arc<Peer>,
    _task: JoinSet<()>,
}

impl Link {
    pub(super) async fn connect(
        address: &Address,
        token: impl Fn() -> Result<Token>,
        told: broadcast::Sender<Arc<Value>>,
    ) -> Result<Self> {
        let connected = tokio::time::timeout(CONNECT, open(address, token)).await;
        let stream = connected.map_err(|_| {
            let words =
                format!("something listens at {address} and does not answer as a bridge host does");
            Error::new(ErrorKind::Absent, words)
        })??;
        let (peer, outbox) = Peer::new(CANCEL);
        let peer = Arc::new(peer);
        let mut task = JoinSet::new();
        task.spawn(drive(stream, outbox, peer.clone(), told));
        let link = Self { peer, _task: task };
        let info = tokio::time::timeout(CONNECT, link.call("host/info", &json!({}))).await;
        // Nothing else was asked for yet, so nothing else was done.
        let unsent = || Error::from(CallError::Unsent);
        let info = info
            .map_err(|_| unsent())?
            .map_err(|error| match error.kind() {
                ErrorKind::Lost => unsent(),
                _ => error,
            })?;
        let most = info
            .pointer("/limits/message")
            .and_then(Value::as_u64)
            .unwrap_or(u64::MAX);
        link.peer
            .set_limit(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(link)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.peer.is_closed()
    }

    /// Asks, and waits for the answer. Dropping the future takes the request back.
    pub(super) async fn call(&self, method: &str, params: &Value) -> Result<Value> {
        Ok(self.peer.call(method, params).await?)
    }
}

/// Connects to a host, which proves that it has the token before this side does. Neither side sends
/// it.
async fn open(
    address: &Address,
    token: impl Fn() -> Result<Token>,
) -> Result<WebSocketStream<TcpStream>> {
    let absent = |error: std::io::Error| {
        let words = format!(
            "no bridge host answers at {address} ({error}); start one with `levity bridge host \
                --workspace DIR`, or name where it is with `--url`"
        );
        Error::new(ErrorKind::Absent, words)
    };
    let mut stream = TcpStream::connect((address.host.as_str(), address.port))
        .await
        .map_err(absent)?;
    let _ = stream.set_nodelay(true);
    let to = stream.peer_addr().map_err(absent)?;
    // Only now: a host that is not there yet makes the token when it is started.
    let token = token()?;
    let client = proof::nonce().ok_or_else(|| Error::failed("the system has no randomness"))?;
    let answer = challenge::ask(&mut stream, address, &client).await?;
    let exchange = Exchange {
        to,
        client: &client,
        server: &answer.server,
    };
    if !exchange.is_of_server(&token, &answer.proof) {
        let words = format!(
            "what listens at {address} does not have the token of your host, so nothing was sent \
                to it; it may be another program, \
             or a host with another token: give the bridge the one that the host printed when it \
             was made, by `--token-file` or \
             `LEVITY_BRIDGE_TOKEN`"
        );
        return Err(Error::new(ErrorKind::Unauthorized, words));
    }
    let odd = || Error::invalid("the host's URL cannot be sent");
    let mut request = address
        .to_string()
        .into_client_request()
        .map_err(|_| odd())?;
    let mut shown = HeaderValue::from_str(&exchange.authorization(&token)).map_err(|_| odd())?;
    shown.set_sensitive(true);
    request.headers_mut().insert(AUTHORIZATION, shown);
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .read_buffer_size(16 << 10);
    let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
    opened
        .map(|(stream, _)| stream)
        .map_err(|error| refused(address, &error))
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
    mut outbox: PeerOutbox,
    peer: Arc<Peer>,
    told: broadcast::Sender<Arc<Value>>,
) {
    let (mut sink, mut stream) = stream.split();
    let sending = async {
        while let Some(text) = outbox.next().await {
            if sink.send(Message::Text(text.into())).await.is_err() {
                return;
            }
        }
    };
    let receiving = async {
        while let Ok(Some(Ok(message))) = tokio::time::timeout(SILENCE, stream.next()).await {
            match message {
                Message::Text(text) => take(&text, &peer, &told),
                Message::Close(_) => return,
                _ => {}
            }
        }
    };
    tokio::select! {
        () = sending => {}
        () = receiving => {}
    }
    peer.close();
}

fn take(text: &str, peer: &Peer, told: &broadcast::Sender<Arc<Value>>) {
    if let Some(rpc::RpcMessage::Notification { method, params }) = peer.receive(text)
        && told.receiver_count() > 0
    {
        let _ = told.send(Arc::new(
            json!({"jsonrpc": "2.0", "method": method, "params": params}),
        ));
    }
}
