//! Screens messages and decisions of people before they are journaled, if the run has a screener.
//!
//! The order of messages is kept: they are screened one after the other. A screener may call a
//! model, so orders are screened while the run continues. Requests from the journal are screened
//! while the run waits, since the journal forgets them with the next append.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{
    ControlCommand, ControlError, Decision, Entry, Executor, Intervention, Machine, Message,
    Outcome, RunId, RunRequest, RuntimeError, ScreenVerdict, Screener, Stage, ToolCall,
};

use levity_driver::EffectResult;

use super::{Driver, RunEnvironment};
use crate::control::{Order, OrderKind};

/// Orders that are being screened, one after the other, while the run continues.
#[derive(Default)]
pub(super) struct ScreeningQueue(VecDeque<BoxFuture<'static, ScreenedOrder>>);

/// The remaining order after screening, and the interventions.
pub(super) type ScreenedOrder = (Option<Order>, Vec<Intervention>);

impl ScreeningQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next screened order. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> ScreenedOrder {
        let Some(first) = self.0.front_mut() else {
            return pending().await;
        };
        let screened = first.await;
        self.0.pop_front();
        screened
    }
}

impl<M: Machine + 'static> Driver<M> {
    /// Processes an order at once, unless it has content to screen.
    ///
    /// Commands without text, such as a pause, never wait for a screener.
    pub(super) fn screen_order(&mut self, order: Order) {
        let call = match &order.what {
            OrderKind::Command(ControlCommand::Say { .. }) => None,
            OrderKind::Decide(effect, decision) if has_text(decision) => {
                match self.core.asked(*effect) {
                    Some(call) => Some(call),
                    // The order is rejected, so it needs no screening.
                    None => return self.take_order(order),
                }
            }
            _ => return self.take_order(order),
        };
        let Some(screener) = self.env.screener() else {
            return self.take_order(order);
        };
        let run = self.core.run().clone();
        self.screening
            .0
            .push_back(Box::pin(screened_order(screener, run, call, order)));
    }

    /// Processes the remaining part of a screened order.
    pub(super) fn take_screened(&mut self, (order, guarded): ScreenedOrder) {
        let now = self.now();
        self.core.guarded(now, guarded);
        if let Some(order) = order {
            self.take_order(order);
        }
    }

    /// Processes the requests of others. The run waits while they are screened: a journal forgets
    /// delivered requests with the next append.
    pub(super) async fn screen_posts(&mut self, posts: Vec<RunRequest>) {
        let screener = self
            .env
            .screener()
            .filter(|_| posts.iter().any(request_has_text));
        let left = match screener {
            Some(screener) => self.screened_posts(&*screener, posts).await,
            None => posts,
        };
        // The sender checks edited arguments first. A decision that is invalid nevertheless is
        // dropped, and its question stays open.
        let is_valid = |post: &RunRequest| match post {
            RunRequest::Decide { effect, decision } => {
                self.problems_of(*effect, decision).is_empty()
            }
            _ => true,
        };
        let left = left.into_iter().filter(is_valid).collect();
        let now = self.now();
        self.core.post(now, left);
    }

    async fn screened_posts(
        &mut self,
        screener: &dyn Screener,
        posts: Vec<RunRequest>,
    ) -> Vec<RunRequest> {
        let mut left = Vec::with_capacity(posts.len());
        for post in posts {
            let call = match &post {
                RunRequest::Decide { effect, .. } => self.core.asked(*effect),
                _ => None,
            };
            let (post, guarded) = screened_post(screener, self.core.run(), call, post).await;
            let now = self.now();
            self.core.guarded(now, guarded);
            left.extend(post);
        }
        left
    }

    /// Processes the requests that people left for a run with a screener while no process drove it,
    /// before it asks again and before a model is called.
    ///
    /// Messages that were left while no process drove the run come before its next model call, as
    /// their senders expect.
    pub(super) async fn screen_pending(&mut self) -> Result<(), RuntimeError> {
        if !self.keeps() || self.env.screener().is_none() {
            return Ok(());
        }
        let posts = self.log.posted_by_now().await?;
        self.screen_posts(posts).await;
        self.core.check()?;
        self.commit().await
    }
}

impl RunEnvironment {
    fn screener(&self) -> Option<Arc<dyn Screener>> {
        self.executor.inspect().screener
    }
}

async fn screened_order(
    screener: Arc<dyn Screener>,
    run: RunId,
    call: Option<ToolCall>,
    Order { what, done }: Order,
) -> ScreenedOrder {
    let screened = match what {
        OrderKind::Command(ControlCommand::Say { message }) => {
            screen_message(&*screener, &run, message)
                .await
                .map(|message| OrderKind::Command(ControlCommand::Say { message }))
        }
        OrderKind::Decide(effect, decision) => screened_decision(&*screener, &run, call, decision)
            .await
            .map(|decision| OrderKind::Decide(effect, decision)),
        what => ScreenResult(Ok((what, Vec::new()))),
    };
    match screened.0 {
        Ok((what, guarded)) => (Some(Order { what, done }), guarded),
        Err(intervention) => {
            let _ = done.send(Err(ControlError::Blocked {
                run,
                intervention: intervention.clone(),
            }));
            (None, vec![intervention])
        }
    }
}

/// Returns the remaining part of a request after screening, and the interventions. `call` is the
/// call that a decision is about.
pub(crate) async fn screened_post(
    screener: &dyn Screener,
    run: &RunId,
    call: Option<ToolCall>,
    post: RunRequest,
) -> (Option<RunRequest>, Vec<Intervention>) {
    let screened = match post {
        RunRequest::Command(ControlCommand::Say { message }) => {
            screen_message(screener, run, message)
                .await
                .map(|message| RunRequest::Command(ControlCommand::Say { message }))
        }
        RunRequest::Decide { effect, decision } => screened_decision(screener, run, call, decision)
            .await
            .map(|decision| RunRequest::Decide { effect, decision }),
        post => ScreenResult(Ok((post, Vec::new()))),
    };
    match screened.0 {
        Ok((post, guarded)) => (Some(post), guarded),
        Err(intervention) => (None, vec![intervention]),
    }
}

/// Returns the screened decision of a caller in this process. A blocked answer does not count, and
/// the call is not made.
pub(super) async fn decided(
    executor: &dyn Executor,
    run: &RunId,
    call: ToolCall,
    decision: Decision,
) -> EffectResult {
    let screener = if has_text(&decision) {
        executor.inspect().screener
    } else {
        None
    };
    let Some(screener) = screener else {
        return EffectResult::Finished(Outcome::Decision(decision), None);
    };
    let (decision, guarded) = match screened_decision(&*screener, run, Some(call), decision)
        .await
        .0
    {
        Ok(left) => left,
        Err(by) => (Decision::deny(by.to_string()), vec![by]),
    };
    EffectResult::Decided(decision, guarded)
}

/// The remaining item with its interventions, or the intervention that blocked it.
struct ScreenResult<T>(Result<(T, Vec<Intervention>), Intervention>);

impl<T> ScreenResult<T> {
    fn map<U>(self, into: impl FnOnce(T) -> U) -> ScreenResult<U> {
        ScreenResult(self.0.map(|(taken, guarded)| (into(taken), guarded)))
    }
}

impl<T> From<ScreenVerdict<T>> for ScreenResult<T> {
    fn from(screened: ScreenVerdict<T>) -> Self {
        Self(match screened {
            ScreenVerdict::Passed(taken, guarded) => Ok((taken, guarded)),
            ScreenVerdict::Blocked(by) => Err(by),
            _ => Err(Intervention::blocked(
                "guard",
                Stage::Input,
                "the screener returned nothing",
            )),
        })
    }
}

async fn screen_message(
    screener: &dyn Screener,
    run: &RunId,
    message: Arc<Message>,
) -> ScreenResult<Arc<Message>> {
    screener.message(run, message).await.into()
}

/// Screens the text of a decision. A denial holds even if its reason is blocked.
async fn screened_decision(
    screener: &dyn Screener,
    run: &RunId,
    call: Option<ToolCall>,
    decision: Decision,
) -> ScreenResult<Decision> {
    let user = |text| Arc::new(Message::user(text));
    match decision {
        Decision::Answer { text } => screen_message(screener, run, user(text))
            .await
            .map(|message| Decision::answer(message.text())),
        Decision::Deny { reason } => match screen_message(screener, run, user(reason)).await.0 {
            Err(by) => ScreenResult(Ok((Decision::deny(by.to_string()), vec![by]))),
            left => ScreenResult(left).map(|message| Decision::deny(message.text())),
        },
        Decision::Edit { args } => {
            let mut call = call.unwrap_or_else(|| ToolCall::new("", "", args.clone()));
            (call.args, call.raw, call.opaque) = (args, None, None);
            ScreenResult::from(screener.call(run, call).await).map(|call| Decision::edit(call.args))
        }
        decision => ScreenResult(Ok((decision, Vec::new()))),
    }
}

/// Returns `true` if a decision contains text of a person.
fn has_text(decision: &Decision) -> bool {
    !matches!(decision, Decision::Allow)
}

/// Returns `true` if a request contains text of a person.
pub(crate) fn request_has_text(post: &RunRequest) -> bool {
    match post {
        RunRequest::Command(command) => matches!(command, ControlCommand::Say { .. }),
        RunRequest::Decide { decision, .. } => has_text(decision),
        _ => false,
    }
}

pub(crate) fn intervention_entry(intervention: Intervention) -> Entry {
    Entry::Commanded(ControlCommand::Guarded(intervention))
}
