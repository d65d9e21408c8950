//! The removal of conversations that have expired.
//!
//! Cleaning lists the expired conversations in pages of 200, oldest first. The date is checked
//! again by the store in the step that removes it, so a conversation that continues meanwhile is
//! safe.

use levity_core::{ConversationId, ConversationQuery, MemoryError, MemoryErrorKind, Timestamp};

use super::{Conversations, QueueSlot, is_expired};

/// The number of conversations per listed page.
const PAGE: usize = 200;

/// The result of one clean-up pass.
///
/// ```
/// use levity_memory::{Conversations, InMemory, MemoryCleanup};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::MemoryError> {
/// let conversations = Conversations::new(InMemory::new());
/// assert_eq!(conversations.clean_up().await?, MemoryCleanup::default());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryCleanup {
    /// The number of removed conversations.
    pub removed: u64,
    /// The number of conversations that expired but could not be removed; they are unchanged.
    pub failed: u64,
}

pub(super) async fn clean_up(conversations: &Conversations) -> Result<MemoryCleanup, MemoryError> {
    let mut cleaned = MemoryCleanup::default();
    let Some(deadline) = conversations.deadline() else {
        return Ok(cleaned);
    };
    let mut query = ConversationQuery::new()
        .unchanged_since(deadline)
        .limit(PAGE);
    loop {
        let page = conversations.store.list(&query).await?;
        let Some(last) = page.last() else {
            return Ok(cleaned);
        };
        query = query.after(last);
        for info in page
            .iter()
            .filter(|info| is_expired(info.changed, deadline))
        {
            match remove(conversations, &info.id, deadline).await {
                Ok(removed) => cleaned.removed += u64::from(removed),
                Err(error) if error.kind() == MemoryErrorKind::Busy => {}
                Err(_) => cleaned.failed += 1,
            }
        }
    }
}

/// Removes one conversation, unless a run in this process holds it or waits for it. In that case,
/// the next `open` removes it.
async fn remove(
    conversations: &Conversations,
    id: &ConversationId,
    deadline: Timestamp,
) -> Result<bool, MemoryError> {
    match QueueSlot::try_acquire(&conversations.queue, id) {
        Some(_slot) => conversations.store.expire(id, deadline).await,
        None => Ok(false),
    }
}
