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

/// The tools by which another agent works with a host: `read_file`, `write_file`, `list_files`,
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
    /// The tools for this host.
    pub fn new(client: BridgeClient) -> Self {
        Self(client)
    }
}

impl Toolbox for BridgeTools {
    fn into_tools(self) -> Vec<Arc<dyn Tool>> {
        let tool = |what: What| {
            Arc::new(BridgeTool {
                spec: what.spec(),
                what,
                client: self.0.clone(),
            }) as Arc<dyn Tool>
        };
        [
            What::Read,
            What::Write,
            What::List,
            What::Dispatch,
            What::Status,
            What::Wait,
        ]
        .map(tool)
        .to_vec()
    }
}

struct BridgeTool {
    spec: ToolSpec,
    what: What,
    client: BridgeClient,
}

#[derive(Clone, Copy)]
enum What {
    Read,
    Write,
    List,
    Dispatch,
    Status,
    Wait,
}

/// How long `wait_for_file` waits unless told otherwise, in seconds: many clients give a call a
/// minute.
const DEFAULT_WAIT: f64 = 45.0;
/// How long it waits at most.
const MAX_WAIT: f64 = 3600.0;
/// How often it says that it still waits.
const SLICE: f64 = 5.0;

#[async_trait]
impl Tool for BridgeTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> std::result::Result<ToolOutput, ToolError> {
        let client = &self.client;
        let done = match self.what {
            What::Read => client
                .request("fs/read", args)
                .await
                .map(|read| text(&read)),
            What::Write => client
                .request("fs/write", args)
                .await
                .map(|written| said(wrote(&written), written)),
            What::List => client
                .request("fs/list", args)
                .await
                .map(|listed| said(lines(&listed), listed)),
            What::Dispatch => dispatch(client, &args).await,
            What::Status => client
                .request("agent/status", args)
                .await
                .map(|status| said(status_words(&status), status)),
            What::Wait => wait(client, &args, cx).await,
        };
        done.map_err(|error| refused(&error))
    }
}

/// What was read; where that is not all of the file, which part it is.
fn text(read: &Value) -> ToolOutput {
    let mut text = word(&read["content"]).to_owned();
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
                format!("[lines {first}-{last} of {total}; read on with start_line {next}]")
            }
            false => format!("[lines {first}-{last} of {total}]"),
        });
    }
    ToolOutput::text(text)
}

fn said(words: String, value: Value) -> ToolOutput {
    let mut output = ToolOutput::text(words);
    output.value = Some(value);
    output
}

fn wrote(written: &Value) -> String {
    let how = if written["created"] == json!(true) {
        "made"
    } else {
        "changed"
    };
    format!(
        "`{}` was {how} ({} bytes).",
        word(&written["path"]),
        written["bytes"]
    )
}

fn lines(listed: &Value) -> String {
    let entries = listed["entries"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let line = |entry: &Value| match word(&entry["kind"]) {
        "folder" => format!("{}/\n", word(&entry["path"])),
        "file" => format!("{} ({})\n", word(&entry["path"]), entry["size"]),
        kind => format!("{} ({kind})\n", word(&entry["path"])),
    };
    let mut text: String = entries.iter().map(line).collect();
    if entries.is_empty() {
        text.push_str("[nothing to list]\n");
    }
    if listed["complete"] == json!(false) {
        text.push_str("[there are more; list a folder, or use `pattern`]\n");
    }
    text
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

async fn dispatch(client: &BridgeClient, args: &Value) -> Result<ToolOutput> {
    let prompt = args.get("prompt").and_then(Value::as_str);
    let prompt =
        prompt.ok_or_else(|| Error::invalid("`prompt` is missing; say what is to be done"))?;
    let mut begun = client
        .dispatch(prompt, args.get("done").and_then(Value::as_str))
        .await?;
    let task = word(&begun["task"]).to_owned();
    let (done, failed) = (
        word(&begun["signal"]["done"]).to_owned(),
        word(&begun["signal"]["failed"]).to_owned(),
    );
    let words = match done.is_empty() {
        true => {
            format!(
                "Task {task} was dispatched. Ask for it by `task_status`; the workspace is \
                    read-only."
            )
        }
        false => {
            let glob = format!("{{{done},{failed}}}");
            let words = format!(
                "Task {task} was dispatched; nothing comes back from it here. When it is done, the \
                    file `{done}` appears in the workspace, and `{failed}` if it fails. Wait for \
                    either by `wait_for_file` with the glob `{glob}`, then read the files that it \
                    has made."
            );
            begun["glob"] = glob.into();
            words
        }
    };
    Ok(said(words, begun))
}

fn status_words(status: &Value) -> String {
    let task = word(&status["task"]);
    let mut words = format!("Task {task}: {}", word(&status["state"]));
    for (name, value) in [
        ("status", &status["status"]),
        ("signal", &status["signal"]),
        ("error", &status["error"]),
    ] {
        if let Some(text) = value.as_str() {
            words.push_str(&format!(", {name}: {text}"));
        }
    }
    if let Some(answer) = status["answer"]
        .as_str()
        .filter(|answer| !answer.is_empty())
    {
        words.push_str(&format!("\n\n{answer}"));
    }
    if let Some(asks) = status.get("asks") {
        words.push_str(&format!("\nIt waits for a person at the host: {asks}"));
    }
    words
}

/// Waits in slices, so that whoever called hears that it still waits, and a host that is started
/// anew is found again.
async fn wait(client: &BridgeClient, args: &Value, cx: &ToolCx) -> Result<ToolOutput> {
    let (path, glob) = (
        args.get("path").and_then(Value::as_str),
        args.get("glob").and_then(Value::as_str),
    );
    let (name, what) = match (path, glob) {
        (Some(path), None) => ("path", path),
        (None, Some(glob)) => ("glob", glob),
        _ => return Err(Error::invalid("give either `path` or `glob`")),
    };
    let seconds = args
        .get("timeout")
        .and_then(Value::as_f64)
        .unwrap_or(DEFAULT_WAIT)
        .clamp(0.0, MAX_WAIT);
    let began = SystemWorld.now();
    loop {
        let waited = SystemWorld.now().since(began).as_secs_f64();
        let left = (seconds - waited).max(0.0);
        let asked = client
            .request("fs/wait", json!({name: what, "timeout": left.min(SLICE)}))
            .await;
        match asked {
            Ok(found) if found["timed_out"] == json!(false) => return Ok(found_words(found)),
            Ok(_) => {}
            Err(error) if error.is_retryable() && left > 0.0 => {
                SystemWorld.sleep(Duration::from_millis(250)).await;
            }
            Err(error) => return Err(error),
        }
        if left <= SLICE && SystemWorld.now().since(began).as_secs_f64() >= seconds {
            let words = format!(
                "`{what}` is not there after {seconds} seconds; call again to wait on, or look at \
                    `task_status`"
            );
            return Ok(said(words, json!({"found": [], "timed_out": true})));
        }
        cx.progress.report(format!(
            "waiting for `{what}`: {waited:.0} of {seconds:.0} seconds"
        ));
    }
}

fn found_words(found: Value) -> ToolOutput {
    let paths: Vec<_> = found["found"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    said(
        format!(
            "There is {}.",
            paths
                .iter()
                .map(|path| format!("`{path}`"))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        found,
    )
}

/// What whoever called is told: each refusal has words of its own that say what to do.
fn refused(error: &Error) -> ToolError {
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
