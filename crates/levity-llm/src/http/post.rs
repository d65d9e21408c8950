//! The shared HTTP client of a process, and the sending of requests.
//!
//! A client belongs to a tokio runtime: its connections are tasks of that runtime and end with it.
//! Clients are therefore stored per runtime and connect timeout. The store is cleared at 64
//! entries, which only programs with many short-lived runtimes (tests) reach.

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

/// The time within which a request on an already closed connection fails.
const STALE_CONNECTION_WINDOW: Duration = Duration::from_secs(1);

/// A client that all models of a process share within one tokio runtime, because connections belong
/// to a runtime.
#[derive(Clone, Debug)]
pub(super) struct SharedClient {
    client: Client,
    /// True if connections from earlier requests may be reused.
    used: Arc<AtomicBool>,
}

impl SharedClient {
    /// Returns the client of the current runtime.
    ///
    /// # Errors
    /// Returns `Transport` outside a tokio runtime.
    pub(super) fn for_current_runtime(connect: Duration) -> Result<Self, ModelError> {
        type Clients = Mutex<HashMap<(Id, Duration), SharedClient>>;
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
        // A program that creates many runtimes no longer uses the old ones.
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

    /// Sends a GET request, which is never repeated here.
    pub(super) async fn get(
        &self,
        url: &str,
        headers: HeaderMap,
    ) -> Result<Response, reqwest::Error> {
        self.client.get(url).headers(headers).send().await
    }

    /// Sends a request. Some servers announce a persistent connection but close it after a reply,
    /// which only the next request detects. That request reached no server, so it is sent again
    /// once.
    ///
    /// Three conditions keep the repetition safe: an earlier request of this client succeeded, the
    /// connection closed before any byte of a reply, and that happened within a second. A model
    /// that was already working on the request would take longer.
    pub(super) async fn post(
        &self,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, reqwest::Error> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the lifetime of a connection depends on the real clock"
        )]
        let started = Instant::now();
        let used = self.used.load(Ordering::Relaxed);
        let retry = used.then(|| (headers.clone(), body.clone()));
        let mut sent = self
            .client
            .post(url)
            .headers(headers)
            .body(body)
            .send()
            .await;
        if let (Err(error), Some((headers, body))) = (&sent, retry)
            && was_closed(error)
            && started.elapsed() < STALE_CONNECTION_WINDOW
        {
            // The retry is boxed because it is rare and would otherwise enlarge every call's
            // future.
            sent = Box::pin(self.client.post(url).headers(headers).body(body).send()).await;
        }
        if sent.is_ok() {
            self.used.store(true, Ordering::Relaxed);
        }
        sent
    }
}

/// Returns `true` if a connection closed before any part of a reply arrived.
///
/// A refused connection does not count.
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

/// Builds a client without redirects and with the name of levity as its user agent.
fn build(connect: Duration) -> Result<Client, reqwest::Error> {
    levity_http::client(|builder| builder.connect_timeout(connect).tcp_nodelay(true))
}
