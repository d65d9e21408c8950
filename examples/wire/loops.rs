//! Whole recorded runs: what a model said goes back to it as levity keeps it, not as the recording
//! has it.

use std::path::Path;

use levity::core::{History, Message, Request, ToolError, ToolOutput, ToolResult};
use serde_json::{Value, json};

use crate::{intent, models, read};

/// Makes all requests of a run, each with the replies of those before.
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
        history = next.map(|next| go_on(request, reply.message.as_ref().clone(), &next["turns"]));
    }
    json!({"id": run["id"], "steps": steps, "error": null})
}

fn failed(run: &Value, steps: usize, message: &str) -> Value {
    json!({"id": run["id"], "steps": steps, "error": {"message": message}})
}

/// The conversation with this reply, and with what the recording has behind it.
fn go_on(request: Request, reply: Message, turns: &Value) -> History {
    let turns = turns.as_array().map(Vec::as_slice).unwrap_or_default();
    let behind = turns
        .iter()
        .rposition(|turn| turn[0] == "assistant")
        .map_or(0, |at| at + 1);
    let (mut results, mut words) = (Vec::new(), Vec::new());
    for turn in turns.get(behind..).unwrap_or_default() {
        match turn[1].get("tool_result") {
            Some(result) => results.push(result),
            None => words.extend(turn[1]["text"].as_str().map(Message::user)),
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
        Err(_) => drop(history.say(reply)),
    }
    for message in words {
        let _ = history.say(message);
    }
    history
}
