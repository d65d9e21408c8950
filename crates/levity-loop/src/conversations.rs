//! Runs that are part of a conversation.
//!
//! A conversation has one writer at a time. A run holds its lease from loading the past until its
//! last save, so a second run of the same conversation waits and then sees the messages of the
//! first.
//!
//! At most 256 messages are loaded beside the summary. A gap between the summary and the first
//! loaded message is named to the model.

use levity_core::{
    ConversationChange, ConversationEnd, ConversationId, History, Lease, MemoryError,
    MemoryErrorKind, Outcome, Save, SharedError, Timestamp,
};
use levity_memory::Conversations;
use levity_runtime::LeaseFuture;

use crate::agent::Agent;
use crate::executor::AgentExecutor;
use crate::machine::{AgentMachine, ConversationState, Past};

/// The maximum number of messages outside the summary that are loaded.
const MAX_LOADED: usize = 256;
/// The number of attempts of a save before it fails.
const SAVE_ATTEMPTS: u32 = 3;

impl Agent {
    /// Returns the agent's conversations, if it has a memory.
    pub fn conversations(&self) -> Option<&Conversations> {
        self.inner.executor.conversations.as_ref()
    }

    /// Loads the earlier messages of a conversation, once no other run holds it.
    pub(crate) async fn past(&self, id: &ConversationId) -> Result<(Past, Lease), SharedError> {
        let mut open = self
            .require_conversations()?
            .open(id, MAX_LOADED)
            .await
            .map_err(SharedError::new)?;
        let remembered = open.take();
        let upto = remembered
            .summary
            .as_ref()
            .map_or(0, |summary| summary.upto);
        let loaded = remembered.messages.len();
        let history = History::renamed(remembered.messages).map_err(|error| {
            SharedError::new(
                MemoryError::damaged(id, "its messages do not form a valid conversation")
                    .with_source(error),
            )
        })?;
        let talk = ConversationState::new(id.clone(), remembered.end, loaded, upto);
        // A conversation cut in the middle would begin with a reply, which no provider accepts.
        let missing = remembered
            .end
            .saturating_sub(loaded as u64)
            .saturating_sub(upto);
        let mut summary = remembered.summary.map(|summary| summary.text);
        if missing > 0 {
            let before = summary.map_or_else(String::new, |text| format!("{text} "));
            summary = Some(format!("{before}({missing} messages are left out here.)").into());
        }
        Ok((
            Past {
                history,
                summary,
                talk: Some(talk),
            },
            self.with_settle(Lease::new(open)),
        ))
    }

    /// Leases the conversation of an old run, so that no other run uses it meanwhile.
    pub(crate) fn lease_of(&self, machine: &AgentMachine) -> Option<LeaseFuture> {
        let (agent, id) = (self.clone(), machine.conversation()?.clone());
        Some(Box::pin(async move {
            let lease = Lease::new(
                agent
                    .require_conversations()?
                    .open(&id, 0)
                    .await
                    .map_err(SharedError::new)?,
            );
            Ok(agent.with_settle(lease))
        }))
    }

    /// Wraps a lease so that pending work for the conversation is done while it is held.
    fn with_settle(&self, lease: Lease) -> Lease {
        let executor = self.inner.executor.clone();
        lease.at_end(move |left| async move { executor.settle(&left).await })
    }

    fn require_conversations(&self) -> Result<&Conversations, SharedError> {
        self.conversations()
            .ok_or_else(|| SharedError::new(no_memory()))
    }
}

impl AgentExecutor {
    /// Saves what a run that was stopped at once had no time to save, and stores the topic of its
    /// conversation.
    async fn settle(&self, talk: &ConversationEnd) {
        for save in &talk.unsaved {
            self.save(save.clone()).await;
        }
        if let Some(sessions) = self
            .conversations
            .as_ref()
            .and_then(Conversations::sessions)
        {
            let _ = sessions.save(&talk.id, &talk.about).await;
        }
    }

    /// Two pauses, of 20 ms and 100 ms, bridge a store that is busy for a moment.
    pub(crate) async fn save(&self, save: Save) -> Outcome {
        let Some(conversations) = &self.conversations else {
            return Outcome::Saved(Err(no_memory()));
        };
        let Save {
            conversation,
            mut change,
            ..
        } = save;
        if change.when == Timestamp::default() {
            change.when = self.world.now();
        }
        let mut pause = std::time::Duration::from_millis(20);
        for _ in 1..SAVE_ATTEMPTS {
            match self.save_once(conversations, &conversation, &change).await {
                Err(error) if error.is_retryable() => self.world.sleep(pause).await,
                done => return Outcome::Saved(done),
            }
            pause *= 5;
        }
        Outcome::Saved(self.save_once(conversations, &conversation, &change).await)
    }

    async fn save_once(
        &self,
        conversations: &Conversations,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError> {
        conversations.store().save(id, change).await
    }
}

fn no_memory() -> MemoryError {
    let message = "the agent has no memory to store conversations in; add one (`.memory(..)`, \
        or `--memory`)";
    MemoryError::new(MemoryErrorKind::Refused, message)
}
