//! The settings of servers: the builder [`ServerConfig`], and the reader of files below.
//!
//! Settings that belong to another transport are ignored by the builder (`arg` on a URL, `header`
//! on a program), because a builder cannot fail; the reader of files warns about them. Programs,
//! arguments, folders and URLs of a file are stored twice: expanded for use, and as written for
//! display. A secret that a variable puts into them is therefore not shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levity_core::Secrets;
use levity_core::text::bare_url;
use tokio::io::DuplexStream;

pub use self::loader::Config;
pub use self::problem::ConfigProblem;

mod entry;
mod expand;
mod file;
mod jsonc;
mod keys;
mod limits;
mod loader;
mod node;
mod problem;
mod secrets;
mod units;
mod validate;
mod values;

/// The settings of one server.
///
/// ```
/// use levity_mcp::ServerConfig;
/// use std::time::Duration;
///
/// let files = ServerConfig::stdio("files", "mcp-server-filesystem")
///     .arg("/srv/docs")
///     .env("NODE_ENV", "production")
///     .allow(["read_file", "list_*"])
///     .start_timeout(Duration::from_secs(20));
/// assert_eq!(files.name(), "files");
/// ```
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub(crate) name: Arc<str>,
    pub(crate) enabled: bool,
    pub(crate) transport: Transport,
    pub(crate) start_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) probe_timeout: Duration,
    pub(crate) ping_every: Option<Duration>,
    pub(crate) retries: u32,
    pub(crate) max_concurrent: usize,
    pub(crate) max_message: usize,
    pub(crate) allow: Option<Vec<String>>,
    pub(crate) deny: Vec<String>,
    pub(crate) prefix: Option<String>,
    pub(crate) trust: Trust,
    /// The names of the variables that the configuration file expands for this server.
    pub(crate) variables: BTreeSet<String>,
    /// The expanded values that are secrets, by the names of their variables.
    pub(crate) hidden: Secrets,
}

/// The transport of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub(crate) enum Transport {
    Stdio(Stdio),
    Http(Http),
    Sse(Http),
    InProcess(Connect),
}

/// A program that levity starts and communicates with through stdin and stdout.
///
/// `written` is empty for a server that a program configures; the display then uses `command` and
/// `args`.
#[derive(Clone, Default)]
pub(crate) struct Stdio {
    pub(crate) command: String,
    /// The program and its arguments as written in a file, with unexpanded variables.
    pub(crate) written: Vec<String>,
    /// The working directory as written in a file.
    pub(crate) written_cwd: Option<String>,
    pub(crate) args: Vec<String>,
    /// The variables that are set in addition to the inherited ones.
    pub(crate) env: BTreeMap<String, String>,
    /// The variables of the host that the program inherits.
    pub(crate) inherit: InheritedEnvironment,
    pub(crate) cwd: Option<PathBuf>,
}

/// The environment variables of the host that a server's program inherits, in addition to those set
/// for it.
///
/// ```
/// use levity_mcp::{InheritedEnvironment, ServerConfig};
///
/// let inherit = InheritedEnvironment::Named(vec!["DOCS_TOKEN".to_owned()]);
/// let docs = ServerConfig::stdio("docs", "mcp-docs").inherit_environment(inherit);
/// assert_eq!(docs.inherited_variables(), ["DOCS_TOKEN"], "beside the basics");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InheritedEnvironment {
    /// The variables that programs need to start and to reach the network: paths of programs, homes
    /// and temporary files, the language, proxies and certificates. They contain no keys and no
    /// tokens, except those in the URL of a proxy or of a package index.
    #[default]
    Basics,
    /// The basics and the named variables.
    Named(Vec<String>),
    /// All variables, including secrets.
    All,
}

/// A server that is reached through HTTP.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) url: String,
    /// The URL as written in a file, safe to display; set if the file expands variables in it.
    pub(crate) written: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    #[cfg(feature = "oauth")]
    pub(crate) oauth: Option<crate::OAuth>,
}

impl Stdio {
    /// Returns the program in a form that is safe to display.
    pub(crate) fn shown(&self) -> &str {
        self.written.first().unwrap_or(&self.command)
    }

    /// Returns the arguments in a form that is safe to display.
    fn display_args(&self) -> &[String] {
        self.written.get(1..).unwrap_or(&self.args)
    }
}

impl Http {
    /// Returns the URL in a form that is safe to display.
    fn shown(&self) -> String {
        self.written.clone().unwrap_or_else(|| bare_url(&self.url))
    }

    /// Creates the settings of a URL that no file wrote, without a login.
    fn new(url: String, headers: BTreeMap<String, String>) -> Self {
        Self {
            url,
            written: None,
            headers,
            #[cfg(feature = "oauth")]
            oauth: None,
        }
    }
}

/// Opens a connection to a server that runs in this process.
///
/// levity calls the function for the first start and again for each restart.
#[derive(Clone)]
pub(crate) struct Connect(pub(crate) Arc<dyn Fn() -> DuplexStream + Send + Sync>);

/// The degree to which levity trusts a server's annotations of its tools.
///
/// A server annotates a tool as read-only, idempotent or destructive. If an annotation is wrong,
/// levity may run calls concurrently, repeat them or skip an approval.
///
/// ```
/// use levity_core::{EffectClass, ToolSource as _};
/// use levity_mcp::{Servers, Trust, WaitFor};
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
/// #                 "tools": [{"name": "now", "annotations": {"readOnlyHint": true}}],
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
/// # async fn main() -> levity_mcp::Result<()> {
/// for (trust, class) in [
///     (Trust::Cautious, EffectClass::AtMostOnce),
///     (Trust::Full, EffectClass::ReadOnly),
/// ] {
///     let servers = Servers::builder().server(clock().trust(trust)).start()?;
///     servers.wait(WaitFor::All).await;
///     assert_eq!(servers.tools()[0].spec().hints.class, class);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trust {
    /// levity trusts only annotations that call for more caution: that a tool is destructive.
    #[default]
    Cautious,
    /// levity trusts all annotations.
    Full,
}

impl ServerConfig {
    /// Creates a server that levity starts as a program and communicates with through stdin and
    /// stdout.
    ///
    /// The command is the name of a program in `PATH`, or its path. levity starts it directly,
    /// without a shell, so it needs no quotes and expands nothing.
    ///
    /// ```
    /// use levity_mcp::ServerConfig;
    ///
    /// let files = ServerConfig::stdio("files", "npx")
    ///     .args(["-y", "@modelcontextprotocol/server-filesystem", "/srv/docs"])
    ///     .env("NODE_ENV", "production");
    /// assert_eq!((files.transport(), files.display_target()), ("stdio", "npx".to_owned()));
    /// assert_eq!(files.env_names(), ["NODE_ENV"]);
    /// ```
    pub fn stdio(name: impl Into<Arc<str>>, command: impl Into<String>) -> Self {
        Self::new(
            name.into(),
            Transport::Stdio(Stdio {
                command: command.into(),
                ..Stdio::default()
            }),
        )
    }

    /// Creates a server at a URL that uses streamable HTTP. If the server supports only the older
    /// HTTP with server-sent events, levity falls back to that.
    ///
    /// The server needs the feature `http`; without it, its start fails with an error that names
    /// the feature.
    ///
    /// ```
    /// use levity_mcp::ServerConfig;
    ///
    /// let search = ServerConfig::http("search", "https://example.com/mcp?key=hush")
    ///     .header("Authorization", "Bearer hush");
    /// assert_eq!(search.transport(), "http");
    /// assert_eq!(search.display_target(), "https://example.com/mcp", "no part may be a secret");
    /// assert!(!format!("{search:?}").contains("hush"));
    /// ```
    pub fn http(name: impl Into<Arc<str>>, url: impl Into<String>) -> Self {
        Self::new(
            name.into(),
            Transport::Http(Http::new(url.into(), BTreeMap::new())),
        )
    }

    /// Creates a server at a URL that uses the older HTTP with server-sent events.
    ///
    /// Use [`http`](Self::http) if you do not know which transport the server has; it tries both.
    pub fn sse(name: impl Into<Arc<str>>, url: impl Into<String>) -> Self {
        Self::new(
            name.into(),
            Transport::Sse(Http::new(url.into(), BTreeMap::new())),
        )
    }

    /// Creates a server in this process. levity calls `connect` for each start; it returns the
    /// client's end of a pipe whose other end the server reads and writes.
    ///
    /// The pipe carries one JSON-RPC message per line, as stdio does. `connect` runs inside the
    /// tokio runtime, so it may spawn the task of the server. If it panics, the start fails and
    /// levity retries it.
    ///
    /// ```
    /// use levity_mcp::ServerConfig;
    ///
    /// let clock = ServerConfig::in_process("clock", || {
    ///     let (client, server) = tokio::io::duplex(64 << 10);
    ///     // Pass the other end to a server, such as one of the crate `rmcp`.
    ///     drop(server);
    ///     client
    /// });
    /// assert_eq!((clock.transport(), &*clock.display_target()), ("in-process", "this process"));
    /// ```
    pub fn in_process(
        name: impl Into<Arc<str>>,
        connect: impl Fn() -> DuplexStream + Send + Sync + 'static,
    ) -> Self {
        Self::new(
            name.into(),
            Transport::InProcess(Connect(Arc::new(connect))),
        )
    }

    /// Creates the settings with all defaults; the setters document them.
    pub(crate) fn new(name: Arc<str>, transport: Transport) -> Self {
        Self {
            name,
            enabled: true,
            transport,
            start_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(60),
            probe_timeout: Duration::from_secs(3),
            ping_every: Some(Duration::from_secs(30)),
            retries: 5,
            max_concurrent: 16,
            max_message: 16 << 20,
            allow: None,
            deny: Vec::new(),
            prefix: None,
            trust: Trust::default(),
            variables: BTreeSet::new(),
            hidden: Secrets::new().known_only(),
        }
    }

    /// Returns the server's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns `true` if levity starts the server; this is the default.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Returns the transport: `stdio`, `http`, `sse` or `in-process`.
    pub fn transport(&self) -> &'static str {
        self.transport.name()
    }

    /// Returns the server's program or URL in a form that is safe to display.
    ///
    /// It has no arguments and no parts of a URL that may be secrets. Variables that a file expands
    /// appear as `${VAR}`.
    ///
    /// ```
    /// use levity_mcp::Config;
    ///
    /// let text = r#"{"docs": {"url": "https://${DOCS_HOST}/mcp"}}"#;
    /// let config = Config::parse(text, |_| Some("docs.example".to_owned()));
    /// assert_eq!(config.servers()[0].display_target(), "https://${DOCS_HOST}/mcp");
    /// ```
    pub fn display_target(&self) -> String {
        match &self.transport {
            Transport::Stdio(stdio) => stdio.shown().to_owned(),
            Transport::Http(http) | Transport::Sse(http) => http.shown(),
            Transport::InProcess(_) => "this process".to_owned(),
        }
    }

    /// Returns the arguments of the program as written in a file, with unexpanded variables and
    /// without values that look like keys.
    ///
    /// ```
    /// # use levity_mcp::Config;
    /// let text = r#"{"a": {"command": "npx", "args": ["files", "--key", "${TOKEN}"]}}"#;
    /// let config = Config::parse(text, |_| Some("hush".to_owned()));
    /// assert_eq!(config.servers()[0].display_args(), ["files", "--key", "${TOKEN}"]);
    /// ```
    pub fn display_args(&self) -> Vec<String> {
        let secrets = Secrets::new();
        match &self.transport {
            Transport::Stdio(stdio) => stdio
                .display_args()
                .iter()
                .map(|arg| secrets.redact(arg).into_owned())
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the working directory of the program as written in a file, if one is set.
    ///
    /// ```
    /// use levity_mcp::ServerConfig;
    ///
    /// let files = ServerConfig::stdio("files", "mcp-files").cwd("/srv/docs");
    /// assert_eq!(files.display_cwd().as_deref(), Some("/srv/docs"));
    /// assert_eq!(ServerConfig::http("search", "https://example.com").display_cwd(), None);
    /// ```
    pub fn display_cwd(&self) -> Option<String> {
        let Transport::Stdio(stdio) = &self.transport else {
            return None;
        };
        let cwd = stdio.cwd.as_ref()?;
        Some(
            stdio
                .written_cwd
                .clone()
                .unwrap_or_else(|| cwd.display().to_string()),
        )
    }

    /// Returns the names of the variables that are set for the program, without their values.
    ///
    /// ```
    /// use levity_mcp::ServerConfig;
    ///
    /// let mail = ServerConfig::stdio("mail", "mcp-mail").env("MAIL_TOKEN", "hush");
    /// assert_eq!(mail.env_names(), ["MAIL_TOKEN"]);
    /// ```
    pub fn env_names(&self) -> Vec<&str> {
        match &self.transport {
            Transport::Stdio(stdio) => stdio.env.keys().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the names of the host's variables that the server receives.
    ///
    /// These are the variables that a file expands in its settings, and those that its program
    /// inherits in addition to the [basics](InheritedEnvironment::Basics). `*` means all variables.
    ///
    /// ```
    /// # use levity_mcp::Config;
    /// let text =
    ///     r#"{"a": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}"#;
    /// let config = Config::parse(text, |_| Some("hush".to_owned()));
    /// assert_eq!(config.servers()[0].inherited_variables(), ["TOKEN"]);
    /// ```
    pub fn inherited_variables(&self) -> Vec<&str> {
        let mut names: BTreeSet<&str> = self.variables.iter().map(String::as_str).collect();
        if let Transport::Stdio(stdio) = &self.transport {
            match &stdio.inherit {
                InheritedEnvironment::Basics => {}
                InheritedEnvironment::Named(more) => names.extend(more.iter().map(String::as_str)),
                InheritedEnvironment::All => names.extend(["*"]),
            }
        }
        names.into_iter().collect()
    }

    /// Disables the server, so that levity does not start it.
    ///
    /// Its status is [`Disabled`](crate::ServerState::Disabled), its calls fail at once, and it has
    /// no tools.
    #[must_use]
    pub fn disabled(mut self) -> Self {
        self.enabled = false;
        self
    }

    /// Adds an argument of the program.
    ///
    /// Arguments are visible to other users of the machine; pass secrets with [`env`](Self::env).
    /// The setting has no effect on a server at a URL.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        if let Transport::Stdio(stdio) = &mut self.transport {
            stdio.args.push(arg.into());
        }
        self
    }

    /// Adds several arguments of the program.
    #[must_use]
    pub fn args(self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    /// Sets an environment variable of the program.
    ///
    /// The value replaces an inherited one. If the name ends like that of a secret (`_TOKEN`,
    /// `_KEY`, `password`) and the value has 8 bytes or more, levity masks it in errors, events and
    /// log lines.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Transport::Stdio(stdio) = &mut self.transport {
            stdio.env.insert(name.into(), value.into());
        }
        self
    }

    /// Sets which environment variables of the host the program inherits;
    /// [`InheritedEnvironment::Basics`] by default.
    #[must_use]
    pub fn inherit_environment(mut self, inherit: InheritedEnvironment) -> Self {
        if let Transport::Stdio(stdio) = &mut self.transport {
            stdio.inherit = inherit;
        }
        self
    }

    /// Sets the working directory of the program; by default the host's.
    ///
    /// A folder that does not exist is an error of the start.
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        if let Transport::Stdio(stdio) = &mut self.transport {
            stdio.cwd = Some(folder.into());
        }
        self
    }

    /// Adds a header to every HTTP request, for example a token.
    ///
    /// levity masks a value of 8 bytes or more in errors, events and log lines, and sends it to
    /// this origin only. Headers that the transport sets itself, such as `Content-Type` or
    /// `Mcp-Session-Id`, are rejected at the start.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Transport::Http(http) | Transport::Sse(http) = &mut self.transport {
            http.headers.insert(name.into(), value.into());
        }
        self
    }

    /// Sets the login for a server that requires OAuth.
    ///
    /// The login starts when the server answers with HTTP 401. Timeouts of the server do not elapse
    /// during a login.
    #[cfg(feature = "oauth")]
    #[must_use]
    pub fn oauth(mut self, oauth: crate::OAuth) -> Self {
        if let Transport::Http(http) | Transport::Sse(http) = &mut self.transport {
            http.oauth = Some(oauth);
        }
        self
    }

    /// Sets the timeout from the start of the server to its list of tools; 60 s by default.
    ///
    /// The time includes downloads that a command such as `npx` performs. After it, levity kills
    /// the process and starts the server again later.
    #[must_use]
    pub fn start_timeout(mut self, limit: Duration) -> Self {
        self.start_timeout = limit;
        self
    }

    /// Sets the total timeout of a call; 300 s by default.
    ///
    /// The time includes all rounds of a call in which the server asks for input, and the wait for
    /// a free slot has the same limit again.
    #[must_use]
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = limit;
        self
    }

    /// Sets the maximum time of a call without progress; 60 s by default.
    ///
    /// Progress and log messages of the server count as activity, and so does a request of the
    /// server to levity. Lower it to detect servers that hang; raise it for tools that are silent
    /// for long.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// Sets the timeout of the probe for the newer version of the protocol; 3 s by default.
    ///
    /// levity sends the probe once and uses the older version if no response arrives.
    #[must_use]
    pub fn probe_timeout(mut self, limit: Duration) -> Self {
        self.probe_timeout = limit;
        self
    }

    /// Sets the interval of pings while no other request is running; 30 s by default.
    ///
    /// `None` disables pings.
    #[must_use]
    pub fn ping_interval(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.ping_every = time.into();
        self
    }

    /// Sets the maximum number of consecutive restarts after a failed start; 5 by default.
    ///
    /// After that, levity starts the server only when it is requested again.
    #[must_use]
    pub fn retries(mut self, times: u32) -> Self {
        self.retries = times;
        self
    }

    /// Sets the maximum number of concurrent calls; 16 by default. Further calls wait.
    #[must_use]
    pub fn max_concurrent(mut self, calls: usize) -> Self {
        self.max_concurrent = calls.max(1);
        self
    }

    /// Sets the maximum size of one message from the server; 16 MiB by default.
    ///
    /// A response over the limit fails its call with [`TooLarge`](crate::ErrorKind::TooLarge). The
    /// connection continues, except with the older HTTP with server-sent events, where it ends and
    /// levity restarts it. The limit also bounds the total size of the later pages of a list.
    #[must_use]
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.max_message = bytes;
        self
    }

    /// Offers only the named tools; `*` matches any text.
    ///
    /// The names are those of the server, without a prefix. Excluded tools cannot be called by
    /// [`Server::call`](crate::Server::call) either.
    ///
    /// ```
    /// use levity_core::ToolSource as _;
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
    /// #                 "tools": [{"name": "read_now"}, {"name": "read_raw"}, {"name": "set"}],
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
    /// # async fn main() -> levity_mcp::Result<()> {
    /// let config = clock().allow(["read_*"]).deny(["*_raw"]).prefix("my_");
    /// let servers = Servers::builder().server(config).start()?;
    /// servers.wait(WaitFor::All).await;
    /// let names: Vec<_> = servers.tools().iter().map(|tool| tool.spec().name.clone()).collect();
    /// assert_eq!(names, ["my_clock_read_now"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn allow(mut self, tools: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.allow
            .get_or_insert_default()
            .extend(tools.into_iter().map(Into::into));
        self
    }

    /// Excludes the named tools; `*` matches any text. This takes precedence over
    /// [`allow`](Self::allow).
    #[must_use]
    pub fn deny(mut self, tools: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.deny.extend(tools.into_iter().map(Into::into));
        self
    }

    /// Sets the prefix of tool names, before the server's name; `mcp_` by default.
    ///
    /// A model calls a tool by `<prefix><server>_<tool>`. An empty prefix is allowed. Names stay
    /// within 64 letters, digits, `_` and `-`; longer ones are cut and get a hash.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets the degree of trust in the server's annotations of its tools.
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }
}

// Values of variables and headers are often secrets, so `Debug` shows only names.
impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env: Vec<_> = self.env.keys().collect();
        let mut debug = f.debug_struct("Stdio");
        debug
            .field("command", &self.shown())
            .field("args", &self.args.len())
            .field("env", &env);
        debug.field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.keys().collect();
        f.debug_struct("Http")
            .field("url", &self.shown())
            .field("headers", &headers)
            .finish()
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connect")
    }
}

#[cfg(test)]
mod tests;
