use std::fmt;

use levity_core::{ConversationId, ModelError, Timestamp, Usage};
use serde::{Deserialize, Serialize};

use super::Scope;

/// Names one fact; never used for another, also when the fact is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FactId(u32);

impl FactId {
    /// The fact of this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }

    pub(super) fn key(self) -> i64 {
        self.0.into()
    }
}

impl fmt::Display for FactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A fact, or the summary of a past session, as it was kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Recalled {
    /// Which fact it is.
    pub id: FactId,
    /// In words, as they were kept. They may be anybody's: they are data, not instructions.
    pub text: String,
    /// Whom it belongs to.
    pub scope: Scope,
    /// Where it comes from.
    pub source: String,
    /// When it was last said.
    pub date: Timestamp,
    /// The conversation that it sums up, if it is the summary of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
    /// How well it answers what was asked: 1 at best. It can be compared within one answer only.
    pub score: f32,
}

/// What came of keeping a fact.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SavedFact {
    /// Which fact it is.
    pub id: FactId,
    /// Whether there was none like it; otherwise its date and its source were brought up to date.
    pub new: bool,
    /// Why it cannot be found by its meaning yet, only by its words.
    pub unembedded: Option<ModelError>,
    /// What the embedder took.
    pub usage: Usage,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RecallResult {
    /// The facts, best first.
    pub facts: Vec<Recalled>,
    /// Why they were looked for by words only, although there is an embedder.
    pub words_only: Option<ModelError>,
    /// What the embedder took.
    pub usage: Usage,
}

/// What came of giving facts their vectors.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EmbeddingReport {
    /// How many facts got one.
    pub facts: usize,
    /// Why the others got none.
    pub failed: Option<ModelError>,
    /// What the embedder took.
    pub usage: Usage,
}
