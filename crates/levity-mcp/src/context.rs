//! Resources of servers as context of an agent.
//!
//! The resources of one run are read concurrently and then cut to the token budget in their
//! configured order, so the first ones win. A failure never fails the run, because context is
//! additional: the model sees the reason in place of the text.

use async_trait::async_trait;
use levity_core::{ContextBlock, ContextError, ContextLifetime, ContextRequest, ContextSource};

use crate::Servers;

/// Resources of servers as context of an agent.
///
/// levity reads the resources for each run. If one cannot be read, its block contains the error
/// instead, and the run starts anyway.
///
/// ```
/// use levity_core::{ContextRequest, ContextSource as _};
/// use levity_mcp::Servers;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let servers = Servers::builder().start()?;
/// let context = servers.resource_context([("notes", "file:///todo.md")]);
/// let blocks = context.blocks(&ContextRequest::new(1_000)).await?;
/// assert_eq!(blocks[0].name, "notes: file:///todo.md");
/// assert!(blocks[0].text.contains("there is no MCP server `notes`"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ResourceContext {
    servers: Servers,
    places: Vec<(String, String)>,
}

impl Servers {
    /// Returns resources, each given by its server and its URI, as context of an agent.
    ///
    /// ```
    /// use levity_core::{ContextRequest, ContextSource as _};
    /// use levity_mcp::{Servers, WaitFor};
    ///
    /// # fn clock() -> levity_mcp::ServerConfig {
    /// #     use serde_json::{Value, json};
    /// #     use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    /// #     let serve = |pipe: tokio::io::DuplexStream| async move {
    /// #         let (mut pipe, mut line) = (BufReader::new(pipe), String::new());
    /// #         while pipe.read_line(&mut line).await.is_ok_and(|read| read > 0) {
    /// #             let ask: Value = serde_json::from_str(&line).unwrap_or_default();
    /// #             let answer = json!({"jsonrpc": "2.0", "id": ask["id"], "result": {
    /// #                 "protocolVersion": "2025-11-25",
    /// #                 "serverInfo": {"name": "clock", "version": "1"},
    /// #                 "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
    /// #                 "tools": [],
    /// #                 "contents": [{"uri": "clock://now", "text": "noon"}],
    /// #             }});
    /// #             let _ = pipe.write_all(format!("{answer}\n").as_bytes()).await;
    /// #             line.clear();
    /// #         }
    /// #     };
    /// #     levity_mcp::ServerConfig::in_process("clock", move || {
    /// #         let (client, server) = tokio::io::duplex(1 << 16);
    /// #         tokio::spawn(serve(server));
    /// #         client
    /// #     })
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let servers = Servers::builder().server(clock()).start()?;
    /// servers.wait(WaitFor::All).await;
    /// let context = servers.resource_context([("clock", "clock://now")]);
    /// let blocks = context.blocks(&ContextRequest::new(1_000)).await?;
    /// assert!(blocks[0].text.ends_with("noon"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn resource_context(
        &self,
        places: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> ResourceContext {
        let places = places
            .into_iter()
            .map(|(server, uri)| (server.into(), uri.into()))
            .collect();
        ResourceContext {
            servers: self.clone(),
            places,
        }
    }
}

#[async_trait]
impl ContextSource for ResourceContext {
    async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        let blocks = self.places.iter().map(|(server, uri)| async move {
            let text = match self.servers.get(server) {
                Some(found) => match found.read_content(uri).await {
                    Ok(output) => output.as_text().into_owned(),
                    Err(error) => format!("(cannot be read: {error})"),
                },
                None => format!("(cannot be read: there is no MCP server `{server}`)"),
            };
            ContextBlock::new(format!("{server}: {uri}"), text).lasting(ContextLifetime::Run)
        });
        let mut room = ask.budget;
        let fit = |block: ContextBlock| {
            let block = block.cut_to(room)?;
            room = room.saturating_sub(block.tokens());
            Some(block)
        };
        Ok(futures_util::future::join_all(blocks)
            .await
            .into_iter()
            .filter_map(fit)
            .collect())
    }
}
