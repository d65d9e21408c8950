//! What people say to a run is looked at before it is written down, where somebody does that.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{
    Command, ControlError, Decision, EffectId, Entry, Executor, Heard, Intervention, Machine, Message,
    Outcome, Post, RunId, RuntimeError, ToolCall,
};

use super::{Ack, Came, Driver};
use crate::control::{Order, What};

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
        if !self.around.executor.hears() {
            return self.take_order(order);
        }
        let call = match &order.what {
            What::Command(Command::Say { .. }) => None,
            What::Decide(effect, decision) if is_worded(decision) => match self.asked(*effect) {
                Some(call) => Some(call),
                // It is refused, and nobody need look at it.
                None => return self.take_order(order),
            },
            _ => return self.take_order(order),
        };
        let (executor, run) = (self.around.executor.clone(), self.state.run.clone());
        self.hearing.0.push_back(Box::pin(hear_order(executor, run, call, order)));
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
            let call = match &post {
                Post::Decide { effect, .. } => self.asked(*effect),
                _ => None,
            };
            let (post, guarded) = heard_post(&*self.around.executor, &self.state.run, call, post).await;
            entries.extend(guarded.into_iter().map(stepped_in));
            left.extend(post);
        }
        entries.extend(self.take_posts(left));
        entries
    }

    /// Takes what people have left for a run with guards while nobody drove it, before it asks again and before a model
    /// is called.
    pub(super) async fn hear_left(&mut self) -> Result<(), RuntimeError> {
        if !self.keeps() || !self.around.executor.hears() {
            return Ok(());
        }
        let posts = self.log.posted_by_now().await?;
        let entries = self.hear_posts(posts).await;
        self.record(entries).await
    }

    /// The call that a question is about.
    fn asked(&self, effect: EffectId) -> Option<ToolCall> {
        let open = self.questions.get(effect).map(|question| &question.ask);
        open.or_else(|| self.state.left_question(effect)).map(|ask| ask.call.clone())
    }
}

async fn hear_order(
    executor: Arc<dyn Executor>,
    run: RunId,
    call: Option<ToolCall>,
    Order { what, done }: Order,
) -> HeardOrder {
    let heard = match what {
        What::Command(Command::Say { message }) => {
            hear(&*executor, &run, message).await.map(|message| What::Command(Command::Say { message }))
        }
        What::Decide(effect, decision) => hear_decision(&*executor, &run, call, decision)
            .await
            .map(|decision| What::Decide(effect, decision)),
        what => Listened(Ok((what, Vec::new()))),
    };
    match heard.0 {
        Ok((what, guarded)) => (Some(Order { what, done }), guarded),
        Err(intervention) => {
            let _ = done.send(Err(ControlError::Blocked { run, intervention: intervention.clone() }));
            (None, vec![intervention])
        }
    }
}

/// What is left of something that was left for a run, and who stepped in. `call` is what a decision is on.
pub(crate) async fn heard_post(
    executor: &dyn Executor,
    run: &RunId,
    call: Option<ToolCall>,
    post: Post,
) -> (Option<Post>, Vec<Intervention>) {
    let heard = match post {
        Post::Command(Command::Say { message }) => {
            hear(executor, run, message).await.map(|message| Post::Command(Command::Say { message }))
        }
        Post::Decide { effect, decision } => hear_decision(executor, run, call, decision)
            .await
            .map(|decision| Post::Decide { effect, decision }),
        post => Listened(Ok((post, Vec::new()))),
    };
    match heard.0 {
        Ok((post, guarded)) => (Some(post), guarded),
        Err(intervention) => (None, vec![intervention]),
    }
}

/// What somebody in this process has decided, once the guards have looked. What they block is no answer, and the call is
/// not made.
pub(super) async fn decided(
    executor: &dyn Executor,
    run: &RunId,
    call: ToolCall,
    decision: Decision,
) -> Came {
    let (decision, guarded) = match hear_decision(executor, run, Some(call), decision).await.0 {
        Ok(heard) => heard,
        Err(by) => (Decision::deny(by.to_string()), vec![by]),
    };
    Came::Decided(Outcome::Decision(decision), guarded)
}

/// What was taken in and who had a hand in it, or who blocked it.
struct Listened<T>(Result<(T, Vec<Intervention>), Intervention>);

impl<T> Listened<T> {
    fn map<U>(self, into: impl FnOnce(T) -> U) -> Listened<U> {
        Listened(self.0.map(|(taken, guarded)| (into(taken), guarded)))
    }
}

impl<T> From<Heard<T>> for Listened<T> {
    fn from(heard: Heard<T>) -> Self {
        Self(match heard {
            Heard::Taken(taken, guarded) => Ok((taken, guarded)),
            Heard::Blocked(by) => Err(by),
            _ => Err(Intervention::blocked("guard", levity_core::Stage::Input, "nobody knows what was said")),
        })
    }
}

async fn hear(executor: &dyn Executor, run: &RunId, message: Arc<Message>) -> Listened<Arc<Message>> {
    executor.hear(run, message).await.into()
}

/// Looks at what a person says by a decision. A denial holds whatever becomes of its reason.
async fn hear_decision(
    executor: &dyn Executor,
    run: &RunId,
    call: Option<ToolCall>,
    decision: Decision,
) -> Listened<Decision> {
    let user = |text| Arc::new(Message::user(text));
    match decision {
        Decision::Answer { text } => {
            hear(executor, run, user(text)).await.map(|said| Decision::answer(said.text()))
        }
        Decision::Deny { reason } => match hear(executor, run, user(reason)).await.0 {
            Err(by) => Listened(Ok((Decision::deny(by.to_string()), vec![by]))),
            heard => Listened(heard).map(|said| Decision::deny(said.text())),
        },
        Decision::Edit { args } => {
            let mut call = call.unwrap_or_else(|| ToolCall::new("", "", args.clone()));
            (call.args, call.raw, call.opaque) = (args, None, None);
            Listened::from(executor.hear_call(run, call).await).map(|call| Decision::edit(call.args))
        }
        decision => Listened(Ok((decision, Vec::new()))),
    }
}

/// Whether a person says something by this.
fn is_worded(decision: &Decision) -> bool {
    !matches!(decision, Decision::Allow)
}

/// The same of what is left for a run.
pub(crate) fn has_words(post: &Post) -> bool {
    match post {
        Post::Command(command) => matches!(command, Command::Say { .. }),
        Post::Decide { decision, .. } => is_worded(decision),
        _ => false,
    }
}

pub(crate) fn stepped_in(intervention: Intervention) -> Entry {
    Entry::Commanded(Command::Guarded(intervention))
}
