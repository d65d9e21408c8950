//! The sending side of one client: pings, responses, notifications of changes and events of tasks.
//!
//! They are sent in this order of priority, one message at a time. A response holds the permit of
//! its request until it is taken from the queue, so a client that does not read gets no further
//! requests accepted. A client that does not receive a message within the send limit is
//! disconnected.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, close_code};
use futures_core::Stream;
use futures_util::stream::{self, SelectAll, SplitSink};
use futures_util::{SinkExt as _, StreamExt as _};
use levity_rpc as rpc;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};

use super::host::{Broadcast, Inner};
use super::session::{Disconnect, Follow, Outgoing};
use crate::feed::FeedItem;

/// Sends messages to a client, one at a time. Events are taken from their runs only when the client
/// has received the previous one, so nothing accumulates here.
pub(super) struct Outbox {
    number: u64,
    waiting: mpsc::Receiver<Outgoing>,
    broadcasts: broadcast::Receiver<Broadcast>,
    events: SelectAll<Pin<Box<dyn Stream<Item = String> + Send>>>,
    active: Arc<AtomicBool>,
    silent: u32,
    ping: tokio::time::Interval,
    send: Duration,
}

impl Outbox {
    pub(super) fn new(
        host: &Inner,
        number: u64,
        waiting: mpsc::Receiver<Outgoing>,
        active: Arc<AtomicBool>,
    ) -> Self {
        let mut ping = tokio::time::interval(host.limits.ping);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (broadcasts, events) = (host.broadcasts.subscribe(), SelectAll::new());
        Self {
            number,
            waiting,
            broadcasts,
            events,
            active,
            silent: 0,
            ping,
            send: host.limits.send,
        }
    }

    /// Runs until the client stops receiving or disconnects, and returns the reason.
    pub(super) async fn run(mut self, sink: &mut SplitSink<WebSocket, Message>) -> Disconnect {
        loop {
            let message = tokio::select! {
                biased;
                _ = self.ping.tick() => {
                    if self.is_silent() {
                        return Disconnect { code: close_code::POLICY, reason: "it was silent for \
                            too long" };
                    }
                    Some(Message::Ping("".into()))
                }
                Some(out) = self.waiting.recv() => Some(self.answer(out)),
                broadcasts = self.broadcasts.recv() => self.broadcast_message(broadcasts),
                Some(event) = self.events.next(), if !self.events.is_empty() => {
                    Some(Message::Text(event.into()))
                }
            };
            let Some(message) = message else { continue };
            match tokio::time::timeout(self.send, sink.send(message)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => {
                    return Disconnect {
                        code: close_code::ERROR,
                        reason: "the connection broke",
                    };
                }
                Err(_) => {
                    return Disconnect {
                        code: close_code::POLICY,
                        reason: "it did not read its messages",
                    };
                }
            }
        }
    }

    /// Returns `true` if the client sent nothing, not even a pong, for two ping intervals.
    fn is_silent(&mut self) -> bool {
        let active = self.active.swap(false, Ordering::Relaxed);
        self.silent = if active { 0 } else { self.silent + 1 };
        self.silent > 1
    }

    /// Takes a response, and starts to follow the events that it announces. Events therefore never
    /// arrive before the response.
    fn answer(&mut self, out: Outgoing) -> Message {
        if let Some(follow) = out.follow {
            self.events.push(Box::pin(events(follow)));
        }
        Message::Text(out.text.into())
    }

    fn broadcast_message(&self, broadcasts: Result<Broadcast, RecvError>) -> Option<Message> {
        match broadcasts {
            Ok(broadcasts) if broadcasts.from == Some(self.number) => None,
            Ok(broadcasts) => Some(Message::Text((&*broadcasts.text).into())),
            Err(RecvError::Lagged(count)) => {
                let text = rpc::RpcMessage::notification("fs/missed", &json!({"count": count}));
                Some(Message::Text(text.into()))
            }
            // The host exists as long as its clients.
            Err(RecvError::Closed) => None,
        }
    }
}

/// Returns the events of a task as notifications.
fn events(follow: Follow) -> impl Stream<Item = String> + Send {
    stream::unfold(follow, |mut follow| async move {
        let task = &follow.task;
        let text = match follow.reader.next().await? {
            FeedItem::Event { id, json } => event(task, id.as_deref(), &json),
            FeedItem::Missed(count) => rpc::RpcMessage::notification(
                "agent/missed",
                &json!({"task": task, "count": count}),
            ),
            FeedItem::Reset => rpc::RpcMessage::notification("agent/reset", &json!({"task": task})),
        };
        Some((text, follow))
    })
}

/// Returns the notification of an event. The event's JSON is inserted without parsing it.
fn event(task: &str, id: Option<&str>, json: &[u8]) -> String {
    let head = rpc::RpcMessage::notification(
        "agent/event",
        &json!({"task": task, "id": id, "event": null}),
    );
    let event = String::from_utf8_lossy(json);
    let cut = head.len() - "null}}".len();
    format!("{}{event}}}}}", &head[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_json_is_inserted_into_its_notification() {
        let text = event("null}}", Some("1"), br#"{"a":1}"#);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value["params"],
            json!({"task": "null}}", "id": "1", "event": {"a": 1}})
        );
        assert_eq!(value["method"], "agent/event");
    }
}
