//! What the code that `#[tool]` writes needs; not for use by hand.

mod arguments;
mod returns;
mod schema;

pub use arguments::{Arguments, arguments};
pub use returns::{
    Caused, Fallible, FormAny, FormKnown, Hidden, Json, Known, KnownError, Own, OwnError, Plain, Probe,
    ReasonAny, ReasonError, ReasonKnown, ReturnsResult, ReturnsValue, ShownAny, ShownJson, Told,
};
pub use schema::{Fields, input_schema, schema};

pub use async_trait::async_trait;
pub use {inventory, serde_json};
