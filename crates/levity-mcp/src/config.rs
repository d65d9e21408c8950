use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levity_core::Secrets;
use levity_core::text::bare_url;
use tokio::io::DuplexStream;

pub use self::all::Config;
pub use self::problem::ConfigProblem;

mod all;
mod entry;
mod expand;
mod file;
mod good;
mod keys;
mod limits;
mod node;
mod plain;
mod problem;
mod secrets;
mod units;
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
///     .start_limit(Duration::from_secs(20));
/// assert_eq!(files.name(), "files");
/// ```
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub(crate) name: Arc<str>,
    pub(crate) enabled: bool,
    pub(crate) transport: Transport,
    pub(crate) start_limit: Duration,
    pub(crate) call_limit: Duration,
    pub(crate) idle_limit: Duration,
    pub(crate) probe_limit: Duration,
    pub(crate) ping_every: Option<Duration>,
    pub(crate) retries: u32,
    pub(crate) max_concurrent: usize,
    pub(crate) max_message: usize,
    pub(crate) allow: Option<Vec<String>>,
    pub(crate) deny: Vec<String>,
    pub(crate) prefix: Option<String>,
    pub(crate) trust: Trust,
    /// The variables whose values a file had put in.
    pub(crate) variables: BTreeSet<String>,
    /// Those values that are secrets, by the names of the variables.
    pub(crate) hidden: Secrets,
}

/// How a server is reached.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub(crate) enum Transport {
    Stdio(Stdio),
    Http(Http),
    Sse(Http),
    InProcess(Connect),
}

/// A program that is started and spoken to through its stdin and stdout.
#[derive(Clone, Default)]
pub(crate) struct Stdio {
    pub(crate) command: String,
    /// The program and its arguments as they stand in a file, with the names of variables.
    pub(crate) written: Vec<String>,
    /// The working directory as it stands in a file.
    pub(crate) written_cwd: Option<String>,
    pub(crate) args: Vec<String>,
    /// Set on top of what is inherited.
    pub(crate) env: BTreeMap<String, String>,
    /// Further variables of the host that are handed on, or all of them.
    pub(crate) inherit: InheritedEnvironment,
    pub(crate) cwd: Option<PathBuf>,
}

/// Which of the host's environment variables a server's program sees, beside those that are set for
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InheritedEnvironment {
    /// What programs need to start and to reach the network: where programs, homes and temporary
    /// files are, the language, proxies and certificates; no keys and no tokens, save what stands
    /// in the address of a proxy or of an index of packages.
    #[default]
    Basics,
    /// The basics, and these.
    Named(Vec<String>),
    /// Everything, secrets included.
    All,
}

/// A server that is reached by HTTP.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) url: String,
    /// The address as it stands in a file and may be shown, where variables are put into it.
    pub(crate) written: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    #[cfg(feature = "oauth")]
    pub(crate) oauth: Option<crate::OAuth>,
}

impl Stdio {
    /// The program as it may be shown.
    pub(crate) fn shown(&self) -> &str {
        self.written.first().unwrap_or(&self.command)
    }

    /// Its arguments as they may be shown.
    fn shown_args(&self) -> &[String] {
        self.written.get(1..).unwrap_or(&self.args)
    }
}

impl Http {
    /// The address as it may be shown.
    fn shown(&self) -> String {
        self.written.clone().unwrap_or_else(|| bare_url(&self.url))
    }

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
#[derive(Clone)]
pub(crate) struct Connect(pub(crate) Arc<dyn Fn() -> DuplexStream + Send + Sync>);

/// How far a server's own word about its tools is believed.
///
/// A server says of a tool that it only reads, that a second call does nothing more, that it may
/// destroy something. A wrong word makes levity run calls side by side, repeat them, or leave out a
/// question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trust {
    /// Only what makes for more care is believed: that a tool may destroy something.
    #[default]
    Wary,
    /// All of it is believed.
    Full,
}

impl ServerConfig {
    /// A program that is started, and spoken to through its stdin and stdout.
    pub fn stdio(name: impl Into<Arc<str>>, command: impl Into<String>) -> Self {
        Self::new(
            name.into(),
            Transport::Stdio(Stdio {
                command: command.into(),
                ..Stdio::default()
            }),
        )
    }

    /// A server at an address that speaks streamable HTTP; where it turns out to speak only the
    /// older HTTP with server-sent events, that is used.
    pub fn http(name: impl Into<Arc<str>>, url: impl Into<String>) -> Self {
        Self::new(
            name.into(),
            Transport::Http(Http::new(url.into(), BTreeMap::new())),
        )
    }

    /// A server at an address that speaks the older HTTP with server-sent events.
    pub fn sse(name: impl Into<Arc<str>>, url: impl Into<String>) -> Self {
        Self::new(
            name.into(),
            Transport::Sse(Http::new(url.into(), BTreeMap::new())),
        )
    }

    /// A server in this process: `connect` hands out our end of a pipe whose other end the server
    /// reads and writes, anew for each start.
    pub fn in_process(
        name: impl Into<Arc<str>>,
        connect: impl Fn() -> DuplexStream + Send + Sync + 'static,
    ) -> Self {
        Self::new(
            name.into(),
            Transport::InProcess(Connect(Arc::new(connect))),
        )
    }

    pub(crate) fn new(name: Arc<str>, transport: Transport) -> Self {
        Self {
            name,
            enabled: true,
            transport,
            start_limit: Duration::from_secs(60),
            call_limit: Duration::from_secs(300),
            idle_limit: Duration::from_secs(60),
            probe_limit: Duration::from_secs(3),
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

    /// The server's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is started at all; it is, by default.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// How it is reached: `stdio`, `http`, `sse` or `in-process`.
    pub fn transport(&self) -> &'static str {
        self.transport.name()
    }

    /// Which program it is, or where it is: without arguments, without what may be a secret in an
    /// address, and with `${VAR}` where a file puts a variable in.
    pub fn place(&self) -> String {
        match &self.transport {
            Transport::Stdio(stdio) => stdio.shown().to_owned(),
            Transport::Http(http) | Transport::Sse(http) => http.shown(),
            Transport::InProcess(_) => "this process".to_owned(),
        }
    }

    /// The arguments of its program as a file has them: with the names of variables, and without
    /// what looks like a key.
    ///
    /// ```
    /// # use levity_mcp::Config;
    /// let text = r#"{"a": {"command": "npx", "args": ["files", "--key", "${TOKEN}"]}}"#;
    /// let config = Config::parse(text, |_| Some("hush".to_owned()));
    /// assert_eq!(config.servers()[0].shown_args(), ["files", "--key", "${TOKEN}"]);
    /// ```
    pub fn shown_args(&self) -> Vec<String> {
        let secrets = Secrets::new();
        match &self.transport {
            Transport::Stdio(stdio) => stdio
                .shown_args()
                .iter()
                .map(|arg| secrets.redact(arg).into_owned())
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The working directory of its program as a file has it, if one is set.
    pub fn shown_cwd(&self) -> Option<String> {
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

    /// The names of the variables that are set for its program, without their values.
    pub fn set_variables(&self) -> Vec<&str> {
        match &self.transport {
            Transport::Stdio(stdio) => stdio.env.keys().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Which of the host's variables it gets, by their names: those that a file puts into its
    /// settings, and those that its program inherits beside the [basics](Inherit::Basics). `*`
    /// stands for all of them.
    ///
    /// ```
    /// # use levity_mcp::Config;
    /// let text = r#"{"a": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}"#;
    /// let config = Config::parse(text, |_| Some("hush".to_owned()));
    /// assert_eq!(config.servers()[0].variables(), ["TOKEN"]);
    /// ```
    pub fn variables(&self) -> Vec<&str> {
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

    /// Keeps it from being started.
    #[must_use]
    pub fn disabled(mut self) -> Self {
        self.enabled = false;
        self
    }

    /// Adds an argument of the program.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        if let Transport::Stdio(stdio) = &mut self.transport {
            stdio.args.push(arg.into());
        }
        self
    }

    /// Adds arguments of the program.
    #[must_use]
    pub fn args(self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    /// Sets an environment variable of the program.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Transport::Stdio(stdio) = &mut self.transport {
            stdio.env.insert(name.into(), value.into());
        }
        self
    }

    /// Says which of the host's environment variables the program sees;
    /// [`InheritedEnvironment::Basics`] by default.
    #[must_use]
    pub fn inherit(mut self, inherit: InheritedEnvironment) -> Self {
        if let Transport::Stdio(stdio) = &mut self.transport {
            stdio.inherit = inherit;
        }
        self
    }

    /// Sets the folder that the program starts in; the host's own by default.
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        if let Transport::Stdio(stdio) = &mut self.transport {
            stdio.cwd = Some(folder.into());
        }
        self
    }

    /// Adds a header to every HTTP request: a token, for instance.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Transport::Http(http) | Transport::Sse(http) = &mut self.transport {
            http.headers.insert(name.into(), value.into());
        }
        self
    }

    /// Sets how to log in when it asks for OAuth.
    #[cfg(feature = "oauth")]
    #[must_use]
    pub fn oauth(mut self, oauth: crate::OAuth) -> Self {
        if let Transport::Http(http) | Transport::Sse(http) = &mut self.transport {
            http.oauth = Some(oauth);
        }
        self
    }

    /// How long it may take from its start to its list of tools; 60 s by default.
    #[must_use]
    pub fn start_limit(mut self, limit: Duration) -> Self {
        self.start_limit = limit;
        self
    }

    /// How long a call may take in all; 300 s by default.
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }

    /// How long a call may go without a sign of progress; 60 s by default.
    #[must_use]
    pub fn idle_limit(mut self, limit: Duration) -> Self {
        self.idle_limit = limit;
        self
    }

    /// How long to wait for an answer to the question whether it speaks the protocol's newer form;
    /// 3 s by default. It is asked once, and the older form is used when no answer comes.
    #[must_use]
    pub fn probe_limit(mut self, limit: Duration) -> Self {
        self.probe_limit = limit;
        self
    }

    /// How often it is asked whether it still lives, while nothing else is asked of it; every 30 s
    /// by default.
    #[must_use]
    pub fn ping_every(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.ping_every = time.into();
        self
    }

    /// How often in a row a start may fail before it is given up until somebody asks for it again;
    /// 5 by default.
    #[must_use]
    pub fn retries(mut self, times: u32) -> Self {
        self.retries = times;
        self
    }

    /// How many calls may be under way at once; 16 by default. More wait.
    #[must_use]
    pub fn max_concurrent(mut self, calls: usize) -> Self {
        self.max_concurrent = calls.max(1);
        self
    }

    /// How large one message of its may be; 16 MiB by default.
    #[must_use]
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.max_message = bytes;
        self
    }

    /// Offers only these of its tools; `*` stands for anything.
    #[must_use]
    pub fn allow(mut self, tools: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.allow
            .get_or_insert_default()
            .extend(tools.into_iter().map(Into::into));
        self
    }

    /// Leaves these of its tools out; `*` stands for anything. It goes before what is allowed.
    #[must_use]
    pub fn deny(mut self, tools: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.deny.extend(tools.into_iter().map(Into::into));
        self
    }

    /// Sets what its tools' names begin with, before the server's name; `mcp_` by default.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets how far its word about its tools is believed.
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }
}

// Values of variables and headers are often secrets.
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
