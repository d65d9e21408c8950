//! Resolution of names to addresses; only checked addresses are returned.
//!
//! The library asks [`CheckedResolver`] once for each connection and has no other source of
//! addresses. An own resolver may return anything: its answer passes through the same check.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use reqwest::dns::{Addrs, Name, Resolve};

use super::error::AddressError;
use super::guard::NetGuard;

/// The future that an [`AddressResolver`] returns.
///
/// It is a boxed future, so that a guard can hold any resolver as a trait object.
pub type ResolveFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Finds the addresses of a name.
///
/// # Contract
/// - It is called once per connection, and its addresses are checked: it need not be trusted.
/// - No addresses, or an error, means that the name does not resolve.
/// - Dropping the future cancels the lookup; it is dropped at the time limit of the request.
/// - It is not called for a host that is an address already.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::net::{IpAddr, Ipv4Addr};
/// use levity_sandbox::{AddressError, AddressResolver, NetError, NetGuard, ResolveFuture};
///
/// /// Knows one name, whose address is private.
/// struct OneName;
///
/// impl AddressResolver for OneName {
///     fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a> {
///         let private = IpAddr::V4(Ipv4Addr::new(192, 168, 1, 1));
///         Box::pin(async move {
///             Ok(if host == "rebound.example.org" { vec![private] } else { Vec::new() })
///         })
///     }
/// }
///
/// let client = NetGuard::builder().resolver(OneName).build()?.client()?;
/// let error = client.get("https://rebound.example.org/")?.send().await.unwrap_err();
/// assert!(matches!(error, NetError::Address(AddressError::Address { .. })));
/// let error = client.get("https://unknown.example.org/")?.send().await.unwrap_err();
/// assert!(matches!(error, NetError::Address(AddressError::Unresolved(_))));
/// # Ok(())
/// # }
/// ```
pub trait AddressResolver: Send + Sync {
    /// Returns the addresses of `host`, in the order of connection attempts.
    fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a>;
}

/// A resolver that asks the operating system.
///
/// It uses the system's settings: `/etc/hosts`, search domains and DNS servers.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use levity_sandbox::{AddressResolver, SystemResolver};
///
/// let addresses = SystemResolver.resolve("127.0.0.1").await?;
/// assert_eq!(addresses, [std::net::Ipv4Addr::LOCALHOST]);
/// # Ok(())
/// # }
/// ```
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
