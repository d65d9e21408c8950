//! The configuration of a swarm's machine, and the initial data of a run.
//!
//! [`Rules`] come from the builder and may differ after a restart, for example in the parallel
//! limit. [`Start`] is saved with the run and never changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_builtin_tools::profile::FileManifest;
use levity_core::{ConversationId, Limits, Media, Message};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pattern::Pattern;
use crate::plan::Delegation;
use crate::worker::Card;

/// The configuration of a machine, which it shares and does not save.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) pattern: Pattern,
    /// The workers by name.
    pub(crate) cards: BTreeMap<Arc<str>, Card>,
    /// Their names, in the order in which they were added.
    pub(crate) order: Vec<Arc<str>>,
    /// The names of the workers, sorted.
    pub(crate) names: Vec<Arc<str>>,
    /// The maximum number of workers that run in parallel.
    pub(crate) parallel: usize,
    /// The number of tokens of bus messages that a worker sees.
    pub(crate) context: usize,
    /// The maximum number of messages and bytes on the bus.
    pub(crate) bus: (usize, usize),
    /// `true` if workers may leave messages for each other.
    pub(crate) talk: bool,
}

/// The initial data of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The name of the pattern.
    pub(crate) pattern: String,
    pub(crate) goal: String,
    /// The images and other media of the goal.
    #[serde(default, skip_serializing_if = "has_no_media")]
    pub(crate) media: Arc<[Media]>,
    /// The description of the input files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<FileManifest>,
    #[serde(default)]
    pub(crate) limits: Limits,
    /// The plan, if the host passed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<Vec<Delegation>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conversation: Option<ConversationId>,
    /// The messages from before the run, and the worker that continues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<Arc<Message>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first: Option<Arc<str>>,
    /// The initial state of a custom pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<Value>,
}

fn has_no_media(media: &[Media]) -> bool {
    media.is_empty()
}
