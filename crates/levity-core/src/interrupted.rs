use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{EffectId, RunId, ToolCall, ToolOutput};

/// Determines the outcome of calls that were in progress when a process ended.
///
/// The runtime asks a resolver when it resumes a run, for each call that must not be made twice. A
/// resolver can check the mailbox, query the bank or ask a person.
///
/// # Contract
/// - `resolve` may take any time; only the run that asks waits for it.
/// - Dropping its future withdraws the question.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{LostCall, Resolution, Resolver, ToolOutput};
///
/// /// Checks whether the letter is in the outbox.
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
    /// Returns the outcome of an interrupted call.
    async fn resolve(&self, lost: &LostCall) -> Resolution;
}

/// A call that began in a process that has ended, with no recorded outcome.
///
/// ```
/// # use levity_core::{EffectId, LostCall, RunId, ToolCall};
/// # use serde_json::json;
/// let call = ToolCall::new("c1", "send_mail", json!({"to": "ann"}));
/// let lost = LostCall::new(RunId::new("r1"), EffectId::new(4), call);
/// assert_eq!(&*lost.key, "r1/4"); // look for it in the logs of the service
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LostCall {
    /// The run that made the call.
    pub run: RunId,
    /// The number of the call's effect in that run.
    pub effect: EffectId,
    /// The tool call itself.
    pub call: ToolCall,
    /// The idempotency key that the tool received.
    pub key: Arc<str>,
}

impl LostCall {
    /// Creates the record of an interrupted call of `run`.
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

/// The outcome of a call that began in a process that has ended, as far as it is known.
///
/// ```
/// # use levity_core::{Resolution, ToolOutput};
/// let done = Resolution::Done(ToolOutput::text("sent"));
/// let stored = serde_json::to_string(&done)?;
/// assert_eq!(serde_json::from_str::<Resolution>(&stored)?, done);
/// assert_eq!(serde_json::to_string(&Resolution::NotDone)?, "\"not_done\"");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resolution {
    /// The call took effect and returned this output.
    Done(ToolOutput),
    /// The call did not take effect, so the runtime makes it now.
    NotDone,
    /// The outcome cannot be determined; the model is informed of that.
    Unknown,
}
