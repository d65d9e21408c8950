//! The session of one client: handles its requests and sends it messages one at a time.
//!
//! Three futures run side by side: one reads messages and starts requests, one sends, and one waits
//! for the host to close. The first that ends disconnects the client with a close code and a
//! reason. Requests in progress are tasks of the reader and end with it, except work that the host
//! itself has spawned.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use levity_core::CancelToken;
use levity_rpc::{self as rpc, InflightRequest, InflightRequests};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::error::ProtocolError;

use super::error::{Error, ErrorKind, Result};
use super::host::Inner;
use super::methods::{self, MethodReply};
use super::notice::Notice;
use super::outbox::Outbox;
use super::wire;
use crate::feed::EventReader;

/// A message to a client.
pub(super) struct Outgoing {
    pub(super) text: String,
    /// The events that the client reads from here on.
    pub(super) follow: Option<Follow>,
    /// Held until the outbox takes the message, so that unread responses do not accumulate.
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

/// The events of a task, and the permit for reading them.
pub(super) struct Follow {
    pub(super) task: String,
    pub(super) reader: EventReader,
    pub(super) _permit: OwnedSemaphorePermit,
}

/// The reason for which a client is disconnected.
pub(super) struct Disconnect {
    pub(super) code: u16,
    pub(super) reason: &'static str,
}

/// The notification that cancels a request, by its `id`.
pub(super) const CANCEL: &str = "$/cancelRequest";
/// The time that a disconnected client has to receive the reason.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves a client until it disconnects or is disconnected.
pub(super) async fn serve(socket: WebSocket, host: &Arc<Inner>, stop: &CancelToken) {
    let number = host.number();
    host.notify(&Notice::In { client: number });
    let (mut sink, stream) = socket.split();
    let (send, waiting) = mpsc::channel(host.limits.requests.max(1));
    let active = Arc::new(AtomicBool::new(true));
    let handler = Arc::new(RequestHandler {
        host: host.clone(),
        number,
        send,
        calls: InflightRequests::new(host.limits.requests),
        readers: Arc::new(Semaphore::new(host.limits.subscriptions)),
    });
    let outbox = Outbox::new(host, number, waiting, active.clone());
    let disconnect = tokio::select! {
        disconnect = read(stream, &handler, &active) => disconnect,
        disconnect = outbox.run(&mut sink) => disconnect,
        () = stop.cancelled() => Disconnect { code: close_code::AWAY, reason: "the host is \
            closing" },
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, send_close(&mut sink, &disconnect)).await;
    host.notify(&Notice::Out {
        client: number,
        why: disconnect.reason.to_owned(),
    });
}

async fn send_close(sink: &mut SplitSink<WebSocket, Message>, disconnect: &Disconnect) {
    let frame = CloseFrame {
        code: disconnect.code,
        reason: disconnect.reason.into(),
    };
    let _ = sink.send(Message::Close(Some(frame))).await;
}

/// Reads messages until the client disconnects. Any message counts as a sign of life, also a pong.
async fn read(
    mut stream: SplitStream<WebSocket>,
    handler: &Arc<RequestHandler>,
    active: &AtomicBool,
) -> Disconnect {
    // Requests in progress end with the client.
    let mut tasks = JoinSet::new();
    while let Some(message) = stream.next().await {
        active.store(true, Ordering::Relaxed);
        while tasks.try_join_next().is_some() {}
        match message {
            Ok(Message::Text(text)) => {
                if let Some(answer) = handler.handle(&text, &mut tasks)
                    && handler.send.send(answer).await.is_err()
                {
                    break;
                }
            }
            Ok(Message::Binary(_)) => {
                return Disconnect {
                    code: close_code::UNSUPPORTED,
                    reason: "messages must be text, not binary",
                };
            }
            Ok(Message::Close(_)) => break,
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            Err(error) => return broken(error),
        }
    }
    Disconnect {
        code: close_code::NORMAL,
        reason: "it disconnected",
    }
}

/// Translates a broken connection to a close code: 1009 for a message that is too large, 1007 for
/// text that is not UTF-8, 1002 for a violation of the protocol.
fn broken(error: axum::Error) -> Disconnect {
    match error.into_inner().downcast_ref::<WsError>() {
        Some(WsError::Capacity(_)) => Disconnect {
            code: close_code::SIZE,
            reason: "its message is too large",
        },
        Some(WsError::Utf8(_)) => Disconnect {
            code: close_code::INVALID,
            reason: "its message is not UTF-8",
        },
        Some(WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => Disconnect {
            code: close_code::NORMAL,
            reason: "it disconnected",
        },
        Some(WsError::Protocol(_)) => Disconnect {
            code: close_code::PROTOCOL,
            reason: "it violates the WebSocket protocol",
        },
        _ => Disconnect {
            code: close_code::ERROR,
            reason: "the connection broke",
        },
    }
}

/// Handles the requests of a client.
struct RequestHandler {
    host: Arc<Inner>,
    number: u64,
    send: mpsc::Sender<Outgoing>,
    /// The requests in progress.
    calls: InflightRequests,
    /// Limits the tasks whose events the client reads.
    readers: Arc<Semaphore>,
}

/// A request in progress.
struct PendingRequest {
    id: Value,
    method: String,
    params: Value,
    running: InflightRequest,
}

impl RequestHandler {
    /// Starts the request in a message, or returns an immediate response.
    fn handle(self: &Arc<Self>, text: &str, tasks: &mut JoinSet<()>) -> Option<Outgoing> {
        match rpc::RpcMessage::parse(text) {
            Ok(rpc::RpcMessage::Request { id, method, params }) => {
                // The request is registered at once, because the next message may cancel it.
                let Some(running) = self.calls.begin(&id) else {
                    let limit = self.host.limits.requests;
                    let message = format!(
                        "{limit} requests of this client are in progress, which is the limit; wait \
                            for one of them"
                    );
                    return Some(response(&id, &Err(Error::new(ErrorKind::Full, message))));
                };
                tasks.spawn(self.clone().work(PendingRequest {
                    id,
                    method,
                    params,
                    running,
                }));
                None
            }
            Ok(rpc::RpcMessage::Notification { method, params }) => {
                if let (CANCEL, Some(id)) = (&*method, params.get("id")) {
                    self.calls.cancel(id);
                }
                None
            }
            // A host sends no requests, so it expects no responses.
            Ok(rpc::RpcMessage::Answer { .. }) => None,
            Err(wrong) => Some(response(&wrong.id.clone(), &Err(wrong.into()))),
        }
    }

    /// Executes a request and sends its response. The permit of the request travels with the
    /// response and is released when the outbox takes it.
    async fn work(self: Arc<Self>, request: PendingRequest) {
        let PendingRequest {
            id,
            method,
            params,
            running,
        } = request;
        let cancel = running.cancel_token().clone();
        let mut called = pin!(methods::call(
            &self.host,
            self.number,
            &method,
            params,
            &cancel
        ));
        let done = match methods::has_side_effects(&method) {
            // A method with side effects reports itself if it was cancelled in time.
            true => called.await.map(|done| {
                if cancel.is_cancelled() {
                    done.value.into()
                } else {
                    done
                }
            }),
            false => tokio::select! {
                done = &mut called => done,
                () = cancel.cancelled() => Err(Error::cancelled()),
            },
        };
        let permit = running.finish();
        let (result, follow) = match done {
            Ok(MethodReply {
                value,
                follow: None,
            }) => (Ok(value), None),
            Ok(MethodReply {
                value,
                follow: Some((task, reader)),
            }) => self.follow(&method, value, task, reader),
            Err(error) => (Err(error), None),
        };
        let answer = Outgoing {
            follow,
            _permit: permit,
            ..response(&id, &result)
        };
        // The client may have disconnected.
        let _ = self.send.send(answer).await;
    }

    /// Lets the client read events if the limit allows it. A client that only dispatched a task
    /// continues without events.
    fn follow(
        &self,
        method: &str,
        value: Value,
        task: String,
        reader: EventReader,
    ) -> (Result<Value>, Option<Follow>) {
        match self.readers.clone().try_acquire_owned() {
            Ok(permit) => (
                Ok(value),
                Some(Follow {
                    task,
                    reader,
                    _permit: permit,
                }),
            ),
            Err(_) if method == "agent/subscribe" => {
                let limit = self.host.limits.subscriptions;
                let message = format!(
                    "this client reads the events of {limit} tasks, which is the limit; wait until \
                        one of them has ended"
                );
                (Err(Error::new(ErrorKind::Full, message)), None)
            }
            Err(_) => (Ok(value), None),
        }
    }
}

fn response(id: &Value, result: &Result<Value>) -> Outgoing {
    Outgoing {
        text: wire::answer(id, result),
        follow: None,
        _permit: None,
    }
}
