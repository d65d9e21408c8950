//! Applies guards to all input and output of a run.
//!
//! One rule holds for all paths: nothing unchecked is journaled, emitted or sent. A reply that
//! guards check is therefore held back until it is complete, and then emitted as one piece.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::text::chain;
use levity_core::{
    ChildRun, Content, Delta, EffectCx, Ending, EventKind, Failure, Finish, GuardCx, GuardSubject,
    Intervention, Message, ModelError, Part, Response, Role, RunId, ScreenVerdict, Screener, Stage,
    Status, ToolCall, ToolError, ToolErrorKind, ToolResult, World,
};
use serde_json::{Value, json};

use super::{GuardOutcome, Guards, is_blocked};
use crate::control_tools;

/// The replacement for blocked text.
const BLOCKED: &str = "(blocked)";

/// The goal of a run, as the guards have left it.
pub(crate) struct Goal {
    pub(crate) message: Message,
    pub(crate) guarded: Vec<Intervention>,
}

impl From<Message> for Goal {
    fn from(message: Message) -> Self {
        Self {
            message,
            guarded: Vec::new(),
        }
    }
}

/// The guards and clock of one executor.
#[derive(Clone)]
pub(crate) struct Screen {
    pub(crate) guards: Guards,
    pub(crate) world: Arc<dyn World>,
    /// `true` if a call can end the run; its arguments are then an answer.
    pub(crate) finishes: bool,
}

impl Screen {
    pub(crate) fn watches(&self, stage: Stage) -> bool {
        self.guards.watch(stage)
    }

    /// Returns `true` if the guards check input from people.
    pub(crate) fn watches_input(&self) -> bool {
        self.watches(Stage::Input) || self.watches(Stage::Call)
    }

    async fn check(&self, subject: GuardSubject, cx: &GuardCx) -> GuardOutcome {
        self.guards.check(subject, cx, &*self.world).await
    }

    /// Passes a goal through the guards. A blocked goal is dropped entirely.
    pub(crate) async fn goal(&self, goal: Message) -> Goal {
        if !self.guards.watch(Stage::Input) {
            return goal.into();
        }
        let GuardOutcome { subject, guarded } = self
            .check(GuardSubject::Input(Arc::new(goal)), &GuardCx::new())
            .await;
        let message = match subject {
            GuardSubject::Input(message) if !is_blocked(&guarded) => Arc::unwrap_or_clone(message),
            _ => Message::user(BLOCKED),
        };
        Goal { message, guarded }
    }

    /// Returns `true` if a reply is checked before any part of it is emitted.
    pub(crate) fn holds_replies(&self) -> bool {
        self.guards.watch(Stage::Answer) || self.guards.watch(Stage::Call)
    }

    /// Passes a reply through the guards: first its text, then each call, unless calls are checked
    /// when they are made.
    pub(crate) async fn check_reply(
        &self,
        mut response: Response,
        with_calls: bool,
        slot: &Arc<str>,
        cx: &EffectCx,
    ) -> Response {
        let guard_cx = GuardCx::new()
            .with_run(cx.run.clone())
            .with_slot(slot.clone());
        let mut guarded = std::mem::take(&mut response.guarded);
        if self.guards.watch(Stage::Answer) {
            let checked = self
                .check(GuardSubject::Answer(response.message.clone()), &guard_cx)
                .await;
            match checked.passed() {
                Ok((GuardSubject::Answer(message), more)) => {
                    response.message = message;
                    guarded.extend(more);
                }
                Ok(_) => {}
                Err(more) => {
                    guarded.extend(more);
                    return withheld(&response, guarded);
                }
            }
        }
        let parts = if with_calls {
            response.message.parts.len()
        } else {
            0
        };
        for at in 0..parts {
            // Guards that never wait would otherwise block the thread for as long as the reply has
            // calls.
            if at % 64 == 63 {
                tokio::task::yield_now().await;
            }
            let Some(Part::ToolCall(call)) = response.message.parts.get(at) else {
                continue;
            };
            match self.check_call(call.clone(), &guard_cx).await {
                Ok((_, more)) if more.is_empty() => {}
                Ok((call, more)) => {
                    Arc::make_mut(&mut response.message).parts[at] = Part::ToolCall(call);
                    guarded.extend(more);
                }
                Err(more) if more.iter().any(|last| last.stage == Stage::Answer) => {
                    guarded.extend(more);
                    return withheld(&response, guarded);
                }
                Err(more) => {
                    let bare = ToolCall::new(call.id.clone(), call.name.clone(), json!({}));
                    Arc::make_mut(&mut response.message).parts[at] = Part::ToolCall(bare);
                    guarded.extend(more);
                }
            }
        }
        response.guarded = guarded;
        emit_reply(&response.message, cx);
        response
    }

    /// Passes a call through the guards. A call that ends the run is checked as an answer as well.
    pub(crate) async fn check_call(
        &self,
        mut call: ToolCall,
        cx: &GuardCx,
    ) -> Result<(ToolCall, Vec<Intervention>), Vec<Intervention>> {
        let mut guarded = Vec::new();
        if self.guards.watch(Stage::Call) {
            (call, guarded) = self.guards.call(call, cx, &*self.world).await?;
        }
        let answer = self
            .finishes
            .then_some(())
            .filter(|()| call.name == control_tools::FINISH);
        let answer = answer.and_then(|()| control_tools::answer(&call.args).ok());
        if let Some(text) = answer.filter(|_| self.guards.watch(Stage::Answer)) {
            let answer = GuardSubject::Answer(Arc::new(Message::assistant(text.clone())));
            let (subject, more) = self.check(answer, cx).await.passed()?;
            if subject.text() != text {
                call.args = json!({"answer": subject.text()});
            }
            guarded.extend(more);
        }
        Ok((call, guarded))
    }

    /// Passes the error of a failed model call through the guards.
    pub(crate) async fn check_error(
        &self,
        error: ModelError,
        slot: &Arc<str>,
        cx: &EffectCx,
    ) -> ModelError {
        if !self.guards.watch(Stage::Answer) {
            return error;
        }
        let guard_cx = GuardCx::new()
            .with_run(cx.run.clone())
            .with_slot(slot.clone());
        let (text, mut all) = (chain(&error), error.guarded().to_vec());
        let (error, guarded) = match self
            .check(GuardSubject::Failure(text.clone()), &guard_cx)
            .await
            .passed()
        {
            Ok((GuardSubject::Failure(new), guarded)) if new == text => (error, guarded),
            // The source of the error may contain the same text, so it is dropped.
            Ok((GuardSubject::Failure(new), guarded)) => (
                error.with_message(new).without_source().without_target(),
                guarded,
            ),
            Ok((_, guarded)) | Err(guarded) => (
                error
                    .with_message("the provider's error message is withheld by a guard")
                    .without_source(),
                guarded,
            ),
        };
        all.extend(guarded);
        error.with_guarded(all)
    }

    /// Passes the result of a tool through the guards.
    pub(crate) async fn check_result(&self, result: ToolResult, run: &RunId) -> ToolResult {
        self.guards.result(result, run, &*self.world).await
    }

    /// Passes the input of a child run through the guards before the child is created: its input is
    /// the arguments of a call.
    pub(crate) async fn check_child(
        &self,
        child: &ChildRun,
    ) -> Result<(ChildRun, Vec<Intervention>), ToolError> {
        let id = child.call.clone().unwrap_or_else(|| "".into());
        let call = ToolCall::new(id, &*child.agent, child.input.clone());
        let refused = |guarded: Vec<Intervention>| {
            let message = guarded.last().map(blocked_call_text).unwrap_or_default();
            ToolError::new(ToolErrorKind::Denied, message)
        };
        let (call, guarded) = self
            .check_call(call, &GuardCx::new())
            .await
            .map_err(refused)?;
        let mut child = child.clone();
        child.input = call.args;
        Ok((child, guarded))
    }
}

#[async_trait]
impl Screener for Screen {
    async fn message(&self, run: &RunId, message: Arc<Message>) -> ScreenVerdict<Arc<Message>> {
        let cx = GuardCx::new().with_run(run.clone());
        match self
            .check(GuardSubject::Input(message.clone()), &cx)
            .await
            .passed()
        {
            Ok((GuardSubject::Input(message), guarded)) => ScreenVerdict::Passed(message, guarded),
            checked => screened(
                checked.map(|(_, guarded)| (message.clone(), guarded)),
                message,
            ),
        }
    }

    async fn call(&self, run: &RunId, call: ToolCall) -> ScreenVerdict<ToolCall> {
        let cx = GuardCx::new().with_run(run.clone());
        screened(self.check_call(call.clone(), &cx).await, call)
    }

    /// The ending of a child run is the result of the call that started it.
    async fn ending(&self, child: &ChildRun, ending: Ending) -> Ending {
        let call = ToolCall::new(
            child.call.clone().unwrap_or_else(|| "".into()),
            &*child.agent,
            Value::Null,
        );
        let mut result = ToolResult::answering(call, Ok(Default::default()));
        result.content = vec![Content::Text(ending.text.clone())];
        if !ending.status.is_answer() {
            result
                .content
                .push(Content::Text(status_text(&ending.status)));
        }
        result.value.clone_from(&ending.value);
        let cx = GuardCx::new();
        match self.check(GuardSubject::Result(result), &cx).await.passed() {
            Ok((_, guarded)) if guarded.is_empty() => ending,
            Ok((GuardSubject::Result(new), guarded)) => returned(ending, new, guarded),
            Ok((_, guarded)) | Err(guarded) => {
                let error = ToolError::new(ToolErrorKind::Denied, withheld_result_text(&guarded));
                let mut blocked = Ending::new(Status::Failed(Failure::Program(error)));
                (blocked.usage, blocked.stats) = (ending.usage, ending.stats);
                blocked.guarded = ending.guarded.into_iter().chain(guarded).collect();
                blocked
            }
        }
    }
}

impl Guards {
    /// Returns a screener for input from people, if a guard watches one of these stages.
    pub fn screener(&self, stages: &[Stage], world: &Arc<dyn World>) -> Option<Arc<dyn Screener>> {
        let (guards, world) = (self.clone(), world.clone());
        let watched = stages.iter().any(|stage| self.watch(*stage));
        watched.then(|| {
            Arc::new(Screen {
                guards,
                world,
                finishes: false,
            }) as Arc<dyn Screener>
        })
    }

    /// Passes a call through the guards.
    ///
    /// # Errors
    /// Returns the interventions if a guard blocked the call.
    pub async fn call(
        &self,
        call: ToolCall,
        cx: &GuardCx,
        world: &dyn World,
    ) -> Result<(ToolCall, Vec<Intervention>), Vec<Intervention>> {
        let (subject, guarded) = self
            .check(GuardSubject::Call(call.clone()), cx, world)
            .await
            .passed()?;
        Ok(match subject {
            GuardSubject::Call(new) => (new, guarded),
            _ => (call, guarded),
        })
    }

    /// Passes the result of a tool through the guards.
    pub async fn result(&self, result: ToolResult, run: &RunId, world: &dyn World) -> ToolResult {
        let cx = GuardCx::new().with_run(run.clone());
        let (call, name, before, changes) = (
            result.call.clone(),
            result.name.clone(),
            result.guarded.clone(),
            result.changes.clone(),
        );
        let (mut new, guarded) = match self
            .check(GuardSubject::Result(result), &cx, world)
            .await
            .passed()
        {
            Ok((GuardSubject::Result(new), guarded)) => (new, guarded),
            Ok((_, guarded)) | Err(guarded) => {
                let error = ToolError::new(ToolErrorKind::Denied, withheld_result_text(&guarded));
                (
                    ToolResult::answering(ToolCall::new(call, name, Value::Null), Err(error)),
                    guarded,
                )
            }
        };
        new.guarded = before.into_iter().chain(guarded).collect();
        // The files have changed, even if the model does not see the result.
        new.changes = changes;
        new
    }

    /// Returns the result for a call that the guards blocked.
    pub fn refused(call: ToolCall, guarded: Vec<Intervention>) -> ToolResult {
        let message = guarded.last().map(blocked_call_text).unwrap_or_default();
        let mut result =
            ToolResult::answering(call, Err(ToolError::new(ToolErrorKind::Denied, message)));
        result.guarded = guarded;
        result
    }
}

/// Returns the accepted item, or the last intervention, which is the one that blocked it.
fn screened<T>(
    checked: Result<(T, Vec<Intervention>), Vec<Intervention>>,
    original: T,
) -> ScreenVerdict<T> {
    match checked {
        Ok((taken, guarded)) => ScreenVerdict::Passed(taken, guarded),
        Err(mut guarded) => match guarded.pop() {
            Some(last) => ScreenVerdict::Blocked(last),
            None => ScreenVerdict::Passed(original, guarded),
        },
    }
}

fn returned(mut ending: Ending, new: ToolResult, guarded: Vec<Intervention>) -> Ending {
    let mut texts = new.content.into_iter().filter_map(|content| match content {
        Content::Text(text) => Some(text),
        _ => None,
    });
    ending.text = texts.next().unwrap_or_default();
    ending.value = new.value;
    ending.guarded.extend(guarded);
    if !ending.status.is_answer() {
        let text = texts.next().unwrap_or_default();
        let same = text == status_text(&ending.status);
        ending.status = match ending.status {
            status if same => status,
            Status::Failed(Failure::Program(error)) => {
                Status::Failed(Failure::Program(ToolError::new(error.kind(), text)))
            }
            _ => Status::Failed(Failure::Program(ToolError::failed(text))),
        };
    }
    ending
}

/// Returns a reply without its content, with only its usage left.
fn withheld(response: &Response, guarded: Vec<Intervention>) -> Response {
    let mut empty = Response::new(Message::new(Role::Assistant, []));
    (empty.usage, empty.model, empty.guarded) = (response.usage, response.model.clone(), guarded);
    empty.finish = Finish::Other("blocked".to_owned());
    empty
}

/// Emits a held-back reply as one piece to the subscribers.
fn emit_reply(message: &Message, cx: &EffectCx) {
    if !cx.live.is_watched() {
        return;
    }
    for part in &message.parts {
        let delta = match part {
            Part::Text(text) => Delta::Text(text.text.clone()),
            Part::Thinking(thought) => Delta::Thinking(thought.text.clone()),
            _ => continue,
        };
        cx.live.send(EventKind::Delta {
            effect: cx.effect,
            delta,
        });
    }
}

/// Returns the text with which a model learns that its call was blocked.
pub(crate) fn blocked_call_text(guarded: &Intervention) -> String {
    format!("this call is not allowed: {guarded}")
}

fn withheld_result_text(guarded: &[Intervention]) -> String {
    let reason = guarded.last().map(ToString::to_string).unwrap_or_default();
    format!("the call was made, and what it returned is withheld: {reason}")
}

fn status_text(status: &Status) -> String {
    match status {
        Status::Failed(Failure::Program(error)) => error.explain(),
        Status::Failed(failure) => chain(failure),
        status => status.to_string(),
    }
}
