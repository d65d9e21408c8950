//! The error of reading JSON, which keeps the text that it failed on.
//!
//! A caller often wants to show the text to the model again, or to store it, so the error owns it.
//! The text may hold private data, so neither `Display` nor `Debug` prints it.

use std::error::Error;
use std::fmt;

/// The category of a [`JsonError`].
///
/// ```
/// use levity_llm::json::{self, JsonErrorKind};
///
/// let kind = |text: &str| json::parse(text).unwrap_err().kind().clone();
/// assert_eq!(kind("Sorry, I cannot do that."), JsonErrorKind::NoJson);
/// assert_eq!(kind(&"[".repeat(200)), JsonErrorKind::TooDeep);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// The text contains no JSON.
    NoJson,
    /// The JSON is nested deeper than 128 levels.
    TooDeep,
    /// The JSON lacks these keys.
    MissingKeys(Vec<String>),
    /// The JSON does not have the requested shape; the source names the difference.
    WrongShape,
}

/// An error of reading a value from a text, with the text.
///
/// Neither `Display` nor `Debug` prints the text; the source of a [`JsonErrorKind::WrongShape`] may
/// quote a part of it.
///
/// ```
/// use levity_llm::json;
/// use std::error::Error as _;
///
/// let error = json::parse_as::<Vec<u8>>(r#"{"secret": 1}"#).unwrap_err();
/// assert_eq!(error.to_string(), "the JSON does not have the requested shape, at byte 0");
/// assert!(!format!("{error:?}").contains("secret"));
/// assert!(error.source().unwrap().to_string().contains("expected a sequence"));
/// assert_eq!(error.into_text(), r#"{"secret": 1}"#);
/// ```
///
/// A retry of the same text fails again. Send the error to the model and ask for another reply.
pub struct JsonError {
    kind: JsonErrorKind,
    text: Box<str>,
    at: Option<usize>,
    source: Option<serde_json::Error>,
}

impl JsonError {
    pub(super) fn new(kind: JsonErrorKind, text: &str, at: Option<usize>) -> Self {
        Self {
            kind,
            text: text.into(),
            at,
            source: None,
        }
    }

    /// Creates an error for a value at `at` that is not of the requested type.
    pub(super) fn shape(text: &str, at: usize, source: serde_json::Error) -> Self {
        Self {
            source: Some(source),
            ..Self::new(JsonErrorKind::WrongShape, text, Some(at))
        }
    }

    /// Returns the category of the error.
    pub fn kind(&self) -> &JsonErrorKind {
        &self.kind
    }

    /// Returns the complete text that was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text that was read, without a copy.
    pub fn into_text(self) -> String {
        self.text.into()
    }

    /// Returns the byte at which the unsuitable value starts, or at which the nesting is too deep.
    ///
    /// It is `None` if the text contains no value.
    ///
    /// ```
    /// use levity_llm::json;
    ///
    /// let error = json::parse_with_keys("Here: {a: 1}", &["b"]).unwrap_err();
    /// assert_eq!(error.position(), Some(6));
    /// ```
    pub fn position(&self) -> Option<usize> {
        self.at
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            JsonErrorKind::NoJson => {
                write!(f, "the text of {} bytes contains no JSON", self.text.len())?;
            }
            JsonErrorKind::TooDeep => write!(f, "the JSON is nested deeper than 128")?,
            JsonErrorKind::MissingKeys(keys) => {
                write!(f, "the JSON lacks `{}`", keys.join("`, `"))?;
            }
            JsonErrorKind::WrongShape => write!(f, "the JSON does not have the requested shape")?,
        }
        self.at.map_or(Ok(()), |at| write!(f, ", at byte {at}"))
    }
}

impl fmt::Debug for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("JsonError");
        debug
            .field("kind", &self.kind)
            .field("at", &self.at)
            .field("bytes", &self.text.len())
            .finish()
    }
}

impl Error for JsonError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}

impl From<JsonError> for levity_core::Error {
    fn from(error: JsonError) -> Self {
        Self::other(error)
    }
}
