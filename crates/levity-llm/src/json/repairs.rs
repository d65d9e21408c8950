//! The kinds of repairs, and a set of them in one `u32`.
//!
//! The bit of a kind is its position in [`Repair`]. [`ALL`] repeats the order, because Rust cannot
//! list the variants of an enum; a new kind goes to the end of both.

use std::fmt;

/// One kind of repair that was made.
///
/// Some kinds are harmless, such as a superfluous comma. Others may lose content: treat
/// [`Truncated`](Self::Truncated), [`Dropped`](Self::Dropped) and
/// [`MissingValue`](Self::MissingValue) as signs of an incomplete answer.
///
/// ```
/// use levity_llm::json::{self, Repair};
///
/// let repaired = json::repair("{a: 1 b: None, /* later */}")?;
/// let made: Vec<Repair> = repaired.repairs.iter().collect();
/// assert!(made.contains(&Repair::MissingComma) && made.contains(&Repair::Comment));
/// assert!(!made.contains(&Repair::Truncated));
/// # Ok::<(), json::JsonError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Repair {
    /// Text around the value was removed: prose, a fence, other values.
    Surroundings,
    /// The value was inside a JSON string.
    Unwrapped,
    /// The text ended too early, and open brackets and strings were closed.
    Truncated,
    /// A superfluous comma was removed.
    ExtraComma,
    /// A missing comma was added.
    MissingComma,
    /// A colon was missing, or another character was in its place.
    Colon,
    /// A bracket or brace was missing, of the wrong kind, or superfluous.
    Bracket,
    /// A comment was removed.
    Comment,
    /// The quotes were of another kind, or missing on one side.
    Quotes,
    /// A quote inside a string was not escaped.
    InnerQuote,
    /// A line break or another control character in a string was not escaped.
    Control,
    /// An escape sequence was invalid or incomplete.
    Escape,
    /// Adjacent strings were joined.
    Joined,
    /// A key had no quotes.
    BareKey,
    /// A string had no quotes.
    BareValue,
    /// A literal came from another language, such as `True` or `NaN`.
    Literal,
    /// A number had a form that JSON does not allow.
    Number,
    /// A value was wrapped in a call such as `ObjectId(..)`, or was a tuple or set.
    Call,
    /// A key without a value received null.
    MissingValue,
    /// An ellipsis or stray text was removed.
    Dropped,
}

/// All kinds, in the order of their bits.
const ALL: [Repair; 20] = [
    Repair::Surroundings,
    Repair::Unwrapped,
    Repair::Truncated,
    Repair::ExtraComma,
    Repair::MissingComma,
    Repair::Colon,
    Repair::Bracket,
    Repair::Comment,
    Repair::Quotes,
    Repair::InnerQuote,
    Repair::Control,
    Repair::Escape,
    Repair::Joined,
    Repair::BareKey,
    Repair::BareValue,
    Repair::Literal,
    Repair::Number,
    Repair::Call,
    Repair::MissingValue,
    Repair::Dropped,
];

/// The set of repairs that were made.
///
/// The set does not count: a kind that was needed twice appears once. It says nothing about
/// positions.
///
/// ```
/// use levity_llm::json;
///
/// assert!(json::repair("[1, 2]")?.repairs.is_empty());
/// assert_eq!(format!("{:?}", json::repair("[1, 2,]")?.repairs), "{ExtraComma}");
/// # Ok::<(), json::JsonError>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Repairs(pub(super) u32);

impl Repairs {
    pub(super) fn of(repair: Repair) -> Self {
        Self(1 << repair as u32)
    }

    pub(super) fn add(&mut self, repair: Repair) {
        self.0 |= 1 << repair as u32;
    }

    /// Returns `true` if no repair was made.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns `true` if this kind of repair was made.
    pub fn contains(self, repair: Repair) -> bool {
        self.0 & (1 << repair as u32) != 0
    }

    /// Returns all kinds of repairs that were made.
    ///
    /// The order is that of the variants of [`Repair`], not that of the text.
    pub fn iter(self) -> impl Iterator<Item = Repair> {
        ALL.into_iter().filter(move |repair| self.contains(*repair))
    }
}

impl fmt::Debug for Repairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
