//! MCP servers from the terminal.

mod call;
mod offer;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use levity::mcp::{Config, Server, ServerConfig, ServerState, ServerStatus, Servers, WaitFor};
use serde_json::{Value, json};

use crate::terminal::{chain, complain, note, say, say_json, shell};

pub(crate) use offer::{McpArgs, Offered};

/// How a command that was broken off by Ctrl-C ends.
const INTERRUPTED: u8 = 130;

/// How `levity mcp` is called.
#[derive(Args)]
pub(crate) struct Mcp {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the servers of a config, the variables that each would get, and what is wrong with it.
    /// None is started.
    List(List),
    /// Start servers and list their tools.
    Tools(Tools),
    /// Start a server and call one of its tools.
    Call(call::Call),
    /// Start servers and say how they are.
    Health(Health),
}

/// Where the servers are from.
#[derive(Args)]
struct From {
    /// The file that names the servers; without it, what `LEVITY_MCP_SERVERS` says: a config, or
    /// the absolute path of one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    from: From,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Tools {
    /// Only those of this server.
    server: Option<String>,
    #[command(flatten)]
    from: From,
    /// Print one JSON object a line, with schemas.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Health {
    /// Only this server.
    server: Option<String>,
    #[command(flatten)]
    from: From,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Does what was asked for: 0 when it was done, 1 when a server or a tool failed or a config is
/// wrong, 2 for a wrong call.
pub(crate) async fn mcp(args: Mcp) -> ExitCode {
    let done = match args.what {
        What::List(list) => list.list(),
        What::Tools(tools) => tools.tools().await,
        What::Call(call) => call.call().await,
        What::Health(health) => health.health().await,
    };
    done.unwrap_or_else(|problem| complain(&problem, 2))
}

/// What a command came to: an exit code, or what is wrong with its call.
type Done = Result<ExitCode, String>;

impl From {
    /// The config; what is wrong with it is said.
    fn read(&self) -> Result<Config, String> {
        let config = read(self.config.as_deref());
        config
            .problems()
            .iter()
            .for_each(|problem| note(&problem.to_string()));
        if !config.servers().is_empty() || !config.problems().is_empty() {
            return Ok(config);
        }
        Err(match &self.config {
            Some(file) => format!("`{}` names no servers", file.display()),
            None => "there are no servers; name a file with `--config` or in `LEVITY_MCP_SERVERS`"
                .to_owned(),
        })
    }
}

fn read(file: Option<&std::path::Path>) -> Config {
    match file {
        Some(file) => Config::load(file, |name| std::env::var(name).ok()),
        None => Config::from_env(),
    }
}

/// All servers, of which only the one of this name is started, if one is named: names of tools
/// depend on which servers there are.
fn only(config: &Config, name: Option<&str>) -> Result<Vec<ServerConfig>, String> {
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
        return Err(format!("the settings of server `{name}` are wrong"));
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
    Err(format!("there is no server `{name}`; there are {names}"))
}

/// The server of this name, or all of them.
fn chosen(servers: &Servers, name: Option<&str>) -> Vec<Server> {
    match name {
        Some(name) => servers.get(name).into_iter().collect(),
        None => servers.all(),
    }
}

/// Starts servers, waits until each is ready or has failed, works with them and ends them. `None`
/// when it was interrupted.
async fn with_servers<T>(
    configs: Vec<ServerConfig>,
    work: impl AsyncFnOnce(&Servers) -> T,
) -> Result<Option<T>, String> {
    let servers = Servers::builder()
        .servers(configs)
        .start()
        .map_err(|error| chain(&error))?;
    let done = async {
        servers.wait(WaitFor::All).await;
        work(&servers).await
    };
    let done = tokio::select! {
        done = done => Some(done),
        _ = tokio::signal::ctrl_c() => None,
    };
    servers.stop().await;
    Ok(done)
}

impl List {
    fn list(self) -> Done {
        let config = self.from.read()?;
        for server in config.servers() {
            let (name, transport, place) = (server.name(), server.transport(), server.place());
            let (enabled, variables) = (server.is_enabled(), server.variables());
            let (args, cwd, sets) = (
                server.shown_args(),
                server.shown_cwd(),
                server.set_variables(),
            );
            if self.json {
                say_json(&json!({
                    "name": name, "transport": transport, "place": place, "enabled": enabled, "variables": variables,
                    "args": args, "cwd": cwd, "sets": sets,
                }));
            } else {
                let disabled = if enabled { "" } else { "  (disabled)" };
                let names = |what: &str, names: &[&str]| match &*names.join(", ") {
                    "" => String::new(),
                    names => format!("  {what} {}", squeezed(names)),
                };
                let (gets, sets) = (names("gets", &variables), names("sets", &sets));
                let cwd = cwd.map_or_else(String::new, |cwd| {
                    format!("  in {}", shell(&squeezed(&cwd)))
                });
                // Blanks in a name or an argument must not push the rest out of sight, nor look
                // like another column.
                let words = std::iter::once(&place).chain(&args);
                let program: Vec<_> = words
                    .map(|word| shell(&squeezed(word)).into_owned())
                    .collect();
                let (name, program) = (shell(&squeezed(name)).into_owned(), program.join(" "));
                say(&line(&format!(
                    "{name}  {transport}  {program}{cwd}{disabled}{gets}{sets}"
                )));
            }
        }
        Ok(if config.is_good() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// A text with one blank in place of many.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Tools {
    async fn tools(self) -> Done {
        let config = self.from.read()?;
        let configs = only(&config, self.server.as_deref())?;
        let show = async |servers: &Servers| {
            let mut good = config.is_good();
            for server in chosen(servers, self.server.as_deref()) {
                good &= told(&server.status());
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

/// Says on stderr what is wrong with a server, and whether nothing is.
fn told(status: &ServerStatus) -> bool {
    status
        .problems
        .iter()
        .for_each(|problem| note(&format!("server `{}`: {problem}", status.name)));
    match &status.state {
        ServerState::Away { error, .. } => {
            note(&chain(error));
            false
        }
        state => state.is_ready() || matches!(state, ServerState::Disabled),
    }
}

fn tools_json(server: &Server) {
    for tool in server.tools() {
        let mut told = serde_json::to_value(tool.spec()).unwrap_or_default();
        told["server"] = server.name().into();
        say_json(&told);
    }
}

fn tools_text(server: &Server) {
    let status = server.status();
    say(&line(&format!(
        "{}: {} tools, about {} tokens",
        status.name, status.tools, status.tokens
    )));
    for tool in server.tools() {
        let spec = tool.spec();
        let about = spec.description.lines().next().unwrap_or_default();
        say(&line(&format!("  {}  {about}", spec.name)));
    }
}

impl Health {
    async fn health(self) -> Done {
        let config = self.from.read()?;
        let configs = only(&config, self.server.as_deref())?;
        let show = async |servers: &Servers| {
            let mut good = config.is_good();
            for server in chosen(servers, self.server.as_deref()) {
                let pinged = if server.status().state.is_ready() {
                    Some(server.ping().await)
                } else {
                    None
                };
                let failed = pinged.as_ref().and_then(|pinged| pinged.as_ref().err());
                let status = server.status();
                good &= told(&status) && failed.is_none();
                failed.into_iter().for_each(|error| note(&chain(error)));
                let millis = pinged
                    .and_then(Result::ok)
                    .map(|time| time.as_millis() as u64);
                if self.json {
                    say_json(&health_json(&status, millis));
                } else {
                    say(&health_text(&status, millis));
                }
            }
            good
        };
        Ok(code(with_servers(configs, show).await?))
    }
}

fn health_json(status: &ServerStatus, ping: Option<u64>) -> Value {
    let error = match &status.state {
        ServerState::Away { error, .. } => Some(chain(error)),
        _ => None,
    };
    let state = status.state.to_string();
    json!({
        "name": status.name, "transport": status.transport, "state": state.split(',').next(), "error": error,
        "implementation": status.implementation, "protocol": status.protocol, "tools": status.tools,
        "tokens": status.tokens, "ping_ms": ping,
    })
}

fn health_text(status: &ServerStatus, ping: Option<u64>) -> String {
    let mut words = format!("{}  {}  {}", status.name, status.transport, status.state);
    if status.state.is_ready() {
        let who = status.implementation.as_deref().unwrap_or("nameless");
        let protocol = status.protocol.as_deref().unwrap_or("unknown");
        words.push_str(&format!(
            "  {} tools  {who}  protocol {protocol}",
            status.tools
        ));
    }
    if let Some(ping) = ping {
        words.push_str(&format!("  answers in {ping} ms"));
    }
    line(&words)
}

fn code(good: Option<bool>) -> ExitCode {
    match good {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => ExitCode::from(INTERRUPTED),
    }
}

/// One line, whatever names of servers hold.
fn line(text: &str) -> String {
    format!("{}\n", text.replace('\n', "\u{fffd}"))
}
