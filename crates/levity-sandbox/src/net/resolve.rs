//! Names become addresses here, and only addresses that were looked at come out.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use reqwest::dns::{Addrs, Name, Resolve};

use super::error::AddressError;
use super::guard::NetGuard;

/// What a [`AddressResolver`] returns.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Finds the addresses of a name.
///
/// # Contract
/// - It is asked once per connection, and what it says is looked at: it need not be trusted.
/// - No addresses, or an error, means that the name leads nowhere.
pub trait AddressResolver: Send + Sync {
    /// The addresses of `host`, in the order in which they are to be tried.
    fn resolve<'a>(&'a self, host: &'a str) -> Resolving<'a>;
}

/// Asks the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl AddressResolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> Resolving<'a> {
        Box::pin(async move {
            Ok(tokio::net::lookup_host((host, 0))
                .await?
                .map(|found| found.ip())
                .collect())
        })
    }
}

/// What the HTTP client connects by: it gets addresses from here alone, and asks once per
/// connection.
pub(super) struct Checked(pub(super) NetGuard);

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> reqwest::dns::Resolving {
        let guard = self.0.clone();
        Box::pin(async move {
            let found = addresses(&guard, name.as_str()).await?;
            // The port is the URL's, which was looked at before.
            Ok(Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// All addresses of a name; one bad one spoils them all, since nobody mixes them by honest mistake.
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
