//! JSON Schemas, narrowed to what the API takes. What it cannot say is put into words.

mod output;

pub(super) use output::output;

pub(super) use crate::schema::object::input;

#[cfg(test)]
mod tests;
