//! One client: what it asks is worked on, what it is sent goes out one by one.

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
use super::methods::{self, Done};
use super::notice::Notice;
use super::outbox::Outbox;
use super::wire;
use crate::feed::Reader;

/// What goes out to a client.
pub(super) struct Outgoing {
    pub(super) text: String,
    /// Read from here on.
    pub(super) follow: Option<Follow>,
    /// Held until the client has taken it, so that answers nobody takes do not pile up.
    pub(super) _place: Option<OwnedSemaphorePermit>,
}

/// A task's events, and the place that reading them takes.
pub(super) struct Follow {
    pub(super) task: String,
    pub(super) reader: Reader,
    pub(super) _place: OwnedSemaphorePermit,
}

/// Why a client is let go.
pub(super) struct Leave {
    pub(super) code: u16,
    pub(super) why: &'static str,
}

/// The notification that takes a request back, by its `id`.
pub(super) const CANCEL: &str = "$/cancelRequest";
/// How long a client that is let go has to take the reason.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves a client until it leaves or is let go.
pub(super) async fn serve(socket: WebSocket, host: &Arc<Inner>, stop: &CancelToken) {
    let number = host.number();
    host.tell(&Notice::In { client: number });
    let (mut sink, stream) = socket.split();
    let (send, waiting) = mpsc::channel(host.limits.requests.max(1));
    let heard = Arc::new(AtomicBool::new(true));
    let desk = Arc::new(Desk {
        host: host.clone(),
        number,
        send,
        calls: InflightRequests::new(host.limits.requests),
        readers: Arc::new(Semaphore::new(host.limits.subscriptions)),
    });
    let outbox = Outbox::new(host, number, waiting, heard.clone());
    let leave = tokio::select! {
        leave = read(stream, &desk, &heard) => leave,
        leave = outbox.run(&mut sink) => leave,
        () = stop.cancelled() => Leave { code: close_code::AWAY, why: "the host is closing" },
    };
    let _ = tokio::time::timeout(FAREWELL, farewell(&mut sink, &leave)).await;
    host.tell(&Notice::Out {
        client: number,
        why: leave.why.to_owned(),
    });
}

async fn farewell(sink: &mut SplitSink<WebSocket, Message>, leave: &Leave) {
    let frame = CloseFrame {
        code: leave.code,
        reason: leave.why.into(),
    };
    let _ = sink.send(Message::Close(Some(frame))).await;
}

async fn read(mut stream: SplitStream<WebSocket>, desk: &Arc<Desk>, heard: &AtomicBool) -> Leave {
    // What is under way ends with the client.
    let mut under_way = JoinSet::new();
    while let Some(message) = stream.next().await {
        heard.store(true, Ordering::Relaxed);
        while under_way.try_join_next().is_some() {}
        match message {
            Ok(Message::Text(text)) => {
                if let Some(answer) = desk.take(&text, &mut under_way)
                    && desk.send.send(answer).await.is_err()
                {
                    break;
                }
            }
            Ok(Message::Binary(_)) => {
                return Leave {
                    code: close_code::UNSUPPORTED,
                    why: "messages are text, not binary",
                };
            }
            Ok(Message::Close(_)) => break,
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            Err(error) => return broken(error),
        }
    }
    Leave {
        code: close_code::NORMAL,
        why: "it went away",
    }
}

fn broken(error: axum::Error) -> Leave {
    match error.into_inner().downcast_ref::<WsError>() {
        Some(WsError::Capacity(_)) => Leave {
            code: close_code::SIZE,
            why: "its message is too large",
        },
        Some(WsError::Utf8(_)) => Leave {
            code: close_code::INVALID,
            why: "its message is no UTF-8",
        },
        Some(WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => Leave {
            code: close_code::NORMAL,
            why: "it went away",
        },
        Some(WsError::Protocol(_)) => Leave {
            code: close_code::PROTOCOL,
            why: "it does not speak WebSocket",
        },
        _ => Leave {
            code: close_code::ERROR,
            why: "the connection broke",
        },
    }
}

/// Where a client's requests are taken.
struct Desk {
    host: Arc<Inner>,
    number: u64,
    send: mpsc::Sender<Outgoing>,
    /// Requests under way.
    calls: InflightRequests,
    /// How many tasks' events it may still read.
    readers: Arc<Semaphore>,
}

/// A request that is worked on.
struct Asked {
    id: Value,
    method: String,
    params: Value,
    running: InflightRequest,
}

impl Desk {
    /// Begins what a message asks for, or answers at once.
    fn take(self: &Arc<Self>, text: &str, under_way: &mut JoinSet<()>) -> Option<Outgoing> {
        match rpc::RpcMessage::parse(text) {
            Ok(rpc::RpcMessage::Request { id, method, params }) => {
                // At once: the next message may take it back.
                let Some(running) = self.calls.begin(&id) else {
                    let most = self.host.limits.requests;
                    let words = format!(
                        "{most} requests of this client are under way; wait for one of them"
                    );
                    return Some(answered(&id, &Err(Error::new(ErrorKind::Full, words))));
                };
                under_way.spawn(self.clone().work(Asked {
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
            // A host asks nothing.
            Ok(rpc::RpcMessage::Answer { .. }) => None,
            Err(wrong) => Some(answered(&wrong.id.clone(), &Err(wrong.into()))),
        }
    }

    async fn work(self: Arc<Self>, asked: Asked) {
        let Asked {
            id,
            method,
            params,
            running,
        } = asked;
        let cancel = running.cancel_token().clone();
        let mut called = pin!(methods::call(
            &self.host,
            self.number,
            &method,
            params,
            &cancel
        ));
        let done = match methods::changes(&method) {
            // What changes something says itself whether it was taken back in time.
            true => called.await.map(|done| {
                if cancel.is_cancelled() {
                    done.value.into()
                } else {
                    done
                }
            }),
            false => tokio::select! {
                done = &mut called => done,
                () = cancel.cancelled() => Err(Error::taken_back()),
            },
        };
        let place = running.finish();
        let (result, follow) = match done {
            Ok(Done {
                value,
                follow: None,
            }) => (Ok(value), None),
            Ok(Done {
                value,
                follow: Some((task, reader)),
            }) => self.follow(&method, value, task, reader),
            Err(error) => (Err(error), None),
        };
        let answer = Outgoing {
            follow,
            _place: place,
            ..answered(&id, &result)
        };
        // Whoever asked may have left.
        let _ = self.send.send(answer).await;
    }

    /// Has the client read events if there is room: whoever only dispatched a task does without.
    fn follow(
        &self,
        method: &str,
        value: Value,
        task: String,
        reader: Reader,
    ) -> (Result<Value>, Option<Follow>) {
        match self.readers.clone().try_acquire_owned() {
            Ok(place) => (
                Ok(value),
                Some(Follow {
                    task,
                    reader,
                    _place: place,
                }),
            ),
            Err(_) if method == "agent/subscribe" => {
                let most = self.host.limits.subscriptions;
                let words = format!(
                    "this client reads the events of {most} tasks; wait until one of them has ended"
                );
                (Err(Error::new(ErrorKind::Full, words)), None)
            }
            Err(_) => (Ok(value), None),
        }
    }
}

fn answered(id: &Value, result: &Result<Value>) -> Outgoing {
    Outgoing {
        text: wire::answer(id, result),
        follow: None,
        _place: None,
    }
}
