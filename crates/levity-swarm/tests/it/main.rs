//! The crate as a whole, by subject.
