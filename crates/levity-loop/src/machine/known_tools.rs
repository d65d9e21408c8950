//! The tools that the conversation knows: found by `find_tools`, or called.

use std::sync::Arc;

use levity_core::{Message, ToolErrorKind, ToolResult};
use serde::{Deserialize, Serialize};

use crate::spec::AgentSpec;

/// The maximum number of known tools. Tools found beyond it can be called but are not offered.
const MAX_TOOLS: usize = 256;
/// The maximum length of a tool name.
const MAX_NAME: usize = 64;

/// The tools that a run has beyond those that it begins with.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct KnownTools {
    /// `true` if there are earlier results to read, so that the tool for it is offered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) reads: bool,
    /// The tools that the conversation has found or called, in that order.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) found: Arc<[Arc<str>]>,
}

impl KnownTools {
    /// Records the tools that messages name.
    ///
    /// The known tools depend on the whole history alone, and not on the part that the model is
    /// shown.
    pub(super) fn record_named(&mut self, messages: &[Arc<Message>], spec: &AgentSpec) {
        let Some(finder) = spec.finder else { return };
        let mut new: Vec<Arc<str>> = Vec::new();
        for name in messages.iter().flat_map(|message| names(message, finder)) {
            let known = self.found.iter().chain(&new).any(|known| **known == *name);
            if !known && name.len() <= MAX_NAME && self.found.len() + new.len() < MAX_TOOLS {
                new.push(name.into());
            }
        }
        self.add(new);
    }

    /// Offers the tool that reads results from now on. It keeps its place among the found tools.
    pub(super) fn offer_reader(&mut self, spec: &AgentSpec) {
        let is_new = !self.reads;
        self.reads = true;
        if is_new && spec.finder.is_some() {
            self.add(vec![spec.reader.into()]);
        }
    }

    fn add(&mut self, new: Vec<Arc<str>>) {
        if !new.is_empty() {
            self.found = self.found.iter().cloned().chain(new).collect();
        }
    }
}

/// Returns the tools that a message names in its results, in order.
fn names<'a>(message: &'a Message, finder: &'a str) -> impl Iterator<Item = &'a str> {
    message
        .results()
        .flat_map(move |result| match result.name == finder {
            true => found(result),
            // A called tool is offered as well: a provider may require it beside the call.
            false if result.error != Some(ToolErrorKind::NotFound) => vec![&*result.name],
            false => Vec::new(),
        })
}

fn found(result: &ToolResult) -> Vec<&str> {
    let tools = result
        .value
        .as_ref()
        .and_then(|value| value.get("tools")?.as_array());
    tools
        .into_iter()
        .flatten()
        .filter_map(|tool| tool.get("name")?.as_str())
        .collect()
}
