use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

mod eval;
mod lex;
mod parse;

/// A question about variables, such as `score >= 0.8 and verdict == "pass"`.
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
/// A name has letters, digits, `_` and, inside it, `-`; any other name stands in backticks. A
/// string stands in either quotes, with the escapes of JSON and `\'`. A negative number in brackets
/// counts from the end of a list.
///
/// # What it means
/// - What is not there is `null`. A path alone holds unless its value is `null`, `false`, `0`,
///   `""`, `[]` or `{}`.
/// - Numbers are compared by value (`1 == 1.0`), texts letter by letter. Comparing different kinds
///   is false, and `!=` is true.
/// - `a in b` looks for an element of a list, a key of an object or a part of a text;
///   `b contains a` is the same.
///
/// It never fails, and costs no more than the values that it looks at. A text has at most
/// [`MAX_LEN`](Self::MAX_LEN) bytes, nested at most [`MAX_DEPTH`](Self::MAX_DEPTH) deep.
#[derive(Clone, Debug)]
pub struct Condition {
    text: Arc<str>,
    compiled: Arc<Compiled>,
}

#[derive(Debug)]
struct Compiled {
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
    /// 4 KiB of text.
    pub const MAX_LEN: usize = 4096;
    /// 32 levels of parentheses, `not` and lists.
    pub const MAX_DEPTH: usize = 32;

    /// Reads a condition.
    ///
    /// # Errors
    /// When the text is none; the error says where.
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

    /// Whether it holds for these variables. One that is not there is `null`.
    pub fn holds<'a>(&self, variable: &dyn Fn(&str) -> Option<&'a Value>) -> bool {
        self.compiled.test.holds(variable)
    }

    /// The variables that it is about, each once.
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
