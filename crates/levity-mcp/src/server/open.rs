//! The start of a server: its transport, the handshake and the list of its tools.
//!
//! A server is ready only after its tools are listed, so an agent never sees a ready server without
//! its tools. Lists are bounded: 200 pages, 10,000 items and, after the first page, `max_message`
//! bytes in total. A server that lists more is used with what fits, and its status reports the rest
//! as a problem. A cursor that repeats ends the list, because some servers return the same page
//! forever.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use levity_rpc::mcp::{ClientConfig, Implementation, RoleClient, Transport as Wire};
use serde_json::{Value, json};

use super::{Phase, ServerInner, Tools, lock};
use crate::client::{Client, Era, Handler, Handshake, HandshakeError, RequestLimits};
use crate::config::Transport;
use crate::link::ServerProcess;
use crate::tool::McpTool;
use crate::{Error, ErrorKind, Result};

/// The maximum number of pages and of items in a list.
const MAX_PAGES: usize = 200;
const MAX_TOOLS: usize = 10_000;

/// The items that a server lists.
#[derive(Default)]
pub(super) struct ItemList {
    pub(super) items: Vec<Value>,
    /// `true` if the server has more items than levity accepts.
    is_truncated: bool,
}

type ConnectFailure = (Error, HandshakeError);

impl ServerInner {
    /// Starts the server and lists its tools.
    pub(super) async fn open(self: &Arc<Self>) -> Result<Arc<Client>> {
        let client = self.connect().await?;
        *lock(&self.era) = Some(client.era());
        let tools = self.list_tools(&client).await?;
        self.replace_tools(tools);
        Ok(Arc::new(client))
    }

    /// Opens the transport and performs the handshake. The process is registered before the
    /// handshake, so that a stop during it finds the process.
    async fn connect(&self) -> Result<Client> {
        match &self.config.transport {
            Transport::InProcess(connect) => {
                let connect = std::panic::AssertUnwindSafe(|| (connect.0)());
                let pipe = std::panic::catch_unwind(connect).map_err(|_| {
                    Error::new(
                        ErrorKind::Start,
                        self.config.name.clone(),
                        "the `connect` function of the server panicked",
                    )
                })?;
                let (read, write) = tokio::io::split(pipe);
                let wire = crate::link::stdio::lines(
                    self.config.name.clone(),
                    read,
                    write,
                    self.config.max_message,
                );
                self.connect_client(wire, None, true)
                    .await
                    .map_err(|(error, _)| error)
            }
            Transport::Stdio(stdio) => {
                let opened =
                    crate::link::stdio::open(&self.config, stdio, &self.events, &self.world)?;
                let (wire, process) = opened;
                let process: Arc<dyn ServerProcess> = process;
                *lock(&self.process) = Some(process.clone());
                if matches!(*self.phase.borrow(), Phase::Stopped) {
                    // The server may have been stopped before there was a process to kill.
                    process.kill();
                }
                self.connect_client(wire, Some(process), true)
                    .await
                    .map_err(|(error, _)| error)
            }
            #[cfg(feature = "http")]
            Transport::Http(_) | Transport::Sse(_) => self.connect_http().await,
            #[cfg(not(feature = "http"))]
            Transport::Http(_) | Transport::Sse(_) => {
                let message = "servers with HTTP need the feature `http` of levity-mcp; enable it";
                Err(Error::new(
                    ErrorKind::Config,
                    self.config.name.clone(),
                    message,
                ))
            }
        }
    }

    /// Performs the handshake on an open transport. `interleaves` is `true` if another request may
    /// be sent while the first one is unanswered. The worker for streamable HTTP waits for the
    /// first response, so it cannot.
    pub(super) async fn connect_client<T: Wire<RoleClient> + 'static>(
        &self,
        wire: T,
        process: Option<Arc<dyn ServerProcess>>,
        interleaves: bool,
    ) -> Result<Client, ConnectFailure> {
        let config = self.client_info();
        let known = *lock(&self.era);
        let handshake = Handshake {
            config: &config,
            known,
            probe: self.config.probe_timeout,
            world: &self.world,
            interleaves,
        };
        let handler = Handler {
            config: config.clone(),
            events: self.events.clone(),
            calls: Default::default(),
            tools_changed: self.tools_changed.clone(),
            host_services: self.host_services.clone(),
        };
        let secrets = self.secrets.clone();
        Client::connect(
            self.config.name.clone(),
            secrets,
            wire,
            process,
            handshake,
            handler,
        )
        .await
    }

    /// Returns levity's name, version and capabilities, as the server sees them.
    fn client_info(&self) -> ClientConfig {
        let implementation = Implementation::new("levity", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(self.host_services.capabilities(), implementation)
    }

    /// Lists all tools of the server that its configuration allows.
    ///
    /// A server that does not announce tools is asked anyway, with the short timeout of a probe. If
    /// it does not answer, it has none.
    pub(super) async fn list_tools(self: &Arc<Self>, client: &Client) -> Result<Tools> {
        let announced = client.info().capabilities.tools.is_some() || client.era() == Era::Modern;
        // Some servers have tools but do not announce the capability.
        let each = if announced {
            self.config.idle_timeout
        } else {
            self.config.probe_timeout
        };
        match self.list_all(client, "tools/list", "tools", each).await {
            Ok(listed) => Ok(self.build_tools(listed)),
            Err(error) if announced || error.kind() == ErrorKind::Closed => Err(error),
            Err(_) => Ok(Tools::default()),
        }
    }

    /// Fetches every page of a list, with the timeout `each` per page.
    pub(super) async fn list_all(
        &self,
        client: &Client,
        method: &str,
        key: &str,
        each: Duration,
    ) -> Result<ItemList> {
        let all = RequestLimits::within(self.config.call_timeout);
        client
            .in_time(
                method,
                self.world.now(),
                &all,
                self.pages(client, method, key, each),
            )
            .await
    }

    /// Fetches pages until the list ends or reaches a limit.
    async fn pages(
        &self,
        client: &Client,
        method: &str,
        key: &str,
        each: Duration,
    ) -> Result<ItemList> {
        let mut listed = ItemList::default();
        let mut cursor: Option<String> = None;
        let mut size = 0;
        for _ in 0..MAX_PAGES {
            let params = match &cursor {
                Some(cursor) => json!({"cursor": cursor}),
                None => json!({}),
            };
            let mut page = client
                .send_request(method, params, &RequestLimits::within(each))
                .await?;
            let Some(Value::Array(items)) = page.get_mut(key).map(Value::take) else {
                let message = format!("the response to `{method}` has no list `{key}`");
                return Err(Error::new(
                    ErrorKind::Protocol,
                    self.config.name.clone(),
                    message,
                ));
            };
            size += if cursor.is_some() {
                json_len(&items)
            } else {
                0
            };
            if size > self.config.max_message {
                listed.is_truncated = true;
                return Ok(listed);
            }
            listed.items.extend(items);
            let next = page
                .get("nextCursor")
                .and_then(Value::as_str)
                .map(str::to_owned);
            if next.is_none() || next == cursor || listed.items.len() > MAX_TOOLS {
                listed.is_truncated = listed.items.len() > MAX_TOOLS;
                listed.items.truncate(MAX_TOOLS);
                return Ok(listed);
            }
            cursor = next;
        }
        listed.is_truncated = true;
        Ok(listed)
    }

    /// Converts the listed definitions. A definition that cannot become a tool is reported and left
    /// out; the others remain.
    fn build_tools(self: &Arc<Self>, listed: ItemList) -> Tools {
        let (mut tools, mut problems) = (Vec::<Arc<McpTool>>::new(), Vec::new());
        let mut names = HashSet::new();
        if listed.is_truncated {
            let count = listed.items.len();
            problems.push(format!(
                "it lists more tools than levity accepts; only the first {count} are used"
            ));
        }
        for value in listed.items {
            let name = value
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            if !self.allows_tool(&name) {
                continue;
            }
            match McpTool::new(self, value) {
                Ok((tool, repairs)) => {
                    problems.extend(repairs);
                    if !names.insert(tool.name().to_owned()) {
                        problems.push(format!(
                            "two tools are named `{}`; only the first is offered",
                            crate::text::truncate(&name, 128)
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

    /// Returns `true` if the configuration allows a tool with this name.
    pub(crate) fn allows_tool(&self, tool: &str) -> bool {
        let named = |patterns: &[String]| {
            patterns
                .iter()
                .any(|pattern| matches_pattern(pattern, tool))
        };
        !named(&self.config.deny) && self.config.allow.as_deref().is_none_or(named)
    }
}

/// Returns the length of the items as JSON.
fn json_len(items: &[Value]) -> usize {
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
    // Serialization cannot fail for values that were parsed from JSON.
    let _ = serde_json::to_writer(&mut count, items);
    count.0
}

/// Returns `true` if a name matches a pattern; `*` matches any text.
fn matches_pattern(pattern: &str, name: &str) -> bool {
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
    use super::matches_pattern;

    #[test]
    fn matches_pattern_supports_wildcards() {
        let check = |pattern, name, expected| {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
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
