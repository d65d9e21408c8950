use levity_core::{Content, Media, Message, Part, Role, ToolOutput};
use levity_mcp::{Resource, ResourceContent};
use serde_json::Value;

/// A piece of what a tool or a prompt shows.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Block {
    /// Text.
    Text(String),
    /// An image, a sound, a document.
    Media(Media),
    /// A resource, with what is in it.
    Resource(ResourceContent),
    /// Where a resource is; the client may read it.
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

/// What a [`Handler`](super::Handler) returns.
///
/// ```
/// use levity_serve::mcp::{HandlerReply, Resource};
/// let reply = HandlerReply::text("Two files:").with(Resource::new("file:///a", "a")).with(Resource::new("file:///b", "b"));
/// assert_eq!(reply.content.len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HandlerReply {
    /// What is shown. Where it is empty, the value is shown as JSON.
    pub content: Vec<Block>,
    /// The output as a value.
    pub value: Option<Value>,
}

impl HandlerReply {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![Block::Text(text.into())],
            value: None,
        }
    }

    /// A value; who cannot read values is shown it as JSON.
    pub fn value(value: Value) -> Self {
        Self {
            content: Vec::new(),
            value: Some(value),
        }
    }

    /// Adds a piece.
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

/// A prompt with its gaps filled in: what is said, and by whom.
///
/// ```
/// use levity_serve::mcp::PromptReply;
/// let reply = PromptReply::user("Review this change.").assistant("Show me the diff.");
/// assert_eq!(reply.messages.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PromptReply {
    /// What it is for.
    pub description: Option<String>,
    /// Who says what. All roles but the assistant's are told as the user's: prompts have no others.
    pub messages: Vec<(Role, Block)>,
}

impl PromptReply {
    /// Something that the user says.
    pub fn user(block: impl Into<Block>) -> Self {
        Self::default().then(Role::User, block)
    }

    /// Then the assistant says this.
    #[must_use]
    pub fn assistant(self, block: impl Into<Block>) -> Self {
        self.then(Role::Assistant, block)
    }

    /// Then somebody says this.
    #[must_use]
    pub fn then(mut self, role: Role, block: impl Into<Block>) -> Self {
        self.messages.push((role, block.into()));
        self
    }

    /// Sets what it is for.
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
        let said = message.parts.into_iter().filter_map(block);
        Self {
            description: None,
            messages: said.map(|block| (role, block)).collect(),
        }
    }
}
