//! How messages get to a server and back: one module per transport.
//!
//! Each opens a [`Transport`](levity_rpc::mcp::Transport) for the client. A transport here never
//! keeps a caller waiting for an answer that cannot come: when the connection ends, `receive`
//! returns `None`; an answer that cannot be read is turned into an error for the request it belongs
//! to, where that can be told, and ends the connection where it cannot.

pub(crate) mod decode;
mod end;
pub(crate) mod failure;
mod pending;
mod process;
pub(crate) use process::inherited;
pub(crate) mod stdio;

use std::time::Duration;

use async_trait::async_trait;

use crate::ServerExit;

/// What keeps a server alive: its process.
#[async_trait]
pub(crate) trait Lifeline: Send + Sync {
    /// How it ended, or what it last wrote to stderr while it runs. Waits a moment for a process
    /// that is about to end.
    async fn death(&self) -> Option<ServerExit>;

    /// Ends it and everything it started, within `grace` where it goes by itself.
    async fn end(&self, grace: Duration);

    /// Ends it and everything it started, at once.
    fn kill(&self);
}

#[cfg(feature = "http")]
pub(crate) mod authorize {
    use async_trait::async_trait;
    use url::Url;

    use crate::Result;

    /// What puts a login on HTTP requests, and gets another when the server asks for one.
    #[async_trait]
    pub(crate) trait Authorize: Send + Sync {
        /// Returns the credentials to send with a request now; none when there is no login yet. A
        /// token that is about to end is replaced first.
        async fn credentials(&self, method: &str, url: &Url) -> Result<Option<Credentials>>;

        /// Keeps the nonce that the server gave for the next proof of possession.
        fn keep_nonce(&self, value: &str);

        /// The server does not take the login. Gets another one and says whether the request should
        /// be sent again.
        async fn challenged(&self, challenge: &Challenge<'_>) -> Result<bool>;
    }

    /// The headers that show who sends a request.
    pub(crate) struct Credentials {
        /// The value of `Authorization`.
        pub(crate) authorization: String,
        /// The value of `DPoP`, where the token is bound to a key.
        pub(crate) proof: Option<String>,
    }

    /// A server's wish for another login.
    #[derive(Clone, Copy)]
    #[cfg_attr(
        not(feature = "oauth"),
        allow(dead_code, reason = "only a login reads it")
    )]
    pub(crate) struct Challenge<'a> {
        /// The value of `Authorization` that was sent.
        pub(crate) sent: Option<&'a str>,
        /// 401 or 403.
        pub(crate) status: u16,
        /// Its `WWW-Authenticate`.
        pub(crate) text: &'a str,
        /// 1 at first; it counts the challenges to one request, of which there are 3 at most.
        pub(crate) attempt: u32,
    }
}

#[cfg(feature = "http")]
pub(crate) mod http;
#[cfg(feature = "http")]
pub(crate) mod sse;
