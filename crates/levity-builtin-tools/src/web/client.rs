//! A client that is made when it is first needed: making one reads the system's certificates.

use std::sync::{Mutex, PoisonError};

use levity_core::ToolError;
use levity_sandbox::{GuardedClient, NetGuard};

use super::failure;

#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) guard: NetGuard,
    made: Mutex<Option<GuardedClient>>,
}

impl Client {
    pub(super) fn new(guard: NetGuard) -> Self {
        Self {
            guard,
            made: Mutex::default(),
        }
    }

    pub(super) fn get(&self) -> Result<GuardedClient, ToolError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*made {
            return Ok(client.clone());
        }
        let client = self.guard.client().map_err(failure::net)?;
        Ok(made.insert(client).clone())
    }
}
