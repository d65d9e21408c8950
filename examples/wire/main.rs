//! Answers recorded requests for a checker that acts as the provider.
//!
//! The program reads one JSON object per line,
//! `{"id", "wire", "model", "stream", "base_url", "dir"}`. It sends the request that
//! `dir/intent.json` describes to `base_url`, and prints the result as one JSON object per line. If
//! the object has a list of such objects as `loop`, the program sends all requests of a recorded
//! run, each with the replies to the earlier ones.

use std::fs;
use std::io::{BufRead as _, Write as _};
use std::path::Path;

use levity::core::{Delta, Finish, Fold, Model, ModelError, ModelErrorKind, Request, Response};
use serde_json::{Value, json};

mod intent;
mod loops;
mod media;
mod models;
mod state;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let Ok(case) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        let answer = answer(&case).await;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

async fn answer(case: &Value) -> Value {
    if case.get("loop").is_some() {
        return loops::answer(case).await;
    }
    let text = |name: &str| case[name].as_str().unwrap_or_default().to_owned();
    let wire = text("wire");
    let dir = text("dir");
    let read = |name: &str| read(Path::new(&dir), name);
    let model = models::model(case);
    let Some(model) = model else {
        return json!({"id": case["id"], "error": {"message": "no such wire"}});
    };
    let request = intent::request(&wire, &read("intent.json"), &read("request.json"));
    let mut report = match stream_reply(&*model, request).await {
        Ok((streamed, response)) if streamed != response.message.text() => {
            json!({"error": {"message": "the streamed text differs from the text of the reply"}})
        }
        Ok((_, response)) => response_json(&response),
        Err(error) => error_json(&wire, &error),
    };
    report["id"] = case["id"].clone();
    report
}

/// Returns the streamed text and the whole reply.
async fn stream_reply(
    model: &dyn Model,
    request: Request,
) -> Result<(String, Response), ModelError> {
    let mut deltas = model.stream(request).await?;
    let (mut streamed, mut fold) = (String::new(), Fold::new());
    while let Some(delta) = deltas.next().await {
        let delta = delta?;
        if let Delta::Text(text) = &delta {
            streamed.push_str(text);
        }
        fold.push(delta)?;
    }
    Ok((streamed, fold.finish()))
}

/// Reads a JSON file of a case.
fn read(dir: &Path, name: &str) -> Value {
    let text = fs::read_to_string(dir.join(name)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn response_json(response: &Response) -> Value {
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
        Finish::Paused => "pause_turn",
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

fn error_json(wire: &str, error: &ModelError) -> Value {
    // If Gemini withholds a whole reply, the checker expects a reply that ended with Google's
    // finish reason.
    if wire == "gemini"
        && error.kind() == ModelErrorKind::ContentFiltered
        && error.status().is_none()
    {
        let message = error.to_string();
        let word = message.split('`').nth(1).unwrap_or("content_filter");
        return json!({"text": "", "tool_calls": [], "finish_reason": word, "error": null});
    }
    json!({
        "error": {
            "status": error.status(),
            "message": error.to_string(),
            "retryable": error.is_retryable(),
        },
    })
}
