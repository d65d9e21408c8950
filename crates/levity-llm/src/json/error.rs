use std::error::Error;
use std::fmt;

/// Why there is no value to be had from a text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// There is no JSON in it.
    Nothing,
    /// The JSON is nested deeper than 128.
    TooDeep,
    /// These keys are not in it.
    Missing(Vec<String>),
    /// There is JSON, of another shape than was asked for; the source says what does not fit.
    Shape,
}

/// Why there is no value to be had from a text, and the text.
///
/// The text is neither in `Display` nor in `Debug`; the source of a [`JsonErrorKind::Shape`] may
/// quote a part of it.
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

    pub(super) fn shape(text: &str, at: usize, source: serde_json::Error) -> Self {
        Self {
            source: Some(source),
            ..Self::new(JsonErrorKind::Shape, text, Some(at))
        }
    }

    /// What is wrong.
    pub fn kind(&self) -> &JsonErrorKind {
        &self.kind
    }

    /// The text that was read, whole.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text that was read, without a copy.
    pub fn into_text(self) -> String {
        self.text.into()
    }

    /// The byte of the text where the value begins that does not fit, or where it becomes too deep.
    pub fn at(&self) -> Option<usize> {
        self.at
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            JsonErrorKind::Nothing => write!(
                f,
                "there is no JSON in the {} bytes of text",
                self.text.len()
            )?,
            JsonErrorKind::TooDeep => write!(f, "the JSON is nested deeper than 128")?,
            JsonErrorKind::Missing(keys) => write!(f, "the JSON lacks `{}`", keys.join("`, `"))?,
            JsonErrorKind::Shape => write!(f, "the JSON has another shape than was asked for")?,
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
