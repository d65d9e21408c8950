//! Connections to servers that are reached through HTTP.
//!
//! Some servers of the older protocol fail on the probe for the newer one in ways that look like a
//! broken connection. So the first failure of a server with an unknown version leads to a second
//! attempt on a fresh connection, with the older version only. A refusal and a failed login are
//! final.

use super::{ServerInner, lock};
use crate::client::{Client, Era, HandshakeError};
use crate::config::{Http, Transport};
use crate::link::{http, sse};
use crate::{ErrorKind, Result};

impl ServerInner {
    /// Opens the configured kind of HTTP transport and performs the handshake.
    pub(super) async fn connect_http(&self) -> Result<Client> {
        match &self.config.transport {
            Transport::Sse(settings) => {
                let limits = http::Limits::from_config(&self.config);
                let (name, world) = (self.config.name.clone(), self.world.clone());
                let wire = sse::open(name, settings, limits, self.login.clone(), world).await?;
                self.connect_client(wire, None, true)
                    .await
                    .map_err(|(error, _)| error)
            }
            Transport::Http(settings) => self.connect_streamable(settings).await,
            Transport::Stdio(_) | Transport::InProcess(_) => {
                Err(self.invalid_arguments("it is not reached through HTTP"))
            }
        }
    }

    /// Connects by streamable HTTP, with the second attempt for older servers.
    async fn connect_streamable(&self, settings: &Http) -> Result<Client> {
        let open = || {
            let limits = http::Limits::from_config(&self.config);
            http::open(
                self.config.name.clone(),
                settings,
                limits,
                self.login.clone(),
                self.world.clone(),
            )
        };
        let era_is_known = lock(&self.era).is_some();
        let (error, failure) = match self.connect_client(open()?, None, false).await {
            Ok(client) => return Ok(client),
            Err(failed) => failed,
        };
        // A server that fails on the probe for the newer version may still support the older one.
        let is_refused =
            matches!(failure, HandshakeError::Refused(_)) || error.kind() == ErrorKind::Auth;
        if era_is_known || is_refused {
            return Err(error);
        }
        *lock(&self.era) = Some(Era::Legacy);
        let second = self.connect_client(open()?, None, false).await;
        if second.is_err() {
            *lock(&self.era) = None;
        }
        second.map_err(|(error, _)| error)
    }
}
