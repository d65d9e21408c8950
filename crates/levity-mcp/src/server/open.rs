//! Starting a server: its transport, the first words, the list of its tools.

use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ClientConfig, Implementation};
use rmcp::transport::Transport as Wire;
use serde_json::{Value, json};

use super::{Shared, Tools, lock};
use crate::client::{Client, Era, Handler, Handshake, Misunderstanding, Patience};
use crate::config::Transport;
use crate::link::Lifeline;
use crate::tool::McpTool;
use crate::{Error, ErrorKind, Result};

/// How many pages a list may have, and how many tools.
const MOST_PAGES: usize = 200;
const MOST_TOOLS: usize = 10_000;

type Failed = (Error, Misunderstanding);

impl Shared {
    /// Starts the server and lists its tools.
    pub(super) async fn open(self: &Arc<Self>) -> Result<Arc<Client>> {
        let client = self.connect().await?;
        *lock(&self.era) = Some(client.era());
        let tools = self.list_tools(&client).await?;
        self.put(tools);
        Ok(Arc::new(client))
    }

    async fn connect(&self) -> Result<Client> {
        match &self.config.transport {
            Transport::InProcess(connect) => {
                let (read, write) = tokio::io::split((connect.0)());
                let wire =
                    crate::link::stdio::lines(self.config.name.clone(), read, write, self.config.max_message);
                self.shake(wire, None, true).await.map_err(|(error, _)| error)
            }
            Transport::Stdio(stdio) => {
                let opened = crate::link::stdio::open(&self.config, stdio, &self.events, &self.world)?;
                let (wire, process) = opened;
                let process: Arc<dyn Lifeline> = process;
                *lock(&self.lifeline) = Some(process.clone());
                self.shake(wire, Some(process), true).await.map_err(|(error, _)| error)
            }
            #[cfg(feature = "http")]
            Transport::Http(_) | Transport::Sse(_) => self.connect_http().await,
            #[cfg(not(feature = "http"))]
            Transport::Http(_) | Transport::Sse(_) => {
                let words = "servers reached by HTTP need the feature `http` of levity-mcp";
                Err(Error::new(ErrorKind::Config, self.config.name.clone(), words))
            }
        }
    }

    pub(super) async fn shake<T: Wire<RoleClient> + 'static>(
        &self,
        wire: T,
        lifeline: Option<Arc<dyn Lifeline>>,
        interleaves: bool,
    ) -> Result<Client, Failed> {
        let config = self.about_us();
        let known = *lock(&self.era);
        let handshake = Handshake {
            config: &config,
            known,
            probe: self.config.probe_limit,
            world: &self.world,
            interleaves,
        };
        let handler = Handler {
            config: config.clone(),
            events: self.events.clone(),
            calls: Default::default(),
            tools_changed: self.tools_changed.clone(),
            asked: self.asked.clone(),
        };
        Client::connect(self.config.name.clone(), wire, lifeline, handshake, handler).await
    }

    pub(super) fn know(&self, era: Era) {
        *lock(&self.era) = Some(era);
    }

    fn about_us(&self) -> ClientConfig {
        let us = Implementation::new("levity", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(self.asked.capabilities(), us)
    }

    /// All tools that the server has and its settings let through.
    pub(super) async fn list_tools(self: &Arc<Self>, client: &Client) -> Result<Tools> {
        if client.info().capabilities.tools.is_none() && client.era() == Era::Legacy {
            // Some servers have tools and forget to say so.
            return match self.list_all(client, "tools/list", "tools").await {
                Ok(tools) => Ok(self.take(tools)),
                Err(_) => Ok(Tools::default()),
            };
        }
        let tools = self.list_all(client, "tools/list", "tools").await?;
        Ok(self.take(tools))
    }

    /// Every page of a list.
    pub(super) async fn list_all(&self, client: &Client, method: &str, key: &str) -> Result<Vec<Value>> {
        let mut all: Vec<Value> = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let params = match &cursor {
                Some(cursor) => json!({"cursor": cursor}),
                None => json!({}),
            };
            let mut page = client.ask(method, params, &Patience::of(self.config.idle_limit)).await?;
            match page.get_mut(key).map(Value::take) {
                Some(Value::Array(items)) => all.extend(items),
                _ => {
                    let words = format!("the answer to `{method}` has no list `{key}`");
                    return Err(Error::new(ErrorKind::Protocol, self.config.name.clone(), words));
                }
            }
            let next = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            if next.is_none() || next == cursor || all.len() >= MOST_TOOLS {
                break;
            }
            cursor = next;
        }
        all.truncate(MOST_TOOLS);
        Ok(all)
    }

    fn take(self: &Arc<Self>, listed: Vec<Value>) -> Tools {
        let (mut tools, mut problems) = (Vec::<Arc<McpTool>>::new(), Vec::new());
        for value in listed {
            let name = value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if !self.lets_through(&name) {
                continue;
            }
            match McpTool::new(self, value) {
                Ok((tool, mended)) => {
                    problems.extend(mended);
                    if tools.iter().any(|known| known.name() == tool.name()) {
                        problems.push(format!(
                            "two tools are named `{}`; the first is offered",
                            crate::text::cut(&name, 128)
                        ));
                    } else {
                        tools.push(Arc::new(tool));
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
        Tools { list: tools.into(), problems: problems.into() }
    }

    /// Whether its settings have a tool of this name be offered.
    pub(crate) fn lets_through(&self, tool: &str) -> bool {
        let named = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, tool));
        !named(&self.config.deny) && self.config.allow.as_deref().is_none_or(named)
    }
}

/// Whether a name is meant by a pattern in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        let check =
            |pattern, name, expected| assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        check("read", "read", true);
        check("read", "reader", false);
        check("read_*", "read_file", true);
        check("*_file", "read_file", true);
        check("*", "", true);
        check("a*b*c", "a-b-c", true);
        check("a*b*c", "acb", false);
        check("ab*ab", "ab", false);
        check("a*a", "a", false);
    }
}
