//! One call of one tool.

use std::process::ExitCode;

use clap::Args;
use levity::core::{Content, Progress, ToolCx, ToolOutput};
use levity::mcp::{Error, Servers};
use serde_json::{Value, json};

use super::{Done, From, INTERRUPTED, only, told, with_servers};
use crate::terminal::{chain, complain, note, read_stdin, say, say_json};

/// The largest arguments that are read.
const LARGEST: u64 = 16 << 20;

#[derive(Args)]
pub(super) struct Call {
    /// The server.
    server: String,
    /// The tool, by the name that the server gave it or the one that models know.
    tool: String,
    /// The arguments, as a JSON object; `-` for the standard input.
    args: Option<String>,
    #[command(flatten)]
    from: From,
    /// Print one JSON object: content, value, error.
    #[arg(long)]
    json: bool,
}

impl Call {
    pub(super) async fn call(self) -> Done {
        let args = self.arguments()?;
        let configs = only(&self.from.read()?, Some(&self.server))?;
        if !configs
            .iter()
            .any(|server| server.name() == self.server && server.is_enabled())
        {
            return Err(format!("server `{}` is disabled", self.server));
        }
        let call = async |servers: &Servers| {
            let server = servers.get(&self.server)?;
            if !told(&server.status()) {
                return None;
            }
            let mut cx = ToolCx::detached();
            cx.progress = Progress::new(|word| note(word.trim_end()));
            Some(server.call_with(&self.tool, args, &cx).await)
        };
        match with_servers(configs, call).await? {
            Some(Some(result)) => Ok(self.show(&result)),
            // What is wrong has been said.
            Some(None) => Ok(ExitCode::FAILURE),
            None => Ok(ExitCode::from(INTERRUPTED)),
        }
    }

    fn arguments(&self) -> Result<Value, String> {
        let text = match self.args.as_deref() {
            None => return Ok(json!({})),
            Some("-") => String::from_utf8(read_stdin(LARGEST)?)
                .map_err(|_| "standard input is not UTF-8".to_owned())?,
            Some(text) => text.to_owned(),
        };
        match serde_json::from_str(&text) {
            Ok(args @ Value::Object(_)) => Ok(args),
            Ok(_) => Err("the arguments are not a JSON object".to_owned()),
            Err(error) => Err(format!("the arguments are not valid JSON: {error}")),
        }
    }

    fn show(&self, result: &Result<ToolOutput, Error>) -> ExitCode {
        match result {
            Ok(output) if self.json => {
                say_json(&json!({"content": output.content, "value": output.value, "error": null}));
            }
            Ok(output) => print(output),
            Err(error) if self.json => {
                say_json(&json!({"content": [], "value": null, "error": chain(error)}));
                return ExitCode::FAILURE;
            }
            Err(error) => return complain(&chain(error), 1),
        }
        ExitCode::SUCCESS
    }
}

fn print(output: &ToolOutput) {
    let text = output.as_text();
    if !text.is_empty() {
        say(&text);
        if !text.ends_with('\n') {
            say("\n");
        }
    }
    for content in &output.content {
        if let Content::Media(media) = content {
            say(&format!("({}; `--json` has its bytes)\n", media.mime));
        }
    }
}
