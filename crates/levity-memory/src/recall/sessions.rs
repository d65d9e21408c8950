//! Notes on past sessions, stored as facts.

use async_trait::async_trait;
use levity_core::{ConversationId, MemoryError};
use rusqlite::{OptionalExtension, params};

use super::File;
use super::rows;
use super::{Recall, Scope, VACUUM_AFTER_FACT_BYTES};
use crate::SessionNotes;

/// Notes on conversations, stored in a [`Recall`] under one scope; see [`Recall::sessions`].
///
/// ```
/// use levity_core::ConversationId;
/// use levity_memory::{Recall, Scope, SessionNotes};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::MemoryError> {
/// let (recall, user) = (Recall::in_memory()?, Scope::user("u-17"));
/// let notes = recall.sessions(user.clone());
/// notes.save(&ConversationId::new("monday"), "They planned the harbour trip.").await?;
/// let found = recall.recall(&[user], "harbour", 5).await?;
/// assert_eq!(found.facts[0].conversation, Some(ConversationId::new("monday")));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RecallSessionNotes {
    recall: Recall,
    scope: Scope,
}

impl Recall {
    /// Returns a store of conversation notes under a scope, for
    /// [`Conversations::with_session_notes`](crate::Conversations::with_session_notes). A query
    /// finds the notes like facts.
    pub fn sessions(&self, scope: Scope) -> RecallSessionNotes {
        RecallSessionNotes {
            recall: self.clone(),
            scope,
        }
    }

    /// Removes the summary of a session, and returns `true` if there was one; see
    /// [`forget`](Self::forget).
    ///
    /// # Errors
    /// As [`forget`](Self::forget).
    pub async fn forget_session(
        &self,
        scope: &Scope,
        conversation: &ConversationId,
    ) -> Result<bool, MemoryError> {
        let (scope, conversation) = (scope.clone(), conversation.clone());
        let forget = move |file: &File| {
            let forgotten = file.write(|change| {
                let keys = rows::scope_keys(change, std::slice::from_ref(&scope))?;
                let Some((key, _)) = keys.first() else {
                    return Ok(false);
                };
                let mut session = change.prepare_cached(
                    "SELECT id FROM facts WHERE scope = ?1 AND conversation = ?2",
                )?;
                let id = session
                    .query_row(params![key, conversation.as_str()], |row| row.get(0))
                    .optional()?;
                id.map_or(Ok(false), |id| {
                    rows::forget(change, &[*key], rows::fact_id(id)?)
                })
            })?;
            file.wipe(VACUUM_AFTER_FACT_BYTES).map(|()| forgotten)
        };
        self.file.run(forget).await
    }
}

#[async_trait]
impl SessionNotes for RecallSessionNotes {
    async fn save(&self, id: &ConversationId, text: &str) -> Result<(), MemoryError> {
        self.recall
            .remember_session(&self.scope, id, text)
            .await
            .map(drop)
    }

    async fn forget(&self, id: &ConversationId) -> Result<(), MemoryError> {
        self.recall.forget_session(&self.scope, id).await.map(drop)
    }
}
