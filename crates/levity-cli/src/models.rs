//! Models, and stored results of checks of their servers.

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
use crate::state;
use crate::terminal::{chain, note, print_json, print_text, report_error};

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

/// Checks a model: 0 if it can use tools, 1 if it does not reply, 2 for an invalid call.
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
pub(crate) fn from_env() -> Result<Models, String> {
    let models = Models::from_env().map_err(|error| chain(&error))?;
    Ok(models.with_tool_modes(Arc::new(ToolModeFile)))
}

/// A file in the user's state folder with the tool modes of servers.
struct ToolModeFile;

#[derive(Serialize, Deserialize)]
struct StoredMode {
    mode: ToolMode,
    /// The time of the check, in seconds since 1970.
    at: u64,
}

impl ToolModeFile {
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

    fn write(servers: &BTreeMap<String, StoredMode>) -> Result<(), String> {
        let file = Self::file()?;
        state::create(file.parent().unwrap_or(&file))?;
        let text = serde_json::to_vec_pretty(servers).map_err(io::Error::from);
        let written = text.and_then(|text| Replace::new(&file).write(&text));
        written.map_err(|error| format!("cannot write `{}`: {error}", file.display()))
    }
}

fn now() -> u64 {
    SystemWorld.now().as_millis() / 1_000
}

impl ToolModes for ToolModeFile {
    fn get(&self, server: &str) -> Option<ToolMode> {
        let stored = Self::read().remove(server)?;
        (now().saturating_sub(stored.at) < MAX_AGE.as_secs()).then_some(stored.mode)
    }

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
