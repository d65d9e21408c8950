use async_trait::async_trait;
use levity_core::ToolError;
use levity_sandbox::NetGuard;
use serde_json::Value;

use super::super::client::Client;
use super::super::html::plain;
use super::remote::{Key, Remote};
use super::{SearchHit, SearchProvider};

/// The search service of Brave, which requires a key.
#[derive(Debug)]
pub struct Brave {
    remote: Remote,
    key: Key,
}

impl Brave {
    /// Creates the service with this key.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self {
            remote: Remote::new("https://api.search.brave.com"),
            key: Key::new(key.as_ref()),
        }
    }

    /// Sets another address than Brave's own, such as that of a gateway.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.remote.base = url.into();
        self
    }

    /// Sets the guard that limits addresses; public addresses over HTTPS by default.
    #[must_use]
    pub fn guard(mut self, guard: NetGuard) -> Self {
        self.remote.client = Client::new(guard);
        self
    }
}

#[async_trait]
impl SearchProvider for Brave {
    async fn search(&self, query: &str, count: usize) -> Result<Vec<SearchHit>, ToolError> {
        let count = count.clamp(1, 20).to_string();
        let query = [("q", query), ("count", &count)];
        let reply = self
            .remote
            .ask(
                "/res/v1/web/search",
                &query,
                Some(("x-subscription-token", &self.key)),
            )
            .await?;
        let results = reply["web"]["results"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        Ok(results.iter().filter_map(hit).collect())
    }
}

/// Titles and descriptions contain HTML tags around the words of the query.
fn hit(result: &Value) -> Option<SearchHit> {
    let text = |name: &str| plain(result[name].as_str().unwrap_or_default());
    Some(SearchHit::new(
        text("title"),
        result["url"].as_str()?,
        text("description"),
    ))
}
