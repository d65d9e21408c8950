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

/// A function that decides at once.
///
/// ```
/// # use levity_core::{Approver, Ask, Decision};
/// # fn takes(_: impl Approver) {}
/// takes(|ask: &Ask| if ask.call.name == "delete" { Decision::deny("no") } else { Decision::Allow });
/// ```
#[async_trait]
impl<F: Fn(&Ask) -> Decision + Send + Sync> Approver for F {
    async fn decide(&self, ask: &Ask) -> Decision {
        self(ask)
    }
}

/// A question about a call, or a question of the model's that the call is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ask {
    /// The run that asks.
    pub run: RunId,
    /// The question's number in that run.
    pub effect: EffectId,
    /// The call.
    pub call: ToolCall,
    /// Why it is asked; where an answer is wanted, the question.
    pub reason: String,
    /// What is wanted.
    #[serde(default, skip_serializing_if = "Wanted::is_permission")]
    pub wanted: Wanted,
}

/// What an [`Ask`] wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Wanted {
    /// Leave to make a call.
    #[default]
    Permission,
    /// An answer to a question of the model's: [`Decision::Answer`].
    Answer,
}

impl Wanted {
    fn is_permission(&self) -> bool {
        *self == Self::Permission
    }
}

impl Ask {
    /// A question.
    pub fn new(run: RunId, effect: EffectId, call: ToolCall, reason: impl Into<String>) -> Self {
        Self {
            run,
            effect,
            call,
            reason: reason.into(),
            wanted: Wanted::Permission,
        }
    }

    /// Says that the call is a question itself, and wants an answer.
    #[must_use]
    pub fn for_answer(mut self) -> Self {
        self.wanted = Wanted::Answer;
        self
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
    /// What the model is told in place of what the call would return. It is what a question of the
    /// model's wants.
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
        Self::Deny {
            reason: reason.into(),
        }
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
