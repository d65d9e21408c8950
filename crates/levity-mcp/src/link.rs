//! The transports of messages to a server and back: one module per transport.
//!
//! Each module opens a [`Transport`](levity_rpc::mcp::Transport) for the client. A transport never
//! lets a caller wait for a response that cannot arrive. When the connection ends, `receive`
//! returns `None`. An unreadable response becomes an error of the request it belongs to; if that
//! request is unknown, the connection ends.
//!
//! The modules that all transports share:
//! - `decode` turns bytes into messages;
//! - `failure` turns a failure of a transport into the answer of a request;
//! - `pending` knows which requests wait;
//! - `unanswered` limits the server's requests that levity has not answered;
//! - `close` is the state that ends a connection.
//!
//! `process` owns the process of a server that levity starts.

mod close;
pub(crate) mod decode;
pub(crate) mod failure;
mod pending;
mod process;
pub(crate) use process::inherited;
pub(crate) mod stdio;
mod unanswered;

use std::time::Duration;

use async_trait::async_trait;

use crate::ServerExit;

/// The process of a server.
#[async_trait]
pub(crate) trait ServerProcess: Send + Sync {
    /// Returns the exit status, or the last stderr output of a running process. Waits a moment for
    /// a process that is about to exit.
    async fn exit_status(&self) -> Option<ServerExit>;

    /// Stops the process and its descendants; they have `grace` to exit voluntarily.
    async fn stop(&self, grace: Duration);

    /// Kills the process and its descendants at once.
    fn kill(&self);
}

#[cfg(feature = "http")]
pub(crate) mod authorize {
    use async_trait::async_trait;
    use url::Url;

    use crate::Result;

    /// A login for HTTP requests, which renews its credentials when the server requires it.
    #[async_trait]
    pub(crate) trait Authorize: Send + Sync {
        /// Returns the credentials for a request; `None` before a login. A token that is about to
        /// expire is renewed first.
        async fn credentials(&self, method: &str, url: &Url) -> Result<Option<Credentials>>;

        /// Stores the nonce that the server sent for the next proof of possession.
        fn store_nonce(&self, value: &str);

        /// Handles a rejected login: obtains new credentials. Returns `true` if the request should
        /// be sent again.
        async fn handle_challenge(&self, challenge: &Challenge<'_>) -> Result<bool>;
    }

    /// The headers that authenticate a request.
    pub(crate) struct Credentials {
        /// The value of the `Authorization` header.
        pub(crate) authorization: String,
        /// The value of the `DPoP` header, if the token is bound to a key.
        pub(crate) proof: Option<String>,
    }

    /// A server's demand for other credentials.
    #[derive(Clone, Copy)]
    #[cfg_attr(
        not(feature = "oauth"),
        allow(dead_code, reason = "only a login reads it")
    )]
    pub(crate) struct Challenge<'a> {
        /// The value of the `Authorization` header that was sent.
        pub(crate) sent: Option<&'a str>,
        /// The HTTP status: 401 or 403.
        pub(crate) status: u16,
        /// The value of the `WWW-Authenticate` header.
        pub(crate) text: &'a str,
        /// The number of challenges to one request, counted from 1; at most 3.
        pub(crate) attempt: u32,
    }
}

#[cfg(feature = "http")]
pub(crate) mod http;
#[cfg(feature = "http")]
pub(crate) mod sse;
