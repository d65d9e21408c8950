//! Items for the code that `#[tool]` generates and for levity's other crates; not public API.

mod arguments;
mod returns;
mod schema;
mod sha256;

pub use arguments::{Arguments, arguments};
pub use returns::{
    Caused, Fallible, FormAny, FormKnown, Hidden, Json, Known, KnownError, Own, OwnError, Plain,
    Probe, ReasonAny, ReasonError, ReasonKnown, ReturnsResult, ReturnsValue, ShownAny, ShownJson,
    Told,
};
pub use schema::{Fields, input_schema, schema};
pub use sha256::sha256;

pub use async_trait::async_trait;
pub use {inventory, serde_json};
