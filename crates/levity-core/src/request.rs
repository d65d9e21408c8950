use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{History, ToolSpec};

/// What is sent to a model. Cloning costs nothing.
///
/// ```
/// # use levity_core::{Message, Request};
/// let request = Request::new().with_system("Be brief.").with_message(Message::user("Good morning"));
/// assert_eq!(request.history.len(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Request {
    /// Instructions that stand before the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<Arc<str>>,
    /// The conversation.
    pub history: History,
    /// The tools on offer, in a stable order.
    #[serde(skip_serializing_if = "no_tools")]
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// Whether and which tool the model may or must call.
    pub tool_choice: ToolChoice,
    /// The shape the answer must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<OutputSchema>>,
    /// Everything else that can be set.
    pub options: Arc<Options>,
}

fn no_tools(tools: &Arc<[Arc<ToolSpec>]>) -> bool {
    tools.is_empty()
}

impl Request {
    /// An empty request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the instructions.
    #[must_use]
    pub fn with_system(mut self, system: impl Into<Arc<str>>) -> Self {
        self.system = Some(system.into());
        self
    }

    /// Sets the conversation.
    #[must_use]
    pub fn with_history(mut self, history: History) -> Self {
        self.history = history;
        self
    }

    /// Adds a message that neither calls a tool nor answers a call; others are left out, since they
    /// have no place on their own.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Arc<crate::Message>>) -> Self {
        let _ = self.history.say(message);
        self
    }

    /// Sets the tools on offer.
    #[must_use]
    pub fn with_tools(mut self, tools: impl Into<Arc<[Arc<ToolSpec>]>>) -> Self {
        self.tools = tools.into();
        self
    }

    /// Sets the shape of the answer.
    #[must_use]
    pub fn with_output(mut self, output: impl Into<Arc<OutputSchema>>) -> Self {
        self.output = Some(output.into());
        self
    }

    /// Sets the options.
    #[must_use]
    pub fn with_options(mut self, options: impl Into<Arc<Options>>) -> Self {
        self.options = options.into();
        self
    }
}

/// Whether and which tool the model may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model may call none.
    None,
    /// The model must call one.
    Required,
    /// The model must call this one.
    Tool(String),
}

/// The shape the answer must have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OutputSchema {
    /// A name for it, of letters, digits, `_` and `-`.
    pub name: String,
    /// The JSON Schema.
    pub schema: Value,
}

impl OutputSchema {
    /// A named schema.
    pub fn new(name: impl Into<String>, schema: Value) -> Self {
        Self {
            name: name.into(),
            schema,
        }
    }

    /// The schema of a type.
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

/// What else can be set on a request; what is not set is left to the provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Options {
    /// Randomness of the choice of words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Share of the likeliest words to choose from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The longest reply, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Texts that end the reply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// How much the model thinks before it speaks, where it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingMode>,
    /// Makes the reply repeatable where the provider can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Fields of the provider's own, added to the request's body as they are.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// How much a model thinks before it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThinkingMode {
    /// Not at all, as far as the model can be kept from it.
    Off,
    /// As much as it sees fit.
    Auto,
    /// Little.
    Low,
    /// Some.
    Medium,
    /// A lot.
    High,
    /// So many tokens at most.
    Budget(u64),
}

impl Options {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }
}
