//! Replays whole recorded runs. Replies return to the model as levity stores them, not as the
//! recording has them.

use std::path::Path;

use levity::core::{History, Message, Request, ToolError, ToolOutput, ToolResult};
use serde_json::{Value, json};

use crate::{intent, models, read};

/// Sends all requests of a run, each with the replies to the earlier ones.
pub(crate) async fn answer(run: &Value) -> Value {
    let mut history: Option<History> = None;
    let mut steps = 0;
    for step in run["loop"].as_array().into_iter().flatten() {
        let mut case = step.clone();
        case["base_url"] = run["base_url"].clone();
        let Some(model) = models::model(&case) else {
            return failed(run, steps, "no such wire");
        };
        let dir = Path::new(step["dir"].as_str().unwrap_or_default());
        let (intent, recorded) = (read(dir, "intent.json"), read(dir, "request.json"));
        let mut request = intent::request(
            step["wire"].as_str().unwrap_or_default(),
            &intent,
            &recorded,
        );
        if let Some(history) = history.take() {
            request.history = history;
        }
        let reply = match model.complete(request.clone()).await {
            Ok(reply) => reply,
            Err(error) => return failed(run, steps, &error.to_string()),
        };
        steps += 1;
        let next = run["loop"].get(steps).map(|next| {
            read(
                Path::new(next["dir"].as_str().unwrap_or_default()),
                "intent.json",
            )
        });
        history = next
            .map(|next| extend_history(request, reply.message.as_ref().clone(), &next["turns"]));
    }
    json!({"id": run["id"], "steps": steps, "error": null})
}

fn failed(run: &Value, steps: usize, message: &str) -> Value {
    json!({"id": run["id"], "steps": steps, "error": {"message": message}})
}

/// Extends the conversation with this reply and the recorded turns after it.
fn extend_history(request: Request, reply: Message, turns: &Value) -> History {
    let turns = turns.as_array().map(Vec::as_slice).unwrap_or_default();
    let start = turns
        .iter()
        .rposition(|turn| turn[0] == "assistant")
        .map_or(0, |at| at + 1);
    let (mut results, mut messages) = (Vec::new(), Vec::new());
    for turn in turns.get(start..).unwrap_or_default() {
        match turn[1].get("tool_result") {
            Some(result) => results.push(result),
            None => messages.extend(turn[1]["text"].as_str().map(Message::user)),
        }
    }
    let mut history = request.history;
    match history.open(reply.clone().into()) {
        Ok(mut exchange) => {
            for call in exchange.reply().clone().calls() {
                let at = results
                    .iter()
                    .position(|result| result["id"] == call.id.as_str())
                    .or((!results.is_empty()).then_some(0));
                let content = at
                    .map(|at| results.remove(at)["content"].clone())
                    .unwrap_or_default();
                let text = content
                    .as_str()
                    .map_or_else(|| content.to_string(), str::to_owned);
                let _ = exchange.answer(ToolResult::new(call, Ok(ToolOutput::text(text))));
            }
            history.close(exchange, &ToolError::failed("no answer was recorded"));
        }
        Err(_) => drop(history.push(reply)),
    }
    for message in messages {
        let _ = history.push(message);
    }
    history
}
