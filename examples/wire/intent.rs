//! Builds requests from the provider-neutral form of the recorded requests.

use levity::core::{
    Content, History, Media, Message, Options, OutputSchema, Part, Request, Role, ThinkingMode,
    ToolCall, ToolChoice, ToolError, ToolOutput, ToolResult, ToolSpec,
};
use serde_json::{Map, Value, json};

use crate::{media, state};

/// Builds the request that an intent describes.
pub(crate) fn request(wire: &str, intent: &Value, recorded: &Value) -> Request {
    let mut request = Request::new().with_history(history(wire, &intent["turns"], recorded));
    if let Some(system) = intent["system"]
        .as_str()
        .filter(|system| !system.is_empty())
    {
        request = request.with_system(system);
    }
    let tools = intent["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|tool| {
            let text = |name: &str| tool[name].as_str().unwrap_or_default().to_owned();
            std::sync::Arc::new(
                ToolSpec::new(text("name"), text("description"))
                    .with_input(tool["parameters"].clone()),
            )
        });
    request = request.with_tools(tools.collect::<Vec<_>>());
    request.tool_choice = match &intent["tool_choice"] {
        Value::String(word) if word == "none" => ToolChoice::None,
        Value::String(word) if word == "required" || word == "any" => ToolChoice::Required,
        Value::Object(map) => map
            .values()
            .next()
            .and_then(Value::as_str)
            .map_or(ToolChoice::Auto, |name| ToolChoice::Tool(name.to_owned())),
        _ => ToolChoice::Auto,
    };
    if intent["output"]["kind"] == "json_schema" {
        let name = intent["output"]["name"].as_str().unwrap_or("answer");
        request = request.with_output(OutputSchema::new(name, intent["output"]["schema"].clone()));
    }
    let mut options = options(&intent["params"]);
    if wire == "openai_responses" {
        add_responses_fields(&mut options.extra, intent, recorded);
    } else if wire == "gemini" {
        options.extra = gemini_fields(intent, recorded);
    } else if intent["output"]["kind"] == "json" {
        let (name, value) = match wire {
            "ollama" => ("format", json!("json")),
            _ => ("response_format", json!({"type": "json_object"})),
        };
        options.extra.insert(name.to_owned(), value);
    }
    options.thinking = match &intent["thinking"]["think"] {
        Value::Bool(false) => Some(ThinkingMode::Off),
        Value::Bool(true) => Some(ThinkingMode::Auto),
        Value::String(word) if word == "low" => Some(ThinkingMode::Low),
        Value::String(word) if word == "medium" => Some(ThinkingMode::Medium),
        Value::String(word) if word == "high" => Some(ThinkingMode::High),
        _ => None,
    };
    state::settings(wire, recorded, &mut options);
    request.with_options(options)
}

/// Adds the parts that only a Responses request has: hosted tools and settings.
fn add_responses_fields(extra: &mut Map<String, Value>, intent: &Value, recorded: &Value) {
    let tools = recorded["tools"].as_array().into_iter().flatten();
    let hosted: Vec<Value> = tools
        .filter(|tool| tool["type"] != "function")
        .cloned()
        .collect();
    if !hosted.is_empty() {
        extra.insert("tools".to_owned(), hosted.into());
    }
    if recorded["tool_choice"]["type"] == "allowed_tools" {
        extra.insert("tool_choice".to_owned(), recorded["tool_choice"].clone());
    }
    for name in [
        "reasoning",
        "include",
        "previous_response_id",
        "parallel_tool_calls",
    ] {
        if let Some(value) = recorded.get(name) {
            extra.insert(name.to_owned(), value.clone());
        }
    }
    // A `History` cannot start with an answer to messages that the provider stores, so the recorded
    // input is sent unchanged.
    if recorded.get("previous_response_id").is_some() {
        extra.insert("input".to_owned(), recorded["input"].clone());
    }
    if intent["output"]["kind"] == "json" {
        extra.insert(
            "text".to_owned(),
            json!({"format": {"type": "json_object"}}),
        );
    }
}

/// Returns the parts that only a Gemini request has: hosted tools and settings.
fn gemini_fields(intent: &Value, recorded: &Value) -> Map<String, Value> {
    let either = |names: [&str; 2]| {
        names
            .iter()
            .find_map(|name| recorded.get(*name))
            .cloned()
            .unwrap_or_default()
    };
    let mut config = either(["generationConfig", "generation_config"]);
    if let Value::Object(config) = &mut config {
        config.retain(|name, _| !name.to_lowercase().contains("schema"));
    }
    let mut extra = Map::new();
    if config.is_object() {
        extra.insert("generationConfig".to_owned(), config);
    }
    let tools = recorded["tools"].as_array().cloned().unwrap_or_default();
    let hosted = tools.into_iter().filter_map(|mut tool| {
        let kinds = tool.as_object_mut()?;
        kinds
            .retain(|name, value| !name.to_lowercase().starts_with("function") && !value.is_null());
        (!kinds.is_empty()).then_some(tool)
    });
    let hosted: Vec<Value> = hosted.collect();
    if !hosted.is_empty() {
        extra.insert("tools".to_owned(), hosted.into());
    }
    if let Some(names) = intent["tool_choice"].get("allowed") {
        let config =
            json!({"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": names}});
        extra.insert("toolConfig".to_owned(), config);
    }
    for name in ["safetySettings", "cachedContent", "labels"] {
        extra.extend(
            recorded
                .get(name)
                .filter(|value| !value.is_null())
                .map(|value| (name.to_owned(), value.clone())),
        );
    }
    extra
}

fn options(params: &Value) -> Options {
    let mut options = Options::new();
    options.temperature = params["temperature"].as_f64();
    options.top_p = params["top_p"].as_f64();
    options.max_tokens = params["max_tokens"].as_u64();
    options.seed = params["seed"].as_u64();
    options.stop = params["stop"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    options.extra = Map::new();
    // Some recorded requests contain an explicit empty list of stop sequences.
    if params["stop"].as_array().is_some_and(Vec::is_empty) {
        options.extra.insert("stop".to_owned(), json!([]));
    }
    options
}

/// Builds the conversation. Consecutive parts of one role form one message.
fn history(wire: &str, turns: &Value, recorded: &Value) -> History {
    let (mut media, mut blocks) = (
        media::all(recorded).into_iter(),
        state::blocks(wire, recorded).into_iter(),
    );
    let mut history = History::new();
    let mut parts: Vec<(String, Part)> = Vec::new();
    let mut results: Vec<(String, Outcome)> = Vec::new();
    for turn in turns.as_array().into_iter().flatten() {
        let role = turn[0].as_str().unwrap_or_default().to_owned();
        if let Some(result) = turn[1].get("tool_result") {
            let mut outcome = outcome(wire, &result["content"], &mut media);
            for media in result["parts"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|_| media.next())
            {
                outcome = outcome.map(|output| output.with_media(media));
            }
            results.push((
                result["id"].as_str().unwrap_or_default().to_owned(),
                outcome,
            ));
            continue;
        }
        if !results.is_empty() || parts.last().is_some_and(|(last, _)| *last != role) {
            flush(&mut history, &mut parts, &mut results);
        }
        if wire == "openai_chat" {
            if let Some(text) = turn[1]["thinking"].as_str() {
                let thought = state::chat_reasoning(text, recorded);
                parts.extend(thought.into_iter().map(|part| (role.clone(), part)));
                continue;
            }
            if let Some(kind) = turn[1]["other"].as_str() {
                parts.extend(state::protocol_part(wire, kind, recorded).map(|part| (role, part)));
                continue;
            }
        }
        let part = match turn[1].get("other") {
            Some(_) => blocks.next().map(Part::Opaque),
            None => part(wire, &turn[1], &mut media),
        };
        parts.extend(part.map(|part| (role, part)));
    }
    flush(&mut history, &mut parts, &mut results);
    history
}

/// Converts the output of a tool: text, or a list of text and media.
fn output(content: &Value, media: &mut impl Iterator<Item = Media>) -> ToolOutput {
    let is_rich = |item: &Value| item["text"].is_string() || is_media(item);
    match content {
        Value::String(text) => ToolOutput::text(text.clone()),
        Value::Array(items) if items.iter().all(is_rich) => {
            let mut output = ToolOutput::default();
            for item in items {
                let text = item["text"]
                    .as_str()
                    .map(|text| Content::Text(text.to_owned()));
                output
                    .content
                    .extend(text.or_else(|| media.next().map(Content::Media)));
            }
            output
        }
        other => ToolOutput::text(other.to_string()),
    }
}

fn is_media(part: &Value) -> bool {
    ["image", "audio", "file", "video"]
        .iter()
        .any(|kind| part.get(*kind).is_some())
}

type Outcome = Result<ToolOutput, ToolError>;

/// Converts the result of a tool. Gemini accepts objects, with a key for errors; the others accept
/// text.
fn outcome(wire: &str, content: &Value, media: &mut impl Iterator<Item = Media>) -> Outcome {
    let only = content
        .as_object()
        .filter(|map| map.len() == 1)
        .and_then(|map| map.iter().next());
    match (content, only) {
        (Value::String(text), _) => Ok(ToolOutput::text(text)),
        (_, Some((name, Value::String(text)))) if wire == "gemini" => match &**name {
            "error" => Err(ToolError::failed(text)),
            _ => Ok(ToolOutput::text(text)),
        },
        (_, Some((name, inner))) if wire == "gemini" && name == "output" => {
            Ok(ToolOutput::value(inner.clone()))
        }
        (value, _) if wire == "gemini" => Ok(ToolOutput::value(value.clone())),
        (other, _) => Ok(output(other, media)),
    }
}

fn flush(
    history: &mut History,
    parts: &mut Vec<(String, Part)>,
    results: &mut Vec<(String, Outcome)>,
) {
    let Some((role, _)) = parts.first() else {
        return;
    };
    let role = match &**role {
        "assistant" => Role::Assistant,
        "system" => Role::System,
        _ => Role::User,
    };
    let message = Message::new(role, parts.drain(..).map(|(_, part)| part));
    let mut results = std::mem::take(results);
    let Ok(mut exchange) = history.open(message.clone().into()) else {
        let _ = history.push(message);
        return;
    };
    for call in exchange.reply().clone().calls() {
        let same = results.iter().position(|(id, _)| *id == *call.id.as_str());
        let at = same.or((!results.is_empty()).then_some(0));
        if let Some((_, outcome)) = at.map(|at| results.remove(at)) {
            let _ = exchange.answer(ToolResult::new(call, outcome));
        }
    }
    history.close(exchange, &ToolError::failed("no answer was recorded"));
}

fn part(wire: &str, part: &Value, media: &mut impl Iterator<Item = Media>) -> Option<Part> {
    let with_state = |kind: &str, mut part_with_state: Part| {
        if let Some(opaque) = state::opaque(wire, kind, part) {
            part_with_state.set_opaque(opaque);
        }
        Some(part_with_state)
    };
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        return with_state("text", Part::text(text));
    }
    if let Some(call) = part.get("tool_call") {
        let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
        let call = ToolCall::new(text("id"), text("name"), call["arguments"].clone());
        return with_state("tool_call", Part::ToolCall(call));
    }
    if let Some(thinking) = part.get("thinking").and_then(Value::as_str) {
        return with_state("thinking", Part::thinking(thinking));
    }
    is_media(part).then(|| media.next())?.map(Part::Media)
}
