//! Trials and transcripts: the stored form of an answer.
//!
//! All fields of a transcript have defaults, because programs in other languages write it. Their
//! content is untrusted: it is compared and shown, never executed.

use levity_core::{Timestamp, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The answer of a subject to a case. A program writes it as one line of JSON; every field is
/// optional.
///
/// ```
/// # use levity_eval::Transcript;
/// let line = r#"{"calls": [{"name": "add", "arguments": {"a": 2}}], "usage": {"input": 90}}"#;
/// let transcript: Transcript = serde_json::from_str(line)?;
/// assert_eq!(transcript.calls[0].arguments["a"], 2);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Transcript {
    /// The answer as text.
    pub text: String,
    /// The calls that reached a tool in all turns, in order.
    pub calls: Vec<TrialCall>,
    /// The answer to each turn, in a case with several turns or with tools that run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<AnsweredTurn>,
    /// The number of the model's replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replies: Option<u64>,
    /// The tokens that the answer used.
    pub usage: Usage,
    /// The reason for a missing or partial answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The run in the subject's journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The conversation, in the subject's own format.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Value>,
}

impl Transcript {
    /// Creates an empty answer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an answer that failed.
    ///
    /// ```
    /// use levity_eval::Transcript;
    ///
    /// let transcript = Transcript::failed("no answer within 600 seconds").with_text("So far: 3");
    /// assert_eq!(transcript.text, "So far: 3");
    /// assert!(transcript.error.is_some());
    /// ```
    pub fn failed(error: impl Into<String>) -> Self {
        Self {
            error: Some(error.into()),
            ..Self::default()
        }
    }

    /// Sets the text of the answer.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Adds a call to the answer.
    ///
    /// ```
    /// use levity_eval::Transcript;
    /// use serde_json::json;
    ///
    /// let transcript = Transcript::new().with_call("now", json!({})).with_text("Noon.");
    /// assert_eq!(transcript.calls[0].name, "now");
    /// ```
    #[must_use]
    pub fn with_call(mut self, name: impl Into<String>, arguments: Value) -> Self {
        self.calls.push(TrialCall::new(name, arguments));
        self
    }

    /// Adds the answer to a turn, and its calls to those of all turns. Its text becomes that of the
    /// transcript.
    #[must_use]
    pub fn with_turn(mut self, turn: AnsweredTurn) -> Self {
        self.text.clone_from(&turn.text);
        self.calls.extend(turn.calls.iter().cloned());
        self.turns.push(turn);
        self
    }

    /// Sets the used tokens.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }
}

/// The answer to one turn of a case.
///
/// ```
/// # use levity_eval::{AnsweredTurn, TrialCall, Transcript};
/// # use serde_json::json;
/// let call = TrialCall::new("mkdir", json!({"name": "temp"}));
/// let first = AnsweredTurn::new("It exists now.", vec![call]);
/// let second = AnsweredTurn::new("You are welcome.", Vec::new());
/// let transcript = Transcript::new().with_turn(first).with_turn(second);
/// assert_eq!((transcript.turns.len(), transcript.calls.len()), (2, 1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AnsweredTurn {
    /// The answer as text.
    pub text: String,
    /// The calls that reached a tool, in order.
    pub calls: Vec<TrialCall>,
    /// The run in the subject's journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl AnsweredTurn {
    /// Creates an answer with its calls.
    pub fn new(text: impl Into<String>, calls: Vec<TrialCall>) -> Self {
        Self {
            text: text.into(),
            calls,
            run: None,
        }
    }
}

/// A tool call in a transcript.
///
/// ```
/// use levity_eval::TrialCall;
/// use serde_json::json;
///
/// let call: TrialCall = serde_json::from_value(json!({"name": "now"})).unwrap();
/// assert_eq!(call, TrialCall::new("now", json!(null)));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrialCall {
    /// The name of the tool.
    pub name: String,
    /// The arguments, as the tool received them.
    #[serde(default)]
    pub arguments: Value,
}

impl TrialCall {
    /// Creates a call with these arguments.
    pub fn new(name: impl Into<String>, arguments: Value) -> Self {
        Self {
            name: name.into(),
            arguments,
        }
    }
}

/// One answer of one subject to one case.
///
/// ```
/// use levity_eval::{Case, Expectation, Transcript, Trial};
///
/// let case = Case::new("sum-1", "What is 2 + 5?", Expectation::exact("7"));
/// let trial = Trial::new(&case, "levity", 0, Transcript::new().with_text("7"));
/// assert_eq!(trial.key(), ("sum-1".to_owned(), 0));
/// assert_eq!(trial.error(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Trial {
    /// The id of the case.
    pub case: String,
    /// The category of the case.
    #[serde(default)]
    pub category: String,
    /// The name of the subject.
    pub subject: String,
    /// The repetition, from 0.
    #[serde(default)]
    pub repetition: u32,
    /// The start of the trial.
    pub at: Timestamp,
    /// The time of the answer, in milliseconds.
    pub millis: u64,
    /// The answer of the subject.
    pub transcript: Transcript,
}

impl Trial {
    /// Creates a trial without a duration.
    pub fn new(
        case: &crate::Case,
        subject: impl Into<String>,
        repetition: u32,
        transcript: Transcript,
    ) -> Self {
        Self {
            case: case.id.clone(),
            category: case.category.clone(),
            subject: subject.into(),
            repetition,
            at: Timestamp::default(),
            millis: 0,
            transcript,
        }
    }

    /// Returns the reason for a missing or partial answer.
    pub fn error(&self) -> Option<&str> {
        self.transcript.error.as_deref()
    }

    /// Returns the case and the repetition, which identify the trial among those of its subject.
    pub fn key(&self) -> (String, u32) {
        (self.case.clone(), self.repetition)
    }
}
