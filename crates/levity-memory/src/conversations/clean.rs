//! Removes what nobody needs any more.

use levity_core::{ConversationId, ConversationQuery, MemoryError, MemoryErrorKind, Timestamp};

use super::{Conversations, Turn, is_expired};

/// So many conversations are looked at in one go.
const PAGE: usize = 200;

/// What a clean-up did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryCleanup {
    /// So many conversations were removed.
    pub removed: u64,
    /// So many should have been and could not be; they are as they were.
    pub failed: u64,
}

pub(super) async fn clean_up(conversations: &Conversations) -> Result<MemoryCleanup, MemoryError> {
    let mut cleaned = MemoryCleanup::default();
    let Some(moment) = conversations.deadline() else {
        return Ok(cleaned);
    };
    let mut query = ConversationQuery::new().unchanged_since(moment).limit(PAGE);
    loop {
        let page = conversations.store.list(&query).await?;
        let Some(last) = page.last() else {
            return Ok(cleaned);
        };
        query = query.after(last);
        for info in page.iter().filter(|info| is_expired(info.changed, moment)) {
            match remove(conversations, &info.id, moment).await {
                Ok(removed) => cleaned.removed += u64::from(removed),
                Err(error) if error.kind() == MemoryErrorKind::Busy => {}
                Err(_) => cleaned.failed += 1,
            }
        }
    }
}

/// Removes one, unless somebody in this process has it or waits for it: it is removed then when it
/// is opened.
async fn remove(
    conversations: &Conversations,
    id: &ConversationId,
    moment: Timestamp,
) -> Result<bool, MemoryError> {
    match Turn::try_take(&conversations.turns, id) {
        Some(_turn) => conversations.store.expire(id, moment).await,
        None => Ok(false),
    }
}
