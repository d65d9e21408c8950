//! Models, and what is known of their servers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use clap::{Args, Subcommand};
use levity::core::World as _;
use levity::llm::layers::ToolMode;
use levity::llm::{CallsSeen, Models, SchemaSeen, ToolCheck, ToolModes, ToolsSeen, check_tools};
use levity::runtime::SystemWorld;
use levity_system::Replace;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::agent::warn;
use crate::state;
use crate::terminal::{chain, complain, note, say, say_json};

/// A server may have been updated since then.
const BELIEVED: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The most servers that are remembered.
const MOST: usize = 256;

#[derive(Args)]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Find out with three small requests what a model and its server do with tools, and remember
    /// it for a week.
    Check(Check),
}

#[derive(Args)]
struct Check {
    /// The model, such as `ollama:qwen3` or `compatible:qwen@http://127.0.0.1:8080/v1`.
    name: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Checks a model: 0 if it can use tools, 1 if it does not reply, 2 for a wrong call.
pub(crate) async fn models(args: ModelsArgs) -> ExitCode {
    let Command::Check(check) = args.command;
    let models = match from_env() {
        Ok(models) => models,
        Err(problem) => return complain(&problem, 2),
    };
    let (model, server) = match models.bare_model(&check.name) {
        Ok(found) => found,
        Err(error) => return complain(&chain(&error), 2),
    };
    warn(models.address_from_file(&check.name).as_deref());
    if !check.json {
        note(&format!(
            "asking {server} three times; a local model may take a minute"
        ));
    }
    match check_tools(&*model).await {
        Ok(found) => {
            Kept.set(&server, found.mode);
            match check.json {
                true => say_json(&json!({"server": server, "check": found})),
                false => say(&shown(&server, &found)),
            }
            ExitCode::SUCCESS
        }
        Err(error) => complain(&chain(&error), 1),
    }
}

fn shown(server: &str, check: &ToolCheck) -> String {
    let tools = match &check.tools {
        ToolsSeen::Yes => "yes".to_owned(),
        ToolsSeen::Dropped => {
            "no: the server takes them and does not show them to the model".to_owned()
        }
        ToolsSeen::Refused(error) => format!("no: the server refuses them ({error})"),
        _ => "not known: the server counts no tokens".to_owned(),
    };
    let calls = match check.calls {
        CallsSeen::Native => "as calls",
        CallsSeen::Text => "as text, which levity reads",
        _ => "no call came",
    };
    let schema = match &check.schema {
        SchemaSeen::Holds => "holds the reply".to_owned(),
        SchemaSeen::Refused(error) => format!("refused ({error})"),
        _ => "does not hold the reply".to_owned(),
    };
    let mode = match check.mode {
        ToolMode::Native => "native: tools go to the server",
        ToolMode::Guided => {
            "guided: tools go to the server, calls are read from the text, the prompt says when to \
                call"
        }
        ToolMode::Structured => {
            "structured: the prompt describes the tools, a JSON Schema holds the replies"
        }
        _ => "text: the prompt describes the tools, calls are read from the text",
    };
    format!(
        "{server}\n  tools seen      {tools}\n  calls arrive    {calls}\n  JSON Schema     \
            {schema}\n  \
         mode            {mode}\n  ({})\n",
        check.usage
    )
}

/// The models that the environment and the folder offer, with what earlier commands learned of
/// their servers.
pub(crate) fn from_env() -> Result<Models, String> {
    let models = Models::from_env().map_err(|error| chain(&error))?;
    Ok(models.with_tool_modes(Arc::new(Kept)))
}

/// A file in the user's state folder with the tool modes of servers.
struct Kept;

#[derive(Serialize, Deserialize)]
struct Learned {
    mode: ToolMode,
    /// When, in seconds since 1970.
    at: u64,
}

impl Kept {
    fn file() -> Result<PathBuf, String> {
        Ok(state::folder()?.join("tool-modes.json"))
    }

    /// Reads the file; empty if it cannot be read, since the modes can be learned again.
    fn read() -> BTreeMap<String, Learned> {
        let text = Self::file()
            .ok()
            .and_then(|file| fs::read_to_string(file).ok())
            .unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn write(servers: &BTreeMap<String, Learned>) -> Result<(), String> {
        let file = Self::file()?;
        state::make(file.parent().unwrap_or(&file))?;
        let text = serde_json::to_vec_pretty(servers).map_err(io::Error::from);
        let written = text.and_then(|text| Replace::new(&file).write(&text));
        written.map_err(|error| format!("`{}` cannot be written: {error}", file.display()))
    }
}

fn now() -> u64 {
    SystemWorld.now().as_millis() / 1_000
}

impl ToolModes for Kept {
    fn get(&self, server: &str) -> Option<ToolMode> {
        let learned = Self::read().remove(server)?;
        (now().saturating_sub(learned.at) < BELIEVED.as_secs()).then_some(learned.mode)
    }

    fn set(&self, server: &str, mode: ToolMode) {
        let mut servers = Self::read();
        servers.retain(|_, learned| now().saturating_sub(learned.at) < BELIEVED.as_secs());
        // What needs no change is not worth a line, unless it changes what was known.
        if mode == ToolMode::Native && !servers.contains_key(server) {
            return;
        }
        while servers.len() >= MOST && !servers.contains_key(server) {
            let oldest = servers
                .iter()
                .min_by_key(|(_, learned)| learned.at)
                .map(|(server, _)| server.clone());
            oldest.and_then(|oldest| servers.remove(&oldest));
        }
        servers.insert(server.to_owned(), Learned { mode, at: now() });
        if let Err(problem) = Self::write(&servers) {
            note(&problem);
        }
    }
}
