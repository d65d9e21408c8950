//! MCP servers as tools.

pub mod blocking;

#[cfg(feature = "oauth")]
mod auth;
mod client;
mod config;
mod context;
mod convert;
mod error;
mod event;
mod helpers;
mod host;
mod items;
mod link;
mod naming;
mod server;
mod servers;
mod text;
mod tool;

#[cfg(feature = "oauth")]
pub use auth::{
    Browser, Enterprise, FileTokens, Identity, Loopback, MemoryTokens, OAuth, TokenLock, TokenStore,
};
pub use config::{Config, Inherit, Problem, ServerConfig, Trust};
pub use context::ResourceContext;
pub use error::{Death, Error, ErrorKind, Result};
pub use event::{ServerEvent, ServerEventKind};
pub use host::{
    AcceptDefaults, Decline, ElicitAsk, ElicitForm, ElicitReply, ElicitUrl, Elicitor, ModelSampler, Refusal,
    RefusalKind, SampleAsk, SampleReply, Sampler,
};
pub use items::{Prompt, PromptArgument, PromptReply, Resource, ResourceContent, ResourceTemplate};
pub use server::{Server, ServerState, ServerStatus};
pub use servers::{ServerEvents, Servers, ServersBuilder, SomeServers, Wait};
