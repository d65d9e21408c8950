//! The one client of a process, and how a request leaves by it.

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use levity_core::{ModelError, ModelErrorKind};
use reqwest::header::HeaderMap;
use reqwest::{Client, Response};
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

/// How soon a connection breaks that was closed before the request was sent on it.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A client, shared by all models of a process, as far as can be: connections belong to a tokio
/// runtime.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    client: Client,
    /// Whether there may be connections that were used before.
    used: Arc<AtomicBool>,
}

impl Shared {
    /// The client of this runtime.
    pub(super) fn here(connect: Duration) -> Result<Self, ModelError> {
        type Clients = Mutex<HashMap<(Id, Duration), Shared>>;
        static CLIENTS: OnceLock<Clients> = OnceLock::new();
        let Ok(runtime) = Handle::try_current() else {
            let message = "a model can only be called inside a tokio runtime";
            return Err(ModelError::new(ModelErrorKind::Transport, message));
        };
        let clients = CLIENTS.get_or_init(Clients::default);
        let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (runtime.id(), connect);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        // A program that makes many runtimes has done with the old ones.
        if clients.len() >= 64 {
            clients.clear();
        }
        let client = Self {
            client: build(connect).map_err(|error| super::endpoint::failed(error, connect))?,
            used: Arc::default(),
        };
        clients.insert(key, client.clone());
        Ok(client)
    }

    pub(super) async fn get(
        &self,
        url: &str,
        headers: HeaderMap,
    ) -> Result<Response, reqwest::Error> {
        self.client.get(url).headers(headers).send().await
    }

    /// Sends a request. Some servers close a connection behind a reply and say the opposite, which
    /// is noticed only by the next request on it: that one has reached nobody, and is sent again,
    /// once.
    pub(super) async fn post(
        &self,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, reqwest::Error> {
        #[expect(
            clippy::disallowed_methods,
            reason = "how long a connection lives is a matter of the real clock"
        )]
        let begun = Instant::now();
        let used = self.used.load(Ordering::Relaxed);
        let again = used.then(|| (headers.clone(), body.clone()));
        let mut sent = self
            .client
            .post(url)
            .headers(headers)
            .body(body)
            .send()
            .await;
        if let (Err(error), Some((headers, body))) = (&sent, again)
            && was_closed(error)
            && begun.elapsed() < AT_ONCE
        {
            // In a box: it is rare, and a call that is under way keeps the room for it.
            sent = Box::pin(self.client.post(url).headers(headers).body(body).send()).await;
        }
        if sent.is_ok() {
            self.used.store(true, Ordering::Relaxed);
        }
        sent
    }
}

/// Whether a connection came to its end before anything of a reply was there.
fn was_closed(error: &reqwest::Error) -> bool {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<hyper::Error>() {
            return error.is_incomplete_message() || error.is_canceled();
        }
        next = cause.source();
    }
    false
}

fn build(connect: Duration) -> Result<Client, reqwest::Error> {
    // Another part of the program may have chosen one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .connect_timeout(connect)
        // A redirect would take keys to another place.
        .redirect(reqwest::redirect::Policy::none())
        .tcp_nodelay(true)
        .user_agent(concat!("levity/", env!("CARGO_PKG_VERSION")))
        .build()
}
