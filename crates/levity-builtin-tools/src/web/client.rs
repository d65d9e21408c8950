//! A client that is created on first use, because creating one reads the system's certificates.

use std::sync::{Mutex, PoisonError};

use levity_core::ToolError;
use levity_sandbox::{GuardedClient, NetGuard};

use super::failure;

/// A tool may be created by every agent and never be used, so nothing is opened before the first
/// call.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) guard: NetGuard,
    shared: Mutex<Option<GuardedClient>>,
}

impl Client {
    pub(super) fn new(guard: NetGuard) -> Self {
        Self {
            guard,
            shared: Mutex::default(),
        }
    }

    /// # Errors
    /// Returns an error for the model if the client cannot be created. The next call tries again.
    pub(super) fn get(&self) -> Result<GuardedClient, ToolError> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*shared {
            return Ok(client.clone());
        }
        let client = self.guard.client().map_err(failure::net)?;
        Ok(shared.insert(client).clone())
    }
}
