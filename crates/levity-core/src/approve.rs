use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::__private::sha256;
use crate::{EffectId, RunId, Timestamp, ToolCall};

/// Decides on calls that the policy does not allow automatically.
///
/// # Contract
/// - `decide` may take any time; only the run that asks waits for it.
/// - Dropping its future withdraws the question.
///
/// Use `levity_test::conformance::approver` to check an implementation.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{Approver, Ask, Decision};
///
/// /// Allows every call except `delete`.
/// struct Careful;
///
/// #[async_trait]
/// impl Approver for Careful {
///     async fn decide(&self, ask: &Ask) -> Decision {
///         if ask.call.name == "delete" {
///             Decision::deny("nothing is deleted here")
///         } else {
///             Decision::Allow
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Approver: Send + Sync {
    /// Returns the decision on `ask`.
    async fn decide(&self, ask: &Ask) -> Decision;
}

/// Implements [`Approver`] for a function that decides immediately.
///
/// ```
/// # use levity_core::{Approver, Ask, Decision};
/// # fn takes(_: impl Approver) {}
/// takes(|ask: &Ask| match &*ask.call.name {
///     "delete" => Decision::deny("no"),
///     _ => Decision::Allow,
/// });
/// ```
#[async_trait]
impl<F: Fn(&Ask) -> Decision + Send + Sync> Approver for F {
    async fn decide(&self, ask: &Ask) -> Decision {
        self(ask)
    }
}

/// A request to approve a call, or a question from the model that a person answers.
///
/// ```
/// use levity_core::{Ask, AskKind, EffectId, RunId, ToolCall};
/// use serde_json::json;
///
/// let call = ToolCall::new("c1", "delete", json!({"path": "notes.txt"}));
/// let ask = Ask::new(RunId::new("r1"), EffectId::new(3), call, "it deletes a file");
/// assert_eq!((ask.wanted, ask.call.name.as_str()), (AskKind::Permission, "delete"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ask {
    /// The run that asks.
    pub run: RunId,
    /// The number of the question's effect in that run.
    pub effect: EffectId,
    /// The call to decide on.
    pub call: ToolCall,
    /// The reason for asking or, if an answer is requested, the question itself.
    pub reason: String,
    /// The kind of response that is requested.
    #[serde(default, skip_serializing_if = "AskKind::is_permission")]
    pub wanted: AskKind,
}

/// The kind of response that an [`Ask`] requests.
///
/// ```
/// # use levity_core::{Ask, AskKind, EffectId, RunId, ToolCall};
/// # use serde_json::json;
/// let call = ToolCall::new("c1", "ask_user", json!({"question": "Which city?"}));
/// let ask = Ask::new(RunId::new("r1"), EffectId::new(3), call, "Which city?").for_answer();
/// assert_eq!(ask.wanted, AskKind::Answer);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AskKind {
    /// Permission to make a call.
    #[default]
    Permission,
    /// An answer to a question from the model: [`Decision::Answer`].
    Answer,
}

impl AskKind {
    fn is_permission(&self) -> bool {
        *self == Self::Permission
    }
}

impl Ask {
    /// Creates a request for permission to make `call`.
    pub fn new(run: RunId, effect: EffectId, call: ToolCall, reason: impl Into<String>) -> Self {
        Self {
            run,
            effect,
            call,
            reason: reason.into(),
            wanted: AskKind::Permission,
        }
    }

    /// Marks the call as a question that requests an answer.
    #[must_use]
    pub fn for_answer(mut self) -> Self {
        self.wanted = AskKind::Answer;
        self
    }

    /// Returns a fingerprint of the question, 32 hexadecimal digits, given the time at which the
    /// run first asked it.
    ///
    /// A decision by run and effect alone can reach another question: a later run can have the same
    /// id, and then asks with the same number. The fingerprint covers the id, the name and the
    /// arguments of the call, and the time, so it fits only the question that a person has read.
    ///
    /// ```
    /// # use levity_core::{Ask, EffectId, RunId, Timestamp, ToolCall};
    /// # use serde_json::json;
    /// let ask = |path| {
    ///     let call = ToolCall::new("c1", "delete", json!({"path": path}));
    ///     Ask::new(RunId::new("r1"), EffectId::new(2), call, "it deletes a file")
    /// };
    /// let (first, later) = (Timestamp::from_millis(1), Timestamp::from_millis(2));
    /// let seen = ask("draft.txt").fingerprint(first);
    /// assert_eq!((seen.len(), &seen), (32, &ask("draft.txt").fingerprint(first)));
    /// assert_ne!(seen, ask("thesis.txt").fingerprint(first));
    /// assert_ne!(seen, ask("draft.txt").fingerprint(later));
    /// ```
    pub fn fingerprint(&self, asked: Timestamp) -> String {
        let call = &self.call;
        let parts = json!([asked.as_millis(), call.id, call.name, call.args]);
        let mut hash = sha256(parts.to_string().as_bytes());
        hash.truncate(32);
        hash
    }
}

/// A reason why the arguments of a call do not match the schema of its tool.
///
/// ```
/// use levity_core::ArgumentProblem;
///
/// let problem = ArgumentProblem::new("/amount", "\"ten\" is not of type \"integer\"");
/// assert_eq!(problem.to_string(), "at `/amount`: \"ten\" is not of type \"integer\"");
/// let whole = ArgumentProblem::new("", "the property \"amount\" is missing");
/// assert_eq!(whole.to_string(), "the property \"amount\" is missing");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ArgumentProblem {
    /// The place in the arguments as a JSON pointer; empty for the arguments as a whole.
    pub path: String,
    /// The problem, as a sentence for a person or a model.
    pub message: String,
}

impl ArgumentProblem {
    /// Creates a problem at this place.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }

    /// Returns the problems as one text, separated by semicolons.
    ///
    /// ```
    /// use levity_core::ArgumentProblem;
    /// let problems = [ArgumentProblem::new("/a", "one"), ArgumentProblem::new("/b", "two")];
    /// assert_eq!(ArgumentProblem::join(&problems), "at `/a`: one; at `/b`: two");
    /// ```
    pub fn join(problems: &[Self]) -> String {
        let texts: Vec<String> = problems.iter().map(Self::to_string).collect();
        texts.join("; ")
    }
}

impl fmt::Display for ArgumentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "at `{}`: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// The response to an [`Ask`].
///
/// ```
/// use levity_core::Decision;
/// use serde_json::json;
///
/// let smaller = Decision::edit(json!({"amount": 10}));
/// assert_eq!(serde_json::to_value(&smaller)?, json!({"edit": {"args": {"amount": 10}}}));
/// assert_eq!(serde_json::from_value::<Decision>(json!("allow"))?, Decision::Allow);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Decision {
    /// Make the call as requested.
    Allow,
    /// Make the call with other arguments, which are validated like the model's own.
    Edit {
        /// The arguments to use instead.
        args: Value,
    },
    /// Return this text to the model in place of the call's result. Use it to answer a question
    /// from the model.
    Answer {
        /// The text of the answer.
        text: String,
    },
    /// Do not make the call; the model receives the reason.
    Deny {
        /// The reason for the denial.
        reason: String,
    },
}

impl Decision {
    /// Creates a denial with this reason.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::Deny {
            reason: reason.into(),
        }
    }

    /// Creates an answer to a question from the model.
    pub fn answer(text: impl Into<String>) -> Self {
        Self::Answer { text: text.into() }
    }

    /// Creates an approval with other arguments.
    pub fn edit(args: Value) -> Self {
        Self::Edit { args }
    }
}
