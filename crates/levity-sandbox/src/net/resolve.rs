//! Resolution of names to addresses; only checked addresses are returned.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use reqwest::dns::{Addrs, Name, Resolve};

use super::error::AddressError;
use super::guard::NetGuard;

/// The future that an [`AddressResolver`] returns.
pub type ResolveFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Finds the addresses of a name.
///
/// # Contract
/// - It is called once per connection, and its addresses are checked: it need not be trusted.
/// - No addresses, or an error, means that the name does not resolve.
pub trait AddressResolver: Send + Sync {
    /// Returns the addresses of `host`, in the order of connection attempts.
    fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a>;
}

/// A resolver that asks the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl AddressResolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            Ok(tokio::net::lookup_host((host, 0))
                .await?
                .map(|found| found.ip())
                .collect())
        })
    }
}

/// The resolver of the HTTP client, which gets addresses from here alone, once per connection.
pub(super) struct CheckedResolver(pub(super) NetGuard);

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> reqwest::dns::Resolving {
        let guard = self.0.clone();
        Box::pin(async move {
            let found = addresses(&guard, name.as_str()).await?;
            // The port belongs to the URL, which was checked before.
            Ok(Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// Returns all addresses of a name. One refused address rejects all of them, since no honest name
/// mixes the two.
async fn addresses(guard: &NetGuard, name: &str) -> Result<Vec<IpAddr>, AddressError> {
    let found = guard.resolver().resolve(name).await.unwrap_or_default();
    if found.is_empty() {
        return Err(AddressError::Unresolved(name.to_owned()));
    }
    found
        .iter()
        .try_for_each(|address| guard.check_address(name, *address))?;
    Ok(found)
}
