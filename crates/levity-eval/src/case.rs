//! Cases: a question, the tools that it offers, and the expectation.
//!
//! Only `question` and `question_at` build the part for a subject. They list the visible fields one
//! by one, so a new field stays hidden until someone adds it there.

use levity_core::Role;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Expectation;

/// A question for a subject, with the expected answer.
///
/// ```
/// # use levity_eval::{Case, Expectation};
/// let expect = Expectation::contains("Paris");
/// let case = Case::new("capital-1", "What is the capital of France?", expect);
/// assert_eq!(case.question()["messages"][0]["content"], "What is the capital of France?");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Case {
    /// The id, unique within the suite.
    pub id: String,
    /// The group in which the case is counted.
    #[serde(default)]
    pub category: String,
    /// The conversation, which ends with a message of the user.
    pub messages: Vec<CaseMessage>,
    /// The tools that the case offers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<OfferedTool>,
    /// The turns that follow `messages` after the subject's answers; most cases have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<CaseTurn>,
    /// The initial state of the tools, for the [program that runs them](crate::ToolHost). Without
    /// it, the tools of a case only record their calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Value>,
    /// The expectation for the answer.
    pub expect: Expectation,
    /// The case in the format of its suite, for a judge of that suite.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub source: Value,
}

impl Case {
    /// Creates a case with one message and no tools.
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

    /// Sets the category of the case.
    #[must_use]
    pub fn with_category(mut self, category: impl Into<String>) -> Self {
        self.category = category.into();
        self
    }

    /// Replaces the conversation of the case.
    ///
    /// ```
    /// use levity_core::Role;
    /// use levity_eval::{Case, CaseMessage, Expectation};
    ///
    /// let case = Case::new("tone-1", "", Expectation::contains("Sir")).with_messages([
    ///     CaseMessage::new(Role::System, "Be formal."),
    ///     CaseMessage::new(Role::User, "Hi there!"),
    /// ]);
    /// assert_eq!(case.messages.len(), 2);
    /// ```
    #[must_use]
    pub fn with_messages(mut self, messages: impl IntoIterator<Item = CaseMessage>) -> Self {
        self.messages = messages.into_iter().collect();
        self
    }

    /// Adds a tool that the case offers.
    ///
    /// ```
    /// use levity_eval::{Case, Expectation, OfferedTool};
    ///
    /// let case = Case::new("time-1", "How late is it?", Expectation::NoCalls)
    ///     .with_tool(OfferedTool::new("now", "Tells the time."));
    /// assert_eq!(case.question()["tools"][0]["name"], "now");
    /// ```
    #[must_use]
    pub fn with_tool(mut self, tool: OfferedTool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds a turn, which follows the subject's answer to the previous turn.
    #[must_use]
    pub fn with_turn(mut self, turn: CaseTurn) -> Self {
        self.turns.push(turn);
        self
    }

    /// Sets the initial state of the tools, so that they run.
    ///
    /// ```
    /// use levity_eval::{Case, Expectation};
    /// use serde_json::json;
    ///
    /// let case = Case::new("fs-1", "Delete a.txt.", Expectation::JudgeOnly)
    ///     .with_environment(json!({"files": ["a.txt"]}));
    /// assert_eq!(case.question()["tools_run"], true);
    /// ```
    #[must_use]
    pub fn with_environment(mut self, environment: Value) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Sets the case in the format of its suite.
    #[must_use]
    pub fn with_source(mut self, source: Value) -> Self {
        self.source = source;
        self
    }

    /// Returns the part that a subject may see: id, category, messages and tools, without the
    /// expectation. For a case with several turns, this is the first turn.
    ///
    /// ```
    /// use levity_eval::{Case, Expectation};
    ///
    /// let case = Case::new("sum-1", "What is 2 + 5?", Expectation::exact("7"));
    /// let question = case.question();
    /// assert_eq!(question["messages"][0]["content"], "What is 2 + 5?");
    /// assert!(question.get("expect").is_none());
    /// ```
    pub fn question(&self) -> Value {
        let mut question = json!({
            "id": self.id,
            "category": self.category,
            "messages": self.messages,
            "tools": self.tools,
        });
        self.add_turn(&mut question, 1);
        question
    }

    /// Returns the part that a subject may see at a turn, counted from 1: its messages, and all
    /// tools offered up to then. `None` if the case has no such turn.
    ///
    /// ```
    /// use levity_core::Role;
    /// use levity_eval::{Case, CaseMessage, CaseTurn, Expectation};
    ///
    /// let again = CaseTurn::new([CaseMessage::new(Role::User, "And times 3?")]);
    /// let case = Case::new("sum-2", "What is 2 + 5?", Expectation::contains("21"));
    /// let case = case.with_turn(again);
    /// let second = case.question_at(2).expect("a second turn");
    /// assert_eq!((&second["turn"], &second["turns"]), (&2.into(), &2.into()));
    /// assert_eq!(case.question_at(3), None);
    /// ```
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

    /// Iterates over the tools offered at a turn, counted from 1.
    pub(crate) fn tools_at(&self, turn: usize) -> impl Iterator<Item = &OfferedTool> {
        let later = self
            .turns
            .iter()
            .take(turn.saturating_sub(1))
            .flat_map(|turn| &turn.tools);
        self.tools.iter().chain(later)
    }

    /// Returns `true` if tools run in the case, or if it has several turns.
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
///
/// ```
/// use levity_core::Role;
/// use levity_eval::{CaseMessage, CaseTurn, OfferedTool};
///
/// let turn = CaseTurn::new([CaseMessage::new(Role::User, "You may search now.")])
///     .with_tool(OfferedTool::new("search", "Searches the web."));
/// assert_eq!(turn.tools[0].name, "search");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CaseTurn {
    /// The messages, the last of which is the user's.
    pub messages: Vec<CaseMessage>,
    /// The tools offered from this turn on, in addition to those of earlier turns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<OfferedTool>,
}

impl CaseTurn {
    /// Creates a turn with these messages.
    pub fn new(messages: impl IntoIterator<Item = CaseMessage>) -> Self {
        Self {
            messages: messages.into_iter().collect(),
            tools: Vec::new(),
        }
    }

    /// Adds a tool that is offered from this turn on.
    #[must_use]
    pub fn with_tool(mut self, tool: OfferedTool) -> Self {
        self.tools.push(tool);
        self
    }
}

/// One message of a case.
///
/// ```
/// use levity_core::Role;
/// use levity_eval::CaseMessage;
///
/// let message: CaseMessage = serde_json::from_str(r#"{"role": "user", "content": "Hi"}"#)?;
/// assert_eq!(message, CaseMessage::new(Role::User, "Hi"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CaseMessage {
    /// The role of the author.
    pub role: Role,
    /// The text of the message.
    pub content: String,
}

impl CaseMessage {
    /// Creates a message with this text.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
        }
    }
}

/// A tool that a case offers. It runs only in a case with an [environment](Case::environment).
///
/// ```
/// use levity_eval::OfferedTool;
/// use serde_json::json;
///
/// let tool = OfferedTool::new("add", "Adds two numbers.").with_parameters(json!({
///     "type": "object",
///     "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
///     "required": ["a", "b"],
/// }));
/// assert_eq!(tool.parameters["required"], json!(["a", "b"]));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OfferedTool {
    /// The name: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// The description that the model sees.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of the arguments: an object.
    pub parameters: Value,
}

impl OfferedTool {
    /// Creates a tool without arguments.
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
