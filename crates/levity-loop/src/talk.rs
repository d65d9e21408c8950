//! Runs that are part of a conversation.

use async_trait::async_trait;
use levity_core::{
    Cause, Change, ConversationId, Escort, History, Hold, MemoryError, MemoryErrorKind, Outcome, Save,
    Timestamp,
};
use levity_memory::Conversations;
use serde_json::Value;

use crate::agent::Agent;
use crate::executor::AgentExecutor;
use crate::machine::{AgentMachine, Past, Talk};

/// How many messages that are in no summary yet are loaded.
const LOAD: usize = 256;
/// How often a save is tried before the run is told.
const TRIES: u32 = 3;

impl Agent {
    /// The agent's conversations, if it has a memory.
    pub fn conversations(&self) -> Option<&Conversations> {
        self.inner.executor.conversations.as_ref()
    }

    /// What was said before in a conversation, once nobody else has it.
    pub(crate) async fn past(&self, id: &ConversationId) -> Result<Past, Cause> {
        let mut open = self.talks()?.open(id, LOAD).await.map_err(Cause::new)?;
        let remembered = open.take();
        let upto = remembered.summary.as_ref().map_or(0, |summary| summary.upto);
        let loaded = remembered.messages.len();
        let history = History::renamed(remembered.messages).map_err(|error| {
            Cause::new(MemoryError::damaged(id, "its messages make no conversation").with_source(error))
        })?;
        let talk = Talk::new(id.clone(), remembered.end, loaded, upto);
        // A conversation that begins in its midst would begin with a reply, which no provider takes.
        let missing = remembered.end.saturating_sub(loaded as u64).saturating_sub(upto);
        let mut summary = remembered.summary.map(|summary| summary.text);
        if missing > 0 {
            let before = summary.map_or_else(String::new, |text| format!("{text} "));
            summary = Some(format!("{before}({missing} messages are left out here.)").into());
        }
        Ok(Past { history, summary, talk: Some(talk), hold: Some(Hold::new(open)) })
    }

    /// Keeps others from the conversation of an old run while it goes on.
    pub(crate) async fn join(&self, machine: &mut AgentMachine) -> Result<(), Cause> {
        let Some(id) = machine.talk().map(|talk| talk.id().clone()) else { return Ok(()) };
        machine.hold(self.hold(&id).await?);
        Ok(())
    }

    async fn hold(&self, id: &ConversationId) -> Result<Hold, Cause> {
        let open = self.talks()?.open(id, 0).await.map_err(Cause::new)?;
        Ok(Hold::new(open))
    }

    /// Goes with a run below another that is part of a conversation.
    pub(crate) fn escort(&self, id: ConversationId) -> impl Escort + use<> {
        InTalk { agent: self.clone(), id, hold: None }
    }

    fn talks(&self) -> Result<&Conversations, Cause> {
        self.conversations().ok_or_else(|| Cause::new(no_memory()))
    }

    /// What is left to do for the conversation of a run that has ended. There is nobody to tell when that fails: the run's
    /// own end says more. One that had ended before, and is only read from its journal, has no hold on the conversation:
    /// that may have gone on since, or be forgotten. A fork has none, either.
    pub(crate) async fn settle_held(&self, machine: &AgentMachine) {
        self.save_rest(machine).await;
        let sessions = self.conversations().and_then(Conversations::sessions);
        if let (Some(sessions), Some(talk)) = (sessions, machine.talk()) {
            let _ = sessions.note(talk.id(), &machine.session()).await;
        }
    }

    /// Saves what a run that was ended at once had no time to save.
    async fn save_rest(&self, machine: &AgentMachine) {
        for save in machine.unsaved() {
            self.inner.executor.save(save).await;
        }
    }
}

/// Does for a run below another what is done for a run of its own that is part of a conversation.
struct InTalk {
    agent: Agent,
    id: ConversationId,
    /// Of a run that goes on; the machine of a new one has its own.
    hold: Option<Hold>,
}

#[async_trait]
impl Escort for InTalk {
    async fn join(&mut self) -> Result<(), Cause> {
        self.hold = Some(self.agent.hold(&self.id).await?);
        Ok(())
    }

    async fn ended(&mut self, state: Value) {
        if let Ok(machine) = AgentMachine::restore_untyped(self.agent.inner.spec.clone(), &state) {
            self.agent.settle_held(&machine).await;
        }
    }
}

impl AgentExecutor {
    pub(crate) async fn save(&self, save: Save) -> Outcome {
        let Some(conversations) = &self.conversations else { return Outcome::Saved(Err(no_memory())) };
        let Save { conversation, mut change, .. } = save;
        if change.when == Timestamp::default() {
            change.when = self.world.now();
        }
        let mut pause = std::time::Duration::from_millis(20);
        for _ in 1..TRIES {
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
        change: &Change,
    ) -> Result<(), MemoryError> {
        conversations.store().save(id, change).await
    }
}

fn no_memory() -> MemoryError {
    let message =
        "the agent has no memory to keep conversations in; give it one (`.memory(..)`, or `--memory`)";
    MemoryError::new(MemoryErrorKind::Refused, message)
}
