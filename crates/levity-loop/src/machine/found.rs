//! The tools that the conversation knows: found by `find_tools`, or called.

use std::sync::Arc;

use levity_core::{Message, ToolErrorKind, ToolResult};

use super::AgentMachine;

/// How many tools are kept in mind; what is found beyond that can be called and is not offered.
const MOST: usize = 256;
/// No name of a tool is longer.
const LONGEST: usize = 64;

impl AgentMachine {
    /// Notes the tools that the history names from a place on. So what is known depends on the history alone, and
    /// on all of it, whatever the model is shown of it.
    pub(super) fn look(&mut self, from: usize) {
        let Some(finder) = self.spec.finder else { return };
        let found = &self.state.found;
        let mut new: Vec<Arc<str>> = Vec::new();
        let messages = self.state.history.messages().get(from..).unwrap_or_default();
        for name in messages.iter().flat_map(|message| names(message, finder)) {
            let known = found.iter().chain(&new).any(|known| **known == *name);
            if !known && name.len() <= LONGEST && found.len() + new.len() < MOST {
                new.push(name.into());
            }
        }
        self.add_found(new);
    }

    /// There is something to read from now on. The tool for it keeps its place among those that are found.
    pub(super) fn may_read(&mut self) {
        let is_new = !self.state.reads;
        self.state.reads = true;
        if is_new && self.spec.finder.is_some() {
            self.add_found(vec![self.spec.reader.into()]);
        }
    }

    fn add_found(&mut self, new: Vec<Arc<str>>) {
        if !new.is_empty() {
            self.state.found = self.state.found.iter().cloned().chain(new).collect();
        }
    }
}

/// The tools that a message names by its results, in order.
fn names<'a>(message: &'a Message, finder: &'a str) -> impl Iterator<Item = &'a str> {
    message.results().flat_map(move |result| match result.name == finder {
        true => found(result),
        // What was called is offered, too: a provider may want it beside the call.
        false if result.error != Some(ToolErrorKind::NotFound) => vec![&*result.name],
        false => Vec::new(),
    })
}

fn found(result: &ToolResult) -> Vec<&str> {
    let tools = result.value.as_ref().and_then(|value| value.get("tools")?.as_array());
    tools.into_iter().flatten().filter_map(|tool| tool.get("name")?.as_str()).collect()
}
