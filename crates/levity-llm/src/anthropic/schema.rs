//! JSON Schemas, restricted to the subset that the API accepts. Other constraints are described in
//! words.

mod output;

pub(super) use output::output;

pub(super) use crate::schema::object::input;

#[cfg(test)]
mod tests;
