//! Starting a server: its transport, the first words, the list of its tools.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use levity_rpc::mcp::{ClientConfig, Implementation, RoleClient, Transport as Wire};
use serde_json::{Value, json};

use super::{Phase, Shared, Tools, lock};
use crate::client::{Client, Era, Handler, Handshake, Misunderstanding, Patience};
use crate::config::Transport;
use crate::link::Lifeline;
use crate::tool::McpTool;
use crate::{Error, ErrorKind, Result};

/// How many pages a list may have, and how many tools.
const MOST_PAGES: usize = 200;
const MOST_TOOLS: usize = 10_000;

/// What a server lists.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) items: Vec<Value>,
    /// Whether there is more than is taken.
    is_cut: bool,
}

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
                let connect = std::panic::AssertUnwindSafe(|| (connect.0)());
                let pipe = std::panic::catch_unwind(connect).map_err(|_| {
                    Error::new(
                        ErrorKind::Start,
                        self.config.name.clone(),
                        "what opens its pipe panicked",
                    )
                })?;
                let (read, write) = tokio::io::split(pipe);
                let wire = crate::link::stdio::lines(
                    self.config.name.clone(),
                    read,
                    write,
                    self.config.max_message,
                );
                self.shake(wire, None, true)
                    .await
                    .map_err(|(error, _)| error)
            }
            Transport::Stdio(stdio) => {
                let opened =
                    crate::link::stdio::open(&self.config, stdio, &self.events, &self.world)?;
                let (wire, process) = opened;
                let process: Arc<dyn Lifeline> = process;
                *lock(&self.lifeline) = Some(process.clone());
                if matches!(*self.phase.borrow(), Phase::Stopped) {
                    // Whoever stopped it may have come before there was anything to end.
                    process.kill();
                }
                self.shake(wire, Some(process), true)
                    .await
                    .map_err(|(error, _)| error)
            }
            #[cfg(feature = "http")]
            Transport::Http(_) | Transport::Sse(_) => self.connect_http().await,
            #[cfg(not(feature = "http"))]
            Transport::Http(_) | Transport::Sse(_) => {
                let words = "servers reached by HTTP need the feature `http` of levity-mcp";
                Err(Error::new(
                    ErrorKind::Config,
                    self.config.name.clone(),
                    words,
                ))
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
        let secrets = self.secrets.clone();
        Client::connect(
            self.config.name.clone(),
            secrets,
            wire,
            lifeline,
            handshake,
            handler,
        )
        .await
    }

    fn about_us(&self) -> ClientConfig {
        let us = Implementation::new("levity", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(self.asked.capabilities(), us)
    }

    /// All tools that the server has and its settings let through.
    pub(super) async fn list_tools(self: &Arc<Self>, client: &Client) -> Result<Tools> {
        let said = client.info().capabilities.tools.is_some() || client.era() == Era::Modern;
        // Some servers have tools and forget to say so.
        let each = if said {
            self.config.idle_limit
        } else {
            self.config.probe_limit
        };
        match self.list_all(client, "tools/list", "tools", each).await {
            Ok(listed) => Ok(self.take(listed)),
            Err(error) if said || error.kind() == ErrorKind::Closed => Err(error),
            Err(_) => Ok(Tools::default()),
        }
    }

    /// Every page of a list, for each of which there is so much time.
    pub(super) async fn list_all(
        &self,
        client: &Client,
        method: &str,
        key: &str,
        each: Duration,
    ) -> Result<Listed> {
        let all = Patience::of(self.config.call_limit);
        client
            .in_time(
                method,
                self.world.now(),
                &all,
                self.pages(client, method, key, each),
            )
            .await
    }

    async fn pages(
        &self,
        client: &Client,
        method: &str,
        key: &str,
        each: Duration,
    ) -> Result<Listed> {
        let mut listed = Listed::default();
        let mut cursor: Option<String> = None;
        let mut size = 0;
        for _ in 0..MOST_PAGES {
            let params = match &cursor {
                Some(cursor) => json!({"cursor": cursor}),
                None => json!({}),
            };
            let mut page = client.ask(method, params, &Patience::of(each)).await?;
            let Some(Value::Array(items)) = page.get_mut(key).map(Value::take) else {
                let words = format!("the answer to `{method}` has no list `{key}`");
                return Err(Error::new(
                    ErrorKind::Protocol,
                    self.config.name.clone(),
                    words,
                ));
            };
            size += if cursor.is_some() { bytes(&items) } else { 0 };
            if size > self.config.max_message {
                listed.is_cut = true;
                return Ok(listed);
            }
            listed.items.extend(items);
            let next = page
                .get("nextCursor")
                .and_then(Value::as_str)
                .map(str::to_owned);
            if next.is_none() || next == cursor || listed.items.len() > MOST_TOOLS {
                listed.is_cut = listed.items.len() > MOST_TOOLS;
                listed.items.truncate(MOST_TOOLS);
                return Ok(listed);
            }
            cursor = next;
        }
        listed.is_cut = true;
        Ok(listed)
    }

    fn take(self: &Arc<Self>, listed: Listed) -> Tools {
        let (mut tools, mut problems) = (Vec::<Arc<McpTool>>::new(), Vec::new());
        let mut names = HashSet::new();
        if listed.is_cut {
            let count = listed.items.len();
            problems.push(format!(
                "it lists more tools than are taken; the first {count} are looked at"
            ));
        }
        for value in listed.items {
            let name = value
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            if !self.lets_through(&name) {
                continue;
            }
            match McpTool::new(self, value) {
                Ok((tool, mended)) => {
                    problems.extend(mended);
                    if !names.insert(tool.name().to_owned()) {
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
        Tools {
            list: tools.into(),
            problems: problems.into(),
        }
    }

    /// Whether its settings have a tool of this name be offered.
    pub(crate) fn lets_through(&self, tool: &str) -> bool {
        let named = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, tool));
        !named(&self.config.deny) && self.config.allow.as_deref().is_none_or(named)
    }
}

/// How long something is as JSON.
fn bytes(items: &[Value]) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
            self.0 += part.len();
            Ok(part.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // It fails for no value that was read as JSON.
    let _ = serde_json::to_writer(&mut count, items);
    count.0
}

/// Whether a name is meant by a pattern in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        let check = |pattern, name, expected| {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        };
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
