//! HTTP clients for levity's own crates, which need certificates of authorities only for `https`.
//!
//! ```
//! use std::time::Duration;
//!
//! let client = levity_http::client(|builder| builder.timeout(Duration::from_secs(30)))?;
//! # let _ = client;
//! # Ok::<(), reqwest::Error>(())
//! ```
//!
//! # Promises
//! - A client can be created on a system without certificates of authorities, such as an empty
//!   image. Its requests to `http` addresses work, and those to `https` addresses fail with
//!   [`NoCertificates`].
//! - Without other settings, no redirect is followed, because it would send keys to another server.
//!   The user agent is the name and version of levity.
//!
//! This crate deliberately sends nothing and has no limits of its own: each caller sets them.
//!
//! # Features
//! This crate has no features. TLS is that of `rustls` with `ring`, unless the program has
//! installed another provider of cryptography.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod certificates;

pub use certificates::NoCertificates;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};

/// Creates a client with the settings that `configure` adds.
///
/// `configure` is called a second time on systems without certificates of authorities.
///
/// ```
/// let client = levity_http::client(|builder| builder.tcp_nodelay(true))?;
/// # let _ = client;
/// # Ok::<(), reqwest::Error>(())
/// ```
///
/// # Errors
/// Returns an error if a setting is invalid, for example a header.
pub fn client(
    configure: impl Fn(ClientBuilder) -> ClientBuilder,
) -> Result<Client, reqwest::Error> {
    install_provider();
    let configured = || {
        configure(
            Client::builder()
                .redirect(Policy::none())
                .user_agent(concat!("levity/", env!("CARGO_PKG_VERSION"))),
        )
    };
    configured().build().or_else(|error| {
        // The client has loaded the certificates, although it may never need them. If they were not
        // the problem, this client cannot be created either.
        match certificates::refuse_all() {
            Some(tls) => configured().tls_backend_preconfigured(tls).build(),
            None => Err(error),
        }
    })
}

fn install_provider() {
    // Another part of the program may have installed a provider already, which works as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
