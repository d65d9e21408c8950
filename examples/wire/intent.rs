//! Requests, from the neutral form that recorded ones were brought into.

use levity::core::{
    History, Media, Message, Options, OutputSchema, Part, Request, Role, ToolCall, ToolChoice, ToolError,
    ToolOutput, ToolResult, ToolSpec,
};
use serde_json::{Map, Value, json};

use crate::{media, state};

/// The request that an intent describes.
pub(crate) fn request(wire: &str, intent: &Value, recorded: &Value) -> Request {
    let mut request = Request::new().with_history(history(wire, &intent["turns"], recorded));
    if let Some(system) = intent["system"].as_str().filter(|system| !system.is_empty()) {
        request = request.with_system(system);
    }
    let tools = intent["tools"].as_array().into_iter().flatten().map(|tool| {
        let text = |name: &str| tool[name].as_str().unwrap_or_default().to_owned();
        std::sync::Arc::new(
            ToolSpec::new(text("name"), text("description")).with_input(tool["parameters"].clone()),
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
    if intent["output"]["kind"] == "json" {
        options.extra.insert("response_format".to_owned(), json!({"type": "json_object"}));
    }
    state::settings(wire, recorded, &mut options);
    request.with_options(options)
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
    options
}

/// The conversation. Parts of one role that follow each other are one message.
fn history(wire: &str, turns: &Value, recorded: &Value) -> History {
    let (mut media, mut blocks) =
        (media::all(recorded).into_iter(), state::blocks(wire, recorded).into_iter());
    let mut history = History::new();
    let mut parts: Vec<(String, Part)> = Vec::new();
    let mut results: Vec<(String, ToolOutput)> = Vec::new();
    for turn in turns.as_array().into_iter().flatten() {
        let role = turn[0].as_str().unwrap_or_default().to_owned();
        if let Some(result) = turn[1].get("tool_result") {
            let output = answer(&result["content"], &mut media);
            results.push((result["id"].as_str().unwrap_or_default().to_owned(), output));
            continue;
        }
        if !results.is_empty() || parts.last().is_some_and(|(last, _)| *last != role) {
            flush(&mut history, &mut parts, &mut results);
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

/// What a tool answered: a text, or a list of texts and media.
fn answer(content: &Value, media: &mut impl Iterator<Item = Media>) -> ToolOutput {
    let shown = |part: &Value| ["image", "file"].iter().any(|kind| part.get(*kind).is_some());
    match content {
        Value::String(text) => ToolOutput::text(text),
        Value::Array(parts) if parts.iter().any(shown) => {
            let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            let shown = parts.iter().filter(|part| shown(part)).filter_map(|_| media.next());
            shown.fold(ToolOutput::text(text), ToolOutput::with_media)
        }
        other => ToolOutput::text(other.to_string()),
    }
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

fn part(wire: &str, part: &Value, media: &mut impl Iterator<Item = Media>) -> Option<Part> {
    let with_state = |kind: &str, mut whole: Part| {
        if let Some(opaque) = state::opaque(wire, kind, part) {
            whole.set_opaque(opaque);
        }
        Some(whole)
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
    let kinds = ["image", "audio", "file", "video"];
    kinds.iter().any(|kind| part.get(*kind).is_some()).then(|| media.next())?.map(Part::Media)
}
