//! Results of handlers and prompts, in levity's types.

use levity_core::{Content, Media, Message, Part, Role, ToolOutput};
use levity_mcp::{Resource, ResourceContent};
use serde_json::Value;

/// A piece of content of a tool's result or a prompt.
///
/// ```
/// use levity_serve::mcp::{Block, Resource};
/// let blocks: Vec<Block> = vec!["See also:".into(), Resource::new("file:///a.md", "a.md").into()];
/// assert!(matches!(blocks[1], Block::Link(_)));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Block {
    /// A piece of text.
    Text(String),
    /// An image, audio or a document.
    Media(Media),
    /// A resource with its content.
    Resource(ResourceContent),
    /// A link to a resource, which the client may read.
    Link(Resource),
}

impl From<&str> for Block {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Block {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Media> for Block {
    fn from(media: Media) -> Self {
        Self::Media(media)
    }
}

impl From<ResourceContent> for Block {
    fn from(content: ResourceContent) -> Self {
        Self::Resource(content)
    }
}

impl From<Resource> for Block {
    fn from(resource: Resource) -> Self {
        Self::Link(resource)
    }
}

impl From<Content> for Block {
    fn from(content: Content) -> Self {
        match content {
            Content::Text(text) => Self::Text(text),
            Content::Media(media) => Self::Media(media),
            other => Self::Text(format!("{other:?}")),
        }
    }
}

/// The result of a [`Handler`](super::Handler).
///
/// ```
/// use levity_serve::mcp::{HandlerReply, Resource};
/// let reply = HandlerReply::text("Two files:")
///     .with(Resource::new("file:///a", "a"))
///     .with(Resource::new("file:///b", "b"));
/// assert_eq!(reply.content.len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HandlerReply {
    /// The content to show. If it is empty, the value is shown as JSON.
    pub content: Vec<Block>,
    /// The structured output, if there is any.
    pub value: Option<Value>,
}

impl HandlerReply {
    /// Creates a reply with text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![Block::Text(text.into())],
            value: None,
        }
    }

    /// Creates a reply with a value. Clients that cannot read values get it as JSON text.
    ///
    /// Clients may validate it against the output schema of the handler. Values that are not
    /// objects are sent as text only.
    ///
    /// ```
    /// use levity_serve::mcp::HandlerReply;
    /// let reply = HandlerReply::value(serde_json::json!({"total": 6}));
    /// assert!(reply.content.is_empty());
    /// ```
    pub fn value(value: Value) -> Self {
        Self {
            content: Vec::new(),
            value: Some(value),
        }
    }

    /// Adds a piece of content.
    ///
    /// ```
    /// use levity_serve::mcp::HandlerReply;
    /// let reply = HandlerReply::text("one").with("two");
    /// assert_eq!(reply.content.len(), 2);
    /// ```
    #[must_use]
    pub fn with(mut self, block: impl Into<Block>) -> Self {
        self.content.push(block.into());
        self
    }
}

impl From<ToolOutput> for HandlerReply {
    fn from(output: ToolOutput) -> Self {
        Self {
            content: output.content.into_iter().map(Block::from).collect(),
            value: output.value,
        }
    }
}

/// A prompt with its arguments filled in: messages with their roles.
///
/// ```
/// use levity_serve::mcp::PromptReply;
/// let reply = PromptReply::user("Review this change.").assistant("Show me the diff.");
/// assert_eq!(reply.messages.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PromptReply {
    /// The description of the prompt.
    pub description: Option<String>,
    /// The messages with their roles. Roles other than the assistant become the user, because
    /// prompts support no others.
    pub messages: Vec<(Role, Block)>,
}

impl PromptReply {
    /// Creates a prompt that starts with a message of the user.
    pub fn user(block: impl Into<Block>) -> Self {
        Self::default().then(Role::User, block)
    }

    /// Adds a message of the assistant.
    #[must_use]
    pub fn assistant(self, block: impl Into<Block>) -> Self {
        self.then(Role::Assistant, block)
    }

    /// Adds a message with a role.
    ///
    /// ```
    /// use levity_core::Role;
    /// use levity_serve::mcp::PromptReply;
    /// let reply = PromptReply::user("Which day is it?").then(Role::Assistant, "Monday.");
    /// assert_eq!(reply.messages[1].0, Role::Assistant);
    /// ```
    #[must_use]
    pub fn then(mut self, role: Role, block: impl Into<Block>) -> Self {
        self.messages.push((role, block.into()));
        self
    }

    /// Returns the number of bytes of text in the messages.
    pub(super) fn text_bytes(&self) -> usize {
        let text = |block: &Block| match block {
            Block::Text(text) => text.len(),
            Block::Resource(content) => content.text.as_ref().map_or(0, String::len),
            _ => 0,
        };
        self.messages.iter().map(|(_, block)| text(block)).sum()
    }

    /// Sets the description of the prompt.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

impl From<Message> for PromptReply {
    fn from(message: Message) -> Self {
        let role = message.role;
        let block = |part| match part {
            Part::Text(text) => Some(Block::Text(text.text)),
            Part::Media(media) => Some(Block::Media(media)),
            _ => None,
        };
        let blocks = message.parts.into_iter().filter_map(block);
        Self {
            description: None,
            messages: blocks.map(|block| (role, block)).collect(),
        }
    }
}
