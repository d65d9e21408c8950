//! The crate as a whole, by subject.

mod ready;
mod router;
