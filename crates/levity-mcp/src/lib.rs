//! MCP servers as tools.

mod config;
mod error;
mod event;
mod link;

pub use config::{Config, Inherit, Problem, ServerConfig, Trust};
pub use error::{Death, Error, ErrorKind, Result};
pub use event::{ServerEvent, ServerEventKind};
