//! The bridge as six tools for an agent on the other side.
//!
//! The tools translate between a model and the protocol: results are short texts with the next
//! step, and structured values for programs. Waiting is split into slices of five seconds, so that
//! the caller sees progress and a restarted host is found again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::World as _;
use levity_core::{Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec, Toolbox};
use levity_runtime::SystemWorld;
use serde_json::{Value, json};

use super::client::BridgeClient;
use super::error::{Error, ErrorKind, Result};

mod spec;

/// The tools by which another agent uses a host: `read_file`, `write_file`, `list_files`,
/// `dispatch_agent_task`, `task_status`, `wait_for_file`.
///
/// ```
/// use levity_core::Toolbox as _;
/// use levity_serve::Token;
/// use levity_serve::bridge::{BridgeClient, BridgeTools};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = BridgeClient::new("ws://127.0.0.1:8888", Token::generate()?)?;
/// assert_eq!(BridgeTools::new(client).into_tools().len(), 6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BridgeTools(BridgeClient);

impl BridgeTools {
    /// Creates the tools for a client's host.
    pub fn new(client: BridgeClient) -> Self {
        Self(client)
    }
}

impl Toolbox for BridgeTools {
    fn into_tools(self) -> Vec<Arc<dyn Tool>> {
        let tool = |kind: BridgeToolKind| {
            Arc::new(BridgeTool {
                spec: kind.spec(),
                kind,
                client: self.0.clone(),
            }) as Arc<dyn Tool>
        };
        [
            BridgeToolKind::Read,
            BridgeToolKind::Write,
            BridgeToolKind::List,
            BridgeToolKind::Dispatch,
            BridgeToolKind::Status,
            BridgeToolKind::Wait,
        ]
        .map(tool)
        .to_vec()
    }
}

/// One of the six tools, with the client that it uses.
struct BridgeTool {
    spec: ToolSpec,
    kind: BridgeToolKind,
    client: BridgeClient,
}

/// The method of the bridge behind each tool.
#[derive(Clone, Copy)]
enum BridgeToolKind {
    Read,
    Write,
    List,
    Dispatch,
    Status,
    Wait,
}

/// The default timeout of `wait_for_file` in seconds, because many clients allow a call one minute.
const DEFAULT_WAIT: f64 = 45.0;
/// The maximum timeout in seconds.
const MAX_WAIT: f64 = 3600.0;
/// The interval of progress reports in seconds.
const SLICE: f64 = 5.0;

#[async_trait]
impl Tool for BridgeTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> std::result::Result<ToolOutput, ToolError> {
        let client = &self.client;
        let done = match self.kind {
            BridgeToolKind::Read => client
                .request("fs/read", args)
                .await
                .map(|read| read_output(&read)),
            BridgeToolKind::Write => client
                .request("fs/write", args)
                .await
                .map(|written| output_with(written_text(&written), written)),
            BridgeToolKind::List => client
                .request("fs/list", args)
                .await
                .map(|listed| output_with(list_text(&listed), listed)),
            BridgeToolKind::Dispatch => dispatch(client, &args).await,
            BridgeToolKind::Status => client
                .request("agent/status", args)
                .await
                .map(|status| output_with(status_text(&status), status)),
            BridgeToolKind::Wait => wait(client, &args, cx).await,
        };
        done.map_err(|error| tool_error(&error))
    }
}

/// Returns the text that was read; if it is not the whole file, with the range of lines.
fn read_output(read: &Value) -> ToolOutput {
    let mut text = str_value(&read["content"]).to_owned();
    let line = |name: &str| read[name].as_u64();
    if read["complete"] == json!(false)
        && let (Some(first), Some(last), Some(total)) =
            (line("first_line"), line("last_line"), line("total_lines"))
    {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&match last < total {
            true => {
                let next = last + 1;
                format!("[lines {first}-{last} of {total}; continue with start_line {next}]")
            }
            false => format!("[lines {first}-{last} of {total}]"),
        });
    }
    ToolOutput::text(text)
}

fn output_with(message: String, value: Value) -> ToolOutput {
    let mut output = ToolOutput::text(message);
    output.value = Some(value);
    output
}

fn written_text(written: &Value) -> String {
    let action = if written["created"] == json!(true) {
        "created"
    } else {
        "changed"
    };
    format!(
        "`{}` was {action} ({} bytes).",
        str_value(&written["path"]),
        written["bytes"]
    )
}

/// Returns one line per entry: folders end with `/`, files have their size in parentheses.
fn list_text(listed: &Value) -> String {
    let entries = listed["entries"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let line = |entry: &Value| match str_value(&entry["kind"]) {
        "folder" => format!("{}/\n", str_value(&entry["path"])),
        "file" => format!("{} ({})\n", str_value(&entry["path"]), entry["size"]),
        kind => format!("{} ({kind})\n", str_value(&entry["path"])),
    };
    let mut text: String = entries.iter().map(line).collect();
    if entries.is_empty() {
        text.push_str("[nothing to list]\n");
    }
    if listed["complete"] == json!(false) {
        text.push_str("[more entries omitted; list a folder, or use `pattern`]\n");
    }
    text
}

fn str_value(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Adds a glob for `wait_for_file` that matches both signal files, because models forget the file
/// of a failure.
async fn dispatch(client: &BridgeClient, args: &Value) -> Result<ToolOutput> {
    let prompt = args.get("prompt").and_then(Value::as_str);
    let prompt = prompt.ok_or_else(|| Error::invalid("`prompt` is missing; describe the task"))?;
    let mut reply = client
        .dispatch(prompt, args.get("done").and_then(Value::as_str))
        .await?;
    let task = str_value(&reply["task"]).to_owned();
    let (done, failed) = (
        str_value(&reply["signal"]["done"]).to_owned(),
        str_value(&reply["signal"]["failed"]).to_owned(),
    );
    let message = match done.is_empty() {
        true => {
            format!(
                "Task {task} was dispatched. Check it with `task_status`; the workspace is \
                    read-only."
            )
        }
        false => {
            let glob = format!("{{{done},{failed}}}");
            let message = format!(
                "Task {task} was dispatched; it returns nothing here. When it is done, the file \
                    `{done}` appears in the workspace, and `{failed}` if it fails. Wait for either \
                    with `wait_for_file` and the glob `{glob}`, then read the files that it has \
                    created."
            );
            reply["glob"] = glob.into();
            message
        }
    };
    Ok(output_with(message, reply))
}

fn status_text(status: &Value) -> String {
    let task = str_value(&status["task"]);
    let mut message = format!("Task {task}: {}", str_value(&status["state"]));
    for (name, value) in [
        ("status", &status["status"]),
        ("signal", &status["signal"]),
        ("error", &status["error"]),
    ] {
        if let Some(text) = value.as_str() {
            message.push_str(&format!(", {name}: {text}"));
        }
    }
    if let Some(answer) = status["answer"]
        .as_str()
        .filter(|answer| !answer.is_empty())
    {
        message.push_str(&format!("\n\n{answer}"));
    }
    if let Some(asks) = status.get("asks") {
        message.push_str(&format!(
            "\nIt waits for a decision of a person at the host: {asks}"
        ));
    }
    message
}

/// Waits in slices, so that the caller gets progress reports, and a restarted host is found again.
async fn wait(client: &BridgeClient, args: &Value, cx: &ToolCx) -> Result<ToolOutput> {
    let (path, glob) = (
        args.get("path").and_then(Value::as_str),
        args.get("glob").and_then(Value::as_str),
    );
    let (name, what) = match (path, glob) {
        (Some(path), None) => ("path", path),
        (None, Some(glob)) => ("glob", glob),
        _ => return Err(Error::invalid("pass either `path` or `glob`")),
    };
    let seconds = args
        .get("timeout")
        .and_then(Value::as_f64)
        .unwrap_or(DEFAULT_WAIT)
        .clamp(0.0, MAX_WAIT);
    let start = SystemWorld.now();
    loop {
        let waited = SystemWorld.now().since(start).as_secs_f64();
        let remaining = (seconds - waited).max(0.0);
        let result = client
            .request(
                "fs/wait",
                json!({name: what, "timeout": remaining.min(SLICE)}),
            )
            .await;
        match result {
            Ok(found) if found["timed_out"] == json!(false) => return Ok(found_output(found)),
            Ok(_) => {}
            Err(error) if error.is_retryable() && remaining > 0.0 => {
                SystemWorld.sleep(Duration::from_millis(250)).await;
            }
            Err(error) => return Err(error),
        }
        if remaining <= SLICE && SystemWorld.now().since(start).as_secs_f64() >= seconds {
            let message = format!(
                "`{what}` does not exist after {seconds} seconds; call again to keep waiting, or \
                    check `task_status`"
            );
            return Ok(output_with(
                message,
                json!({"found": [], "timed_out": true}),
            ));
        }
        cx.progress.report(format!(
            "waiting for `{what}`: {waited:.0} of {seconds:.0} seconds"
        ));
    }
}

fn found_output(found: Value) -> ToolOutput {
    let paths: Vec<_> = found["found"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    output_with(
        format!(
            "Found {}.",
            paths
                .iter()
                .map(|path| format!("`{path}`"))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        found,
    )
}

/// Converts an error; its message says what to do.
fn tool_error(error: &Error) -> ToolError {
    let kind = match error.kind() {
        ErrorKind::Invalid | ErrorKind::Request => ToolErrorKind::InvalidArgs,
        ErrorKind::Outside | ErrorKind::Denied | ErrorKind::Unauthorized | ErrorKind::ReadOnly => {
            ToolErrorKind::Denied
        }
        ErrorKind::TimedOut => ToolErrorKind::Timeout,
        ErrorKind::Cancelled => ToolErrorKind::Cancelled,
        _ => ToolErrorKind::Failed,
    };
    ToolError::new(kind, error.to_string())
}
