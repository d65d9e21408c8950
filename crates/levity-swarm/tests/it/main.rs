//! The crate as a whole, by subject.

mod router;
