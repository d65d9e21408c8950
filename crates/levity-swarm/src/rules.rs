//! What a swarm's machine goes by: what is code, and what a run began with.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{ConversationId, Limits, Message};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pattern::Pattern;
use crate::plan::Delegation;
use crate::worker::Card;

/// What a machine goes by that is not its own to keep.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) pattern: Pattern,
    /// The workers by name.
    pub(crate) cards: BTreeMap<Arc<str>, Card>,
    /// Their names in the order in which they were added.
    pub(crate) order: Vec<Arc<str>>,
    /// Their names, sorted.
    pub(crate) names: Vec<Arc<str>>,
    /// How many may work at a time.
    pub(crate) parallel: usize,
    /// How many tokens of the bus a worker is shown.
    pub(crate) context: usize,
    /// How many messages and bytes the bus keeps.
    pub(crate) bus: (usize, usize),
    /// Whether workers may leave messages for each other.
    pub(crate) talk: bool,
}

/// All that a run began with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The name of the pattern.
    pub(crate) pattern: String,
    pub(crate) goal: String,
    #[serde(default)]
    pub(crate) limits: Limits,
    /// The plan, when there is one already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<Vec<Delegation>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conversation: Option<ConversationId>,
    /// What was said before, and who is to go on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<Arc<Message>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first: Option<Arc<str>>,
    /// The state of a pattern of the program's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<Value>,
}
