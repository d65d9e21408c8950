//! What an agent goes by: context files, the workspace, and the one value that holds it all.

mod aside;
mod files;

pub use files::{ContextFiles, Shown, Taken};
