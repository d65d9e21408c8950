//! Rig: `Agent` with `DynamicTool`, on its provider for llama.cpp (`LLAMACPP_API_BASE_URL`).

use std::io::BufRead;
use std::sync::{Arc, Mutex};

use rig_agent::agent::{
    AgentHook, CompletionCallAction, CompletionCallEvent, HookContext, ModelTurnAction,
    ModelTurnFinished,
};
use rig_agent::prelude::AgentBuilder;
use rig_agent::tool::{DynamicTool, ToolOutput};
use rig_core::{message::ToolName, providers::llamacpp};
use serde_json::{Value, json};

type Calls = Arc<Mutex<Vec<Value>>>;

/// Ends the run once a call has reached a tool, and counts tokens.
struct UntilCalled(Calls, Arc<Mutex<(u64, u64)>>);

impl AgentHook for UntilCalled {
    async fn on_completion_call(
        &self,
        _: &HookContext,
        _: CompletionCallEvent<'_>,
    ) -> CompletionCallAction {
        match self.0.lock().unwrap().is_empty() {
            true => CompletionCallAction::Continue,
            false => CompletionCallAction::stop("called"),
        }
    }

    async fn on_model_turn_finished(
        &self,
        _: &HookContext,
        event: ModelTurnFinished<'_>,
    ) -> ModelTurnAction {
        let mut tokens = self.1.lock().unwrap();
        tokens.0 += event.usage.input_tokens.unwrap_or(0);
        tokens.1 += event.usage.output_tokens.unwrap_or(0);
        ModelTurnAction::Continue
    }
}

fn noting(tool: &Value, calls: &Calls) -> DynamicTool {
    let (name, calls) = (tool["name"].as_str().unwrap().to_owned(), calls.clone());
    let (tool_name, about) = (
        ToolName::new(name.clone()).unwrap(),
        tool["description"].as_str().unwrap(),
    );
    DynamicTool::new(
        tool_name,
        about,
        tool["parameters"].clone(),
        move |arguments| {
            calls
                .lock()
                .unwrap()
                .push(json!({"name": name, "arguments": arguments}));
            Box::pin(async { Ok(ToolOutput::text("done")) })
        },
    )
}

#[tokio::main]
async fn main() {
    let model = llamacpp::from_env()
        .unwrap()
        .chat(std::env::var("MODEL").unwrap_or("qwen".into()));
    for line in std::io::stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let (calls, tokens) = (Calls::default(), Arc::default());
        let tools = case["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| noting(tool, &calls))
            .collect();
        let agent = AgentBuilder::new(model.clone())
            .temperature(0.0)
            .max_tokens(512)
            .default_max_turns(10)
            .add_hook(UntilCalled(calls.clone(), Arc::clone(&tokens)))
            .dynamic_tools(tools)
            .build();
        let prompt = case["messages"].as_array().unwrap().last().unwrap()["content"]
            .as_str()
            .unwrap();
        let reply = agent.prompt(prompt).await;
        let (calls, tokens) = (calls.lock().unwrap().clone(), *tokens.lock().unwrap());
        let (text, error) = match reply {
            Ok(reply) => (reply.output(), None),
            Err(_) if !calls.is_empty() => (String::new(), None),
            Err(error) => (String::new(), Some(error.to_string())),
        };
        let usage = json!({"input": tokens.0, "output": tokens.1});
        println!(
            "{}",
            json!({"text": text, "calls": calls, "usage": usage, "error": error})
        );
    }
}
