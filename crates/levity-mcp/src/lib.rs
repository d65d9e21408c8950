//! MCP servers as tools.

#[cfg(feature = "oauth")]
mod auth;
mod config;
mod error;
mod event;
mod link;

#[cfg(feature = "oauth")]
pub use auth::{
    Browser, Enterprise, FileTokens, Identity, Loopback, MemoryTokens, OAuth, TokenLock, TokenStore,
};
pub use config::{Inherit, ServerConfig, Trust};
pub use error::{Death, Error, ErrorKind, Result};
pub use event::{ServerEvent, ServerEventKind};
