//! The memory of a session: earlier goals, and answers of all sessions.
//!
//! Both are given to a run as variables, so that the planner sees them and a step reads them only
//! if it needs them. A store that fails is reported and does not stop the work.

use std::path::Path;
use std::sync::Arc;

use levity::core::text::clipped;
use levity::core::{ConversationChange, ConversationId, Message, Role};
use levity::memory::{Conversations, InMemory};
use levity::prelude::*;
use serde_json::{Value, json};

use crate::memory;
use crate::recall::AnswerStore;
use crate::terminal::{chain, note};

/// The number of earlier goals that a run is given.
const MAX_EARLIER: usize = 10;
/// The maximum length of a given answer, in bytes.
const MAX_ANSWER: usize = 4000;

/// The stores of a session.
pub(super) struct EarlierGoals {
    conversations: Conversations,
    id: ConversationId,
    recall: Option<AnswerStore>,
}

impl EarlierGoals {
    /// Opens the stores. The id of a new stored conversation is printed, since the user needs it to
    /// continue.
    pub(super) async fn open(
        memory: Option<&Path>,
        conversation: Option<&str>,
        recall: Option<&Path>,
        runtime: &Runtime,
    ) -> Result<Self, String> {
        let conversations = match memory {
            Some(path) => memory::conversations(memory::open(path)?, runtime),
            None => memory::conversations(Arc::new(InMemory::new()), runtime),
        };
        let id = memory::conversation_id(memory, conversation, runtime);
        if memory.is_some() && conversation.is_none() {
            note(&format!("conversation {id}"));
        }
        let recall = AnswerStore::open(recall)?;
        let earlier = Self {
            conversations,
            id,
            recall,
        };
        // A conversation that cannot be read is reported before the user types a goal.
        earlier.goals().await?;
        Ok(earlier)
    }

    /// Returns the variables for a run with this goal.
    pub(super) async fn variables(&self, goal: &str) -> Vec<(&'static str, Value)> {
        let mut variables = Vec::new();
        match self.goals().await {
            Ok(goals) if goals.is_empty() => {}
            Ok(goals) => variables.push(("earlier_goals", Value::Array(goals))),
            Err(problem) => note(&format!("the earlier goals cannot be read: {problem}")),
        }
        if let Some(recall) = &self.recall {
            variables.extend(recall.variable(goal).await);
        }
        variables
    }

    /// Returns the last goals of this conversation with their answers, the oldest first.
    async fn goals(&self) -> Result<Vec<Value>, String> {
        let open = self.conversations.open(&self.id, 2 * MAX_EARLIER).await;
        let open = open.map_err(|error| chain(&error))?;
        let mut goals: Vec<Value> = Vec::new();
        for message in &open.remembered().messages {
            let text = message.text();
            let text = clipped(&text, MAX_ANSWER);
            match (message.role, goals.last_mut()) {
                (Role::User, _) => goals.push(json!({"goal": text})),
                (Role::Assistant, Some(goal)) => goal["answer"] = json!(text),
                _ => {}
            }
        }
        Ok(goals)
    }

    /// Stores a goal with its answer.
    pub(super) async fn add(&self, goal: &str, answer: &str) {
        if let Err(problem) = self.save(goal, answer).await {
            note(&format!("the answer was not stored: {problem}"));
        }
        if let Some(recall) = &self.recall {
            let source = format!("team session {}", self.id);
            recall.add(goal, answer, &source).await;
        }
    }

    /// Adds a goal and its answer to the conversation, as two messages.
    ///
    /// The conversation is opened again for each goal, because another process may use it as well.
    async fn save(&self, goal: &str, answer: &str) -> Result<(), String> {
        let messages = [Message::user(goal), Message::assistant(answer)];
        let open = self.conversations.open(&self.id, 1).await;
        let open = open.map_err(|error| chain(&error))?;
        let change = ConversationChange::at(open.remembered().end).with_messages(messages);
        open.save(change).await.map_err(|error| chain(&error))
    }
}
