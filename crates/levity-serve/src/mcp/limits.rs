use std::time::Duration;

/// How much a server takes from its clients.
///
/// ```
/// use levity_serve::mcp::McpLimits;
/// let limits = McpLimits::default().calls(16);
/// assert_eq!(limits.line, 16 << 20);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct McpLimits {
    /// How long a line may be on stdio, in bytes. 16 MiB by default; a longer one is answered with
    /// an error.
    pub line: usize,
    /// How large the body of an HTTP request may be, in bytes. 4 MiB by default.
    pub body: usize,
    /// How long a client may take to send the body of an HTTP request. 20 seconds by default.
    pub body_time: Duration,
    /// How much memory the arguments of calls under way may take, in bytes, for all clients
    /// together. 256 MiB by default; a call above that is told to come back, unless it is the only
    /// one. Arguments take more memory than their JSON is long.
    pub arguments: usize,
    /// How much of each of `calls`, `arguments`, `waiting`, `tasks`, `sessions` and `listeners` one
    /// named token may take, in percent. 25 by default; one place at least. Tokens of one tenant
    /// share it, and tokens with the scope `admin` are not limited by it.
    pub token_share: u8,
    /// How many requests are worked on at once, for all clients together. 1,024 by default; the
    /// others are told to come back.
    pub calls: usize,
    /// How long a tool may take whose hints do not say it. 5 minutes by default.
    pub tool: Duration,
    /// How many bytes of text a tool's result may have; the rest is left out. 8 MiB by default.
    pub output: usize,
    /// How many items a part of a list has. 500 by default.
    pub page: usize,
    /// How many calls wait for an answer of their client's, on protocol 2026-07-28. 256 by default.
    pub waiting: usize,
    /// How long a client has to answer. 10 minutes by default.
    pub answer: Duration,
    /// How many tasks are under way or kept at a time. 256 by default; more calls are told to come
    /// back.
    pub tasks: usize,
    /// How long a task is kept, from its beginning. 1 hour by default; work that is not done by
    /// then is cancelled.
    pub task_life: Duration,
    /// How many sessions there are over HTTP at a time. 1,024 by default.
    pub sessions: usize,
    /// How long a session over HTTP lasts in which nothing happens. 30 minutes by default.
    pub idle: Duration,
    /// How many listen for changes at a time. 1,024 by default.
    pub listeners: usize,
    /// How many addresses one client subscribes to. 1,024 by default.
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
        line: usize, body: usize, body_time: Duration, arguments: usize, token_share: u8, calls: usize, tool: Duration, output: usize, page: usize, waiting: usize,
        answer: Duration, tasks: usize, task_life: Duration, sessions: usize, idle: Duration, listeners: usize, subscriptions: usize
    );
}
