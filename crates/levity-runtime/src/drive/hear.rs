//! What people say to a run is looked at before it is written down, where somebody does that.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{Command, Decision, Entry, Executor, Heard, Intervention, Machine, Message, Post, RunId};

use super::{Ack, Driver};
use crate::control::{Order, What};
use crate::error::ControlError;

/// Orders that are looked at, one after the other, while the run goes on.
#[derive(Default)]
pub(super) struct Hearing(VecDeque<BoxFuture<'static, HeardOrder>>);

/// What is left of an order, and who stepped in.
pub(super) type HeardOrder = (Option<Order>, Vec<Intervention>);

impl Hearing {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next order that was looked at. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> HeardOrder {
        let Some(first) = self.0.front_mut() else { return pending().await };
        let heard = first.await;
        self.0.pop_front();
        heard
    }
}

impl<M: Machine + 'static> Driver<M> {
    /// Takes an order at once, unless there is something in it to look at.
    pub(super) fn hear_order(&mut self, order: Order) -> (Vec<Entry>, Vec<Ack>) {
        let words = match &order.what {
            What::Command(Command::Say { message }) => Some(message.clone()),
            What::Decide(_, decision) => words_of(decision),
            _ => None,
        };
        let Some(words) = words.filter(|_| self.around.executor.hears()) else {
            return self.take_order(order);
        };
        let (executor, run) = (self.around.executor.clone(), self.state.run.clone());
        self.hearing.0.push_back(Box::pin(async move {
            let Order { what, done } = order;
            match executor.hear(&run, words).await {
                Heard::Taken(words, guarded) => {
                    let what = match what {
                        What::Decide(effect, _) => What::Decide(effect, Decision::answer(words.text())),
                        _ => What::Command(Command::Say { message: words }),
                    };
                    (Some(Order { what, done }), guarded)
                }
                Heard::Blocked(intervention) => {
                    let _ = done.send(Err(ControlError::Blocked { run, intervention: intervention.clone() }));
                    (None, vec![intervention])
                }
                _ => (None, Vec::new()),
            }
        }));
        (Vec::new(), Vec::new())
    }

    /// Takes what is left of an order that was looked at.
    pub(super) fn take_heard(&mut self, (order, guarded): HeardOrder) -> (Vec<Entry>, Vec<Ack>) {
        let (taken, acks) = order.map(|order| self.take_order(order)).unwrap_or_default();
        (guarded.into_iter().map(stepped_in).chain(taken).collect(), acks)
    }

    /// Takes what others have left for the run. The run waits while that is looked at: what a journal has given out
    /// is forgotten with the next append.
    pub(super) async fn hear_posts(&mut self, posts: Vec<Post>) -> Vec<Entry> {
        if !self.around.executor.hears() {
            return self.take_posts(posts);
        }
        let (mut entries, mut left) = (Vec::new(), Vec::with_capacity(posts.len()));
        for post in posts {
            let (post, guarded) = hear_post(&*self.around.executor, &self.state.run, post).await;
            entries.extend(guarded.into_iter().map(stepped_in));
            left.extend(post);
        }
        entries.extend(self.take_posts(left));
        entries
    }
}

async fn hear_post(executor: &dyn Executor, run: &RunId, post: Post) -> (Option<Post>, Vec<Intervention>) {
    let words = match &post {
        Post::Command(Command::Say { message }) => Some(message.clone()),
        Post::Decide { decision, .. } => words_of(decision),
        _ => None,
    };
    let Some(words) = words else { return (Some(post), Vec::new()) };
    match (executor.hear(run, words).await, post) {
        (Heard::Taken(words, guarded), Post::Decide { effect, .. }) => {
            (Some(Post::Decide { effect, decision: Decision::answer(words.text()) }), guarded)
        }
        (Heard::Taken(message, guarded), _) => (Some(Post::Command(Command::Say { message })), guarded),
        (Heard::Blocked(intervention), _) => (None, vec![intervention]),
        _ => (None, Vec::new()),
    }
}

/// What a person says by a decision.
fn words_of(decision: &Decision) -> Option<Arc<Message>> {
    match decision {
        Decision::Answer { text } => Some(Arc::new(Message::user(text.clone()))),
        _ => None,
    }
}

fn stepped_in(intervention: Intervention) -> Entry {
    Entry::Commanded(Command::Guarded(intervention))
}
