//! The measured workload: a model and tools that do almost nothing, and a hand-written loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use levity::prelude::*;
use levity::serde::Deserialize;
use levity_core::{
    CallId, Deltas, ModelCard, ModelError, Options, Part, Request, Response, Role, ToolCall,
    ToolResult, ToolSpec, Usage,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Does nothing.
#[tool(read_only)]
pub async fn noop(
    /** Any number. */
    n: i64,
) -> String {
    std::hint::black_box(n);
    "done".to_owned()
}

/// The arguments of [`noop`], for the hand-written loop.
#[derive(Deserialize)]
#[serde(crate = "levity::serde")]
pub struct NoopArgs {
    pub n: i64,
}

/// A tool that yields, and waits at a gate if there is one.
pub struct Pause {
    spec: ToolSpec,
    gate: Option<Arc<Gate>>,
}

impl Pause {
    pub fn new(gate: Option<Arc<Gate>>) -> Self {
        Self {
            spec: noop.spec().clone(),
            gate,
        }
    }
}

#[async_trait]
impl Tool for Pause {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        tokio::task::yield_now().await;
        if let Some(gate) = self.gate.as_ref().filter(|_| cx.call.as_str() == "call_3") {
            gate.wait().await;
        }
        Ok(ToolOutput::text("done"))
    }
}

/// A barrier that blocks every task until it is opened.
pub struct Gate {
    arrived: AtomicUsize,
    closed: Semaphore,
}

impl Gate {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            arrived: AtomicUsize::new(0),
            closed: Semaphore::new(0),
        })
    }

    pub async fn wait(&self) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        // Opening the gate closes the semaphore, which wakes every waiting task.
        let _ = self.closed.acquire().await;
    }

    pub async fn wait_for_arrivals(&self, count: usize) {
        while self.arrived.load(Ordering::Relaxed) < count {
            tokio::task::yield_now().await;
        }
    }

    pub fn open(&self) {
        self.closed.close();
    }
}

/// A model that calls `noop` for a number of turns, then answers. It has no state, so one model
/// serves any number of runs.
#[derive(Clone)]
pub struct Caller {
    card: Arc<ModelCard>,
    turns: usize,
    quirk: Quirk,
    /// The gate at which the third turn waits.
    gate: Option<Arc<Gate>>,
}

/// Unusual behaviour of some providers.
#[derive(Clone, Copy, PartialEq)]
pub enum Quirk {
    None,
    /// The provider does not report token usage.
    NoUsage,
    /// The provider restarts the call ids in each reply.
    SameIds,
    /// The provider does not answer at once.
    Yields,
}

impl Caller {
    pub fn new(turns: usize) -> Self {
        Self {
            card: Arc::new(ModelCard::new("bench", "caller")),
            turns,
            quirk: Quirk::None,
            gate: None,
        }
    }

    pub fn quirk(mut self, quirk: Quirk) -> Self {
        self.quirk = quirk;
        self
    }

    pub fn gate(mut self, gate: Arc<Gate>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Returns the reply to a conversation of `messages` messages: the goal, and two for each turn.
    pub fn reply(&self, messages: usize) -> Response {
        let turn = messages / 2 + 1;
        let part = if turn > self.turns {
            Part::text("done")
        } else {
            Part::ToolCall(self.call(turn))
        };
        let response = Response::new(Message::new(Role::Assistant, [part]));
        if self.quirk == Quirk::NoUsage {
            response
        } else {
            response.with_usage(Usage::new(10, 10))
        }
    }

    fn call(&self, turn: usize) -> ToolCall {
        let id = if self.quirk == Quirk::SameIds {
            "call_0".into()
        } else {
            format!("call_{turn}")
        };
        ToolCall::new(CallId::from(id), "noop", json!({"n": turn}))
    }

    async fn answer(&self, request: Request) -> Response {
        let messages = request.history.len();
        if let Some(gate) = self.gate.as_ref().filter(|_| messages / 2 == 2) {
            gate.wait().await;
        }
        if self.quirk == Quirk::Yields {
            // If the request lived during the wait, the history of the run would stay shared.
            drop(request);
            tokio::task::yield_now().await;
        }
        self.reply(messages)
    }
}

#[async_trait]
impl Model for Caller {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        Ok(Deltas::from_response(&self.answer(request).await))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        Ok(self.answer(request).await)
    }
}

/// Builds an agent whose limits never stop its model.
pub fn agent(model: Caller) -> levity::agent::AgentBuilder {
    let turns = model.turns as u64 + 8;
    let limits = Limits::new().model_calls(turns).tool_calls(turns);
    Agent::builder(model)
        .max_turns(turns)
        .limits(limits)
        .instructions("Be brief.")
        .tool(noop)
}

/// The floor (baseline): the minimal loop of an agent, without validation, limits, journal, events
/// or cancellation.
pub async fn by_hand(model: &dyn PlainModel, tools: &[Arc<ToolSpec>]) -> String {
    let (system, options) = (Arc::<str>::from("Be brief."), Arc::new(Options::new()));
    let mut messages = vec![Message::user("Go")];
    loop {
        let request = PlainRequest {
            system: &system,
            messages: &messages,
            tools,
            options: &options,
        };
        let response = model.complete(request).await;
        let reply = Arc::unwrap_or_clone(response.message);
        let mut results = Vec::new();
        for part in &reply.parts {
            match part {
                Part::ToolCall(call) => results.push(Part::ToolResult(call_by_hand(call).await)),
                Part::Text(text) => return text.text.clone(),
                _ => {}
            }
        }
        messages.push(reply);
        messages.push(Message::new(Role::Tool, results));
    }
}

async fn call_by_hand(call: &ToolCall) -> ToolResult {
    let output = match call.name.as_str() {
        "noop" => invoke(&call.args).await,
        name => format!("there is no tool `{name}`"),
    };
    ToolResult::new(call, Ok(ToolOutput::text(output)))
}

/// Parses the arguments and calls the function behind the tool.
pub async fn invoke(args: &Value) -> String {
    match serde_json::from_value::<NoopArgs>(args.clone()) {
        Ok(NoopArgs { n }) => noop::invoke(n).await,
        Err(error) => error.to_string(),
    }
}

/// A model as a hand-written loop would call it: the list of messages is borrowed, not shared.
#[async_trait]
pub trait PlainModel: Send + Sync {
    async fn complete(&self, request: PlainRequest<'_>) -> Response;
}

pub struct PlainRequest<'a> {
    pub system: &'a Arc<str>,
    pub messages: &'a [Message],
    pub tools: &'a [Arc<ToolSpec>],
    pub options: &'a Arc<Options>,
}

#[async_trait]
impl PlainModel for Caller {
    async fn complete(&self, request: PlainRequest<'_>) -> Response {
        std::hint::black_box((request.system, request.tools, request.options));
        self.reply(request.messages.len())
    }
}
