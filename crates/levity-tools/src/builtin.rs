//! Tools that an agent needs on its first day.

#[cfg(feature = "commands")]
mod command;
#[cfg(feature = "files")]
mod files;
#[cfg(feature = "web")]
mod web;

#[cfg(feature = "commands")]
pub use command::RunCommand;
