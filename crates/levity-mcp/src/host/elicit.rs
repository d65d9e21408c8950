use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::form;

/// Has a person answer what a server asks ("elicitation").
///
/// [`Decline`] and [`AcceptDefaults`] are ready; a program with somebody in front of it has its
/// own.
///
/// # Contract
/// - Who is asked should see which server asks: the words are the server's.
/// - A URL is never opened without a person's leave.
/// - Dropping the future of `elicit` withdraws the question.
///
/// ```
/// use async_trait::async_trait;
/// use levity_mcp::{ElicitAsk, ElicitReply, Elicitor};
/// use serde_json::json;
///
/// struct Yes;
///
/// #[async_trait]
/// impl Elicitor for Yes {
///     async fn elicit(&self, server: &str, ask: ElicitAsk) -> ElicitReply {
///         match ask {
///             ElicitAsk::Form(form) if server == "trusted" => match form.complete(Default::default()) {
///                 Ok(content) => ElicitReply::Accept(content),
///                 Err(_) => ElicitReply::Decline,
///             },
///             _ => ElicitReply::Decline,
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Elicitor: Send + Sync {
    /// Asks, and returns the answer. `server` is the name of the server that asks.
    async fn elicit(&self, server: &str, ask: ElicitAsk) -> ElicitReply;

    /// Whether somebody can be sent to an address; servers are told. Nobody can, by default.
    fn takes_urls(&self) -> bool {
        false
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<E: Elicitor + ?Sized> Elicitor for Arc<E> {
    async fn elicit(&self, server: &str, ask: ElicitAsk) -> ElicitReply {
        (**self).elicit(server, ask).await
    }

    fn takes_urls(&self) -> bool {
        (**self).takes_urls()
    }
}

/// What a server wants a person to do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitAsk {
    /// To fill in a form.
    Form(ElicitForm),
    /// To go to an address. What happens there stays between person and server.
    Url(ElicitUrl),
}

/// A form: some fields, each of which is a word, a number, a yes or no, or a choice.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ElicitForm {
    /// What it is about, in the server's words.
    pub message: String,
    /// The fields, as the JSON Schema of an object whose properties have no parts of their own.
    pub schema: Value,
}

/// An address to go to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElicitUrl {
    /// What it is about, in the server's words.
    pub message: String,
    /// The address: `https` or `http`.
    pub url: String,
    /// By which the server tells that it is done.
    pub id: String,
}

/// What a person said to it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitReply {
    /// Yes, and what was filled in. It is completed and checked before it is sent; nothing of it
    /// is, when it does not fit the form. For an address it is empty.
    Accept(Map<String, Value>),
    /// No.
    Decline,
    /// Nothing was decided.
    Cancel,
}

impl ElicitForm {
    /// A form.
    pub fn new(message: impl Into<String>, schema: Value) -> Self {
        Self {
            message: message.into(),
            schema,
        }
    }

    /// Puts the defaults of the form into fields that are missing, and checks all of them.
    ///
    /// # Errors
    /// Everything that is wrong, each by the name of its field.
    ///
    /// ```
    /// # use levity_mcp::ElicitForm;
    /// # use serde_json::json;
    /// let form = ElicitForm::new("Where to?", json!({
    ///     "type": "object",
    ///     "properties": {"city": {"type": "string", "default": "Oslo"}, "days": {"type": "integer", "minimum": 1}},
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
    /// An address.
    pub fn new(message: impl Into<String>, url: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            url: url.into(),
            id: id.into(),
        }
    }
}

/// Says no to everything: for programs that have nobody to ask.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decline;

#[async_trait]
impl Elicitor for Decline {
    async fn elicit(&self, _: &str, _: ElicitAsk) -> ElicitReply {
        ElicitReply::Decline
    }
}

/// Accepts forms that their defaults fill, and says no to all else: for tests, and for servers that
/// are trusted to ask nothing harmful.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptDefaults;

#[async_trait]
impl Elicitor for AcceptDefaults {
    async fn elicit(&self, _: &str, ask: ElicitAsk) -> ElicitReply {
        match ask {
            ElicitAsk::Form(form) => form
                .complete(Map::new())
                .map_or(ElicitReply::Decline, ElicitReply::Accept),
            ElicitAsk::Url(_) => ElicitReply::Decline,
        }
    }
}
