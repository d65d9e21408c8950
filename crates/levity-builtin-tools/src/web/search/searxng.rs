use async_trait::async_trait;
use levity_core::ToolError;
use levity_sandbox::NetGuard;
use serde_json::Value;

use super::super::client::Client;
use super::super::html::plain;
use super::remote::Remote;
use super::{SearchHit, SearchProvider};

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
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            remote: Remote::new(url),
        }
    }

    /// Sets the guard that limits addresses; public addresses over HTTPS by default.
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

fn hit(result: &Value) -> Option<SearchHit> {
    let text = |name: &str| plain(result[name].as_str().unwrap_or_default());
    Some(SearchHit::new(
        text("title"),
        result["url"].as_str()?,
        text("content"),
    ))
}
