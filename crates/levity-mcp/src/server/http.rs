//! Servers that are reached by HTTP.

use super::{Shared, lock};
use crate::client::{Client, Era, Misunderstanding};
use crate::config::{Http, Transport};
use crate::link::{http, sse};
use crate::{ErrorKind, Result};

impl Shared {
    pub(super) async fn connect_http(&self) -> Result<Client> {
        match &self.config.transport {
            Transport::Sse(settings) => {
                let limits = http::Limits::of(&self.config);
                let (name, world) = (self.config.name.clone(), self.world.clone());
                let wire = sse::open(name, settings, limits, self.login.clone(), world).await?;
                self.shake(wire, None, true)
                    .await
                    .map_err(|(error, _)| error)
            }
            Transport::Http(settings) => self.connect_streamable(settings).await,
            Transport::Stdio(_) | Transport::InProcess(_) => {
                Err(self.bad("it is not reached by HTTP"))
            }
        }
    }

    async fn connect_streamable(&self, settings: &Http) -> Result<Client> {
        let open = || {
            let limits = http::Limits::of(&self.config);
            http::open(
                self.config.name.clone(),
                settings,
                limits,
                self.login.clone(),
                self.world.clone(),
            )
        };
        let asked_before = lock(&self.era).is_some();
        let (error, why) = match self.shake(open()?, None, false).await {
            Ok(client) => return Ok(client),
            Err(failed) => failed,
        };
        // A server that chokes on the question for the newer form may still speak the older one.
        let refused =
            matches!(why, Misunderstanding::Refused(_)) || error.kind() == ErrorKind::Auth;
        if asked_before || refused {
            return Err(error);
        }
        *lock(&self.era) = Some(Era::Legacy);
        let second = self.shake(open()?, None, false).await;
        if second.is_err() {
            *lock(&self.era) = None;
        }
        second.map_err(|(error, _)| error)
    }
}
