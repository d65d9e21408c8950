//! A provider for instances of SearXNG.
//!
//! Such an instance is often on a local network, so its guard usually allows one private address.
//! The number of results cannot be requested there, so the tool cuts the list.

use async_trait::async_trait;
use levity_core::ToolError;
use levity_sandbox::NetGuard;
use serde_json::Value;

use super::super::client::Client;
use super::remote::Remote;
use super::{SearchHit, SearchProvider};
use levity_html::plain;

/// A SearXNG instance, which queries many search engines. Its settings must allow the format
/// `json`.
///
/// To reach an instance on a local network, allow its address in the guard:
///
/// ```
/// use levity_sandbox::NetGuard;
/// use levity_builtin_tools::{SearXng, WebSearch};
///
/// # fn main() -> Result<(), levity_sandbox::NetError> {
/// let guard = NetGuard::builder();
/// let guard = guard.allow_http().allow_port(8080).allow_address("10.0.0.5").build()?;
/// let search = WebSearch::new(SearXng::new("http://10.0.0.5:8080").guard(guard));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SearXng {
    remote: Remote,
}

impl SearXng {
    /// Creates a provider for the instance at this address.
    ///
    /// The address is that of the instance, without `/search`. An invalid address is reported by
    /// the first search.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            remote: Remote::new(url),
        }
    }

    /// Sets the guard that limits addresses; public addresses over HTTPS by default.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::io::{Read, Write};
    /// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let port = server.local_addr()?.port();
    /// # let served = std::thread::spawn(move || -> std::io::Result<()> {
    /// #     let (mut stream, _) = server.accept()?;
    /// #     stream.read(&mut [0; 4096])?;
    /// #     let body = r#"{"results": [{"title": "Tides", "url": "https://example.org/"}]}"#;
    /// #     let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
    /// #     stream.write_all(format!("{head}{body}").as_bytes())
    /// # });
    /// use levity_builtin_tools::{SearXng, SearchProvider};
    /// use levity_sandbox::NetGuard;
    ///
    /// let guard =
    ///     NetGuard::builder().allow_http().allow_port(port).allow_address("127.0.0.1").build()?;
    /// let searxng = SearXng::new(format!("http://127.0.0.1:{port}/")).guard(guard);
    /// assert_eq!(searxng.search("tides", 5).await?[0].url, "https://example.org/");
    /// # served.join().expect("a server")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn guard(mut self, guard: NetGuard) -> Self {
        self.remote.client = Client::new(guard);
        self
    }
}

#[async_trait]
impl SearchProvider for SearXng {
    async fn search(&self, query: &str, _: usize) -> Result<Vec<SearchHit>, ToolError> {
        let reply = self
            .remote
            .ask("/search", &[("q", query), ("format", "json")], None)
            .await?;
        let results = reply["results"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        Ok(results.iter().filter_map(hit).collect())
    }
}

/// Returns `None` for a result without an address.
fn hit(result: &Value) -> Option<SearchHit> {
    let text = |name: &str| plain(result[name].as_str().unwrap_or_default());
    Some(SearchHit::new(
        text("title"),
        result["url"].as_str()?,
        text("content"),
    ))
}
