use std::fmt;

/// One kind of repair that was made.
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
    pub fn iter(self) -> impl Iterator<Item = Repair> {
        ALL.into_iter().filter(move |repair| self.contains(*repair))
    }
}

impl fmt::Debug for Repairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
