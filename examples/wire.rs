//! Answers recorded requests, for a checker that plays the providers' side.
//!
//! Reads one JSON object a line, `{"id", "wire", "model", "stream", "base_url", "dir"}`, sends the request that
//! `dir/intent.json` describes to `base_url`, and prints what came of it, one JSON object a line.

use std::fs;
use std::io::{BufRead as _, Write as _};
use std::path::Path;

use levity::core::{
    Finish, History, Media, Message, Model, ModelError, Options, OutputSchema, Part, Request, Response, Role,
    ToolCall, ToolChoice, ToolError, ToolOutput, ToolResult, ToolSpec,
};
use levity::llm::ChatModel;
use serde_json::{Map, Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let Ok(case) = serde_json::from_str::<Value>(&line?) else { continue };
        let answer = answer(&case).await;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

async fn answer(case: &Value) -> Value {
    let text = |name: &str| case[name].as_str().unwrap_or_default().to_owned();
    let intent = fs::read_to_string(Path::new(&text("dir")).join("intent.json")).unwrap_or_default();
    let intent = serde_json::from_str(&intent).unwrap_or_default();
    let model = model(&text("wire"), &text("base_url"), &text("model"), case["stream"] == true);
    let Some(model) = model else { return json!({"id": case["id"], "error": {"message": "no such wire"}}) };
    let mut told = match model.complete(request(&intent)).await {
        Ok(response) => told(&response),
        Err(error) => failed(&error),
    };
    told["id"] = case["id"].clone();
    told
}

fn model(wire: &str, base_url: &str, model: &str, stream: bool) -> Option<Box<dyn Model>> {
    match wire {
        "openai_chat" => {
            let chat = ChatModel::compatible(format!("{base_url}/v1"), model).with_key("none");
            Some(Box::new(if stream { chat } else { chat.without_streaming() }))
        }
        _ => None,
    }
}

fn told(response: &Response) -> Value {
    let calls: Vec<Value> = response
        .message
        .calls()
        .map(|call| json!({"id": call.id, "name": call.name, "arguments": call.args}))
        .collect();
    let finish = match &response.finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::ContentFilter => "content_filter",
        Finish::Other(other) => other,
        _ => "other",
    };
    let usage = &response.usage;
    json!({
        "text": response.message.text(),
        "thinking": response.message.thinking(),
        "tool_calls": calls,
        "finish_reason": finish,
        "usage": {
            "input": usage.input, "output": usage.output, "cache_read": usage.cached,
            "cache_write": usage.cache_written, "reasoning": usage.reasoning,
        },
        "error": null,
    })
}

fn failed(error: &ModelError) -> Value {
    json!({"error": {"status": error.status(), "message": error.to_string(), "retryable": error.is_retryable()}})
}

/// The request that an intent describes.
fn request(intent: &Value) -> Request {
    let mut request = Request::new().with_history(history(&intent["turns"]));
    if let Some(system) = intent["system"].as_str().filter(|system| !system.is_empty()) {
        request = request.with_system(system);
    }
    let tools = intent["tools"].as_array().into_iter().flatten().map(|tool| {
        let text = |name: &str| tool[name].as_str().unwrap_or_default().to_owned();
        std::sync::Arc::new(ToolSpec::new(text("name"), text("description")).with_input(tool["parameters"].clone()))
    });
    request = request.with_tools(tools.collect::<Vec<_>>());
    request.tool_choice = match &intent["tool_choice"] {
        Value::String(word) if word == "none" => ToolChoice::None,
        Value::String(word) if word == "required" || word == "any" => ToolChoice::Required,
        Value::Object(map) => map.values().next().and_then(Value::as_str).map_or(ToolChoice::Auto, |name| {
            ToolChoice::Tool(name.to_owned())
        }),
        _ => ToolChoice::Auto,
    };
    if intent["output"]["kind"] == "json_schema" {
        let name = intent["output"]["name"].as_str().unwrap_or("answer");
        request = request.with_output(OutputSchema::new(name, intent["output"]["schema"].clone()));
    }
    let mut options = options(&intent["params"]);
    if intent["output"]["kind"] == "json" {
        options.extra.insert("response_format".to_owned(), json!({"type": "json_object"}));
    }
    request.with_options(options)
}

fn options(params: &Value) -> Options {
    let mut options = Options::new();
    options.temperature = params["temperature"].as_f64();
    options.top_p = params["top_p"].as_f64();
    options.max_tokens = params["max_tokens"].as_u64();
    options.seed = params["seed"].as_u64();
    options.stop =
        params["stop"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    options.extra = Map::new();
    options
}

/// The conversation. Parts of one role that follow each other are one message.
fn history(turns: &Value) -> History {
    let mut history = History::new();
    let mut parts: Vec<(String, Part)> = Vec::new();
    let mut results: Vec<(String, ToolOutput)> = Vec::new();
    for turn in turns.as_array().into_iter().flatten() {
        let role = turn[0].as_str().unwrap_or_default().to_owned();
        if let Some(result) = turn[1].get("tool_result") {
            let content = match &result["content"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            results.push((result["id"].as_str().unwrap_or_default().to_owned(), ToolOutput::text(content)));
            continue;
        }
        if !results.is_empty() || parts.last().is_some_and(|(last, _)| *last != role) {
            flush(&mut history, &mut parts, &mut results);
        }
        parts.extend(part(&turn[1]).map(|part| (role, part)));
    }
    flush(&mut history, &mut parts, &mut results);
    history
}

fn flush(history: &mut History, parts: &mut Vec<(String, Part)>, results: &mut Vec<(String, ToolOutput)>) {
    let Some((role, _)) = parts.first() else { return };
    let role = match &**role {
        "assistant" => Role::Assistant,
        "system" => Role::System,
        _ => Role::User,
    };
    let message = Message::new(role, parts.drain(..).map(|(_, part)| part));
    let mut results = std::mem::take(results);
    let Ok(mut exchange) = history.open(message.clone().into()) else {
        let _ = history.say(message);
        return;
    };
    for call in exchange.reply().clone().calls() {
        let same = results.iter().position(|(id, _)| *id == *call.id.as_str());
        let at = same.or((!results.is_empty()).then_some(0));
        if let Some((_, output)) = at.map(|at| results.remove(at)) {
            let _ = exchange.answer(ToolResult::new(call, Ok(output)));
        }
    }
    history.close(exchange, &ToolError::failed("no answer was recorded"));
}

fn part(part: &Value) -> Option<Part> {
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        return Some(Part::text(text));
    }
    if let Some(call) = part.get("tool_call") {
        let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
        return Some(Part::ToolCall(ToolCall::new(text("id"), text("name"), call["arguments"].clone())));
    }
    if let Some(thinking) = part.get("thinking").and_then(Value::as_str) {
        return Some(Part::thinking(thinking));
    }
    let url = ["image", "audio", "file", "video"].iter().find_map(|kind| part.get(*kind)?.get("url")?.as_str());
    url.map(|url| Part::Media(Media::url("image/png", url)))
}
