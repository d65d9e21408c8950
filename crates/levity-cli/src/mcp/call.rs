//! A single call of a tool.
//!
//! `levity mcp call SERVER TOOL '{"a": 1}'` starts one server, calls one tool and stops the server,
//! for tests of servers and for scripts. No model and no policy is involved: the user calls the
//! tool directly.
//!
//! The result goes to standard output as text, or as one JSON object with `--json`; progress of the
//! tool goes to standard error. Exit codes: 0, 1 if the server or the tool fails, 2 for a wrong
//! call, 130 after Ctrl-C.

use std::process::ExitCode;

use clap::Args;
use levity::core::{Content, Progress, ToolCx, ToolOutput};
use levity::mcp::{Error, Servers};
use serde_json::{Value, json};

use super::{CommandResult, ConfigArg, INTERRUPTED, report_status, select_servers, with_servers};
use crate::terminal::{chain, note, print_json, print_text, read_stdin, report_error};

/// The maximum size of the arguments, in bytes.
///
/// 16 MiB, enough for a file in base64 as an argument.
const MAX_ARGS: u64 = 16 << 20;

#[derive(Args)]
pub(super) struct Call {
    /// Name of the server.
    server: String,
    /// Tool, by its name on the server or its name for models.
    tool: String,
    /// Arguments, as a JSON object; `-` for the standard input.
    args: Option<String>,
    #[command(flatten)]
    source: ConfigArg,
    /// Print one JSON object: content, value, error.
    #[arg(long)]
    json: bool,
}

impl Call {
    /// The arguments are parsed before the server starts, so a typing error costs no time.
    pub(super) async fn call(self) -> CommandResult {
        let args = self.arguments()?;
        let configs = select_servers(&self.source.read()?, Some(&self.server))?;
        if !configs
            .iter()
            .any(|server| server.name() == self.server && server.is_enabled())
        {
            return Err(format!(
                "server `{}` is disabled; enable it in the config",
                self.server
            ));
        }
        let call = async |servers: &Servers| {
            let server = servers.get(&self.server)?;
            if !report_status(&server.status()) {
                return None;
            }
            let mut cx = ToolCx::detached();
            cx.progress = Progress::new(|text| note(text.trim_end()));
            Some(server.call_with(&self.tool, args, &cx).await)
        };
        match with_servers(configs, call).await? {
            Some(Some(result)) => Ok(self.show(&result)),
            // The error is already printed.
            Some(None) => Ok(ExitCode::FAILURE),
            None => Ok(ExitCode::from(INTERRUPTED)),
        }
    }

    /// Missing arguments are an empty object. Anything else than an object is refused, because MCP
    /// accepts nothing else.
    fn arguments(&self) -> Result<Value, String> {
        let text = match self.args.as_deref() {
            None => return Ok(json!({})),
            Some("-") => String::from_utf8(read_stdin(MAX_ARGS)?)
                .map_err(|_| "standard input is not UTF-8".to_owned())?,
            Some(text) => text.to_owned(),
        };
        match serde_json::from_str(&text) {
            Ok(args @ Value::Object(_)) => Ok(args),
            Ok(_) => Err("the arguments are not a JSON object; write one, such as `{}`".to_owned()),
            Err(error) => Err(format!(
                "the arguments are not valid JSON: {error}; write an object, such as `{{}}`"
            )),
        }
    }

    /// With `--json`, an error is part of the object on standard output and the exit code is 1, so
    /// a program reads one place in both cases.
    fn show(&self, result: &Result<ToolOutput, Error>) -> ExitCode {
        match result {
            Ok(output) if self.json => {
                print_json(
                    &json!({"content": output.content, "value": output.value, "error": null}),
                );
            }
            Ok(output) => print(output),
            Err(error) if self.json => {
                print_json(&json!({"content": [], "value": null, "error": chain(error)}));
                return ExitCode::FAILURE;
            }
            Err(error) => return report_error(&chain(error), 1),
        }
        ExitCode::SUCCESS
    }
}

/// Media are named and not printed, since their bytes would harm a terminal.
fn print(output: &ToolOutput) {
    let text = output.as_text();
    if !text.is_empty() {
        print_text(&text);
        if !text.ends_with('\n') {
            print_text("\n");
        }
    }
    for content in &output.content {
        if let Content::Media(media) = content {
            print_text(&format!("({}; `--json` prints its bytes)\n", media.mime));
        }
    }
}
