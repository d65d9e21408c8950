//! Models, and stored results of checks of their servers.
//!
//! Servers of open models differ in their handling of tools: some drop them, some return calls as
//! text. `levity models check` finds out with three requests and stores the resulting mode; all
//! other commands read it when they open a model of that server.
//!
//! The file `tool-modes.json` in the state folder is a cache. Losing it is harmless, so reading
//! never fails, and a failed write is only a note. Entries expire after a week, and the oldest is
//! dropped beyond 256 servers. Two processes that write at once may lose one of the entries, never
//! the file, because it is replaced as a whole.
//!
//! Exit codes of the check: 0 if the model replied, 1 if not, 2 for an unknown model or a missing
//! key.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use clap::{Args, Subcommand};
use levity::core::World as _;
use levity::llm::layers::ToolMode;
use levity::llm::{
    CallFormat, Models, SchemaSupport, ToolCheck, ToolModes, ToolVisibility, check_tools,
};
use levity::runtime::SystemWorld;
use levity_system::Replace;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::agent::warn;
use crate::terminal::{chain, note, print_json, print_text, report_error};
use crate::{settings, state};

/// The age at which a result expires, because the server may have been updated.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The maximum number of servers in the file.
const MAX_SERVERS: usize = 256;

#[derive(Args)]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check with three small requests how a model and its server handle tools, and remember the
    /// result for a week.
    Check(Check),
}

#[derive(Args)]
struct Check {
    /// Model to check, such as `ollama:qwen3` or `compatible:qwen@http://127.0.0.1:8080/v1`.
    name: String,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Checks a model: 0 if it replies, 1 if it does not, 2 for an invalid call.
///
/// The model is opened without layers and stored modes, so that the check sees the server itself.
pub(crate) async fn models(args: ModelsArgs) -> ExitCode {
    let Command::Check(check) = args.command;
    let models = match from_env() {
        Ok(models) => models,
        Err(problem) => return report_error(&problem, 2),
    };
    let (model, server) = match models.bare_model(&check.name) {
        Ok(found) => found,
        Err(error) => return report_error(&chain(&error), 2),
    };
    warn(models.address_from_file(&check.name).as_deref());
    if !check.json {
        note(&format!(
            "sending three requests to {server}; a local model may take a minute"
        ));
    }
    match check_tools(&*model).await {
        Ok(found) => {
            ToolModeFile.set(&server, found.mode);
            match check.json {
                true => print_json(&json!({"server": server, "check": found})),
                false => print_text(&check_text(&server, &found)),
            }
            ExitCode::SUCCESS
        }
        Err(error) => report_error(&chain(&error), 1),
    }
}

/// Formats one line for each property, for people; programs use `--json`.
fn check_text(server: &str, check: &ToolCheck) -> String {
    let tools = match &check.tools {
        ToolVisibility::Yes => "yes".to_owned(),
        ToolVisibility::Dropped => {
            "no: the server accepts them but does not show them to the model".to_owned()
        }
        ToolVisibility::Refused(error) => format!("no: the server rejects them ({error})"),
        _ => "unknown: the server reports no token counts".to_owned(),
    };
    let calls = match check.calls {
        CallFormat::Native => "as calls",
        CallFormat::Text => "as text, which levity parses",
        _ => "no call arrived",
    };
    let schema = match &check.schema {
        SchemaSupport::Enforced => "enforced".to_owned(),
        SchemaSupport::Refused(error) => format!("rejected ({error})"),
        _ => "not enforced".to_owned(),
    };
    let mode = match check.mode {
        ToolMode::Native => "native: levity sends tools to the server",
        ToolMode::Guided => {
            "guided: levity sends tools to the server and parses calls from the text, and the \
                prompt explains when to call"
        }
        ToolMode::Structured => {
            "structured: the prompt describes the tools, and a JSON Schema constrains the replies"
        }
        _ => "text: the prompt describes the tools, and levity parses calls from the text",
    };
    format!(
        "{server}\n  tools seen      {tools}\n  calls arrive    {calls}\n  JSON Schema     \
            {schema}\n  \
         mode            {mode}\n  ({})\n",
        check.usage
    )
}

/// Returns the models that the environment and the folder offer, with the tool modes that earlier
/// commands stored for their servers.
///
/// All commands that open models use this function, or a stored mode would have no effect. Fails if
/// a file of models is invalid.
pub(crate) fn from_env() -> Result<Models, String> {
    let models = Models::from_env().map_err(|error| chain(&error))?;
    let models = match settings::models() {
        Some(list) => models.with_list(list.clone()),
        None => models,
    };
    Ok(models.with_tool_modes(Arc::new(ToolModeFile)))
}

/// A file in the user's state folder with the tool modes of servers.
struct ToolModeFile;

/// The key in the file is the server and model as `bare_model` names them.
#[derive(Serialize, Deserialize)]
struct StoredMode {
    mode: ToolMode,
    /// The time of the check, in seconds since 1970.
    at: u64,
}

impl ToolModeFile {
    /// Returns the path of the file in the state folder.
    fn file() -> Result<PathBuf, String> {
        Ok(state::folder()?.join("tool-modes.json"))
    }

    /// Reads the file. Returns an empty map if that fails, because the modes can be checked again.
    fn read() -> BTreeMap<String, StoredMode> {
        let text = Self::file()
            .ok()
            .and_then(|file| fs::read_to_string(file).ok())
            .unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Creates the state folder if necessary, and replaces the file atomically.
    fn write(servers: &BTreeMap<String, StoredMode>) -> Result<(), String> {
        let file = Self::file()?;
        state::create(file.parent().unwrap_or(&file))?;
        let text = serde_json::to_vec_pretty(servers).map_err(io::Error::from);
        let written = text.and_then(|text| Replace::new(&file).write(&text));
        written.map_err(|error| format!("cannot write `{}`: {error}", file.display()))
    }
}

/// Seconds since 1970, from the clock of the system.
fn now() -> u64 {
    SystemWorld.now().as_millis() / 1_000
}

impl ToolModes for ToolModeFile {
    /// Reads the file at each call; models are opened rarely, and another process may have checked
    /// a server in between.
    fn get(&self, server: &str) -> Option<ToolMode> {
        let stored = Self::read().remove(server)?;
        (now().saturating_sub(stored.at) < MAX_AGE.as_secs()).then_some(stored.mode)
    }

    /// Expired entries are removed at each write, so the file does not grow.
    fn set(&self, server: &str, mode: ToolMode) {
        let mut servers = Self::read();
        servers.retain(|_, stored| now().saturating_sub(stored.at) < MAX_AGE.as_secs());
        // The native mode is the default, so it is stored only to replace another one.
        if mode == ToolMode::Native && !servers.contains_key(server) {
            return;
        }
        while servers.len() >= MAX_SERVERS && !servers.contains_key(server) {
            let oldest = servers
                .iter()
                .min_by_key(|(_, stored)| stored.at)
                .map(|(server, _)| server.clone());
            oldest.and_then(|oldest| servers.remove(&oldest));
        }
        servers.insert(server.to_owned(), StoredMode { mode, at: now() });
        if let Err(problem) = Self::write(&servers) {
            note(&problem);
        }
    }
}
