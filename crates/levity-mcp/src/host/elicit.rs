//! Questions of a server to a person.
//!
//! The trait gets the whole request and returns the whole answer, because user interfaces differ
//! too much for a finer interface. levity does the rest: it checks the limits of the request,
//! completes the content with the defaults of the form, and validates it.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::form;

/// A handler that lets a person answer a server's request ("elicitation").
///
/// Use [`Decline`] or [`AcceptDefaults`], or implement the trait for a program with a user
/// interface.
///
/// # Contract
/// - The person should see which server asks, because the text is the server's.
/// - The elicitor never opens a URL without a person's consent.
/// - Dropping the future of `elicit` withdraws the request.
///
/// ```
/// use async_trait::async_trait;
/// use levity_mcp::{ElicitRequest, ElicitReply, Elicitor};
/// use serde_json::json;
///
/// struct Yes;
///
/// #[async_trait]
/// impl Elicitor for Yes {
///     async fn elicit(&self, server: &str, ask: ElicitRequest) -> ElicitReply {
///         match ask {
///             ElicitRequest::Form(form) if server == "trusted" => {
///                 match form.complete(Default::default()) {
///                     Ok(content) => ElicitReply::Accept(content),
///                     Err(_) => ElicitReply::Decline,
///                 }
///             }
///             _ => ElicitReply::Decline,
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Elicitor: Send + Sync {
    /// Asks a person and returns the answer. `server` is the name of the requesting server.
    async fn elicit(&self, server: &str, ask: ElicitRequest) -> ElicitReply;

    /// Returns `true` if the person can be sent to a URL; `false` by default. levity announces this
    /// to servers.
    fn supports_urls(&self) -> bool {
        false
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<E: Elicitor + ?Sized> Elicitor for Arc<E> {
    async fn elicit(&self, server: &str, ask: ElicitRequest) -> ElicitReply {
        (**self).elicit(server, ask).await
    }

    fn supports_urls(&self) -> bool {
        (**self).supports_urls()
    }
}

/// A request of a server to a person.
///
/// ```
/// use levity_mcp::{ElicitForm, ElicitRequest, ElicitUrl};
/// use serde_json::json;
///
/// let title = |server: &str, ask: &ElicitRequest| match ask {
///     ElicitRequest::Form(form) => format!("{server} asks: {}", form.message),
///     ElicitRequest::Url(url) => format!("{server} wants you to visit {}", url.url),
///     _ => format!("{server} asks for something else"),
/// };
/// let form = ElicitRequest::Form(ElicitForm::new("Which city?", json!({"type": "object"})));
/// assert_eq!(title("weather", &form), "weather asks: Which city?");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitRequest {
    /// The person fills in a form.
    Form(ElicitForm),
    /// The person visits a URL. The exchange there stays between the person and the server.
    Url(ElicitUrl),
}

/// A form with fields; each is a text, a number, a boolean or a choice.
///
/// The message, titles and descriptions are the server's words. A person must see that, because a
/// hostile server may ask for a password.
///
/// ```
/// use levity_mcp::ElicitForm;
/// use serde_json::json;
///
/// let schema = json!({"properties": {"size": {"type": "string", "enum": ["S", "M"]}}});
/// let form = ElicitForm::new("Which size?", schema);
/// let wrong = json!({"size": "XL"}).as_object().cloned().unwrap();
/// assert_eq!(form.complete(wrong).unwrap_err(), ["`size` is not one of the choices"]);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ElicitForm {
    /// The purpose of the form, in the server's words.
    pub message: String,
    /// The fields, as the JSON Schema of an object whose properties are not nested.
    pub schema: Value,
}

/// A URL for a person to visit.
///
/// levity has checked the scheme, and that the URL has no spaces and control characters, within 8
/// KiB. It has not checked the host: show it to the person before anything opens it.
///
/// ```
/// use levity_mcp::ElicitUrl;
///
/// let visit = ElicitUrl::new("Connect your account", "https://example.com/link", "42");
/// assert!(visit.url.starts_with("https://"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElicitUrl {
    /// The purpose of the visit, in the server's words.
    pub message: String,
    /// The URL, with the scheme `https` or `http`.
    pub url: String,
    /// The id by which the server reports completion.
    pub id: String,
}

/// The answer of a person to a request.
///
/// ```
/// use levity_mcp::ElicitReply;
/// use serde_json::json;
///
/// let content = json!({"city": "Oslo"}).as_object().cloned().unwrap_or_default();
/// let reply = ElicitReply::Accept(content);
/// assert_ne!(reply, ElicitReply::Decline);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitReply {
    /// The person accepted, with this content. levity completes and validates it before it is sent,
    /// and sends nothing if it does not match the form. The content is empty for a URL.
    Accept(Map<String, Value>),
    /// The person declined the request.
    Decline,
    /// The person made no decision.
    Cancel,
}

impl ElicitForm {
    /// Creates a form with a message and a schema.
    pub fn new(message: impl Into<String>, schema: Value) -> Self {
        Self {
            message: message.into(),
            schema,
        }
    }

    /// Fills missing fields with the defaults of the form, and validates all fields.
    ///
    /// # Errors
    /// Returns all problems, each with the name of its field.
    ///
    /// ```
    /// # use levity_mcp::ElicitForm;
    /// # use serde_json::json;
    /// let form = ElicitForm::new("Where to?", json!({
    ///     "type": "object",
    ///     "properties": {
    ///         "city": {"type": "string", "default": "Oslo"},
    ///         "days": {"type": "integer", "minimum": 1},
    ///     },
    ///     "required": ["city", "days"],
    /// }));
    /// let filled = form.complete(json!({"days": 3}).as_object().cloned().unwrap()).unwrap();
    /// assert_eq!(filled["city"], "Oslo");
    /// assert_eq!(form.complete(Default::default()).unwrap_err(), ["`days` is missing"]);
    /// ```
    pub fn complete(&self, content: Map<String, Value>) -> Result<Map<String, Value>, Vec<String>> {
        form::complete(&self.schema, content)
    }
}

impl ElicitUrl {
    /// Creates a request to visit a URL.
    pub fn new(message: impl Into<String>, url: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            url: url.into(),
            id: id.into(),
        }
    }
}

/// An elicitor that declines every request, for programs without a user.
///
/// It is also the behaviour of [`Servers`](crate::Servers) without an elicitor, except that levity
/// then does not announce the ability to servers.
///
/// ```
/// use levity_mcp::{Decline, ElicitReply, ElicitRequest, ElicitUrl, Elicitor as _};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let visit = ElicitUrl::new("Connect your account", "https://example.com/link", "42");
/// assert_eq!(Decline.elicit("files", ElicitRequest::Url(visit)).await, ElicitReply::Decline);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Decline;

#[async_trait]
impl Elicitor for Decline {
    async fn elicit(&self, _: &str, _: ElicitRequest) -> ElicitReply {
        ElicitReply::Decline
    }
}

/// An elicitor that accepts forms which their defaults complete, and declines all other requests.
/// Use it for tests and for trusted servers.
///
/// ```
/// use levity_mcp::{AcceptDefaults, ElicitForm, ElicitReply, ElicitRequest, Elicitor as _};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let schema = json!({"properties": {"days": {"type": "integer", "default": 3}}});
/// let form = ElicitRequest::Form(ElicitForm::new("How long?", schema));
/// let ElicitReply::Accept(content) = AcceptDefaults.elicit("weather", form).await else {
///     panic!("the defaults complete the form");
/// };
/// assert_eq!(content["days"], 3);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptDefaults;

#[async_trait]
impl Elicitor for AcceptDefaults {
    async fn elicit(&self, _: &str, ask: ElicitRequest) -> ElicitReply {
        match ask {
            ElicitRequest::Form(form) => form
                .complete(Map::new())
                .map_or(ElicitReply::Decline, ElicitReply::Accept),
            ElicitRequest::Url(_) => ElicitReply::Decline,
        }
    }
}
