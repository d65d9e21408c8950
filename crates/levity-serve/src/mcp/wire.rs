//! Converts results to the protocol's types.
//!
//! Conversions go through JSON where both sides have the protocol's format, so that new fields of
//! the library need no code here. A value that cannot be converted is left out of a list instead of
//! failing the whole list.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::{
    Content, EffectClass, Media, MediaSource, Role, ToolError, ToolResult, ToolSpec,
};
use levity_mcp::ResourceContent;
use levity_rpc::mcp::{
    CallToolResult, ContentBlock, GetPromptResult, PromptMessage, ReadResourceResult,
    ResourceContents, Tool,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Block, HandlerReply, PromptReply};

/// Converts a tool for clients; `None` if it cannot be converted.
pub(super) fn tool(spec: &ToolSpec, input: &Value, output: Option<&Value>) -> Option<Tool> {
    let is_object = |schema: &&Value| schema.get("type").and_then(Value::as_str) == Some("object");
    let mut tool = json!({
        "name": spec.name,
        "description": spec.description,
        "inputSchema": input,
        "annotations": annotations(spec),
    });
    // Before 2026-07-28, the output of a tool is an object or has no schema.
    if let Some(output) = output.filter(is_object) {
        tool["outputSchema"] = output.clone();
    }
    serde_json::from_value(tool).ok()
}

/// Returns the hints of a tool in the words of the protocol. Clients use them to decide about
/// approvals.
fn annotations(spec: &ToolSpec) -> Value {
    match spec.hints.class {
        EffectClass::ReadOnly => json!({"readOnlyHint": true}),
        class => json!({
            "readOnlyHint": false,
            "destructiveHint": spec.hints.destructive,
            "idempotentHint": class == EffectClass::Idempotent,
        }),
    }
}

/// Converts one of our values to the library's type: both have the protocol's JSON.
pub(super) fn convert<T: DeserializeOwned>(value: &impl Serialize) -> Option<T> {
    serde_json::to_value(value)
        .and_then(serde_json::from_value)
        .ok()
}

pub(super) fn replied(reply: HandlerReply) -> CallToolResult {
    result(
        reply.content.into_iter().map(block).collect(),
        reply.value,
        false,
    )
}

pub(super) fn failed(error: &ToolError) -> CallToolResult {
    result(vec![ContentBlock::text(error.explain())], None, true)
}

pub(super) fn dispatched(answer: ToolResult) -> CallToolResult {
    let failed = answer.is_error();
    let piece = |content| match content {
        Content::Text(text) => ContentBlock::text(text),
        other => block(other.into()),
    };
    result(
        answer.content.into_iter().map(piece).collect(),
        answer.value,
        failed,
    )
}

/// A value without content is also sent as JSON text, for clients that do not read structured
/// content.
fn result(mut content: Vec<ContentBlock>, value: Option<Value>, failed: bool) -> CallToolResult {
    if let (true, Some(value)) = (content.is_empty(), &value) {
        content.push(ContentBlock::text(value.to_string()));
    }
    let mut result = CallToolResult::success(content);
    result.is_error = Some(failed);
    // Versions before 2026-07-28 support only objects here; other values are part of the text.
    result.structured_content = value.filter(Value::is_object);
    result
}

pub(super) fn prompt(reply: PromptReply) -> GetPromptResult {
    let message = |(role, content): (Role, Block)| {
        let role = if role == Role::Assistant {
            "assistant"
        } else {
            "user"
        };
        serde_json::from_value::<PromptMessage>(json!({"role": role, "content": block(content)}))
            .ok()
    };
    let mut result = GetPromptResult::new(reply.messages.into_iter().filter_map(message).collect());
    result.description = reply.description;
    result
}

pub(super) fn read(contents: Vec<ResourceContent>) -> ReadResourceResult {
    ReadResourceResult::new(contents.into_iter().map(resource).collect())
}

fn block(block: Block) -> ContentBlock {
    match block {
        Block::Text(text) => ContentBlock::text(text),
        Block::Media(media) => media_block(media),
        Block::Resource(content) => ContentBlock::resource(resource(content)),
        Block::Link(link) => match convert(&link) {
            Some(resource) => ContentBlock::resource_link(resource),
            None => ContentBlock::text(link.uri),
        },
    }
}

/// Bytes that are neither image nor audio become an embedded resource, and a URL becomes a link.
fn media_block(media: Media) -> ContentBlock {
    match media.source {
        MediaSource::Bytes(bytes) => {
            let data = STANDARD.encode(bytes.as_slice());
            match media.mime.split('/').next() {
                Some("image") => ContentBlock::image(data, media.mime),
                Some("audio") => ContentBlock::audio(data, media.mime),
                _ => {
                    let uri = format!("attachment:{}", media.name.as_deref().unwrap_or("document"));
                    let blob = ResourceContents::BlobResourceContents {
                        uri,
                        mime_type: Some(media.mime),
                        blob: data,
                        meta: None,
                    };
                    ContentBlock::resource(blob)
                }
            }
        }
        MediaSource::Url(url) => {
            let name = media.name.unwrap_or_else(|| url.clone());
            ContentBlock::resource_link(
                levity_rpc::mcp::Resource::new(url, name).with_mime_type(media.mime),
            )
        }
        other => ContentBlock::text(format!("{other:?}")),
    }
}

fn resource(content: ResourceContent) -> ResourceContents {
    let (uri, mime_type) = (content.uri, content.mime_type);
    match content.blob {
        Some(blob) => ResourceContents::BlobResourceContents {
            uri,
            mime_type,
            blob,
            meta: None,
        },
        None => {
            let text = content.text.unwrap_or_default();
            ResourceContents::TextResourceContents {
                uri,
                mime_type,
                text,
                meta: None,
            }
        }
    }
}
