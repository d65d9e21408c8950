use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{EffectId, RunId, ToolCall, ToolOutput};

/// Finds out what came of calls that a process had begun when it ended.
///
/// Asked when a run goes on, about each call that must not be made twice: look into the mailbox,
/// ask the bank, show it to a person.
///
/// # Contract
/// - `resolve` may take as long as it likes; the run waits for it, and nothing else does.
/// - Dropping its future withdraws the question.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{LostCall, Resolution, Resolver, ToolOutput};
///
/// /// Looks whether the letter is in the outbox.
/// struct Outbox(Vec<String>);
///
/// #[async_trait]
/// impl Resolver for Outbox {
///     async fn resolve(&self, lost: &LostCall) -> Resolution {
///         if self.0.iter().any(|key| **key == *lost.key) {
///             Resolution::Done(ToolOutput::text("sent"))
///         } else {
///             Resolution::NotDone
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Says what came of a call.
    async fn resolve(&self, lost: &LostCall) -> Resolution;
}

/// A call that began in a process that is gone; nobody wrote down what came of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LostCall {
    /// The run that called.
    pub run: RunId,
    /// The call's number in that run.
    pub effect: EffectId,
    /// The call.
    pub call: ToolCall,
    /// The idempotency key that the tool was given.
    pub key: Arc<str>,
}

impl LostCall {
    /// A call of `run`.
    pub fn new(run: RunId, effect: EffectId, call: ToolCall) -> Self {
        let key = crate::idempotency_key(&run, effect);
        Self {
            run,
            effect,
            call,
            key,
        }
    }
}

/// What came of a call that began in a process that is gone, as far as somebody could find out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resolution {
    /// It took effect, and this is what it returned.
    Done(ToolOutput),
    /// It did not take effect, so it is made now.
    NotDone,
    /// Nobody can tell; the model is told so.
    Unknown,
}
