//! Checks and expectations: the scoring of an answer without another model.
//!
//! An expectation is data, stored with its case, so that a folder of results can be scored again by
//! itself. The comparison of calls is in `matching`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use levity_core::text::head;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Case, Transcript, TrialCall};

mod matching;

/// The maximum length of a reason in bytes. Each trial has a reason, so one that repeats a long
/// expectation would be stored once for each trial of the case.
const MAX_REASON: usize = 2_000;

/// The maximum length of one text or value in a reason, in bytes.
const MAX_QUOTE: usize = 500;

/// Returns the text, or its beginning and an ellipsis if it is longer than `limit` bytes.
fn cut(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("{}…", head(text, limit)))
    }
}

/// Returns a foreign text as it is shown in a reason.
fn quoted(text: &str) -> Cow<'_, str> {
    cut(text, MAX_QUOTE)
}

/// A check that decides whether an answer is right.
///
/// # Contract
/// - The same case and transcript always give the same score.
/// - No transcript causes a panic, because models wrote it.
///
/// A closure is also a check:
///
/// ```
/// use levity_eval::{Case, Check, Expectation, Score, Transcript};
///
/// let brief = |_: &Case, transcript: &Transcript| match transcript.text.len() {
///     0..=20 => Score::pass(),
///     long => Score::fail(format!("{long} bytes")),
/// };
/// let case = Case::new("1", "What is the capital of France?", Expectation::contains("Paris"));
/// assert!(brief.check(&case, &Transcript::new().with_text("Paris.")).passed);
/// ```
pub trait Check: Send + Sync {
    /// Scores the answer to a case.
    fn check(&self, case: &Case, transcript: &Transcript) -> Score;
}

impl<F: Fn(&Case, &Transcript) -> Score + Send + Sync> Check for F {
    fn check(&self, case: &Case, transcript: &Transcript) -> Score {
        self(case, transcript)
    }
}

/// The verdict on one answer.
///
/// ```
/// use levity_eval::Score;
///
/// let half = Score::fail("one of two cities is missing").with_value(0.5);
/// assert_eq!((half.passed, half.value), (false, 0.5));
/// assert_eq!(Score::pass().with_value(7.0).value, 1.0);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Score {
    /// Set if the answer counts as right.
    pub passed: bool,
    /// The score, from 0 to 1.
    pub value: f64,
    /// The reason for a failure; empty if the answer passed. [`fail`](Self::fail) limits its
    /// length.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Score {
    /// Creates the score of a right answer.
    pub fn pass() -> Self {
        Self {
            passed: true,
            value: 1.0,
            reason: String::new(),
        }
    }

    /// Creates the score of a wrong answer. The reason is cut after 2,000 bytes.
    ///
    /// ```
    /// use levity_eval::Score;
    ///
    /// assert_eq!(Score::fail("too late").reason, "too late");
    /// assert!(Score::fail("x".repeat(1 << 20)).reason.ends_with("x…"));
    /// ```
    pub fn fail(reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        if reason.len() > MAX_REASON {
            reason = cut(&reason, MAX_REASON).into_owned();
        }
        Self {
            passed: false,
            value: 0.0,
            reason,
        }
    }

    /// Sets the value; values outside 0 to 1 are clamped.
    #[must_use]
    pub fn with_value(mut self, value: f64) -> Self {
        self.value = if value.is_nan() {
            0.0
        } else {
            value.clamp(0.0, 1.0)
        };
        self
    }
}

/// Scores an answer by the expectation of its case. An answer with an error fails.
///
/// ```
/// use levity_eval::{Case, Check, Expectation, ExpectationCheck, Transcript};
///
/// let case = Case::new("1", "Say hi.", Expectation::contains("hi"));
/// assert!(ExpectationCheck.check(&case, &Transcript::new().with_text("hi!")).passed);
/// let score = ExpectationCheck.check(&case, &Transcript::failed("no network"));
/// assert_eq!(score.reason, "the subject failed: no network");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ExpectationCheck;

impl Check for ExpectationCheck {
    fn check(&self, case: &Case, transcript: &Transcript) -> Score {
        match &transcript.error {
            Some(error) => Score::fail(format!("the subject failed: {error}")),
            None => case.expect.score(transcript),
        }
    }
}

/// The expectation of a case.
///
/// In JSON, `kind` names the variant in snake case:
///
/// ```
/// use levity_eval::{Expectation, Transcript};
///
/// let expect: Expectation = serde_json::from_str(r#"{"kind": "json", "value": {"sum": 7}}"#)?;
/// assert!(expect.score(&Transcript::new().with_text(r#"{"sum": 7.0}"#)).passed);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Expectation {
    /// The answer, without surrounding white space, is this text.
    Exact {
        /// The text that the answer must be.
        text: String,
    },
    /// The answer contains this text.
    Contains {
        /// The text that the answer must contain.
        text: String,
    },
    /// The answer is JSON with this value; the order of keys does not matter, and `5` equals `5.0`.
    Json {
        /// The value that the answer must have.
        value: Value,
    },
    /// The answer calls these tools, and no others.
    Calls {
        /// The calls that the answer must make.
        calls: Vec<ExpectedCall>,
        /// Set if the order matters.
        #[serde(default)]
        ordered: bool,
    },
    /// The answer calls no tool.
    NoCalls,
    /// Only the judge of the suite can score it, from the state after the calls.
    #[serde(rename = "judged")]
    JudgeOnly,
}

impl Expectation {
    /// Expects this text and nothing else.
    ///
    /// ```
    /// use levity_eval::{Expectation, Transcript};
    ///
    /// let expect = Expectation::exact("7");
    /// assert!(expect.score(&Transcript::new().with_text(" 7\n")).passed);
    /// assert!(!expect.score(&Transcript::new().with_text("It is 7.")).passed);
    /// ```
    pub fn exact(text: impl Into<String>) -> Self {
        Self::Exact { text: text.into() }
    }

    /// Expects this text somewhere in the answer.
    ///
    /// Case matters.
    ///
    /// ```
    /// use levity_eval::{Expectation, Transcript};
    ///
    /// let expect = Expectation::contains("Paris");
    /// assert!(expect.score(&Transcript::new().with_text("It is Paris.")).passed);
    /// assert!(!expect.score(&Transcript::new().with_text("It is paris.")).passed);
    /// ```
    pub fn contains(text: impl Into<String>) -> Self {
        Self::Contains { text: text.into() }
    }

    /// Expects JSON with this value.
    ///
    /// ```
    /// use levity_eval::{Expectation, Transcript};
    /// use serde_json::json;
    ///
    /// let expect = Expectation::json(json!({"a": 5, "b": []}));
    /// assert!(expect.score(&Transcript::new().with_text(r#"{"b": [], "a": 5.0}"#)).passed);
    /// assert!(!expect.score(&Transcript::new().with_text("a is 5")).passed);
    /// ```
    pub fn json(value: Value) -> Self {
        Self::Json { value }
    }

    /// Expects these calls, in any order.
    ///
    /// Each expected call takes the first call that matches it, so list strict expectations before
    /// lenient ones.
    ///
    /// ```
    /// use levity_eval::{Expectation, ExpectedCall, Transcript};
    /// use serde_json::json;
    ///
    /// let call = |city| ExpectedCall::new("weather").with_argument("city", [city]);
    /// let cities = ["Oslo", "Rome"].map(call);
    /// let answer = Transcript::new()
    ///     .with_call("weather", json!({"city": "Rome"}))
    ///     .with_call("weather", json!({"city": "Oslo"}));
    /// assert!(Expectation::calls(cities).score(&answer).passed);
    /// ```
    pub fn calls(calls: impl IntoIterator<Item = ExpectedCall>) -> Self {
        Self::Calls {
            calls: calls.into_iter().collect(),
            ordered: false,
        }
    }

    /// Scores an answer against the expectation.
    pub fn score(&self, transcript: &Transcript) -> Score {
        match self {
            Self::Exact { text } if transcript.text.trim() == text.trim() => Score::pass(),
            Self::Exact { text } => Score::fail(format!("the answer is not `{}`", quoted(text))),
            Self::Contains { text } if transcript.text.contains(text) => Score::pass(),
            Self::Contains { text } => {
                Score::fail(format!("the answer does not contain `{}`", quoted(text)))
            }
            Self::Json { value } => match serde_json::from_str(transcript.text.trim()) {
                Ok(answer) if matching::same(&answer, value) => Score::pass(),
                Ok(_) => Score::fail("the answer is another JSON value"),
                Err(error) => Score::fail(format!("the answer is not JSON: {error}")),
            },
            Self::Calls { calls, ordered } => matching::calls(calls, &transcript.calls, *ordered),
            Self::NoCalls => match transcript.calls.first() {
                None => Score::pass(),
                Some(call) => Score::fail(format!("`{}` was called", quoted(&call.name))),
            },
            Self::JudgeOnly => Score::fail("only the judge of the suite can score it"),
        }
    }
}

/// A call that a case expects, with the possible values of each argument.
///
/// The alternatives follow the Berkeley Function Calling Leaderboard. An empty string among them
/// makes the argument optional. Strings are compared without case, spaces and the characters
/// `,./-_*^`. In an object, each key has a list of alternatives.
///
/// ```
/// use levity_eval::{TrialCall, ExpectedCall};
/// use serde_json::json;
///
/// let expected = ExpectedCall::new("book")
///     .with_argument("day", ["May 1, 2026"])
///     .with_argument("seats", [json!(2), json!("")]);
/// assert_eq!(expected.mismatch(&TrialCall::new("book", json!({"day": "may 1 2026"}))), None);
/// assert!(expected.mismatch(&TrialCall::new("book", json!({"day": "May 2"}))).is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExpectedCall {
    /// The name of the tool.
    pub name: String,
    /// The possible values of each argument. Other arguments are not allowed.
    #[serde(default)]
    pub arguments: BTreeMap<String, Vec<Value>>,
}

impl ExpectedCall {
    /// Creates a call without arguments.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            arguments: BTreeMap::new(),
        }
    }

    /// Adds an argument and its possible values.
    ///
    /// ```
    /// use levity_eval::{ExpectedCall, TrialCall};
    /// use serde_json::json;
    ///
    /// let expected = ExpectedCall::new("book").with_argument("seats", [json!(2), json!("two")]);
    /// assert_eq!(expected.mismatch(&TrialCall::new("book", json!({"seats": "Two"}))), None);
    /// ```
    #[must_use]
    pub fn with_argument(
        mut self,
        name: impl Into<String>,
        alternatives: impl IntoIterator<Item = impl Into<Value>>,
    ) -> Self {
        self.arguments.insert(
            name.into(),
            alternatives.into_iter().map(Into::into).collect(),
        );
        self
    }

    /// Returns the reason why a call does not match; `None` if it does. Names and values in it
    /// are cut after 500 bytes.
    ///
    /// ```
    /// use levity_eval::{ExpectedCall, TrialCall};
    /// use serde_json::json;
    ///
    /// let expected = ExpectedCall::new("weather").with_argument("city", ["Oslo"]);
    /// let call = TrialCall::new("weather", json!({}));
    /// assert_eq!(expected.mismatch(&call).as_deref(), Some("`city` is missing"));
    /// ```
    pub fn mismatch(&self, call: &TrialCall) -> Option<String> {
        matching::mismatch(self, call)
    }
}
