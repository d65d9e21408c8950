use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{History, ToolSpec};

/// A request to a model. Cloning is cheap.
///
/// ```
/// # use levity_core::{Message, Request};
/// let message = Message::user("Good morning");
/// let request = Request::new().with_system("Be brief.").with_message(message);
/// assert_eq!(request.history.len(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Request {
    /// Instructions that precede the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<Arc<str>>,
    /// The conversation up to now.
    pub history: History,
    /// The tools available to the model, in a stable order.
    #[serde(skip_serializing_if = "no_tools")]
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// The tools that the model may or must call.
    pub tool_choice: ToolChoice,
    /// The shape that the answer must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<OutputSchema>>,
    /// All other settings of the request.
    pub options: Arc<Options>,
}

fn no_tools(tools: &Arc<[Arc<ToolSpec>]>) -> bool {
    tools.is_empty()
}

impl Request {
    /// Creates an empty request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the instructions that precede the conversation.
    #[must_use]
    pub fn with_system(mut self, system: impl Into<Arc<str>>) -> Self {
        self.system = Some(system.into());
        self
    }

    /// Sets the conversation of the request.
    #[must_use]
    pub fn with_history(mut self, history: History) -> Self {
        self.history = history;
        self
    }

    /// Adds a message that neither calls a tool nor answers a call. Other messages are ignored,
    /// because they are not valid alone.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Arc<crate::Message>>) -> Self {
        let _ = self.history.push(message);
        self
    }

    /// Sets the tools available to the model.
    #[must_use]
    pub fn with_tools(mut self, tools: impl Into<Arc<[Arc<ToolSpec>]>>) -> Self {
        self.tools = tools.into();
        self
    }

    /// Sets the shape that the answer must have.
    #[must_use]
    pub fn with_output(mut self, output: impl Into<Arc<OutputSchema>>) -> Self {
        self.output = Some(output.into());
        self
    }

    /// Sets all other settings of the request.
    #[must_use]
    pub fn with_options(mut self, options: impl Into<Arc<Options>>) -> Self {
        self.options = options.into();
        self
    }
}

/// The tools that the model may or must call.
///
/// ```
/// # use levity_core::{Request, ToolChoice};
/// let mut request = Request::new();
/// assert_eq!(request.tool_choice, ToolChoice::Auto);
/// request.tool_choice = ToolChoice::Tool("add".to_owned());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides itself.
    #[default]
    Auto,
    /// The model may not call tools.
    None,
    /// The model must call a tool.
    Required,
    /// The model must call this tool.
    Tool(String),
}

/// The shape that the answer must have.
///
/// ```
/// # use levity_core::{OutputSchema, Request};
/// # use serde_json::json;
/// let schema = json!({"type": "object", "properties": {"total": {"type": "number"}}});
/// let request = Request::new().with_output(OutputSchema::new("sum", schema));
/// assert_eq!(request.output.map(|output| output.name.clone()).as_deref(), Some("sum"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OutputSchema {
    /// The name of the schema, of letters, digits, `_` and `-`.
    pub name: String,
    /// The schema in JSON Schema format.
    pub schema: Value,
}

impl OutputSchema {
    /// Creates a named schema.
    pub fn new(name: impl Into<String>, schema: Value) -> Self {
        Self {
            name: name.into(),
            schema,
        }
    }

    /// Creates the schema of a type.
    ///
    /// ```
    /// # use levity_core::OutputSchema;
    /// #[derive(schemars::JsonSchema)]
    /// struct Sum { total: f64 }
    /// assert_eq!(OutputSchema::of::<Sum>().name, "Sum");
    /// ```
    pub fn of<T: schemars::JsonSchema>() -> Self {
        let keep = |c: char| {
            if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
                c
            } else {
                '_'
            }
        };
        let name: String = T::schema_name().chars().map(keep).take(64).collect();
        Self::new(
            name,
            schemars::SchemaGenerator::default()
                .into_root_schema_for::<T>()
                .into(),
        )
    }
}

/// Optional settings of a request; the provider decides on all that are not set.
///
/// ```
/// # use levity_core::{Options, Request, ThinkingMode};
/// let mut options = Options::new();
/// options.temperature = Some(0.2);
/// options.max_tokens = Some(500);
/// options.thinking = Some(ThinkingMode::Off);
/// options.extra.insert("service_tier".to_owned(), "flex".into());
/// assert_eq!(Request::new().with_options(options).options.max_tokens, Some(500));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Options {
    /// The randomness of sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The probability mass to sample from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The maximum tokens of a reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The texts that end the reply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The amount of thinking before the answer, if the model can think.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingMode>,
    /// Makes the reply repeatable, if the provider supports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Provider-specific fields, added unchanged to the body of the request.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
    /// A name of the call for logs, such as the agent and its step. It is neither stored, nor sent,
    /// nor part of the key of a cache.
    #[serde(skip)]
    pub label: Option<Arc<str>>,
}

/// The amount of thinking before a model answers.
///
/// ```
/// # use levity_core::ThinkingMode;
/// assert_eq!(serde_json::to_string(&ThinkingMode::Budget(2_048))?, r#"{"budget":2048}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThinkingMode {
    /// No thinking, as far as the model allows that.
    Off,
    /// An amount that the model chooses.
    Auto,
    /// A low amount of thinking.
    Low,
    /// A medium amount of thinking.
    Medium,
    /// A high amount of thinking.
    High,
    /// At most this many tokens.
    Budget(u64),
}

impl Options {
    /// Creates options with nothing set.
    pub fn new() -> Self {
        Self::default()
    }
}
