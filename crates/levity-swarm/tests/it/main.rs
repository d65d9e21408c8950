//! The crate as a whole, by subject.

mod debate;
mod rounds;
mod router;
