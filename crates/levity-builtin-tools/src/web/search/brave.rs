//! The search service of Brave.
//!
//! The key is sent in a header, to the first server only, and appears in no error and no `Debug`.

use async_trait::async_trait;
use levity_core::ToolError;
use levity_sandbox::NetGuard;
use serde_json::Value;

use super::super::client::Client;
use super::remote::{Key, Remote};
use super::{SearchHit, SearchProvider};
use levity_html::plain;

/// The search service of Brave, which requires a key.
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
/// #     let hit = r#"{"title": "<b>Tides</b>", "url": "https://example.org/"}"#;
/// #     let body = format!(r#"{{"web": {{"results": [{hit}]}}}}"#);
/// #     let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
/// #     stream.write_all(format!("{head}{body}").as_bytes())
/// # });
/// use levity_builtin_tools::{Brave, SearchProvider};
/// use levity_sandbox::NetGuard;
///
/// let gateway =
///     NetGuard::builder().allow_http().allow_port(port).allow_address("127.0.0.1").build()?;
/// let brave =
///     Brave::new("the key").base_url(format!("http://127.0.0.1:{port}")).guard(gateway);
/// let hits = brave.search("tides", 5).await?;
/// assert_eq!(hits[0].title, "Tides");
/// # served.join().expect("a server")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Brave {
    remote: Remote,
    key: Key,
}

impl Brave {
    /// Creates the service with this key.
    ///
    /// White space around the key is removed, as keys are often read from files.
    ///
    /// ```
    /// use levity_builtin_tools::Brave;
    ///
    /// let brave = Brave::new("a-secret-key\n");
    /// assert!(!format!("{brave:?}").contains("a-secret-key"));
    /// ```
    pub fn new(key: impl AsRef<str>) -> Self {
        Self {
            remote: Remote::new("https://api.search.brave.com"),
            key: Key::new(key.as_ref()),
        }
    }

    /// Sets another address than Brave's own, such as that of a gateway.
    ///
    /// The path `/res/v1/web/search` is appended to it.
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
