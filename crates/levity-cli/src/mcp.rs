//! Commands for MCP servers.
//!
//! `list` only reads the config and starts nothing, so it is the safe way to inspect a config of
//! somebody else: it shows programs, arguments and variables of each server. `tools`, `call` and
//! `health` start servers, wait until each is ready or has failed, and stop them, also after
//! Ctrl-C.
//!
//! Names, descriptions and errors of servers are untrusted. Lines are kept to one line each, and
//! blanks are collapsed, so a server cannot imitate another entry or push a part out of sight.
//! Values of variables are not printed, only their names.
//!
//! Exit codes: 0, 1 if a server or tool fails or the config has errors, 2 for a wrong call, 130
//! after Ctrl-C.

mod agent_tools;
mod call;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use levity::agents::__private::yaml_to_json;
use levity::mcp::{Config, Server, ServerConfig, ServerState, ServerStatus, Servers, WaitFor};
use serde_json::{Value, json};

use crate::settings;
use crate::terminal::{chain, note, print_json, print_text, read_text, report_error, shell_quote};

pub(crate) use agent_tools::{McpArgs, McpServers};

/// The exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// The arguments of `levity mcp`.
#[derive(Args)]
pub(crate) struct Mcp {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the servers of a config, the variables that each would get, and errors in the config.
    /// No server is started.
    List(List),
    /// Start servers and list their tools.
    Tools(Tools),
    /// Start a server and call one of its tools.
    Call(call::Call),
    /// Start servers and report their state.
    Health(Health),
}

/// The option for the config of the servers.
#[derive(Args)]
struct ConfigArg {
    /// File that names the servers; by default, `LEVITY_MCP_SERVERS`: a config, or the absolute
    /// path of one.
    #[arg(long, alias = "mcp", value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    source: ConfigArg,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Tools {
    /// Server whose tools to list; by default, all servers.
    server: Option<String>,
    #[command(flatten)]
    source: ConfigArg,
    /// Print one JSON object per line, with schemas.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Health {
    /// Server to check; by default, all servers.
    server: Option<String>,
    #[command(flatten)]
    source: ConfigArg,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand: 0 if it succeeds, 1 if a server or a tool fails or a config is invalid, 2
/// for an invalid call.
pub(crate) async fn mcp(args: Mcp) -> ExitCode {
    let result = match args.action {
        Action::List(list) => list.list(),
        Action::Tools(tools) => tools.tools().await,
        Action::Call(call) => call.call().await,
        Action::Health(health) => health.health().await,
    };
    result.unwrap_or_else(|problem| report_error(&problem, 2))
}

/// The result of a command: an exit code, or an error in its call.
type CommandResult = Result<ExitCode, String>;

impl ConfigArg {
    /// Reads the config and prints its errors.
    ///
    /// A config with errors in some servers is usable for the others; one that names no server at
    /// all is a wrong call.
    fn read(&self) -> Result<Config, String> {
        let config = read_or_from_env(self.config.as_deref());
        problems_in(&config, self.config.as_deref()).for_each(|problem| note(&problem));
        if !config.servers().is_empty() || !config.problems().is_empty() {
            return Ok(config);
        }
        Err(match &self.config {
            Some(file) => format!("`{}` names no servers; add at least one", file.display()),
            None => "there are no servers; name a file with `--config` or in `LEVITY_MCP_SERVERS`"
                .to_owned(),
        })
    }
}

/// Reads the named file, else `LEVITY_MCP_SERVERS`. Placeholders in the file are filled from the
/// environment.
fn read_or_from_env(file: Option<&Path>) -> Config {
    file.map_or_else(Config::from_env, |file| read(file, &variable))
}

/// Reads a file, with a function that returns variables for its placeholders. A file that
/// `levity.toml` names is not read again after its hash was checked.
fn read(file: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Config {
    match settings::control_text("mcp", file) {
        Some(text) => parse(file, text, variable),
        None if is_yaml(file) => parse(file, read_text(file), variable),
        None => Config::load(file, variable),
    }
}

/// Returns the servers that are missing in the config because a variable is not set. They start as
/// soon as it is, so a list that a person relies on must contain them.
///
/// `read` reads the same config again, with other variables. What a variable stands for is unknown:
/// a number is also a valid host and port, and an address is valid where a whole URL is missing.
fn servers_without_variables(
    config: &Config,
    read: impl Fn(&dyn Fn(&str) -> Option<String>) -> Config,
) -> Vec<ServerConfig> {
    let mut found: Vec<ServerConfig> = Vec::new();
    if config.problems().is_empty() {
        return found;
    }
    for value in ["1", "https://unset.invalid"] {
        let any = read(&|name| variable(name).or_else(|| Some(value.to_owned())));
        for server in any.servers() {
            let mut known = config.servers().iter().chain(&found);
            if known.all(|known| known.name() != server.name()) {
                found.push(server.clone());
            }
        }
    }
    found
}

/// Returns a variable of the environment, for a placeholder in a config.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns `true` if the name of a config ends like a YAML file.
fn is_yaml(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml"))
}

/// Parses the text of a file by its name, as JSON or as YAML.
fn parse(
    file: &Path,
    text: Result<String, String>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Config {
    let json = text.and_then(|text| match is_yaml(file) {
        true => yaml_to_json(&text)
            .map(|json| json.to_string())
            .map_err(|problem| format!("`{}`, {problem}", file.display())),
        false => Ok(text),
    });
    match json {
        Ok(json) => Config::parse(&json, variable),
        Err(problem) => Config::new().with_problem(problem),
    }
}

/// Returns the problems of a config with the name of its file.
///
/// A message that already begins with the file is not prefixed again.
fn problems_in<'a>(config: &'a Config, file: Option<&Path>) -> impl Iterator<Item = String> + 'a {
    let file = file.map(|file| format!("`{}`", file.display()));
    config.problems().iter().map(move |problem| match &file {
        Some(file) if !problem.message.starts_with(file) => format!("{file}: {problem}"),
        _ => problem.to_string(),
    })
}

/// Returns all servers. If a name is given, only that server is enabled: the names of tools depend
/// on the full list.
///
/// Two servers with a tool of the same name give it different names for models, which is only known
/// if all of them are in the list; the others are therefore disabled and not removed.
fn select_servers(config: &Config, name: Option<&str>) -> Result<Vec<ServerConfig>, String> {
    let Some(name) = name else {
        return Ok(config.servers().to_vec());
    };
    if config.servers().iter().any(|server| server.name() == name) {
        let others = |server: ServerConfig| {
            if server.name() == name {
                server
            } else {
                server.disabled()
            }
        };
        return Ok(config.servers().iter().cloned().map(others).collect());
    }
    if config
        .problems()
        .iter()
        .any(|problem| problem.server.as_deref() == Some(name))
    {
        return Err(format!(
            "the settings of server `{name}` are invalid; fix them in the config"
        ));
    }
    let names: Vec<_> = config
        .servers()
        .iter()
        .map(|server| format!("`{}`", server.name()))
        .collect();
    let names = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    Err(format!(
        "there is no server `{name}`; the config has {names}"
    ))
}

/// Returns the server of this name, or all of them.
fn selected(servers: &Servers, name: Option<&str>) -> Vec<Server> {
    match name {
        Some(name) => servers.get(name).into_iter().collect(),
        None => servers.all(),
    }
}

/// Starts servers, waits until each is ready or has failed, works with them and stops them. Returns
/// `None` after Ctrl-C.
///
/// There is no time limit here: each server has its own limit for the start, and Ctrl-C ends the
/// rest.
async fn with_servers<T>(
    configs: Vec<ServerConfig>,
    work: impl AsyncFnOnce(&Servers) -> T,
) -> Result<Option<T>, String> {
    let servers = Servers::builder()
        .servers(configs)
        .start()
        .map_err(|error| chain(&error))?;
    let task = async {
        servers.wait(WaitFor::All).await;
        work(&servers).await
    };
    let result = tokio::select! {
        result = task => Some(result),
        _ = tokio::signal::ctrl_c() => None,
    };
    servers.stop().await;
    Ok(result)
}

impl List {
    /// Words are quoted for a shell, so the shown program can be copied and tried.
    fn list(self) -> CommandResult {
        let config = self.source.read()?;
        let not_startable = match &self.source.config {
            Some(file) => servers_without_variables(&config, |variable| read(file, variable)),
            None => Vec::new(),
        };
        let not_startable = not_startable.iter().map(|server| (server, NOT_STARTABLE));
        let all = config.servers().iter().map(|server| (server, ""));
        for (server, note) in all.chain(not_startable) {
            if self.json {
                print_json(&json!({
                    "name": server.name(),
                    "transport": server.transport(),
                    "place": server.display_target(),
                    "enabled": server.is_enabled(),
                    "variables": server.inherited_variables(),
                    "args": server.display_args(),
                    "cwd": server.display_cwd(),
                    "sets": server.env_names(),
                }));
            } else {
                print_text(&line(&(description(server) + note)));
            }
        }
        Ok(if config.is_valid() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// The end of the description of a server that lacks a variable.
const NOT_STARTABLE: &str = "  (does not start: a variable is not set)";

/// Describes a server: the program with its arguments, or the address, and its variables.
///
/// Blanks in a name or an argument must not push the rest out of sight, nor look like another
/// column.
fn description(server: &ServerConfig) -> String {
    let disabled = match server.is_enabled() {
        true => "",
        false => "  (disabled)",
    };
    let names = |label: &str, names: &[&str]| match &*names.join(", ") {
        "" => String::new(),
        names => format!("  {label} {}", collapse_blanks(names)),
    };
    let gets = names("gets", &server.inherited_variables());
    let sets = names("sets", &server.env_names());
    let cwd = server.display_cwd().map_or_else(String::new, |cwd| {
        format!("  in {}", shell_quote(&collapse_blanks(&cwd)))
    });
    let (target, args) = (server.display_target(), server.display_args());
    let program: Vec<_> = std::iter::once(&target)
        .chain(&args)
        .map(|word| shell_quote(&collapse_blanks(word)).into_owned())
        .collect();
    let name = collapse_blanks(server.name());
    format!(
        "{}  {}  {}{cwd}{disabled}{gets}{sets}",
        shell_quote(&name),
        server.transport(),
        program.join(" ")
    )
}

/// Describes each server in the text of a file, and each problem in it, on one line. Nothing is
/// started.
pub(crate) fn programs(file: &Path, text: &Result<String, String>) -> Vec<String> {
    let config = parse(file, text.clone(), &variable);
    let not_startable =
        servers_without_variables(&config, |variable| parse(file, text.clone(), variable));
    let servers = config.servers().iter().map(description);
    let not_startable = not_startable
        .iter()
        .map(|server| description(server) + NOT_STARTABLE);
    let problems = problems_in(&config, Some(file));
    let lines = servers.chain(not_startable).chain(problems);
    lines.map(|text| text.replace('\n', "\u{fffd}")).collect()
}

/// Replaces each run of blanks by one blank.
fn collapse_blanks(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Tools {
    /// Tools of a failed server are missing from the output, the problem is on standard error, and
    /// the code is 1.
    async fn tools(self) -> CommandResult {
        let config = self.source.read()?;
        let configs = select_servers(&config, self.server.as_deref())?;
        let show = async |servers: &Servers| {
            let mut good = config.is_valid();
            for server in selected(servers, self.server.as_deref()) {
                good &= report_status(&server.status());
                if self.json {
                    tools_json(&server);
                } else {
                    tools_text(&server);
                }
            }
            good
        };
        Ok(code(with_servers(configs, show).await?))
    }
}

/// Prints errors of a server to the standard error, and returns `true` if there are none.
///
/// A disabled server counts as good, since the config wants it so.
fn report_status(status: &ServerStatus) -> bool {
    status
        .problems
        .iter()
        .for_each(|problem| note(&format!("server `{}`: {problem}", status.name)));
    match &status.state {
        ServerState::Unavailable { error, .. } => {
            note(&chain(error));
            false
        }
        state => state.is_ready() || matches!(state, ServerState::Disabled),
    }
}

/// Prints the specification of each tool, with the name of its server added.
fn tools_json(server: &Server) {
    for tool in server.tools() {
        let mut spec = serde_json::to_value(tool.spec()).unwrap_or_default();
        spec["server"] = server.name().into();
        print_json(&spec);
    }
}

/// The number of tokens is an estimate of what the tools add to each request; only the first line
/// of a description is printed.
fn tools_text(server: &Server) {
    let status = server.status();
    print_text(&line(&format!(
        "{}: {} tools, about {} tokens",
        status.name, status.tools, status.tokens
    )));
    for tool in server.tools() {
        let spec = tool.spec();
        let about = spec.description.lines().next().unwrap_or_default();
        print_text(&line(&format!("  {}  {about}", spec.name)));
    }
}

impl Health {
    /// A ready server must also answer a ping. The status is read again after the ping, which may
    /// have changed it.
    async fn health(self) -> CommandResult {
        let config = self.source.read()?;
        let configs = select_servers(&config, self.server.as_deref())?;
        let show = async |servers: &Servers| {
            let mut good = config.is_valid();
            for server in selected(servers, self.server.as_deref()) {
                let ping = if server.status().state.is_ready() {
                    Some(server.ping().await)
                } else {
                    None
                };
                let failed = ping.as_ref().and_then(|ping| ping.as_ref().err());
                let status = server.status();
                good &= report_status(&status) && failed.is_none();
                failed.into_iter().for_each(|error| note(&chain(error)));
                let millis = ping
                    .and_then(Result::ok)
                    .map(|time| time.as_millis() as u64);
                if self.json {
                    print_json(&health_json(&status, millis));
                } else {
                    print_text(&health_text(&status, millis));
                }
            }
            good
        };
        Ok(code(with_servers(configs, show).await?))
    }
}

/// The state is its text up to the first comma, such as `ready`, because `error` has the details.
fn health_json(status: &ServerStatus, ping: Option<u64>) -> Value {
    let error = match &status.state {
        ServerState::Unavailable { error, .. } => Some(chain(error)),
        _ => None,
    };
    let state = status.state.to_string();
    json!({
        "name": status.name, "transport": status.transport, "state": state.split(',').next(),
        "error": error,
        "implementation": status.implementation, "protocol": status.protocol, "tools": status.tools,
        "tokens": status.tokens, "ping_ms": ping,
    })
}

/// Formats the state of a server as one line.
fn health_text(status: &ServerStatus, ping: Option<u64>) -> String {
    let mut text = format!("{}  {}  {}", status.name, status.transport, status.state);
    if status.state.is_ready() {
        let implementation = status.implementation.as_deref().unwrap_or("unnamed");
        let protocol = status.protocol.as_deref().unwrap_or("unknown");
        text.push_str(&format!(
            "  {} tools  {implementation}  protocol {protocol}",
            status.tools
        ));
    }
    if let Some(ping) = ping {
        text.push_str(&format!("  answers in {ping} ms"));
    }
    line(&text)
}

/// `None` stands for Ctrl-C.
fn code(good: Option<bool>) -> ExitCode {
    match good {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => ExitCode::from(INTERRUPTED),
    }
}

/// Formats one line, even if names of servers contain line breaks.
fn line(text: &str) -> String {
    format!("{}\n", text.replace('\n', "\u{fffd}"))
}
