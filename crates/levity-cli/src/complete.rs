//! One request to one model.

use std::fs;
use std::io::Read as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use levity::core::text::{bare_url, is_blank, json_problem, split_model_address};
use levity::core::{Delta, Finish, Fold, Message, Model, ModelError, Request, Response};
use serde_json::{Map, Value, json};

use crate::terminal::{chain, complain, note, say, say_json};

/// The largest request that is read.
const LARGEST: u64 = 64 << 20;

/// How `levity complete` is called.
#[derive(Args)]
pub(crate) struct Complete {
    /// What to ask, in words.
    #[arg(conflicts_with = "request", required_unless_present = "request")]
    prompt: Option<String>,
    /// The model, as `provider:model` or `provider:model@URL`, or a profile; by default, what the
    /// environment offers.
    #[arg(long, value_name = "SPEC")]
    model: Option<String>,
    /// Where the model's server is.
    #[arg(long, value_name = "URL", requires = "model")]
    base_url: Option<String>,
    /// Ask for the reply piece by piece, and print it as it comes.
    #[arg(long)]
    stream: bool,
    /// Print one JSON object: text, thinking, calls, token counts, error.
    #[arg(long)]
    json: bool,
    /// A file with the request, as JSON or as a bare prompt; `-` for the standard input.
    #[arg(long, value_name = "FILE")]
    request: Option<String>,
}

/// Sends a request and says how it went: 0 for a reply, 1 for none, 2 for a wrong call.
pub(crate) async fn complete(args: Complete) -> ExitCode {
    let (model, request) = match args.model().and_then(|model| Ok((model, args.request()?))) {
        Ok(both) => both,
        Err(problem) => return complain(&problem, 2),
    };
    let shows = args.stream && !args.json;
    let (reply, error) = ask(&*model, request, shows).await;
    if args.json {
        say_json(&told(&reply, error.as_ref(), &*model));
    } else {
        print(&reply, shows);
    }
    match error {
        None => ExitCode::SUCCESS,
        Some(_) if args.json => ExitCode::FAILURE,
        Some(error) => complain(&chain(&error), 1),
    }
}

impl Complete {
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
                    "`{name}` has an address already; leave `--base-url` or that one out"
                ));
            }
            Some(url) if !url.contains("://") => {
                let url = bare_url(url);
                return Err(format!(
                    "`{url}` is no address; it begins with `http://` or `https://`"
                ));
            }
            Some(url) => format!("{name}@{url}"),
            None => name.clone(),
        };
        let model = models.model(&name).map_err(|error| chain(&error))?;
        crate::agent::warn(models.address_from_file(&name).as_deref());
        Ok(model)
    }

    fn request(&self) -> Result<Request, String> {
        let Some(file) = &self.request else {
            return prompt(self.prompt.as_deref().unwrap_or_default());
        };
        let text = read(file).map_err(|error| format!("`{file}` cannot be read: {error}"))?;
        // Some editors begin a file so.
        let text = text.trim_start_matches('\u{feff}');
        if !text.trim_start().starts_with('{') {
            return prompt(text.trim());
        }
        parse(text).map_err(|problem| format!("`{file}` is no request: {problem}"))
    }
}

/// Reads a request; what nobody would look at is refused.
fn parse(text: &str) -> Result<Request, String> {
    const FIELDS: [&str; 6] = [
        "system",
        "history",
        "tools",
        "tool_choice",
        "output",
        "options",
    ];
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
    known(&fields, "field", &FIELDS)?;
    if let Some(options) = fields.get("options").and_then(Value::as_object) {
        known(options, "option", &OPTIONS)?;
    }
    let request: Request = serde_json::from_str(text).map_err(|error| json_problem(&error))?;
    if request.history.is_empty() {
        return Err("its `history` has no message".to_owned());
    }
    Ok(request)
}

fn known(map: &Map<String, Value>, what: &str, names: &[&str]) -> Result<(), String> {
    match map.keys().find(|name| !names.contains(&name.as_str())) {
        Some(odd) => Err(format!(
            "there is no {what} `{odd}`; there are {}",
            names.join(", ")
        )),
        None => Ok(()),
    }
}

fn prompt(text: &str) -> Result<Request, String> {
    if is_blank(text) {
        return Err("there is nothing to ask; write a prompt".to_owned());
    }
    Ok(Request::new().with_message(Message::user(text)))
}

fn read(file: &str) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if file == "-" {
        std::io::stdin().take(LARGEST + 1).read_to_end(&mut bytes)?;
    } else {
        fs::File::open(file)?
            .take(LARGEST + 1)
            .read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > LARGEST {
        return Err(std::io::Error::other(format!(
            "it has more than {} MiB",
            LARGEST >> 20
        )));
    }
    String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is not UTF-8"))
}

/// The reply, as far as it came, and what broke it off.
async fn ask(model: &dyn Model, request: Request, shows: bool) -> (Response, Option<ModelError>) {
    let mut fold = Fold::new();
    let mut deltas = match model.stream(request).await {
        Ok(deltas) => deltas,
        Err(error) => return (fold.finish(), Some(error)),
    };
    while let Some(delta) = deltas.next().await {
        let taken = delta.and_then(|delta| {
            if let (Delta::Text(text), true) = (&delta, shows) {
                say(text);
            }
            fold.push(delta)
        });
        if let Err(error) = taken {
            return (fold.finish(), Some(error));
        }
    }
    (fold.finish(), None)
}

/// Prints the reply for people; of what was shown already, only the rest.
fn print(reply: &Response, shown: bool) {
    let text = reply.message.text();
    if !text.is_empty() {
        say(&if shown {
            "\n".to_owned()
        } else {
            format!("{text}\n")
        });
    }
    for call in reply.message.calls() {
        say(&format!(
            "calls {} {}\n",
            call.name,
            call.raw.clone().unwrap_or_else(|| call.args.to_string())
        ));
    }
}

fn told(reply: &Response, error: Option<&ModelError>, model: &dyn Model) -> Value {
    let call = |call: &levity::core::ToolCall| {
        let mut told = json!({"id": call.id, "name": call.name, "args": call.args});
        if let Some(raw) = &call.raw {
            told["raw"] = raw.as_str().into();
        }
        told
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
        // What is not counted has no price, and what is counted in part has no certain one.
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
        "error": error.map(failed),
    })
}

fn failed(error: &ModelError) -> Value {
    let kind = serde_json::to_value(error.kind()).unwrap_or_default();
    // A kind with details is an object with its name.
    let name = match &kind {
        Value::Object(map) => map.keys().next().map(String::as_str),
        kind => kind.as_str(),
    };
    json!({
        "kind": name, "retryable": error.is_retryable(), "status": error.status(),
        "message": chain(error), "request_id": error.request_id(), "retry_after": error.retry_after().map(|time| time.as_secs_f64()),
    })
}
