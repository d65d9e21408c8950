//! Conversion of messages of prompts and contents of resources.
//!
//! Both use the rules of tool results: text stays text, media that models read stays media, and
//! everything else becomes a note.

use levity_core::{Content, Message, Part, Role};
use levity_rpc::mcp::{PromptMessage, ResourceContents};

use super::content::ContentBuilder;

/// Converts a message of a prompt.
pub(crate) fn message(message: PromptMessage) -> Message {
    let role = match message.role {
        levity_rpc::mcp::Role::Assistant => Role::Assistant,
        levity_rpc::mcp::Role::User => Role::User,
    };
    let mut builder = ContentBuilder::default();
    builder.block(message.content);
    Message::new(role, builder.content.into_iter().filter_map(part))
}

/// Converts the contents of a resource, in order.
pub(crate) fn resource(contents: Vec<ResourceContents>) -> Vec<Content> {
    let mut builder = ContentBuilder::default();
    contents.into_iter().for_each(|part| builder.resource(part));
    builder.content
}

/// Converts content to a part of a message.
fn part(content: Content) -> Option<Part> {
    match content {
        Content::Text(text) => Some(Part::text(text)),
        Content::Media(media) => Some(Part::Media(media)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
