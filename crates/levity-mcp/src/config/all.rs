//! Many servers, from one file.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::ServerConfig;
use super::file::Reading;
use super::node::Node;
use super::plain::plain;
use super::problem::{ConfigProblem, short};

/// The largest config: 1 MiB.
const LARGEST: u64 = 1 << 20;
/// How many problems are named one by one.
const MOST_PROBLEMS: usize = 1_000;

/// The settings of many servers, and what is wrong with them.
///
/// A server that something is wrong with is left out, and the others are there.
///
/// ```
/// use levity_mcp::Config;
///
/// let text = r#"{"mcpServers": {
///     "files": {"command": "mcp-server-filesystem", "args": ["${DOCS:-/srv/docs}"]},
///     "search": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
/// }}"#;
/// let config = Config::parse(text, |name| (name == "HOME").then(|| "/root".to_owned()));
/// assert_eq!(config.servers()[0].name(), "files");
/// assert_eq!(
///     config.problems()[0].to_string(),
///     "`/mcpServers/search/headers/Authorization`: `TOKEN` is not set; set it, or write `${TOKEN:-default}`",
/// );
/// ```
#[derive(Clone, Debug, Default)]
pub struct Config {
    servers: Vec<ServerConfig>,
    problems: Vec<ConfigProblem>,
    /// Problems beyond those that are named.
    more: usize,
}

impl Config {
    /// No servers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a server; one of the same name that is there already stays, and a problem is noted.
    #[must_use]
    pub fn server(mut self, server: ServerConfig) -> Self {
        if self.servers.iter().any(|known| known.name == server.name) {
            let name = short(server.name());
            let message =
                format!("there is another server named `{name}` before it; that one counts");
            self.note(ConfigProblem {
                server: Some(server.name),
                ..ConfigProblem::new(format!("/{name}"), message)
            });
            return self;
        }
        self.add(server);
        self
    }

    /// Reads JSON, also with comments. `vars` says what variables hold.
    ///
    /// It reads what programs that use MCP servers have agreed on more or less: an object
    /// `mcpServers` or `servers` of servers by their names, or a list of servers with a `name`
    /// each. `docs/mcp.md` has all settings.
    pub fn parse(text: &str, vars: impl Fn(&str) -> Option<String>) -> Self {
        let mut config = Self::default();
        if text.len() as u64 > LARGEST {
            config.note(ConfigProblem::new(
                "",
                format!("it is larger than {LARGEST} bytes"),
            ));
            return config;
        }
        match serde_json::from_str::<Node>(&plain(text)) {
            Ok(root) => return Reading::new(&vars).root(&root),
            Err(error) => config.note(syntax(&error)),
        }
        config
    }

    /// Reads a file, as [`parse`](Self::parse) does. It is read on this thread.
    ///
    /// A file that cannot be read, or is larger than 1 MiB, is a problem too.
    pub fn load(path: impl AsRef<Path>, vars: impl Fn(&str) -> Option<String>) -> Self {
        match read(path.as_ref()) {
            Ok(text) => Self::parse(&text, vars),
            Err(problem) => {
                let mut config = Self::default();
                let path = path.as_ref().display();
                config.note(ConfigProblem::new(
                    "",
                    format!("`{path}` cannot be read: {problem}"),
                ));
                config
            }
        }
    }

    /// What the environment says, with variables put in from there.
    ///
    /// `LEVITY_MCP_SERVERS` holds the config itself, when it begins with `{` or `[`, or else the
    /// path of a file. Without it, `MCP_SERVERS_CONFIG` is the path of a file, unless `MCP_ENABLED`
    /// is `false`. `MCP_TOOL_PREFIX` is the prefix of servers that have none of their own.
    ///
    /// Paths must be absolute. A relative path would let every folder in which the program is
    /// started say which programs it starts and where variables are sent; it is a problem, and no
    /// server is there.
    pub fn from_env() -> Self {
        let vars = |name: &str| std::env::var(name).ok();
        Self::from_vars(vars)
    }

    /// As [`from_env`](Self::from_env), with variables from elsewhere.
    pub(super) fn from_vars(vars: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| vars(name).filter(|value| !value.trim().is_empty());
        let mut config = match (set("LEVITY_MCP_SERVERS"), file(&set)) {
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

    /// Reads a file that a variable names, unless another file would be meant in every folder.
    fn load_named(variable: &str, path: &Path, vars: impl Fn(&str) -> Option<String>) -> Self {
        if path.is_absolute() {
            return Self::load(path, vars);
        }
        let mut config = Self::default();
        let message = format!(
            "`{variable}` means `{}` in whatever folder this is, which could start programs and be \
                sent variables; set \
             `LEVITY_MCP_SERVERS` to its absolute path, or name the file to the program (`--mcp \
             FILE`, `--config FILE`)",
            path.display()
        );
        config.note(ConfigProblem::new("", message));
        config
    }

    /// The servers that nothing is wrong with, in their order; those that are not enabled among
    /// them.
    pub fn servers(&self) -> &[ServerConfig] {
        &self.servers
    }

    /// The servers themselves.
    pub fn into_servers(self) -> Vec<ServerConfig> {
        self.servers
    }

    /// What is wrong, and what has no effect. Beyond 1,000 they are only counted, in the last one.
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }

    /// Whether there is nothing wrong that keeps a server from being started.
    pub fn is_good(&self) -> bool {
        !self.problems.iter().any(|problem| problem.stops)
    }

    /// Adds a server whose name no other has.
    pub(super) fn add(&mut self, server: ServerConfig) {
        self.servers.push(server);
    }

    pub(super) fn note(&mut self, problem: ConfigProblem) {
        if self.problems.len() < MOST_PROBLEMS {
            return self.problems.push(problem);
        }
        self.more += 1;
        let more = self.more + 1;
        if let Some(last) = self.problems.last_mut() {
            let stops = last.stops || problem.stops;
            *last = ConfigProblem {
                stops,
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

/// All problems, one on a line.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problems
            .iter()
            .try_for_each(|problem| writeln!(f, "{problem}"))
    }
}

fn syntax(error: &serde_json::Error) -> ConfigProblem {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or_default();
    let line = Some((error.line(), error.column()));
    ConfigProblem {
        line,
        ..ConfigProblem::new("", format!("it is no JSON: {message}"))
    }
}

/// The file that the environment names, where it does, and the variable that names it.
fn file(set: &impl Fn(&str) -> Option<String>) -> Option<(&'static str, PathBuf)> {
    let on = set("MCP_ENABLED")
        .map(|word| matches!(&*word.trim().to_lowercase(), "1" | "true" | "yes" | "on"));
    match (on, set("MCP_SERVERS_CONFIG")) {
        (Some(false), _) | (None, None) => None,
        (_, Some(path)) => Some(("MCP_SERVERS_CONFIG", path.into())),
        (Some(true), None) => Some(("MCP_ENABLED", "mcp_servers.json".into())),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let about = file.metadata().map_err(|error| error.to_string())?;
    // A pipe may never end.
    if !about.is_file() {
        return Err("it is no file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("it is larger than {LARGEST} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("it is not UTF-8 from byte {at} on")
    })
}
