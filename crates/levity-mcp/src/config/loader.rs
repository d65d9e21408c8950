//! The settings of many servers, loaded from one file.
//!
//! Reading never fails as a whole: each problem has a place and a reason, and only the server that
//! it belongs to is left out. A hostile file is bounded: 1 MiB of text, 100 variables in one value,
//! 4 MiB of expanded variables and 1,000 listed problems.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::ServerConfig;
use super::file::ConfigReader;
use super::jsonc::to_json;
use super::node::Node;
use super::problem::{ConfigProblem, short};

/// The maximum size of a configuration: 1 MiB.
const MAX_BYTES: u64 = 1 << 20;
/// The maximum number of problems that are listed individually.
const MAX_PROBLEMS: usize = 1_000;

/// The settings of many servers, and the problems found in them.
///
/// A server with an error is left out; the other servers remain.
///
/// ```
/// use levity_mcp::Config;
///
/// let text = r#"{"mcpServers": {
///     "files": {"command": "mcp-server-filesystem", "args": ["${DOCS:-/srv/docs}"]},
///     "search": {
///         "url": "https://example.com/mcp",
///         "headers": {"Authorization": "Bearer ${TOKEN}"}
///     }
/// }}"#;
/// let config = Config::parse(text, |name| (name == "HOME").then(|| "/root".to_owned()));
/// assert_eq!(config.servers()[0].name(), "files");
/// assert_eq!(
///     config.problems()[0].to_string(),
///     "`/mcpServers/search/headers/Authorization`: `TOKEN` is not set; set it, or write \
///      `${TOKEN:-default}`",
/// );
/// ```
#[derive(Clone, Debug, Default)]
pub struct Config {
    servers: Vec<ServerConfig>,
    problems: Vec<ConfigProblem>,
    /// The number of problems beyond those in the list.
    more: usize,
}

impl Config {
    /// Creates a configuration without servers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a problem that concerns the whole configuration, such as a file in a format that your
    /// program converts.
    ///
    /// ```
    /// use levity_mcp::Config;
    ///
    /// let config = Config::new().with_problem("`servers.ini` is not supported; use JSON");
    /// assert!(config.servers().is_empty());
    /// assert_eq!(config.problems().len(), 1);
    /// ```
    #[must_use]
    pub fn with_problem(mut self, message: impl Into<String>) -> Self {
        self.add_problem(ConfigProblem::new("", message));
        self
    }

    /// Adds a server. If the name is already in use, the existing server remains and a problem is
    /// recorded.
    ///
    /// ```
    /// use levity_mcp::{Config, ServerConfig};
    ///
    /// let config = Config::new()
    ///     .server(ServerConfig::stdio("files", "mcp-files"))
    ///     .server(ServerConfig::stdio("files", "other"));
    /// assert_eq!(config.servers().len(), 1);
    /// assert!(!config.is_valid());
    /// ```
    #[must_use]
    pub fn server(mut self, server: ServerConfig) -> Self {
        if self.servers.iter().any(|known| known.name == server.name) {
            let name = short(server.name());
            let message = format!(
                "the name `{name}` is used by an earlier server, which takes precedence; rename one"
            );
            self.add_problem(ConfigProblem {
                server: Some(server.name),
                ..ConfigProblem::new(format!("/{name}"), message)
            });
            return self;
        }
        self.add(server);
        self
    }

    /// Parses JSON, which may contain comments and trailing commas. `vars` returns the values of
    /// variables.
    ///
    /// The format is the one that programs with MCP servers share: an object `mcpServers` or
    /// `servers` with servers by name, or a list of servers with a `name` each. `docs/mcp.md`
    /// describes all settings.
    ///
    /// The text decides which programs run and which variables they receive. Parse only files that
    /// you trust as much as a script.
    ///
    /// ```
    /// use levity_mcp::Config;
    ///
    /// let text = r#"{
    ///     // Comments are allowed.
    ///     "servers": [{"name": "files", "command": ["mcp-files", "${DOCS:-/srv}"], "retries": 3},]
    /// }"#;
    /// let config = Config::parse(text, |_| None);
    /// assert!(config.is_valid(), "{config}");
    /// assert_eq!(config.servers()[0].display_args(), ["${DOCS:-/srv}"]);
    /// ```
    pub fn parse(text: &str, vars: impl Fn(&str) -> Option<String>) -> Self {
        let mut config = Self::default();
        if text.len() as u64 > MAX_BYTES {
            config.add_problem(ConfigProblem::new(
                "",
                format!("it is larger than {MAX_BYTES} bytes; use a smaller file"),
            ));
            return config;
        }
        match serde_json::from_str::<Node>(&to_json(text)) {
            Ok(root) => return ConfigReader::new(&vars).root(&root),
            Err(error) => config.add_problem(syntax_problem(&error)),
        }
        config
    }

    /// Loads a file as [`parse`](Self::parse) does; blocks the current thread.
    ///
    /// A file that cannot be read, is not a regular file, is not UTF-8 or is larger than 1 MiB is
    /// reported as a problem.
    ///
    /// ```
    /// use levity_mcp::Config;
    ///
    /// let config = Config::load("/no/such/mcp.json", |_| None);
    /// assert!(config.servers().is_empty() && !config.is_valid());
    /// assert!(config.problems()[0].message.contains("cannot be read"));
    /// ```
    pub fn load(path: impl AsRef<Path>, vars: impl Fn(&str) -> Option<String>) -> Self {
        match read(path.as_ref()) {
            Ok(text) => Self::parse(&text, vars),
            Err(problem) => {
                let mut config = Self::default();
                let path = path.as_ref().display();
                config.add_problem(ConfigProblem::new(
                    "",
                    format!("`{path}` cannot be read: {problem}"),
                ));
                config
            }
        }
    }

    /// Loads the configuration from environment variables, and expands variables from there.
    ///
    /// `LEVITY_MCP_SERVERS` contains the configuration itself if it starts with `{` or `[`, and
    /// otherwise the path of a file. Without it, `MCP_SERVERS_CONFIG` is the path of a file, unless
    /// `MCP_ENABLED` is `false`. `MCP_TOOL_PREFIX` is the prefix of servers that do not set one.
    ///
    /// Paths must be absolute. With a relative path, any folder that the program is started in
    /// could determine which programs it starts and where it sends variables. A relative path is
    /// therefore a problem, and the configuration has no servers.
    pub fn from_env() -> Self {
        let vars = |name: &str| std::env::var(name).ok();
        Self::from_vars(vars)
    }

    /// Works like [`from_env`](Self::from_env), with variables from `vars`.
    pub(super) fn from_vars(vars: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| vars(name).filter(|value| !value.trim().is_empty());
        let mut config = match (set("LEVITY_MCP_SERVERS"), named_file(&set)) {
            (Some(text), _) if text.trim_start().starts_with(['{', '[']) => {
                Self::parse(&text, &vars)
            }
            (Some(path), _) => Self::load_named("LEVITY_MCP_SERVERS", path.trim().as_ref(), &vars),
            (None, Some((variable, path))) => Self::load_named(variable, &path, &vars),
            (None, None) => Self::default(),
        };
        if let Some(prefix) = set("MCP_TOOL_PREFIX") {
            config.servers.iter_mut().for_each(|server| {
                server.prefix.get_or_insert_with(|| prefix.clone());
            });
        }
        config
    }

    /// Loads a file that a variable names, unless the path depends on the working directory.
    fn load_named(variable: &str, path: &Path, vars: impl Fn(&str) -> Option<String>) -> Self {
        if path.is_absolute() {
            return Self::load(path, vars);
        }
        let mut config = Self::default();
        let message = format!(
            "`{variable}` has the relative path `{}`, so any folder could start programs and \
                receive \
             variables; set `LEVITY_MCP_SERVERS` to its absolute path, or pass the file to the \
             program (`--mcp FILE`, `--config FILE`)",
            path.display()
        );
        config.add_problem(ConfigProblem::new("", message));
        config
    }

    /// Returns the servers without errors in their order, including disabled ones.
    pub fn servers(&self) -> &[ServerConfig] {
        &self.servers
    }

    /// Converts the configuration into its servers.
    ///
    /// Report [`problems`](Self::problems) before, because they are dropped here.
    ///
    /// ```
    /// use levity_mcp::{Config, Servers};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_mcp::Result<()> {
    /// let text = r#"{"a": {"command": "mcp-a", "disabled": true}, "bad": {"command": ""}}"#;
    /// let config = Config::parse(text, |_| None);
    /// assert!(config.to_string().starts_with("`/bad/command`: "), "report it to a person");
    /// let servers = Servers::builder().servers(config.into_servers()).start()?;
    /// assert_eq!(servers.status().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_servers(self) -> Vec<ServerConfig> {
        self.servers
    }

    /// Returns the errors and warnings. Those beyond 1,000 are only counted, in the last one.
    ///
    /// ```
    /// use levity_mcp::Config;
    ///
    /// let config = Config::parse(r#"{"a": {"command": "mcp-a", "timout": 20}}"#, |_| None);
    /// assert!(config.is_valid(), "an unknown setting is only a warning");
    /// assert!(config.problems()[0].message.contains("did you mean `timeout`?"));
    /// ```
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }

    /// Returns `true` if no problem prevents the start of a server.
    pub fn is_valid(&self) -> bool {
        !self.problems.iter().any(|problem| problem.is_error)
    }

    /// Adds a server whose name is unique.
    pub(super) fn add(&mut self, server: ServerConfig) {
        self.servers.push(server);
    }

    /// Records a problem. Beyond the limit, the last entry counts the rest, and is an error if one
    /// of them is.
    pub(super) fn add_problem(&mut self, problem: ConfigProblem) {
        if self.problems.len() < MAX_PROBLEMS {
            return self.problems.push(problem);
        }
        self.more += 1;
        let more = self.more + 1;
        if let Some(last) = self.problems.last_mut() {
            let stops = last.is_error || problem.is_error;
            *last = ConfigProblem {
                is_error: stops,
                ..ConfigProblem::new("", format!("there are {more} more problems"))
            };
        }
    }
}

impl From<Vec<ServerConfig>> for Config {
    fn from(servers: Vec<ServerConfig>) -> Self {
        servers.into_iter().fold(Self::default(), Self::server)
    }
}

/// Writes all problems, one per line.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problems
            .iter()
            .try_for_each(|problem| writeln!(f, "{problem}"))
    }
}

/// Converts an error of the JSON parser: its position goes into a field of its own.
fn syntax_problem(error: &serde_json::Error) -> ConfigProblem {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or_default();
    let line = Some((error.line(), error.column()));
    ConfigProblem {
        line,
        ..ConfigProblem::new("", format!("it is not valid JSON: {message}"))
    }
}

/// Returns the file that the environment names, and the name of the variable.
fn named_file(set: &impl Fn(&str) -> Option<String>) -> Option<(&'static str, PathBuf)> {
    let on = set("MCP_ENABLED")
        .map(|word| matches!(&*word.trim().to_lowercase(), "1" | "true" | "yes" | "on"));
    match (on, set("MCP_SERVERS_CONFIG")) {
        (Some(false), _) | (None, None) => None,
        (_, Some(path)) => Some(("MCP_SERVERS_CONFIG", path.into())),
        (Some(true), None) => Some(("MCP_ENABLED", "mcp_servers.json".into())),
    }
}

/// Reads a file within the size limit. The error is a clause that follows the path.
fn read(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    // A pipe may never end.
    if !metadata.is_file() {
        return Err("it is not a regular file; use the path of one".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!(
            "it is larger than {MAX_BYTES} bytes; use a smaller file"
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("it is not UTF-8 at byte {at}; save it as UTF-8")
    })
}
