//! The limits of an MCP server, with a setter for each field.

use std::time::Duration;

/// The limits of an MCP server.
///
/// ```
/// use levity_serve::mcp::McpLimits;
/// let limits = McpLimits::default().calls(16);
/// assert_eq!(limits.line, 16 << 20);
/// ```
///
/// [`McpServerBuilder::build`](super::McpServerBuilder::build) rejects a server that allows no
/// calls.
///
/// ```
/// use levity_serve::mcp::{McpLimits, McpServer};
/// let limits = McpLimits::default().calls(0);
/// let error = McpServer::builder("closed", "1.0").limits(limits).build().unwrap_err();
/// assert_eq!(error.to_string(), "`limits.calls` is 0; allow at least one request");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct McpLimits {
    /// The maximum length of a line on stdio, in bytes. 16 MiB by default; a longer one is answered
    /// with an error.
    pub line: usize,
    /// The maximum size of an HTTP request body, in bytes. 4 MiB by default.
    pub body: usize,
    /// The timeout for receiving the body of an HTTP request. 20 seconds by default.
    pub body_time: Duration,
    /// The maximum memory for the arguments of calls in progress, in bytes, for all clients
    /// together. 256 MiB by default; a call beyond that is rejected as busy, unless it is the only
    /// one. Arguments take more memory than their JSON. Requests for prompts, resources and
    /// completions count as calls.
    pub arguments: usize,
    /// The share of each of `calls`, `arguments`, `waiting`, `tasks`, `sessions` and `listeners`
    /// that one named token may use, in percent. 25 by default, and at least one unit. Tokens of
    /// one tenant share it, and tokens with the scope `admin` are exempt.
    pub token_share: u8,
    /// The maximum number of requests in progress, for all clients together. 1,024 by default;
    /// further ones are rejected as busy.
    pub calls: usize,
    /// The timeout of tools whose hints set none. 5 minutes by default.
    pub tool: Duration,
    /// The maximum number of bytes of text in a tool's result; the rest is omitted. 8 MiB by
    /// default. A prompt whose text is longer is rejected.
    pub output: usize,
    /// The number of items in a page of a list. 500 by default.
    pub page: usize,
    /// The maximum number of calls that wait for answers of their clients, on protocol 2026-07-28.
    /// 256 by default.
    pub waiting: usize,
    /// The time in which a client must answer a question. 10 minutes by default.
    pub answer: Duration,
    /// The maximum number of tasks that are running or retained. 256 by default; further calls are
    /// rejected as busy.
    pub tasks: usize,
    /// The lifetime of a task, from its start. 1 hour by default; unfinished work is then
    /// cancelled.
    pub task_life: Duration,
    /// The maximum number of sessions over HTTP. 1,024 by default.
    pub sessions: usize,
    /// The time after which an idle session over HTTP ends. 30 minutes by default.
    pub idle: Duration,
    /// The maximum number of listeners for changes. 1,024 by default.
    pub listeners: usize,
    /// The maximum number of resource subscriptions of one client. 1,024 by default.
    pub subscriptions: usize,
}

impl Default for McpLimits {
    fn default() -> Self {
        Self {
            line: 16 << 20,
            body: 4 << 20,
            body_time: Duration::from_secs(20),
            arguments: 256 << 20,
            token_share: 25,
            calls: 1024,
            tool: Duration::from_secs(300),
            output: 8 << 20,
            page: 500,
            waiting: 256,
            answer: Duration::from_secs(600),
            tasks: 256,
            task_life: Duration::from_secs(3600),
            sessions: 1024,
            idle: Duration::from_secs(1800),
            listeners: 1024,
            subscriptions: 1024,
        }
    }
}

macro_rules! setters {
    ($($name:ident: $kind:ty),*) => {$(
        #[doc = concat!("Sets [`", stringify!($name), "`](Self::", stringify!($name), ").")]
        #[must_use]
        pub fn $name(mut self, $name: $kind) -> Self {
            self.$name = $name;
            self
        }
    )*};
}

impl McpLimits {
    setters!(
        line: usize, body: usize, body_time: Duration, arguments: usize, token_share: u8,
        calls: usize, tool: Duration, output: usize, page: usize, waiting: usize,
        answer: Duration, tasks: usize, task_life: Duration, sessions: usize, idle: Duration,
        listeners: usize, subscriptions: usize
    );
}
