use levity_core::Role;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Expectation;

/// A question for a subject, and what is expected of the answer.
///
/// ```
/// # use levity_eval::{Case, Expectation};
/// let case = Case::new("capital-1", "What is the capital of France?", Expectation::contains("Paris"));
/// assert_eq!(case.question()["messages"][0]["content"], "What is the capital of France?");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Case {
    /// The id, which no other case of the suite has.
    pub id: String,
    /// The group that the case is counted in.
    #[serde(default)]
    pub category: String,
    /// The conversation, which ends with a message of the user.
    pub messages: Vec<CaseMessage>,
    /// The tools on offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<OfferedTool>,
    /// The expectation that the answer is checked against.
    pub expect: Expectation,
    /// The case as its suite has it, for a judge of that suite.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub source: Value,
}

impl Case {
    /// A case of one message, without tools.
    pub fn new(id: impl Into<String>, prompt: impl Into<String>, expect: Expectation) -> Self {
        Self {
            id: id.into(),
            category: String::new(),
            messages: vec![CaseMessage::new(Role::User, prompt)],
            tools: Vec::new(),
            expect,
            source: Value::Null,
        }
    }

    /// Sets the category.
    #[must_use]
    pub fn with_category(mut self, category: impl Into<String>) -> Self {
        self.category = category.into();
        self
    }

    /// Replaces the conversation.
    #[must_use]
    pub fn with_messages(mut self, messages: impl IntoIterator<Item = CaseMessage>) -> Self {
        self.messages = messages.into_iter().collect();
        self
    }

    /// Offers a tool.
    #[must_use]
    pub fn with_tool(mut self, tool: OfferedTool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets the case as its suite has it.
    #[must_use]
    pub fn with_source(mut self, source: Value) -> Self {
        self.source = source;
        self
    }

    /// Returns what a subject may see: id, category, messages and tools, and not what is expected.
    pub fn question(&self) -> Value {
        json!({"id": self.id, "category": self.category, "messages": self.messages, "tools": self.tools})
    }
}

/// One message of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CaseMessage {
    /// The speaker.
    pub role: Role,
    /// The text.
    pub content: String,
}

impl CaseMessage {
    /// A message of text.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into() }
    }
}

/// A tool that a case offers. Nothing is done when it is called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OfferedTool {
    /// The name: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// The description that the model sees.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments: an object.
    pub parameters: Value,
}

impl OfferedTool {
    /// A tool without arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        let parameters = json!({"type": "object", "properties": {}});
        Self { name: name.into(), description: description.into(), parameters }
    }

    /// Sets the schema of the arguments.
    #[must_use]
    pub fn with_parameters(mut self, schema: Value) -> Self {
        self.parameters = schema;
        self
    }
}
