//! Resources, prompts and completions: the traits that a server's content implements.

use std::collections::BTreeMap;

use async_trait::async_trait;
use levity_mcp::{Prompt, Resource, ResourceContent, ResourceTemplate};

use super::{Client, PromptReply, RequestError};
use crate::access::Caller;

/// A page of a list, with the cursor of the next page.
///
/// ```
/// use levity_serve::mcp::Page;
/// let first = Page::part(["a", "b"], "2");
/// assert_eq!(first.next.as_deref(), Some("2"));
/// let last = Page::all(["c"]);
/// assert!(last.next.is_none());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Creates a page with all items.
    pub fn all(items: impl IntoIterator<Item = T>) -> Self {
        Self {
            items: items.into_iter().collect(),
            next: None,
        }
    }

    /// Creates a page that is not the last.
    ///
    /// Choose a cursor that stays valid if items are added or removed, such as the last name of the
    /// page.
    ///
    /// ```
    /// use levity_serve::mcp::Page;
    /// let names = ["ann", "bob", "cid"];
    /// let page = Page::part(names[..2].iter().copied(), names[1]);
    /// assert_eq!((page.items.len(), page.next.unwrap().as_str()), (2, "bob"));
    /// ```
    pub fn part(items: impl IntoIterator<Item = T>, next: impl Into<String>) -> Self {
        Self {
            items: items.into_iter().collect(),
            next: Some(next.into()),
        }
    }
}

/// Resources that clients can read.
///
/// # Contract
/// - `cursor` is the `next` value of the previous page. It comes from a client, which may have
///   changed it.
/// - `read` fails with [`RequestError::not_found`] if there is no such resource; the server then
///   tries its other providers.
/// - `uri` is untrusted: it may name anything, also what is not listed.
/// - The server limits the time of a list and turns a panic into an error.
///
/// ```
/// use async_trait::async_trait;
/// use levity_serve::mcp::{
///     McpServer, Page, RequestError, Resource, ResourceContent, ResourceRequest, Resources,
/// };
///
/// struct Motto;
///
/// #[async_trait]
/// impl Resources for Motto {
///     async fn list(&self, _: Option<&str>) -> Result<Page<Resource>, RequestError> {
///         Ok(Page::all([Resource::new("motto://today", "today's motto")]))
///     }
///
///     async fn read(&self, ask: ResourceRequest) -> Result<Vec<ResourceContent>, RequestError> {
///         match ask.uri.as_str() {
///             "motto://today" => Ok(vec![ResourceContent::text(ask.uri, "Keep it light.")]),
///             _ => Err(RequestError::not_found(format!("no resource has the URI `{}`", ask.uri))),
///         }
///     }
/// }
///
/// # async fn ask(server: &McpServer, asked: &'static str) -> std::io::Result<String> {
/// #     use tokio::io::AsyncReadExt as _;
/// #     let (mut there, here) = tokio::io::duplex(1 << 16);
/// #     server.serve(asked.as_bytes(), here).await.map_err(std::io::Error::other)?;
/// #     let mut answered = String::new();
/// #     there.read_to_string(&mut answered).await?;
/// #     Ok(answered)
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = McpServer::builder("motto", "1.0").resources(Motto).build()?;
/// let asked =
///     r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"motto://today"}}"#;
/// assert!(ask(&server, asked).await?.contains("Keep it light."));
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Resources: Send + Sync {
    /// Lists the available resources.
    ///
    /// # Errors
    /// Fails with [`RequestError::invalid`] if the cursor is not one of this provider.
    async fn list(&self, cursor: Option<&str>) -> Result<Page<Resource>, RequestError>;

    /// Lists the resources that are available to this caller; the same for all by default. `read`
    /// must not return anything to a caller that is not listed for it.
    async fn list_for(
        &self,
        caller: &Caller,
        cursor: Option<&str>,
    ) -> Result<Page<Resource>, RequestError> {
        let _ = caller;
        self.list(cursor).await
    }

    /// Lists further resources, by URI templates.
    async fn templates(
        &self,
        cursor: Option<&str>,
    ) -> Result<Page<ResourceTemplate>, RequestError> {
        let _ = cursor;
        Ok(Page::all([]))
    }

    /// Reads a resource by its URI.
    ///
    /// An empty list counts as a missing resource, because the protocol requires content.
    ///
    /// # Errors
    /// Fails with [`RequestError::not_found`] if this provider has no such resource, and with
    /// another error if the resource exists but cannot be read.
    async fn read(&self, ask: ResourceRequest) -> Result<Vec<ResourceContent>, RequestError>;

    /// Returns `true` if [`Changes::resource`](super::Changes::resource) reports changes of these
    /// resources. `false` by default.
    fn reports_updates(&self) -> bool {
        false
    }
}

/// A request to read a resource.
///
/// ```
/// use levity_serve::mcp::{RequestError, ResourceRequest};
/// fn number(ask: &ResourceRequest) -> Result<u32, RequestError> {
///     let number = ask.uri.strip_prefix("notes://").and_then(|rest| rest.parse().ok());
///     number.ok_or_else(|| RequestError::not_found("no such note"))
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResourceRequest {
    /// The URI of the resource.
    pub uri: String,
    /// The client that asks.
    pub client: Client,
}

/// Prompts for users to choose from.
///
/// # Contract
/// - `cursor` is the `next` value of the previous page. It comes from a client, which may have
///   changed it.
/// - The names and values of arguments are untrusted text; some may be missing.
/// - A prompt that repeats its arguments checks [`PromptRequest::max_bytes`] before it builds the
///   text.
/// - `get` fails with [`RequestError::not_found`] for a name that it does not know.
///
/// ```
/// use async_trait::async_trait;
/// use levity_serve::mcp::{
///     McpServer, Page, Prompt, PromptArgument, PromptReply, PromptRequest, Prompts, RequestError,
/// };
///
/// struct Greeting;
///
/// #[async_trait]
/// impl Prompts for Greeting {
///     async fn list(&self, _: Option<&str>) -> Result<Page<Prompt>, RequestError> {
///         Ok(Page::all([Prompt::new("greet").with_argument(PromptArgument::required("name"))]))
///     }
///
///     async fn get(&self, ask: PromptRequest) -> Result<PromptReply, RequestError> {
///         if ask.name != "greet" {
///             return Err(RequestError::not_found("no such prompt"));
///         }
///         let name = ask.args.get("name").ok_or_else(|| RequestError::invalid("pass `name`"))?;
///         Ok(PromptReply::user(format!("Greet {name}.")))
///     }
/// }
///
/// # async fn ask(server: &McpServer, asked: &'static str) -> std::io::Result<String> {
/// #     use tokio::io::AsyncReadExt as _;
/// #     let (mut there, here) = tokio::io::duplex(1 << 16);
/// #     server.serve(asked.as_bytes(), here).await.map_err(std::io::Error::other)?;
/// #     let mut answered = String::new();
/// #     there.read_to_string(&mut answered).await?;
/// #     Ok(answered)
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = McpServer::builder("greetings", "1.0").prompts(Greeting).build()?;
/// let asked = r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"greet",
///     "arguments":{"name":"Ann"}}}"#;
/// # let asked: &'static str = asked.replace('\n', "").leak();
/// assert!(ask(&server, asked).await?.contains("Greet Ann."));
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Prompts: Send + Sync {
    /// Lists the available prompts.
    ///
    /// # Errors
    /// Fails with [`RequestError::invalid`] if the cursor is not one of this provider.
    async fn list(&self, cursor: Option<&str>) -> Result<Page<Prompt>, RequestError>;

    /// Returns a prompt with its arguments filled in.
    ///
    /// # Errors
    /// Fails with [`RequestError::not_found`] if no prompt has that name; the server then tries its
    /// other providers.
    async fn get(&self, ask: PromptRequest) -> Result<PromptReply, RequestError>;
}

/// A request for a prompt.
///
/// ```
/// use levity_serve::mcp::{PromptRequest, RequestError};
/// fn language(ask: &PromptRequest) -> Result<&str, RequestError> {
///     let language = ask.args.get("language").map(String::as_str);
///     language.ok_or_else(|| RequestError::invalid("the prompt requires `language`"))
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PromptRequest {
    /// The name of the prompt.
    pub name: String,
    /// The arguments of the prompt.
    pub args: BTreeMap<String, String>,
    /// The client that asks.
    pub client: Client,
    /// The maximum number of bytes of text in the reply. The server rejects a longer one.
    pub max_bytes: usize,
}

/// Proposes values while a user types them.
///
/// # Contract
/// - The text and the names are untrusted.
/// - An unknown prompt or argument has no values; it is not an error.
/// - The call is fast: clients ask while a user types.
///
/// ```
/// use async_trait::async_trait;
/// use levity_serve::mcp::{Completer, Completion, CompletionRequest, McpServer, RequestError};
///
/// struct Colors;
///
/// #[async_trait]
/// impl Completer for Colors {
///     async fn complete(&self, typed: CompletionRequest) -> Result<Completion, RequestError> {
///         let colors = ["red", "rose", "blue"].into_iter();
///         Ok(Completion::new(colors.filter(|color| color.starts_with(&typed.value))))
///     }
/// }
///
/// # async fn ask(server: &McpServer, asked: &'static str) -> std::io::Result<String> {
/// #     use tokio::io::AsyncReadExt as _;
/// #     let (mut there, here) = tokio::io::duplex(1 << 16);
/// #     server.serve(asked.as_bytes(), here).await.map_err(std::io::Error::other)?;
/// #     let mut answered = String::new();
/// #     there.read_to_string(&mut answered).await?;
/// #     Ok(answered)
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = McpServer::builder("colors", "1.0").completions(Colors).build()?;
/// let asked = r#"{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{
///     "ref":{"type":"ref/prompt","name":"paint"},"argument":{"name":"color","value":"r"}}}"#;
/// # let asked: &'static str = asked.replace('\n', "").leak();
/// assert!(ask(&server, asked).await?.contains(r#"["red","rose"]"#));
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Completer: Send + Sync {
    /// Returns possible values, the likeliest first.
    ///
    /// # Errors
    /// Fails if the values cannot be determined, for example because a database does not answer.
    async fn complete(&self, completing: CompletionRequest) -> Result<Completion, RequestError>;
}

/// The input of a completion.
///
/// ```
/// use levity_serve::mcp::{Completion, CompletionRequest};
/// fn branches(typed: &CompletionRequest) -> Completion {
///     match (typed.of.as_str(), typed.argument.as_str()) {
///         ("review", "branch") => Completion::new(["main", "next"]),
///         _ => Completion::default(), // not ours: no values
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionRequest {
    /// The name of the prompt, or the URI template.
    pub of: String,
    /// `true` if `of` is a URI template.
    pub is_resource: bool,
    /// The name of the argument or of the template variable.
    pub argument: String,
    /// The text typed up to now.
    pub value: String,
    /// The values of the other arguments.
    pub others: BTreeMap<String, String>,
}

/// The possible values of an argument.
///
/// ```
/// use levity_serve::mcp::Completion;
/// let found = Completion::new(["main", "master"]).with_total(12);
/// assert_eq!((found.values.len(), found.total), (2, Some(12)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The values; clients get at most 100 of them.
    pub values: Vec<String>,
    /// The total number of values, if known.
    pub total: Option<u32>,
}

impl Completion {
    /// Creates a completion with these values.
    pub fn new(values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            values: values.into_iter().map(Into::into).collect(),
            total: None,
        }
    }

    /// Sets the total number of values.
    #[must_use]
    pub fn with_total(mut self, total: u32) -> Self {
        self.total = Some(total);
        self
    }
}
