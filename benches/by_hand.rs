//! The floor: an agent as one writes it by hand, with `reqwest` and `serde_json` and nothing that
//! the work does not need.

use std::error::Error;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::through::{GOAL, INSTRUCTIONS, KEY, weather};

/// What all conversations share.
#[derive(Clone)]
pub struct Hand {
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
    message: Said,
}

#[derive(Deserialize, Default)]
struct Said {
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

/// Text that is only copied where it has escapes.
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

impl Hand {
    /// Whoever writes this by hand sets time limits too, and sends what is small at once.
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

    /// Works on a goal until there is an answer.
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
            let Said {
                content,
                tool_calls,
            } = self.call(&messages).await?;
            if tool_calls.is_empty() {
                return Ok(content.unwrap_or_default());
            }
            let mut results = Vec::with_capacity(tool_calls.len());
            for call in &tool_calls {
                let content = perform(call).await?;
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

    async fn call(&self, messages: &[Message]) -> Result<Said> {
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

async fn perform(call: &ToolCall) -> Result<String> {
    match call.function.name.as_str() {
        "weather" => {
            let WeatherArgs { city, days } = serde_json::from_str(&call.function.arguments)?;
            Ok(weather::invoke(city, days).await)
        }
        name => Ok(format!("there is no tool `{name}`")),
    }
}

/// Puts a stream together, line by line.
async fn fold(mut response: reqwest::Response) -> Result<Said> {
    let (mut said, mut open) = (Said::default(), Vec::new());
    while let Some(chunk) = response.chunk().await? {
        let mut bytes = &chunk[..];
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            if open.is_empty() {
                line(&bytes[..end], &mut said)?;
            } else {
                open.extend_from_slice(&bytes[..end]);
                line(&open, &mut said)?;
                open.clear();
            }
            bytes = &bytes[end + 1..];
        }
        open.extend_from_slice(bytes);
    }
    Ok(said)
}

fn line(line: &[u8], said: &mut Said) -> Result<()> {
    let Some(data) = line.strip_prefix(b"data: ") else {
        return Ok(());
    };
    if data == b"[DONE]" {
        return Ok(());
    }
    let chunk: Chunk<'_> = serde_json::from_slice(data)?;
    for ChunkChoice { delta } in chunk.choices {
        if let Some(Text(text)) = delta.content {
            said.content.get_or_insert_default().push_str(&text);
        }
        for call in delta.tool_calls {
            if call.index == said.tool_calls.len() {
                let function = Function {
                    name: call.function.name.unwrap_or_default(),
                    arguments: String::new(),
                };
                let id = call.id.unwrap_or_default();
                said.tool_calls.push(ToolCall {
                    id,
                    kind: Kind::Function,
                    function,
                });
            }
            let begun = said
                .tool_calls
                .get_mut(call.index)
                .ok_or("a call never began")?;
            begun
                .function
                .arguments
                .push_str(call.function.arguments.as_ref().map_or("", |text| &text.0));
        }
    }
    Ok(())
}
