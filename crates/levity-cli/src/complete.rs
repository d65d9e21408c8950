//! The command that sends one request to one model.
//!
//! `levity complete` is the thinnest layer over a provider: one request, one reply, no agent, no
//! tools that are executed, no retries. It serves to test a model or an address, and lets other
//! programs use levity's providers through JSON.
//!
//! A request is a prompt, or a file with levity's own `Request` as JSON. Unknown fields are refused
//! instead of ignored, because a misspelt option would silently change nothing. With `--json`, one
//! object is printed in each case, with `error` set and exit code 1 after a failure; a partial
//! reply before the failure is part of it.
//!
//! Exit codes: 0 for a reply, 1 for none, 2 for a wrong call.

use std::fs;
use std::io::Read as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use levity::core::text::{bare_url, is_blank, json_problem, split_model_address};
use levity::core::{Delta, Finish, Fold, Message, Model, ModelError, Request, Response};
use levity::llm::ModelExt as _;
use serde_json::{Map, Value, json};

use crate::terminal::{chain, note, print_json, print_text, report_error};

/// The maximum size of a request, in bytes.
const MAX_REQUEST: u64 = 64 << 20;

/// The arguments of `levity complete`.
#[derive(Args)]
pub(crate) struct Complete {
    /// Prompt for the model, in words.
    #[arg(conflicts_with = "request", required_unless_present = "request")]
    prompt: Option<String>,
    /// Model to use, as `provider:model`, `provider:model@URL` or a profile; by default, the model
    /// that the environment offers.
    #[arg(long, value_name = "SPEC")]
    model: Option<String>,
    /// Address of the model's server.
    #[arg(long, value_name = "URL", requires = "model")]
    base_url: Option<String>,
    /// Describe the tools of the request in the prompt, and read the calls from the text of the
    /// reply; for models and servers without tool calls of their own.
    #[arg(long)]
    text_tools: bool,
    /// Stream the reply, and print it as it arrives.
    #[arg(long)]
    stream: bool,
    /// Print one JSON object: text, thinking, calls, token counts, error.
    #[arg(long)]
    json: bool,
    /// File with the request, as JSON or as a bare prompt; `-` for the standard input.
    #[arg(long, value_name = "FILE")]
    request: Option<String>,
}

/// Sends a request and returns the exit code: 0 for a reply, 1 for none, 2 for an invalid call.
pub(crate) async fn complete(args: Complete) -> ExitCode {
    let (model, request) = match args
        .wrapped_model()
        .and_then(|model| Ok((model, args.request()?)))
    {
        Ok(both) => both,
        Err(problem) => return report_error(&problem, 2),
    };
    let print_deltas = args.stream && !args.json;
    let (reply, error) = ask(&*model, request, print_deltas).await;
    if args.json {
        print_json(&reply_json(&reply, error.as_ref(), &*model));
    } else {
        print(&reply, print_deltas);
    }
    match error {
        None => ExitCode::SUCCESS,
        Some(_) if args.json => ExitCode::FAILURE,
        Some(error) => report_error(&chain(&error), 1),
    }
}

impl Complete {
    /// Returns the model, with the layer of `--text-tools`.
    fn wrapped_model(&self) -> Result<Arc<dyn Model>, String> {
        let model = self.model()?;
        Ok(match self.text_tools {
            true => Arc::new(model.text_tools()),
            false => model,
        })
    }

    /// Without `--stream` the provider is asked for the whole reply at once, since some servers
    /// support only one of the two ways. Addresses in messages are printed without credentials.
    fn model(&self) -> Result<Arc<dyn Model>, String> {
        let models = crate::models::from_env()?;
        let models = if self.stream {
            models
        } else {
            models.without_streaming()
        };
        let Some(name) = &self.model else {
            let chosen = models.choose().map_err(|error| chain(&error))?;
            note(&chosen.to_string());
            return Ok(chosen.into_model());
        };
        let name = match &self.base_url {
            Some(_) if split_model_address(name).is_some() => {
                let (name, _) = split_model_address(name).unwrap_or_default();
                return Err(format!(
                    "`{name}` already has an address; remove it or `--base-url`"
                ));
            }
            Some(url) if !url.contains("://") => {
                let url = bare_url(url);
                return Err(format!(
                    "`{url}` is not a valid address; start it with `http://` or `https://`"
                ));
            }
            Some(url) => format!("{name}@{url}"),
            None => name.clone(),
        };
        let model = models.model(&name).map_err(|error| chain(&error))?;
        crate::agent::warn_of_settings(&name);
        crate::agent::warn(models.address_from_file(&name).as_deref());
        Ok(model)
    }

    /// A file that does not begin with `{` is a prompt as it stands, so a text file needs no
    /// quoting.
    fn request(&self) -> Result<Request, String> {
        let Some(file) = &self.request else {
            return prompt(self.prompt.as_deref().unwrap_or_default());
        };
        let text = read(file).map_err(|error| format!("cannot read `{file}`: {error}"))?;
        // Some editors write a byte order mark at the start of a file.
        let text = text.trim_start_matches('\u{feff}');
        if !text.trim_start().starts_with('{') {
            return prompt(text.trim());
        }
        parse(text).map_err(|problem| format!("`{file}` is not a valid request: {problem}"))
    }
}

/// Parses a request, and rejects fields that would be ignored.
///
/// The text is parsed twice: as a map to find unknown names, then as a request. A request without a
/// message is refused, as providers would refuse it with a less clear error.
fn parse(text: &str) -> Result<Request, String> {
    /// The fields of a request; others would be ignored by the parser.
    const FIELDS: [&str; 6] = [
        "system",
        "history",
        "tools",
        "tool_choice",
        "output",
        "options",
    ];
    /// The fields of `options`; settings of one provider go to `extra`.
    const OPTIONS: [&str; 7] = [
        "temperature",
        "top_p",
        "max_tokens",
        "stop",
        "thinking",
        "seed",
        "extra",
    ];
    let fields: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| json_problem(&error))?;
    check_names(&fields, "field", &FIELDS)?;
    if let Some(options) = fields.get("options").and_then(Value::as_object) {
        check_names(options, "option", &OPTIONS)?;
    }
    let request: Request = serde_json::from_str(text).map_err(|error| json_problem(&error))?;
    if request.history.is_empty() {
        return Err("its `history` has no message; add one".to_owned());
    }
    Ok(request)
}

/// The error lists all valid names, as in "unknown option `temprature`; use one of temperature,
/// top_p, ..".
fn check_names(map: &Map<String, Value>, kind: &str, names: &[&str]) -> Result<(), String> {
    match map.keys().find(|name| !names.contains(&name.as_str())) {
        Some(unknown) => Err(format!(
            "unknown {kind} `{unknown}`; use one of {}",
            names.join(", ")
        )),
        None => Ok(()),
    }
}

/// Makes a request of one prompt, which must have visible text.
fn prompt(text: &str) -> Result<Request, String> {
    if is_blank(text) {
        return Err("the prompt is empty; write a prompt".to_owned());
    }
    Ok(Request::new().with_message(Message::user(text)))
}

/// Reads at most 64 MiB, which must be UTF-8.
fn read(file: &str) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if file == "-" {
        std::io::stdin()
            .take(MAX_REQUEST + 1)
            .read_to_end(&mut bytes)?;
    } else {
        fs::File::open(file)?
            .take(MAX_REQUEST + 1)
            .read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > MAX_REQUEST {
        return Err(std::io::Error::other(format!(
            "it has more than {} MiB; use a smaller file",
            MAX_REQUEST >> 20
        )));
    }
    String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is not UTF-8; save it as UTF-8"))
}

/// Returns the reply up to the first error, and that error.
///
/// Folding the stream here, and not by the model, keeps the part of a reply that arrived before an
/// error.
async fn ask(
    model: &dyn Model,
    request: Request,
    print_deltas: bool,
) -> (Response, Option<ModelError>) {
    let mut fold = Fold::new();
    let mut deltas = match model.stream(request).await {
        Ok(deltas) => deltas,
        Err(error) => return (fold.finish(), Some(error)),
    };
    while let Some(delta) = deltas.next().await {
        let pushed = delta.and_then(|delta| {
            if let (Delta::Text(text), true) = (&delta, print_deltas) {
                print_text(text);
            }
            fold.push(delta)
        });
        if let Err(error) = pushed {
            return (fold.finish(), Some(error));
        }
    }
    (fold.finish(), None)
}

/// Prints the reply for people; if its text is already printed, only the rest.
///
/// Calls are printed after the text and not executed. Arguments that are not valid JSON appear as
/// the model wrote them.
fn print(reply: &Response, is_printed: bool) {
    let text = reply.message.text();
    if !text.is_empty() {
        print_text(&if is_printed {
            "\n".to_owned()
        } else {
            format!("{text}\n")
        });
    }
    for call in reply.message.calls() {
        print_text(&format!(
            "calls {} {}\n",
            call.name,
            call.raw.clone().unwrap_or_else(|| call.args.to_string())
        ));
    }
}

/// The field names are an interface for programs. A cost that the provider does not state is
/// computed from the price, unless the counts are missing or estimated.
fn reply_json(reply: &Response, error: Option<&ModelError>, model: &dyn Model) -> Value {
    let call = |call: &levity::core::ToolCall| {
        let mut value = json!({"id": call.id, "name": call.name, "args": call.args});
        if let Some(raw) = &call.raw {
            value["raw"] = raw.as_str().into();
        }
        value
    };
    let calls: Vec<Value> = reply.message.calls().map(call).collect();
    let finish = match &reply.finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::ContentFilter => "content_filter",
        Finish::Paused => "pause_turn",
        Finish::Other(word) => word,
        _ => "other",
    };
    let usage = &reply.usage;
    let cost = usage.cost.or_else(|| {
        // Usage without counts has no price, and estimated usage has no exact price.
        usage.input.and(usage.output).filter(|_| !usage.estimated)?;
        Some(model.card().price?.cost(usage))
    });
    json!({
        "text": reply.message.text(),
        "thinking": reply.message.thinking(),
        "tool_calls": calls,
        "finish_reason": if error.is_some() { Value::Null } else { finish.into() },
        "usage": {
            "input": usage.input, "output": usage.output, "cached": usage.cached,
            "cache_written": usage.cache_written, "reasoning": usage.reasoning,
            "cost": cost.map(|cost| cost.to_string()),
        },
        "error": error.map(error_json),
    })
}

/// `kind` is the name of the error's kind alone, without its details, so programs can compare it.
fn error_json(error: &ModelError) -> Value {
    let kind = serde_json::to_value(error.kind()).unwrap_or_default();
    // A kind with details is an object with its name.
    let name = match &kind {
        Value::Object(map) => map.keys().next().map(String::as_str),
        kind => kind.as_str(),
    };
    json!({
        "kind": name, "retryable": error.is_retryable(), "status": error.status(),
        "message": chain(error), "request_id": error.request_id(),
        "retry_after": error.retry_after().map(|time| time.as_secs_f64()),
    })
}
