//! MCP servers as tools.

mod config;
#[allow(dead_code, unused_imports, reason = "the connection to a server uses it")]
mod convert;
mod error;
mod event;
mod link;

pub use config::{Inherit, ServerConfig, Trust};
pub use error::{Death, Error, ErrorKind, Result};
pub use event::{ServerEvent, ServerEventKind};
