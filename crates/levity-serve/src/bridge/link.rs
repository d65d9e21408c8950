//! A connection to a host.
//!
//! Connecting takes at most five seconds, for TCP, the challenge and the WebSocket with the proof
//! of the client. `host/info` may take five more; the client obeys its message limit from then on.
//! A host that is silent for 90 seconds is considered lost, because it pings every 20 seconds.

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

/// The timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum silence of a host, which pings every 20 seconds.
const MAX_SILENCE: Duration = Duration::from_secs(90);
/// The maximum size of a message.
const MAX_MESSAGE: usize = 64 << 20;

/// A connection, and the task that drives it.
pub(super) struct Link {
    peer: Arc<Peer>,
    _task: JoinSet<()>,
}

impl Link {
    pub(super) async fn connect(
        address: &Address,
        token: impl Fn() -> Result<Token>,
        notifications: broadcast::Sender<Arc<Value>>,
    ) -> Result<Self> {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, open(address, token)).await;
        let stream = connected.map_err(|_| {
            let message = format!(
                "the server at {address} does not answer like a bridge host; set the \
                    address of the host with `--url`"
            );
            Error::new(ErrorKind::Absent, message)
        })??;
        let (peer, outbox) = Peer::new(CANCEL);
        let peer = Arc::new(peer);
        let mut task = JoinSet::new();
        task.spawn(drive(stream, outbox, peer.clone(), notifications));
        let link = Self { peer, _task: task };
        let info = tokio::time::timeout(CONNECT_TIMEOUT, link.call("host/info", &json!({}))).await;
        // Nothing else was requested yet, so nothing else was done.
        let unsent = || Error::from(CallError::Unsent);
        let info = info
            .map_err(|_| unsent())?
            .map_err(|error| match error.kind() {
                ErrorKind::Lost => unsent(),
                _ => error,
            })?;
        let limit = info
            .pointer("/limits/message")
            .and_then(Value::as_u64)
            .unwrap_or(u64::MAX);
        link.peer
            .set_limit(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(link)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.peer.is_closed()
    }

    /// Sends a request and waits for the response. Dropping the future cancels the request.
    pub(super) async fn call(&self, method: &str, params: &Value) -> Result<Value> {
        Ok(self.peer.call(method, params).await?)
    }
}

/// Connects to a host, which proves that it has the token before this side does. Neither side sends
/// the token.
async fn open(
    address: &Address,
    token: impl Fn() -> Result<Token>,
) -> Result<WebSocketStream<TcpStream>> {
    let absent = |error: std::io::Error| {
        let message = format!(
            "no bridge host answers at {address} ({error}); start one with `levity bridge host \
                --workspace DIR`, or set its address with `--url`"
        );
        Error::new(ErrorKind::Absent, message)
    };
    let mut stream = TcpStream::connect((address.host.as_str(), address.port))
        .await
        .map_err(absent)?;
    let _ = stream.set_nodelay(true);
    let to = stream.peer_addr().map_err(absent)?;
    // The token is read only now, because a host that is not running yet creates it when it starts.
    let token = token()?;
    let client =
        proof::nonce().ok_or_else(|| Error::failed("the system provides no randomness"))?;
    let answer = challenge::ask(&mut stream, address, &client).await?;
    let exchange = Exchange {
        to,
        client: &client,
        server: &answer.server,
    };
    if !exchange.is_server_proof(&token, &answer.proof) {
        let message = format!(
            "the server at {address} does not have the token of your host, so nothing was sent to \
                it; it may be another program, or a host with another token: pass the token that \
                the host printed when it was created, with `--token-file` or `LEVITY_BRIDGE_TOKEN`"
        );
        return Err(Error::new(ErrorKind::Unauthorized, message));
    }
    let invalid_url = || Error::invalid("the host's URL is not valid in a request");
    let mut request = address
        .to_string()
        .into_client_request()
        .map_err(|_| invalid_url())?;
    let mut header =
        HeaderValue::from_str(&exchange.authorization(&token)).map_err(|_| invalid_url())?;
    header.set_sensitive(true);
    request.headers_mut().insert(AUTHORIZATION, header);
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .read_buffer_size(16 << 10);
    let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
    opened
        .map(|(stream, _)| stream)
        .map_err(|error| rejection_error(address, &error))
}

/// Converts the host's rejection into an error with the next step.
fn rejection_error(address: &Address, error: &WsError) -> Error {
    match error {
        WsError::Http(answer) => challenge::rejection_error(address, answer.status()),
        _ => challenge::not_a_host(address),
    }
}

/// Sends and receives until the connection is closed.
async fn drive(
    stream: WebSocketStream<TcpStream>,
    mut outbox: PeerOutbox,
    peer: Arc<Peer>,
    notifications: broadcast::Sender<Arc<Value>>,
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
        while let Ok(Some(Ok(message))) = tokio::time::timeout(MAX_SILENCE, stream.next()).await {
            match message {
                Message::Text(text) => receive(&text, &peer, &notifications),
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

/// Passes a notification on if somebody reads notifications; responses go to their requests.
fn receive(text: &str, peer: &Peer, notifications: &broadcast::Sender<Arc<Value>>) {
    if let Some(rpc::RpcMessage::Notification { method, params }) = peer.receive(text)
        && notifications.receiver_count() > 0
    {
        let _ = notifications.send(Arc::new(
            json!({"jsonrpc": "2.0", "method": method, "params": params}),
        ));
    }
}
