use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

mod eval;
mod lex;
mod parse;

/// A boolean expression over variables, such as `score >= 0.8 and verdict == "pass"`.
///
/// ```
/// use levity_dag::Condition;
/// use serde_json::json;
///
/// let good = Condition::parse("review.score >= 0.8 and not review.issues")?;
/// let review = json!({"score": 0.9, "issues": []});
/// assert!(good.holds(&|name| (name == "review").then_some(&review)));
///
/// let error = Condition::parse("score >=").unwrap_err();
/// assert_eq!(error.to_string(), "a value is missing at character 9");
/// # Ok::<(), levity_dag::ConditionError>(())
/// ```
///
/// # Grammar
/// ```text
/// or       = and { ("or" | "||") and }
/// and      = not { ("and" | "&&") not }
/// not      = ("not" | "!") not | "(" or ")" | operand [ compare operand ]
/// compare  = "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not" "in" | "contains"
/// operand  = path | literal
/// path     = name { "." name | "[" whole number "]" | "[" string "]" }
/// literal  = number | string | "true" | "false" | "null" | "[" [ literal { "," literal } ] "]"
/// ```
/// A name consists of letters, digits, `_` and, not at its ends, `-`; put any other name in
/// backticks. A string is in single or double quotes, with the escapes of JSON and `\'`. A negative
/// number in brackets counts from the end of a list.
///
/// # Semantics
/// - A missing value is `null`. A path alone holds unless its value is `null`, `false`, `0`, `""`,
///   `[]` or `{}`.
/// - Numbers are compared by value (`1 == 1.0`), texts character by character. A comparison of
///   different types is false, except that `!=` is true.
/// - `a in b` tests for an element of a list, a key of an object or a substring of a text;
///   `b contains a` is the same.
///
/// Evaluation never fails, and its cost is bounded by the size of the values it reads. A text has
/// at most [`MAX_LEN`](Self::MAX_LEN) bytes and [`MAX_DEPTH`](Self::MAX_DEPTH) levels of nesting.
#[derive(Clone, Debug)]
pub struct Condition {
    text: Arc<str>,
    compiled: Arc<CompiledCondition>,
}

#[derive(Debug)]
struct CompiledCondition {
    test: Test,
    variables: Vec<Arc<str>>,
}

#[derive(Debug)]
enum Test {
    Any(Vec<Test>),
    All(Vec<Test>),
    Not(Box<Test>),
    Truthy(Operand),
    Compare(Operand, Compare, Operand),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
    Contains,
}

#[derive(Debug)]
enum Operand {
    Path(Arc<str>, Vec<Part>),
    Literal(Value),
}

#[derive(Debug)]
enum Part {
    Key(String),
    At(i64),
}

/// The reason why a text is not a valid condition.
///
/// ```
/// use levity_dag::Condition;
///
/// let error = Condition::parse("1 < n < 3").unwrap_err();
/// assert_eq!(error.at, 7);
/// assert!(error.what.starts_with("a comparison has two values"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at character {at}")]
#[non_exhaustive]
pub struct ConditionError {
    /// The position in the text, in characters counted from 1.
    pub at: usize,
    /// The problem at that position.
    pub what: String,
}

impl Condition {
    /// The maximum length of the text: 4 KiB.
    pub const MAX_LEN: usize = 4096;
    /// The maximum nesting of parentheses, `not` and lists: 32 levels.
    pub const MAX_DEPTH: usize = 32;

    /// Parses a condition from text.
    ///
    /// # Errors
    /// Returns an error with the position if the text is not a valid condition.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let compiled = parse::parse(text).map_err(|(byte, what)| {
            let at = text.char_indices().take_while(|(at, _)| *at < byte).count() + 1;
            ConditionError { at, what }
        })?;
        Ok(Self {
            text: text.into(),
            compiled: Arc::new(compiled),
        })
    }

    /// Returns `true` if the condition holds for these variables. A missing variable is `null`.
    ///
    /// ```
    /// use levity_dag::Condition;
    /// use serde_json::json;
    ///
    /// let variables = json!({"verdict": "pass", "issues": ["typo"]});
    /// let holds = |text| {
    ///     Condition::parse(text).map(|when| when.holds(&|name| variables.get(name)))
    /// };
    /// assert!(holds("verdict in ['pass', 'fine'] and 'typo' in issues")?);
    /// assert!(!holds("score > 3")?);
    /// # Ok::<(), levity_dag::ConditionError>(())
    /// ```
    pub fn holds<'a>(&self, variable: &dyn Fn(&str) -> Option<&'a Value>) -> bool {
        self.compiled.test.holds(variable)
    }

    /// Returns the variables that the condition mentions, each once.
    ///
    /// ```
    /// use levity_dag::Condition;
    ///
    /// let condition = Condition::parse("a.b == c or not a")?;
    /// let names: Vec<&str> = condition.variables().iter().map(AsRef::as_ref).collect();
    /// assert_eq!(names, ["a", "c"]);
    /// # Ok::<(), levity_dag::ConditionError>(())
    /// ```
    pub fn variables(&self) -> &[Arc<str>] {
        &self.compiled.variables
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
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

impl From<ConditionError> for levity_core::Error {
    fn from(error: ConditionError) -> Self {
        Self::config(error)
    }
}

#[cfg(test)]
mod tests;
