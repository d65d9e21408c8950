use std::fmt;

/// One kind of thing that was mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Repair {
    /// Text around the value was left out: prose, a fence, other values.
    Surroundings,
    /// The value was in a JSON string.
    Unwrapped,
    /// The text ended too early, and what was open was closed.
    Truncated,
    /// A comma too many was left out.
    ExtraComma,
    /// A comma was missing.
    MissingComma,
    /// A colon was missing, or something else stood in its place.
    Colon,
    /// A bracket or brace was missing, of the wrong kind, or one too many.
    Bracket,
    /// A comment was left out.
    Comment,
    /// Quotes of another kind, or missing on one side.
    Quotes,
    /// A quote inside a string was not escaped.
    InnerQuote,
    /// A line break or another control character in a string was not escaped.
    Control,
    /// An escape that JSON does not have, or a broken one.
    Escape,
    /// Strings that stood side by side were joined.
    Joined,
    /// A key without quotes.
    BareKey,
    /// A string without quotes.
    BareValue,
    /// A literal of another language, such as `True` or `NaN`.
    Literal,
    /// A number in a form that JSON does not have.
    Number,
    /// A call around a value, such as `ObjectId(..)`, or a tuple or set.
    Call,
    /// A key without a value, which became null.
    MissingValue,
    /// An ellipsis or stray text was left out.
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

/// The kinds of things that were mended.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Mends(pub(super) u32);

impl Mends {
    pub(super) fn of(mend: Repair) -> Self {
        Self(1 << mend as u32)
    }

    pub(super) fn add(&mut self, mend: Repair) {
        self.0 |= 1 << mend as u32;
    }

    /// Whether nothing was mended.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this kind of thing was mended.
    pub fn contains(self, mend: Repair) -> bool {
        self.0 & (1 << mend as u32) != 0
    }

    /// All kinds of things that were mended.
    pub fn iter(self) -> impl Iterator<Item = Repair> {
        ALL.into_iter().filter(move |mend| self.contains(*mend))
    }
}

impl fmt::Debug for Mends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
