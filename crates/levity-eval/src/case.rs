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
    /// The turns that follow `messages`, once the subject has answered them; most cases have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<CaseTurn>,
    /// The state that the tools start with, for the [program that runs them](crate::ToolHost).
    /// Without it, the tools of a case note their calls and do nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Value>,
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
            turns: Vec::new(),
            environment: None,
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

    /// Adds a turn, which follows the subject's answer to the turn before it.
    #[must_use]
    pub fn with_turn(mut self, turn: CaseTurn) -> Self {
        self.turns.push(turn);
        self
    }

    /// Has the tools run, from this state on.
    #[must_use]
    pub fn with_environment(mut self, environment: Value) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Sets the case as its suite has it.
    #[must_use]
    pub fn with_source(mut self, source: Value) -> Self {
        self.source = source;
        self
    }

    /// Returns what a subject may see: id, category, messages and tools, and not what is expected.
    /// Of a case with several turns, it is the first one.
    pub fn question(&self) -> Value {
        let mut question = json!({"id": self.id, "category": self.category, "messages": self.messages, "tools": self.tools});
        self.add_turn(&mut question, 1);
        question
    }

    /// Returns what a subject may see at a turn, from 1: the messages of the turn, and all tools on
    /// offer by then. `None` when the case has no such turn.
    pub fn question_at(&self, turn: usize) -> Option<Value> {
        let Some(later) = turn.checked_sub(2) else {
            return (turn == 1).then(|| self.question());
        };
        let messages = &self.turns.get(later)?.messages;
        let tools: Vec<_> = self.tools_at(turn).collect();
        let mut question =
            json!({"id": self.id, "category": self.category, "messages": messages, "tools": tools});
        self.add_turn(&mut question, turn);
        Some(question)
    }

    /// The tools on offer at a turn, from 1.
    pub(crate) fn tools_at(&self, turn: usize) -> impl Iterator<Item = &OfferedTool> {
        let later = self
            .turns
            .iter()
            .take(turn.saturating_sub(1))
            .flat_map(|turn| &turn.tools);
        self.tools.iter().chain(later)
    }

    /// True if the case is a conversation in which tools run, or the user speaks again.
    pub(crate) fn is_conversation(&self) -> bool {
        self.environment.is_some() || !self.turns.is_empty()
    }

    fn add_turn(&self, question: &mut Value, turn: usize) {
        if self.is_conversation() {
            question["turn"] = turn.into();
            question["turns"] = (1 + self.turns.len()).into();
            question["tools_run"] = self.environment.is_some().into();
        }
    }
}

/// A later turn of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CaseTurn {
    /// The messages, the last of which is the user's.
    pub messages: Vec<CaseMessage>,
    /// The tools that are on offer from this turn on, besides those of the turns before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<OfferedTool>,
}

impl CaseTurn {
    /// A turn of these messages.
    pub fn new(messages: impl IntoIterator<Item = CaseMessage>) -> Self {
        Self {
            messages: messages.into_iter().collect(),
            tools: Vec::new(),
        }
    }

    /// Offers a tool from this turn on.
    #[must_use]
    pub fn with_tool(mut self, tool: OfferedTool) -> Self {
        self.tools.push(tool);
        self
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
        Self {
            role,
            content: content.into(),
        }
    }
}

/// A tool that a case offers. It runs in a case with an [environment](Case::environment) alone.
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
        Self {
            name: name.into(),
            description: description.into(),
            parameters,
        }
    }

    /// Sets the schema of the arguments.
    #[must_use]
    pub fn with_parameters(mut self, schema: Value) -> Self {
        self.parameters = schema;
        self
    }
}
