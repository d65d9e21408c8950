use async_trait::async_trait;
use levity_core::{ContextBlock, ContextError, ContextLifetime, ContextRequest, ContextSource};

use crate::Servers;

/// Resources of servers as context of an agent.
///
/// levity reads the resources for each run. If one cannot be read, its block contains the error
/// instead, and the run starts anyway.
#[derive(Clone, Debug)]
pub struct ResourceContext {
    servers: Servers,
    places: Vec<(String, String)>,
}

impl Servers {
    /// Returns resources, each given by its server and its URI, as context of an agent.
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
