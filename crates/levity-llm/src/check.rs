//! Tests with three small requests how a model and its server handle tools.
//!
//! The requests are small and independent: a word without tools, a question that needs the one
//! offered tool, and a value of a schema with unusual keys. The first reply gives the number of
//! tokens without tools, which shows whether the server counts the tools of the second. Each reply
//! may have up to 1,024 tokens, so a check costs at most a few thousand tokens.

use levity_core::{
    Finish, Message, Model, ModelError, Options, OutputSchema, Request, Response, ToolSpec, Usage,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::layers::{ToolMode, refuses_schema, refuses_tools};

/// The maximum number of tokens in a reply, with room for a model that thinks first.
const MAX_TOKENS: u64 = 1_024;

/// The result of [`check_tools`]: how a model and its server handle tools.
///
/// The type serializes, so that a program can print it as JSON:
///
/// ```
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ScriptedModel::new().reply("ready").reply("It is sunny.").reply("seat 12 B");
/// let check = levity_llm::check_tools(&server).await?;
/// let json = serde_json::to_value(&check)?;
/// assert_eq!((&json["calls"], &json["schema"]), (&"none".into(), &"ignored".into()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolCheck {
    /// The treatment of the tools that a request offers.
    pub tools: ToolVisibility,
    /// The form in which a call is returned.
    pub calls: CallFormat,
    /// The treatment of a JSON Schema for the reply.
    pub schema: SchemaSupport,
    /// The recommended mode for this model.
    pub mode: ToolMode,
    /// The total usage of all requests.
    pub usage: Usage,
}

/// The visibility of offered tools to the model.
///
/// ```
/// use levity_core::{ModelError, ModelErrorKind};
/// use levity_llm::ToolVisibility;
/// use levity_llm::layers::ToolMode;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ModelError> {
/// let refusal = ModelError::new(ModelErrorKind::BadRequest, "gemma:2b does not support tools");
/// let server = ScriptedModel::new()
///     .reply("ready")
///     .fail_with(refusal)
///     .reply(r#"{"seat_letter": "A", "row_number": 3}"#);
/// let check = levity_llm::check_tools(&server).await?;
/// assert!(matches!(check.tools, ToolVisibility::Refused(_)));
/// assert_eq!(check.mode, ToolMode::Structured);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolVisibility {
    /// The model sees the tools: it made a call, or the server counted their tokens.
    Yes,
    /// The server accepted the tools but counted no more tokens than without them.
    Dropped,
    /// The server rejected the request with this error.
    Refused(String),
    /// The server does not count tokens, and the model made no call.
    Unknown,
}

/// The form in which a call is returned.
///
/// ```
/// use levity_llm::{CallFormat, ModelExt};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let server = ScriptedModel::new()
///     .reply("ready")
///     .reply(r#"{"name": "get_weather", "arguments": {"city": "Rome"}}"#)
///     .reply("seat 12 B");
/// let check = levity_llm::check_tools(&server.text_tools().with_native_calls()).await?;
/// assert_eq!(check.calls, CallFormat::Text);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallFormat {
    /// A call in the provider's own form.
    Native,
    /// Text that levity parses as a call.
    Text,
    /// No call was returned.
    None,
}

/// The effect of a JSON Schema on a reply.
///
/// In JSON, [`Enforced`](Self::Enforced) is `"holds"`. The check is strict: a reply in a code
/// fence, with other keys or cut off by the token limit counts as ignored.
///
/// ```
/// use levity_llm::SchemaSupport;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let server = ScriptedModel::new()
///     .reply("ready")
///     .reply("Sunny.")
///     .reply("```json\n{\"seat_letter\": \"A\", \"row_number\": 3}\n```");
/// assert_eq!(levity_llm::check_tools(&server).await?.schema, SchemaSupport::Ignored);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SchemaSupport {
    /// The reply matches the schema.
    #[serde(rename = "holds")]
    Enforced,
    /// The server accepts the schema, but the reply does not match it.
    Ignored,
    /// The server rejected the request with this error.
    Refused(String),
}

/// Tests how a model and its server handle tools. It requests a word, a tool call and JSON of a
/// specific shape.
///
/// Pass the bare model, as from `Models::bare_model`: a layer would hide the behaviour of the
/// server.
///
/// ```
/// use levity_llm::layers::ToolMode;
/// use levity_test::{ScriptedModel, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// # use serde_json::json;
/// let server = ScriptedModel::new()
///     .reply("ready")
///     .call("get_weather", json!({"city": "Rome"}))
///     .reply(r#"{"seat_letter": "B", "row_number": 12}"#);
/// let check = levity_llm::check_tools(&server).await?;
/// assert_eq!(check.mode, ToolMode::Native);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns an error if the first request fails, or if a later one fails for another reason than its
/// tools or its schema.
pub async fn check_tools(model: &dyn Model) -> Result<ToolCheck, ModelError> {
    let plain = model
        .complete(request("Reply with the word: ready"))
        .await?;
    let mut usage = plain.usage;
    let (tools, calls) = check_calls(model, &plain, &mut usage).await?;
    let schema = check_schema(model, &mut usage).await?;
    let mode = match (&tools, &schema) {
        (ToolVisibility::Yes | ToolVisibility::Unknown, _) if calls == CallFormat::Text => {
            ToolMode::Guided
        }
        (ToolVisibility::Yes | ToolVisibility::Unknown, _) => ToolMode::Native,
        (_, SchemaSupport::Enforced) => ToolMode::Structured,
        _ => ToolMode::Text,
    };
    Ok(ToolCheck {
        tools,
        calls,
        schema,
        mode,
        usage,
    })
}

/// Returns a request with temperature 0, so that the check repeats as well as the server allows.
fn request(text: &str) -> Request {
    let mut options = Options::default();
    options.max_tokens = Some(MAX_TOKENS);
    options.temperature = Some(0.0);
    Request::new()
        .with_message(Message::user(text))
        .with_options(options)
}

/// Returns the offered tool, a common one that every model recognises.
fn weather() -> ToolSpec {
    let city = json!({"type": "string", "description": "The name of the city"});
    let schema = json!({"type": "object", "properties": {"city": city}, "required": ["city"]});
    ToolSpec::new("get_weather", "Tells the weather of today in a city.").with_input(schema)
}

/// The number of additional input tokens decides if the model made no call. A server that shows the
/// tool counts at least an eighth of the bytes of its description and schema.
async fn check_calls(
    model: &dyn Model,
    plain: &Response,
    usage: &mut Usage,
) -> Result<(ToolVisibility, CallFormat), ModelError> {
    let tool = weather();
    let size = (tool.description.len() + tool.input.to_string().len()) as u64;
    let probe = request("What is the weather in Rome today?").with_tools([tool.into()]);
    let reply = match model.complete(probe).await {
        Ok(reply) => reply,
        Err(error) if refuses_tools(&error) => {
            return Ok((ToolVisibility::Refused(error.to_string()), CallFormat::None));
        }
        Err(error) => return Err(error),
    };
    *usage += reply.usage;
    let calls = match reply.message.calls().next() {
        Some(call) if call.is_from_text() => CallFormat::Text,
        Some(_) => CallFormat::Native,
        None => CallFormat::None,
    };
    let more = reply
        .usage
        .input
        .zip(plain.usage.input)
        .map(|(with, without)| with.saturating_sub(without));
    let tools = match (calls, more) {
        (CallFormat::Native | CallFormat::Text, _) => ToolVisibility::Yes,
        // The two prompts differ by a few tokens.
        (CallFormat::None, Some(more)) if more < 10 + size / 8 => ToolVisibility::Dropped,
        (CallFormat::None, Some(_)) => ToolVisibility::Yes,
        (CallFormat::None, None) => ToolVisibility::Unknown,
    };
    Ok((tools, calls))
}

/// Requests an object with keys that no model would choose on its own.
async fn check_schema(model: &dyn Model, usage: &mut Usage) -> Result<SchemaSupport, ModelError> {
    let properties =
        json!({"seat_letter": {"enum": ["A", "B"]}, "row_number": {"type": "integer"}});
    let schema = json!({
        "type": "object", "properties": properties, "required": ["seat_letter", "row_number"],
        "additionalProperties": false,
    });
    let probe = request("Pick a seat in a train.").with_output(OutputSchema::new("seat", schema));
    let reply = match model.complete(probe).await {
        Ok(reply) => reply,
        Err(error) if refuses_schema(&error) => {
            return Ok(SchemaSupport::Refused(error.to_string()));
        }
        Err(error) => return Err(error),
    };
    *usage += reply.usage;
    let value: Option<Value> = serde_json::from_str(reply.message.text().trim()).ok();
    let holds = value
        .as_ref()
        .and_then(Value::as_object)
        .is_some_and(|seat| {
            let letter = seat.get("seat_letter").and_then(Value::as_str);
            seat.len() == 2
                && matches!(letter, Some("A" | "B"))
                && seat.get("row_number").is_some_and(Value::is_i64)
        });
    Ok(if holds && reply.finish != Finish::Length {
        SchemaSupport::Enforced
    } else {
        SchemaSupport::Ignored
    })
}
