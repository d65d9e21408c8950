//! The floor (baseline): a hand-written agent with `reqwest` and `serde_json`, without anything
//! that the work does not need.

use std::error::Error;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::levity_agent::{GOAL, INSTRUCTIONS, KEY, weather};

/// The state that all conversations share.
#[derive(Clone)]
pub struct FloorAgent {
    client: reqwest::Client,
    url: String,
    tools: Vec<Tool>,
    stream: bool,
}

#[derive(Serialize)]
struct Call<'a> {
    model: &'a str,
    messages: &'a [Message],
    tools: &'a [Tool],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message {
    System {
        content: String,
    },
    User {
        content: String,
    },
    Assistant {
        content: Option<String>,
        tool_calls: Vec<ToolCall>,
    },
    Tool {
        tool_call_id: String,
        content: String,
    },
}

#[derive(Serialize, Deserialize)]
struct ToolCall {
    id: String,
    #[serde(rename = "type")]
    kind: Kind,
    function: Function,
}

#[derive(Clone, Copy, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Function,
}

#[derive(Serialize, Deserialize)]
struct Function {
    name: String,
    arguments: String,
}

#[derive(Clone, Serialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: Kind,
    function: ToolFunction,
}

#[derive(Clone, Serialize)]
struct ToolFunction {
    name: String,
    description: String,
    parameters: Value,
}

#[derive(Deserialize)]
struct Reply {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: ReplyMessage,
}

#[derive(Deserialize, Default)]
struct ReplyMessage {
    content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<ChunkChoice<'a>>,
}

#[derive(Deserialize)]
struct ChunkChoice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Text<'a>>,
    #[serde(default, borrow)]
    tool_calls: Vec<CallDelta<'a>>,
}

/// Text that is copied only if it contains escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

#[derive(Deserialize)]
struct CallDelta<'a> {
    index: usize,
    id: Option<String>,
    #[serde(borrow)]
    function: FunctionDelta<'a>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct WeatherArgs {
    city: String,
    days: i64,
}

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

impl FloorAgent {
    /// Creates the agent. A hand-written client would also set timeouts and disable Nagle's
    /// algorithm.
    pub fn new(url: &str, stream: bool) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .timeout(Duration::from_secs(300))
            .tcp_nodelay(true)
            .build()
            .expect("a client is built");
        let spec = levity::prelude::Tool::spec(&weather);
        let (name, description) = (spec.name.clone(), spec.description.clone());
        let function = ToolFunction {
            name,
            description,
            parameters: spec.input.clone(),
        };
        let tools = vec![Tool {
            kind: Kind::Function,
            function,
        }];
        Self {
            client,
            url: format!("{url}/chat/completions"),
            tools,
            stream,
        }
    }

    /// Runs the loop until the model answers.
    pub async fn run(&self) -> Result<String> {
        let mut messages = vec![
            Message::System {
                content: INSTRUCTIONS.to_owned(),
            },
            Message::User {
                content: GOAL.to_owned(),
            },
        ];
        loop {
            let ReplyMessage {
                content,
                tool_calls,
            } = self.call(&messages).await?;
            if tool_calls.is_empty() {
                return Ok(content.unwrap_or_default());
            }
            let mut results = Vec::with_capacity(tool_calls.len());
            for call in &tool_calls {
                let content = execute_call(call).await?;
                results.push(Message::Tool {
                    tool_call_id: call.id.clone(),
                    content,
                });
            }
            messages.push(Message::Assistant {
                content,
                tool_calls,
            });
            messages.extend(results);
        }
    }

    async fn call(&self, messages: &[Message]) -> Result<ReplyMessage> {
        let call = Call {
            model: "mock",
            messages,
            tools: &self.tools,
            stream: self.stream,
        };
        let body = serde_json::to_vec(&call)?;
        let request = self.client.post(&self.url).bearer_auth(KEY);
        let request = request
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body);
        let response = request.send().await?.error_for_status()?;
        if self.stream {
            return fold(response).await;
        }
        let reply: Reply = serde_json::from_slice(&response.bytes().await?)?;
        Ok(reply
            .choices
            .into_iter()
            .next()
            .ok_or("the reply is empty")?
            .message)
    }
}

async fn execute_call(call: &ToolCall) -> Result<String> {
    match call.function.name.as_str() {
        "weather" => {
            let WeatherArgs { city, days } = serde_json::from_str(&call.function.arguments)?;
            Ok(weather::invoke(city, days).await)
        }
        name => Ok(format!("there is no tool `{name}`")),
    }
}

/// Assembles a streamed reply, line by line.
async fn fold(mut response: reqwest::Response) -> Result<ReplyMessage> {
    let (mut message, mut open) = (ReplyMessage::default(), Vec::new());
    while let Some(chunk) = response.chunk().await? {
        let mut bytes = &chunk[..];
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            if open.is_empty() {
                apply_line(&bytes[..end], &mut message)?;
            } else {
                open.extend_from_slice(&bytes[..end]);
                apply_line(&open, &mut message)?;
                open.clear();
            }
            bytes = &bytes[end + 1..];
        }
        open.extend_from_slice(bytes);
    }
    Ok(message)
}

fn apply_line(line: &[u8], message: &mut ReplyMessage) -> Result<()> {
    let Some(data) = line.strip_prefix(b"data: ") else {
        return Ok(());
    };
    if data == b"[DONE]" {
        return Ok(());
    }
    let chunk: Chunk<'_> = serde_json::from_slice(data)?;
    for ChunkChoice { delta } in chunk.choices {
        if let Some(Text(text)) = delta.content {
            message.content.get_or_insert_default().push_str(&text);
        }
        for call in delta.tool_calls {
            if call.index == message.tool_calls.len() {
                let function = Function {
                    name: call.function.name.unwrap_or_default(),
                    arguments: String::new(),
                };
                let id = call.id.unwrap_or_default();
                message.tool_calls.push(ToolCall {
                    id,
                    kind: Kind::Function,
                    function,
                });
            }
            let started = message
                .tool_calls
                .get_mut(call.index)
                .ok_or("a call has arguments but no start")?;
            started
                .function
                .arguments
                .push_str(call.function.arguments.as_ref().map_or("", |text| &text.0));
        }
    }
    Ok(())
}
