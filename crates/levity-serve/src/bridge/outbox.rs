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

use super::host::{Inner, News};
use super::session::{Follow, Leave, Outgoing};
use crate::feed::Item;

/// Sends a client what it is to get, one thing at a time. Events are taken from their runs only
/// when the client has taken the one before, so nothing piles up here.
pub(super) struct Outbox {
    number: u64,
    waiting: mpsc::Receiver<Outgoing>,
    news: broadcast::Receiver<News>,
    events: SelectAll<Pin<Box<dyn Stream<Item = String> + Send>>>,
    heard: Arc<AtomicBool>,
    silent: u32,
    ping: tokio::time::Interval,
    send: Duration,
}

impl Outbox {
    pub(super) fn new(
        host: &Inner,
        number: u64,
        waiting: mpsc::Receiver<Outgoing>,
        heard: Arc<AtomicBool>,
    ) -> Self {
        let mut ping = tokio::time::interval(host.limits.ping);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (news, events) = (host.news.subscribe(), SelectAll::new());
        Self {
            number,
            waiting,
            news,
            events,
            heard,
            silent: 0,
            ping,
            send: host.limits.send,
        }
    }

    /// Returns when the client does not take what it is sent, or is gone.
    pub(super) async fn run(mut self, sink: &mut SplitSink<WebSocket, Message>) -> Leave {
        loop {
            let message = tokio::select! {
                biased;
                _ = self.ping.tick() => {
                    if self.is_silent() {
                        return Leave { code: close_code::POLICY, why: "it was silent for too \
                            long" };
                    }
                    Some(Message::Ping("".into()))
                }
                Some(out) = self.waiting.recv() => Some(self.answer(out)),
                news = self.news.recv() => self.news(news),
                Some(event) = self.events.next(), if !self.events.is_empty() => Some(Message::Text(event.into())),
            };
            let Some(message) = message else { continue };
            match tokio::time::timeout(self.send, sink.send(message)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => {
                    return Leave {
                        code: close_code::ERROR,
                        why: "the connection broke",
                    };
                }
                Err(_) => {
                    return Leave {
                        code: close_code::POLICY,
                        why: "it does not take what it is sent",
                    };
                }
            }
        }
    }

    fn is_silent(&mut self) -> bool {
        let heard = self.heard.swap(false, Ordering::Relaxed);
        self.silent = if heard { 0 } else { self.silent + 1 };
        self.silent > 1
    }

    fn answer(&mut self, out: Outgoing) -> Message {
        if let Some(follow) = out.follow {
            self.events.push(Box::pin(events(follow)));
        }
        Message::Text(out.text.into())
    }

    fn news(&self, news: Result<News, RecvError>) -> Option<Message> {
        match news {
            Ok(news) if news.from == Some(self.number) => None,
            Ok(news) => Some(Message::Text((&*news.text).into())),
            Err(RecvError::Lagged(count)) => {
                let told = rpc::RpcMessage::notification("fs/missed", &json!({"count": count}));
                Some(Message::Text(told.into()))
            }
            // The host is there as long as its clients are.
            Err(RecvError::Closed) => None,
        }
    }
}

/// The events of a task as a client gets them.
fn events(follow: Follow) -> impl Stream<Item = String> + Send {
    stream::unfold(follow, |mut follow| async move {
        let task = &follow.task;
        let text = match follow.reader.next().await? {
            Item::Event { id, json } => event(task, id.as_deref(), &json),
            Item::Missed(count) => rpc::RpcMessage::notification(
                "agent/missed",
                &json!({"task": task, "count": count}),
            ),
            Item::Reset => rpc::RpcMessage::notification("agent/reset", &json!({"task": task})),
        };
        Some((text, follow))
    })
}

/// The event is put in as it was written down once.
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
    fn an_event_is_put_into_its_notification() {
        let text = event("null}}", Some("1"), br#"{"a":1}"#);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value["params"],
            json!({"task": "null}}", "id": "1", "event": {"a": 1}})
        );
        assert_eq!(value["method"], "agent/event");
    }
}
