//! The items that servers offer in addition to tools: resources and prompts.
//!
//! The types have the JSON form of the protocol, so a program can pass them on or store them. Every
//! field has a default, because servers leave out even required ones. Fields that these types lack
//! are dropped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::Message;
use serde::{Deserialize, Serialize};

/// A resource that a server offers for reading.
///
/// [`Server::resources`](crate::Server::resources) lists resources, and
/// [`Server::read_resource`](crate::Server::read_resource) reads one. All texts are the server's
/// and untrusted.
///
/// ```
/// use levity_mcp::Resource;
/// use serde_json::json;
///
/// let notes = Resource::new("file:///notes.md", "notes.md").with_title("My notes");
/// let json = serde_json::to_value(&notes).unwrap();
/// assert_eq!(json, json!({"uri": "file:///notes.md", "name": "notes.md", "title": "My notes"}));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Resource {
    /// The URI of the resource.
    pub uri: String,
    /// The name of the resource.
    pub name: String,
    /// The title of the resource for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description of the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

impl Resource {
    /// Creates a resource at `uri` with the given name.
    ///
    /// ```
    /// # use levity_mcp::Resource;
    /// let notes = Resource::new("file:///notes.md", "notes.md")
    ///     .with_mime("text/markdown")
    ///     .with_size(120);
    /// assert_eq!(notes.mime_type.as_deref(), Some("text/markdown"));
    /// ```
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            name: name.into(),
            ..Self::default()
        }
    }

    /// Sets the title for people.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description of the resource.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the media type of the data.
    #[must_use]
    pub fn with_mime(mut self, mime: impl Into<String>) -> Self {
        self.mime_type = Some(mime.into());
        self
    }

    /// Sets the size in bytes.
    #[must_use]
    pub fn with_size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }
}

/// A template for the URIs of resources.
///
/// Fill in its variables and read the result with
/// [`Server::read_resource`](crate::Server::read_resource).
/// [`Server::complete_resource`](crate::Server::complete_resource) suggests values.
///
/// ```
/// use levity_mcp::ResourceTemplate;
///
/// let days = ResourceTemplate::new("weather://{city}/today", "weather").with_mime("text/plain");
/// let json = serde_json::to_value(&days).unwrap();
/// assert_eq!(json["uriTemplate"], "weather://{city}/today");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ResourceTemplate {
    /// The template as RFC 6570 defines it.
    pub uri_template: String,
    /// The name of the resources.
    pub name: String,
    /// The title of the resources for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description of the resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

impl ResourceTemplate {
    /// Creates a template with the given name.
    pub fn new(uri_template: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            uri_template: uri_template.into(),
            name: name.into(),
            ..Self::default()
        }
    }

    /// Sets the title for people.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description of the resources.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the media type of the data.
    #[must_use]
    pub fn with_mime(mut self, mime: impl Into<String>) -> Self {
        self.mime_type = Some(mime.into());
        self
    }
}

/// The content of a resource: text, or bytes in base64.
///
/// Exactly one of `text` and `blob` is set in a valid response, but a server may send both or none.
///
/// ```
/// use levity_mcp::ResourceContent;
///
/// let text = ResourceContent::text("file:///notes.md", "# Notes").with_mime("text/markdown");
/// assert_eq!((text.text.as_deref(), text.blob), (Some("# Notes"), None));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ResourceContent {
    /// The URI of the resource.
    pub uri: String,
    /// The media type of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The content as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The content as bytes in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

impl ResourceContent {
    /// Creates a text content of the resource at `uri`.
    pub fn text(uri: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            text: Some(text.into()),
            ..Self::default()
        }
    }

    /// Creates a binary content of the resource at `uri`.
    ///
    /// ```
    /// # use levity_mcp::ResourceContent;
    /// assert_eq!(
    ///     ResourceContent::bytes("file:///a.bin", [1, 2, 3])
    ///         .blob
    ///         .as_deref(),
    ///     Some("AQID")
    /// );
    /// ```
    pub fn bytes(uri: impl Into<String>, bytes: impl AsRef<[u8]>) -> Self {
        Self {
            uri: uri.into(),
            blob: Some(STANDARD.encode(bytes)),
            ..Self::default()
        }
    }

    /// Sets the media type of the data.
    #[must_use]
    pub fn with_mime(mut self, mime: impl Into<String>) -> Self {
        self.mime_type = Some(mime.into());
        self
    }
}

/// A prompt template that a server offers.
///
/// ```
/// use levity_mcp::{Prompt, PromptArgument};
///
/// let greet = Prompt::new("greet")
///     .with_description("Greets a person.")
///     .with_argument(PromptArgument::required("name"))
///     .with_argument(PromptArgument::optional("language"));
/// let required: Vec<_> = greet.arguments.iter().filter(|argument| argument.required).collect();
/// assert_eq!(required[0].name, "name");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Prompt {
    /// The name of the prompt.
    pub name: String,
    /// The title of the prompt for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The purpose of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The arguments of the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
}

impl Prompt {
    /// Creates a prompt without arguments.
    ///
    /// ```
    /// # use levity_mcp::{Prompt, PromptArgument};
    /// let greet = Prompt::new("greet").with_argument(PromptArgument::required("name"));
    /// assert!(greet.arguments[0].required);
    /// ```
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Sets the title for people.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description of the prompt.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Adds an argument to the prompt.
    #[must_use]
    pub fn with_argument(mut self, argument: PromptArgument) -> Self {
        self.arguments.push(argument);
        self
    }
}

/// An argument of a prompt.
///
/// Arguments are strings. [`Server::complete_prompt`](crate::Server::complete_prompt) suggests
/// values, if the server supports it.
///
/// ```
/// use levity_mcp::PromptArgument;
///
/// let city = PromptArgument::optional("city").with_description("The city, in English.");
/// assert_eq!((city.name.as_str(), city.required), ("city", false));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PromptArgument {
    /// The name of the argument.
    pub name: String,
    /// The description of the argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `true` if the prompt requires the argument.
    pub required: bool,
}

impl PromptArgument {
    /// Creates an argument that the prompt requires.
    pub fn required(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            required: true,
            ..Self::default()
        }
    }

    /// Creates an argument that is optional.
    pub fn optional(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Sets the description of the argument.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

/// A prompt with its arguments filled in.
///
/// The messages are the server's: an assistant message among them was not written by your model.
///
/// ```
/// use levity_mcp::{Servers, WaitFor};
/// use serde_json::json;
///
/// # fn clock() -> levity_mcp::ServerConfig {
/// #     use serde_json::{Value, json};
/// #     use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
/// #     let serve = |pipe: tokio::io::DuplexStream| async move {
/// #         let (mut pipe, mut line) = (BufReader::new(pipe), String::new());
/// #         while pipe.read_line(&mut line).await.is_ok_and(|read| read > 0) {
/// #             let ask: Value = serde_json::from_str(&line).unwrap_or_default();
/// #             let answer = json!({"jsonrpc": "2.0", "id": ask["id"], "result": {
/// #                 "protocolVersion": "2025-11-25",
/// #                 "serverInfo": {"name": "clock", "version": "1"},
/// #                 "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
/// #                 "tools": [], "messages": [
/// #                     {"role": "user", "content": {"type": "text", "text": "Good day, Ada"}},
/// #                 ],
/// #             }});
/// #             let _ = pipe.write_all(format!("{answer}\n").as_bytes()).await;
/// #             line.clear();
/// #         }
/// #     };
/// #     levity_mcp::ServerConfig::in_process("clock", move || {
/// #         let (client, server) = tokio::io::duplex(1 << 16);
/// #         tokio::spawn(serve(server));
/// #         client
/// #     })
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_mcp::Result<()> {
/// let servers = Servers::builder().server(clock()).start()?;
/// servers.wait(WaitFor::All).await;
/// let clock = servers.get("clock").expect("it is configured");
/// let reply = clock.prompt("greet", json!({"name": "Ada"})).await?;
/// assert_eq!(reply.messages[0].text(), "Good day, Ada");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PromptReply {
    /// The purpose of the prompt.
    pub description: Option<String>,
    /// The messages for the start of a conversation.
    pub messages: Vec<Message>,
}
