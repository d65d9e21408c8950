use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{EffectId, RunId, ToolCall};

/// Asked before a call that policy does not allow by itself.
///
/// # Contract
/// - `decide` may take as long as it likes; the run waits, and nothing else is held up.
/// - Dropping its future withdraws the question.
///
/// `levity_test::conformance::approver` checks an implementation.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{Approver, Ask, Decision};
///
/// /// Lets everything pass but `delete`.
/// struct Careful;
///
/// #[async_trait]
/// impl Approver for Careful {
///     async fn decide(&self, ask: &Ask) -> Decision {
///         if ask.call.name == "delete" { Decision::deny("nothing is deleted here") } else { Decision::Allow }
///     }
/// }
/// ```
#[async_trait]
pub trait Approver: Send + Sync {
    /// Decides.
    async fn decide(&self, ask: &Ask) -> Decision;
}

/// A question about a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ask {
    /// The run that asks.
    pub run: RunId,
    /// The question's number in that run.
    pub effect: EffectId,
    /// The call.
    pub call: ToolCall,
    /// Why it is asked.
    pub reason: String,
}

impl Ask {
    /// A question.
    pub fn new(run: RunId, effect: EffectId, call: ToolCall, reason: impl Into<String>) -> Self {
        Self { run, effect, call, reason: reason.into() }
    }
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Decision {
    /// Make the call.
    Allow,
    /// Make the call with other arguments; they are checked like the model's own.
    Edit {
        /// The arguments.
        args: Value,
    },
    /// The answer to what the model asked, in place of a call.
    Answer {
        /// In words.
        text: String,
    },
    /// Do not make the call; the model is told why.
    Deny {
        /// Why not.
        reason: String,
    },
}

impl Decision {
    /// Do not make the call.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::Deny { reason: reason.into() }
    }

    /// Answers what the model asked.
    pub fn answer(text: impl Into<String>) -> Self {
        Self::Answer { text: text.into() }
    }

    /// Make the call with other arguments.
    pub fn edit(args: Value) -> Self {
        Self::Edit { args }
    }
}
