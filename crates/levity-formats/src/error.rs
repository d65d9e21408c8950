//! The error of a file that cannot be read.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a file has no texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FormatErrorKind {
    /// The format is not one of those that this crate reads.
    Unsupported,
    /// The file is incomplete, or breaks the rules of its format.
    Damaged,
    /// The file can be read only with a password.
    Encrypted,
    /// The file exceeds a limit, such as the number of unpacked bytes.
    TooLarge,
    /// The file is valid and contains no text, for instance because it contains scanned pages.
    NoText,
}

/// The error of a file that cannot be read, in words for people.
///
/// ```
/// use levity_formats::{Limits, read};
///
/// let error = read("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", &Limits::new()).unwrap_err();
/// assert!(error.to_string().contains("save it as .docx"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatError {
    kind: FormatErrorKind,
    message: String,
}

impl FormatError {
    pub(crate) fn new(kind: FormatErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// A damaged part; `what` names it, such as "the ZIP archive".
    pub(crate) fn damaged(what: &str) -> Self {
        Self::new(
            FormatErrorKind::Damaged,
            format!("{what} is damaged or incomplete"),
        )
    }

    pub(crate) fn encrypted() -> Self {
        Self::new(
            FormatErrorKind::Encrypted,
            "it is encrypted; save it without a password to index it",
        )
    }

    pub(crate) fn too_large(what: impl fmt::Display) -> Self {
        Self::new(
            FormatErrorKind::TooLarge,
            format!("it has more than {what}"),
        )
    }

    pub(crate) fn no_text() -> Self {
        Self::new(
            FormatErrorKind::NoText,
            "it contains no text; scanned pages need text recognition first",
        )
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(FormatErrorKind::Unsupported, message)
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> FormatErrorKind {
        self.kind
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for FormatError {}
